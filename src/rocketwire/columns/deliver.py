"""Sends frames, several at once, until every row has its answer.

Rows that may go anywhere follow the producer's own policy: round robin over the brokers that are
well. Rows that belong to one queue go there one request after the other. What fails is sent again
until the delivery timeout; what becomes of each attempt is judged by the producer's policy, not
here.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final, cast

from rocketwire.columns.client_parts import ClientParts, pause_after
from rocketwire.columns.encode import Frame, Single
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.sender import Sender
from rocketwire.errors import Outcome, SendFailedError
from rocketwire.message import Message, MessageQueue
from rocketwire.wire.batch import first_properties
from rocketwire.wire.send_properties import id_of

_THREADS: Final = 8
_HELD_BYTES: Final = 16 * 1024 * 1024
#: A frame gets so many times the time of a message: it is a megabyte, several share the line, and
#: one that is given up too early puts all of its thousands of rows into the topic again.
_FRAME_PATIENCE: Final = 4
#: More than the first property takes, whichever kind of address is in the id.
_ID_SIZE: Final = 80

Part = Frame | Single


@dataclass(slots=True)
class DeliveryReport:
    """What was sent. ``may_repeat`` counts rows that may be in the topic twice."""

    rows: int = 0
    bytes: int = 0
    retries: int = 0
    may_repeat: int = 0
    by_broker: Counter[str] = field(default_factory=Counter)


class Deliverer:
    """Sends parts in the background.

    Args:
        parts: the inside of the producer.
        sender: its policy.
        timeout: how long a part is tried.
    """

    def __init__(self, parts: ClientParts, sender: Sender, *, timeout: float = 120.0) -> None:
        self._parts = parts
        self._sender = sender
        self._timeout = timeout
        lock = threading.Lock()
        #: Something has its answer. The caller waits for it; threads that send have no need to wake up.
        self._changed = threading.Condition(lock)
        #: There is something to send, or never again.
        self._more = threading.Condition(lock)
        self._ready: deque[Part] = deque()
        #: Parts of a queue that wait for the one under way; a queue without any is not in here.
        self._behind: dict[MessageQueue, deque[Part]] = {}
        self._held_bytes = 0
        self._held = 0
        self._threads = 0
        self._idle = 0
        self._error: Exception | None = None
        self._is_closed = False
        self.report = DeliveryReport()

    def put(self, part: Part) -> None:
        """Hand a part over; waits while too many bytes are without an answer.

        Raises:
            SendFailedError: an earlier part could not be delivered.
        """
        size = len(part.body)
        with self._changed:
            while self._held and self._held_bytes + size > _HELD_BYTES and self._error is None:
                self._changed.wait()
            self._raise_error()
            self._held += 1
            self._held_bytes += size
            waiting = None if part.queue is None else self._behind.get(part.queue)
            if waiting is not None:
                waiting.append(part)
                return
            if part.queue is not None:
                self._behind[part.queue] = deque()
            self._ready.append(part)
            if self._idle < len(self._ready) and self._threads < _THREADS:
                self._add_thread()
            self._more.notify()

    def _add_thread(self) -> None:
        """Have one more at work. Where the system has none for us now, those that are there serve.

        Raises:
            SendFailedError: none is there.
        """
        thread = threading.Thread(target=self._work, name="rocketwire-send", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                self._ready.clear()
                self._behind.clear()
                self._error = SendFailedError(f"not sent: {error}")
                self._raise_error()
        else:
            self._threads += 1

    def finish(self) -> DeliveryReport:
        """Wait until everything has its answer.

        Raises:
            SendFailedError: something could not be delivered.
        """
        with self._changed:
            while self._held and self._error is None:
                self._changed.wait()
            self._close()
            self._raise_error()
        return self.report

    def cancel(self) -> None:
        """Send nothing more; what is under way is left to itself."""
        with self._changed:
            self._drop_all()

    def _close(self) -> None:
        self._is_closed = True
        self._more.notify_all()
        self._changed.notify_all()

    def _drop_all(self) -> None:
        self._ready.clear()
        self._behind.clear()
        self._close()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (part := self._next()) is not None:
            error: Exception | None = None
            broker = ""
            try:
                broker = self._deliver(part)
            except Exception as failed:  # noqa: BLE001 - the caller must hear of it, whatever it is
                error = failed
            self._settle(part, broker, error)

    def _next(self) -> Part | None:
        with self._changed:
            self._idle += 1
            while not self._ready and not self._is_closed:
                self._more.wait()
            self._idle -= 1
            if self._ready:
                return self._ready.popleft()
            self._threads -= 1
            return None

    def _settle(self, part: Part, broker: str, error: Exception | None) -> None:
        with self._changed:
            self._held -= 1
            self._held_bytes -= len(part.body)
            if error is None:
                count = _rows_of(part)
                self.report.rows += count
                self.report.bytes += len(part.body)
                self.report.by_broker[broker] += count
            if error is not None and self._error is None:
                self._error = error
                self._drop_all()
            self._release(part.queue)
            self._changed.notify_all()

    def _release(self, queue: MessageQueue | None) -> None:
        """The next part of a queue may go: by the thread that calls, which is free now."""
        waiting = None if queue is None else self._behind.get(queue)
        if waiting:
            self._ready.append(waiting.popleft())
        elif waiting is not None and queue is not None:
            del self._behind[queue]

    def _deliver(self, part: Part) -> str:
        """Send a part until it is stored; returns by which broker."""
        clock = self._parts.clock
        deadline = clock() + self._timeout
        failures, retries, may_repeat = 0, 0, False
        while True:
            attempt = self._start(part, deadline - clock())
            try:
                result = self._parts.run(attempt.operation())
            except SendFailedError as error:
                may_repeat = may_repeat or error.outcome is Outcome.MAYBE_STORED
                failures += 1
                retries += max(1, len(error.attempts))
                if self._is_closed:  # nobody waits for it any more
                    raise
                if clock() >= deadline or not self._sender.may_succeed_later(error):
                    raise _with_rows(error, part) from error
            else:
                history = attempt.history
                if history is not None and history.attempts:
                    retries += len(result.attempts)
                    may_repeat = may_repeat or result.maybe_duplicate
                self._count(part, retries, may_repeat=may_repeat)
                # The result tells the broker, too; but its answer lists an id for each of thousands
                # of rows, so it is read only where it must be.
                last = None if history is None else history.last
                return result.queue.broker if last is None else last.where.broker
            self._pause(pause_after(failures))

    def _send_timeout(self, part: Part) -> float:
        """How long one send may take, with all its tries."""
        own = self._sender.config.send_timeout
        return own * _FRAME_PATIENCE if isinstance(part, Frame) else own

    def _count(self, part: Part, retries: int, *, may_repeat: bool) -> None:
        if retries or may_repeat:
            with self._changed:
                self.report.retries += retries
                self.report.may_repeat += _rows_of(part) if may_repeat else 0

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if not self._is_closed:
                self._changed.wait_for(lambda: self._error is not None, seconds)

    def _start(self, part: Part, left: float) -> SendAttempt:
        timeout = max(0.001, min(self._send_timeout(part), left))
        ids = (_first_id(part),)
        if isinstance(part, Frame):
            # Hooks and telemetry look at messages; what they need of a row is its topic and count.
            return self._sender.start_encoded(
                Message(part.topic, b"-"),
                # Requests take a view as well as bytes; it saves a copy of each frame.
                cast("bytes", part.body),
                ids=ids,
                rows=len(part.rows),
                properties=b"",
                timeout=timeout,
                queue=part.queue,
            )
        encoder, body, system_flag = self._sender.encoder, part.body, 0
        if encoder.is_compressed(Message(part.topic, body)):
            body, system_flag = encoder.compress(body)
        return self._sender.start_encoded(
            Message(part.topic, b"-", flag=part.flag),
            body,
            ids=ids,
            rows=None,
            properties=part.properties,
            system_flag=system_flag,
            timeout=timeout,
            queue=part.queue,
        )


def _first_id(part: Part) -> str:
    """The id of the first row: telemetry tells sends apart by it."""
    if isinstance(part, Single):
        return id_of(part.properties)
    return id_of(first_properties(part.body, _ID_SIZE))


def _rows_of(part: Part) -> int:
    return len(part.rows) if isinstance(part, Frame) else 1


def _with_rows(error: SendFailedError, part: Part) -> SendFailedError:
    if isinstance(part, Frame):
        which = f"rows {part.rows[0]} to {part.rows[-1]} ({len(part.rows)} rows)"
    else:
        which = f"row {part.row}"
    return type(error)(
        f"topic {part.topic}, {which}: {error}", attempts=error.attempts, outcome=error.outcome
    )
