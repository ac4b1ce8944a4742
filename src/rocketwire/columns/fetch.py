"""Reads ranges of queues as fast as brokers give them.

One thread per broker keeps a row of pulls under way on one connection and puts bodies aside, up
to a limit, while the caller decodes. Which pulls is decided by ``cursor``; what to do when
messages are gone, or a broker is, is decided here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from rocketwire.columns.client_parts import ClientParts, pause_after
from rocketwire.columns.cursor import RangeCursor
from rocketwire.columns.lost_messages import DataLossError, what_is_there
from rocketwire.columns.offset_check import Accounts, FetchPolicy
from rocketwire.columns.record_starts import PullBody
from rocketwire.columns.reply_buffers import Answer, ReplyReader
from rocketwire.core.lookup import refresh_topic
from rocketwire.core.naming import with_namespace
from rocketwire.core.reading.queue_pulls import QueuePulls
from rocketwire.errors import (
    BrokerError,
    ConnectFailedError,
    PermissionDeniedError,
    ProtocolError,
    RocketMQError,
    TransportError,
)
from rocketwire.message import MessageQueue
from rocketwire.sync.connection import Connection
from rocketwire.wire.codes import RETRYABLE, RequestCode, ResponseCode, error_for
from rocketwire.wire.headers import PullReply, decode_pull_reply
from rocketwire.wire.pull_request import next_offset_of
from rocketwire.wire.route import MASTER_ID

_ROW: Final = 64
_HELD_BYTES: Final = 12 * 1024 * 1024


class QueueSpan(NamedTuple):
    """Messages of one queue from ``start`` up to, not including, ``end``."""

    queue: MessageQueue
    start: int
    end: int


def fetch_spans(
    parts: ClientParts, spans: Iterable[QueueSpan], policy: FetchPolicy
) -> Iterator[PullBody]:
    """The bodies of all spans; those of one queue in order, queues side by side.

    Raises:
        DataLossError: messages are gone, and the policy minds.
        TransportError: a broker could not be reached for too long.
        BrokerError: a broker refused.
    """
    wanted = [span for span in spans if span.end > span.start]

    def again(queue: MessageQueue, start: int, end: int) -> Iterator[PullBody]:
        return _fetch(parts, [QueueSpan(queue, start, end)], policy, accounts)

    accounts = Accounts(parts, policy, again)
    return _fetch(parts, wanted, policy, accounts)


def _fetch(
    parts: ClientParts, wanted: Sequence[QueueSpan], policy: FetchPolicy, accounts: Accounts
) -> Iterator[PullBody]:
    store = _Store()
    brokers = sorted({span.queue.broker for span in wanted})
    try:
        for broker in brokers:
            mine = [span for span in wanted if span.queue.broker == broker]
            store.start(_BrokerReader(parts, store, broker, mine, policy, accounts).run)
        yield from store.take_all()
    finally:
        store.stop()


class _Store:
    """Bodies between the threads that fetch and the one that decodes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._bodies: deque[PullBody] = deque()
        self._held = 0
        self._running = 0
        self._error: BaseException | None = None
        self.is_stopped = False

    def start(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._running += 1
        threading.Thread(
            target=self._run, args=(work,), name="rocketwire-fetch", daemon=True
        ).start()

    def _run(self, work: Callable[[], None]) -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as caught:  # noqa: BLE001 - it is raised again by the reader
            error = caught
        with self._changed:
            self._running -= 1
            self._error = self._error or error
            self._changed.notify_all()

    def put(self, bodies: Sequence[PullBody]) -> None:
        """Add bodies; waits while too many bytes wait to be decoded."""
        size = sum(len(part.body) for part in bodies)
        with self._changed:
            while self._held + size > _HELD_BYTES and self._held and not self.is_stopped:
                self._changed.wait()
            self._bodies.extend(bodies)
            self._held += size
            self._changed.notify_all()

    def _release(self, size: int) -> None:
        with self._changed:
            self._held -= size
            self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        with self._changed:
            if not self.is_stopped:
                self._changed.wait(seconds)

    def stop(self) -> None:
        with self._changed:
            self.is_stopped = True
            self._changed.notify_all()

    def take_all(self) -> Iterator[PullBody]:
        while True:
            with self._changed:
                while not self._bodies and self._running and self._error is None:
                    self._changed.wait()
                taken, self._bodies = self._bodies, deque()
                error, is_over = self._error, not self._running
            is_empty = not taken
            # Nothing that was handed on is held here: a body keeps a whole buffer alive.
            while taken:
                size = len(taken[0].body)
                yield taken.popleft()
                self._release(size)
            if error is not None:
                raise error
            if is_over and is_empty:
                return


class _BrokerReader:
    """Reads spans of queues of one broker over one connection at a time."""

    def __init__(
        self,
        parts: ClientParts,
        store: _Store,
        broker: str,
        spans: Sequence[QueueSpan],
        policy: FetchPolicy,
        accounts: Accounts,
    ) -> None:
        self._parts = parts
        self._store = store
        self._broker = broker
        self._policy = policy
        self._accounts = accounts
        self._cursors = [
            RangeCursor(*span, is_filtered=policy.is_filtered, accounts=accounts) for span in spans
        ]
        self._templates = {
            span.queue: QueuePulls(parts.instance, span.queue, policy.group, policy.tags)
            for span in spans
        }
        self._sent: dict[int, tuple[RangeCursor, int]] = {}
        self._progress_at = parts.clock()
        self._failures = 0

    def run(self) -> None:
        while not self._is_over():
            try:
                self._run_on_one_connection()
            except (TransportError, ProtocolError) as error:
                self._give_back_unanswered()
                self._wait_or_fail(error)

    def _is_over(self) -> bool:
        return self._store.is_stopped or all(cursor.is_done for cursor in self._cursors)

    def _run_on_one_connection(self) -> None:
        address = self._address()
        connection = self._parts.pool.take(address, self._limit())
        answers = ReplyReader(connection, self._parts.clock)
        try:
            while not self._is_over():
                self._send_pulls(connection)
                self._take_answer(answers)
                # What is here already is read before more is asked for, so that the next pulls
                # go out together.
                while answers.has_more() and not self._is_over():
                    self._take_answer(answers)
        except BaseException:
            connection.close()
            raise
        # Answers may still be under way when the caller has had enough.
        if self._sent or not answers.is_empty:
            connection.close()
        else:
            self._parts.pool.give_back(connection)

    def _limit(self) -> float:
        return self._parts.clock() + min(self._policy.timeout, self._parts.request_timeout)

    def _address(self) -> str:
        """The master, or after a failure a slave, if there is one."""
        instance = self._parts.instance
        known = instance.routes.addresses_of(self._broker)
        if not known or self._failures:
            for topic in sorted({cursor.queue.topic for cursor in self._cursors}):
                name = with_namespace(topic, instance.config.namespace)
                self._parts.run(refresh_topic(instance, name, self._limit()))
            known = instance.routes.addresses_of(self._broker)
        if not known:
            raise ConnectFailedError(
                f"broker {self._broker} is not registered with any name server"
            )
        in_turn = sorted(known, key=lambda number: (number != MASTER_ID, number))
        return known[in_turn[self._failures % len(in_turn)]]

    def _send_pulls(self, connection: Connection) -> None:
        active = [cursor for cursor in self._cursors if not cursor.is_done]
        share = max(1, (_ROW - len(self._sent)) // max(1, len(active)))
        frames: list[bytes] = []
        for cursor in active:
            template = self._templates[cursor.queue]
            for offset, count in cursor.next_pulls(min(share, _ROW - len(self._sent))):
                number, head = connection.session.issue(template.request(offset, count))
                frames.append(head)
                self._sent[number] = (cursor, offset)
        if frames:
            connection.write_frames(frames, self._limit())

    def _take_answer(self, answers: ReplyReader) -> None:
        answer = answers.read(self._limit())
        found = self._sent.pop(answer.reply.opaque, None)
        if found is None:  # late
            return
        cursor, offset = found
        before = cursor.position
        try:
            self._read(answer, cursor, offset)
        except (TransportError, ProtocolError):
            # It is asked again, or nobody would ever ask for it.
            if cursor.is_under_way(offset):
                cursor.unanswered(offset)
            raise
        if ready := list(cursor.ready()):
            self._store.put(ready)
        if cursor.position > before:
            self._progress_at = self._parts.clock()
            self._failures = 0

    def _read(self, answer: Answer, cursor: RangeCursor, offset: int) -> None:
        reply, code = answer.reply, answer.reply.code
        if code == ResponseCode.SUCCESS:
            next_offset, delta = next_offset_of(reply)
            if not len(answer.body):
                self._go_on(cursor, offset, next_offset)
                return
            cursor.answered(
                offset,
                next_offset,
                answer.body,
                offset_delta=delta,
                buffer=answer.buffer,
                at=answer.at,
            )
        elif code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            self._go_on(cursor, offset, decode_pull_reply(reply.ext).next_offset)
        elif code in {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED}:
            self._missing(decode_pull_reply(reply.ext), cursor, offset)
        else:
            cursor.unanswered(offset)
            asked = RequestCode.PULL_MESSAGE
            error = error_for(code, reply.remark, self._broker, asked=asked)
            if code not in RETRYABLE or isinstance(error, PermissionDeniedError):
                raise error
            self._wait_or_fail(error)

    def _go_on(self, cursor: RangeCursor, offset: int, next_offset: int) -> None:
        """The broker has nothing to give here, and says where to go on."""
        if next_offset <= offset:
            cursor.unanswered(offset)
            self._wait_or_fail(
                ConnectFailedError(f"{self._broker} has nothing at {offset} of {cursor.queue} yet")
            )
            return
        skipped = range(offset, min(next_offset, cursor.end))
        self._accounts.account_for(cursor.queue, skipped, next_offset)
        cursor.answered(offset, next_offset, b"")

    def _missing(self, place: PullReply, cursor: RangeCursor, offset: int) -> None:
        """The queue does not have the offset: not any more, or not yet, or never again."""
        if offset < place.min_offset:
            to = min(place.min_offset, cursor.end)
            self._report_loss(cursor.queue, offset, to, place)
            cursor.skip(offset, to)
            return
        cursor.unanswered(offset)
        if place.max_offset <= offset < cursor.end and self._has_waited_long():
            first = max(place.max_offset, cursor.position)
            self._report_loss(cursor.queue, first, cursor.end, place)
            cursor.end_at(first)
        elif offset < cursor.end:
            # A slave that is behind, or a broker that is still recovering.
            self._wait_or_fail(
                ConnectFailedError(f"{self._broker} has no offset {offset} of {cursor.queue} yet")
            )

    def _has_waited_long(self) -> bool:
        """Whether a master that just came back has had time to recover."""
        waited = self._parts.clock() - self._progress_at
        return waited > min(5.0, self._policy.timeout / 2)

    def _report_loss(self, queue: MessageQueue, first: int, end: int, place: PullReply) -> None:
        text = (
            f"topic {queue.topic}, broker {queue.broker}, queue {queue.id}: offsets {first} to "
            f"{end - 1} are gone; {what_is_there(place.min_offset, place.max_offset)}"
        )
        self._policy.tell_of_loss(text)

    def _give_back_unanswered(self) -> None:
        for cursor, offset in self._sent.values():
            cursor.unanswered(offset)
        self._sent.clear()

    def _wait_or_fail(self, error: RocketMQError) -> None:
        waited = self._parts.clock() - self._progress_at
        if waited > self._policy.timeout:
            if isinstance(error, BrokerError):
                raise error
            raise type(error)(
                f"broker {self._broker}: {error} (no progress for {waited:.0f} s)"
            ) from error
        self._failures += 1
        self._store.pause(pause_after(self._failures))


__all__ = ["DataLossError", "FetchPolicy", "QueueSpan", "fetch_spans"]
