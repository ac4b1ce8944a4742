"""Runs operations over blocking sockets, in the thread that asks. The only place that waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, assert_never

from rocketwire.core.effects import Effect, Invoke, InvokeAll, Oneway, Op, Send, Sleep, Wait
from rocketwire.core.sending import finish
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.errors import ConnectionLostError, ProtocolError, RocketMQError, TransportError
from rocketwire.message import SendResult
from rocketwire.sync.connection import JOIN_BELOW, POLLIN, Connection, Pool, wait_for
from rocketwire.system.latch import Latch
from rocketwire.wire.command import Reply

T = TypeVar("T")

#: Answers to this many pipelined requests fit into the socket buffers of both sides, so that
#: writing them all before reading any can't get stuck.
_PIPELINE = 64


class Driver:
    """Interprets effects.

    Args:
        pool: its connections.
        clock: the clock of the operations.
        must_not_wait: whether waiting would deadlock, because this thread runs a hook or a signal handler.
    """

    def __init__(
        self,
        pool: Pool,
        clock: Callable[[], float],
        must_not_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._must_not_wait = must_not_wait

    def run(self, operation: Op[T]) -> T:
        """Run an operation to its end."""
        return self._run(operation, operation.send, None)

    def send(self, attempt: SendAttempt) -> SendResult:
        """Carry a send out: write its attempt, finish it, or go on with its operation.

        Raises:
            SendFailedError: its ``outcome`` tells whether the message may be stored all the same.
        """
        pool, target = self._pool, attempt.target
        found: bytes | Reply | RocketMQError
        # Three blocks in one method, because blocks cost nothing while nothing is raised, and each call costs
        # 50 ns: the inner one keeps the connection from leaking, the middle one turns an error into what the
        # operation goes on with, and the outer one releases the key slots, whatever ends the send.
        try:
            if target is None:
                return self.run(attempt.operation())
            try:
                connection = pool.take(target.address, attempt.deadline, attempt.began)
                try:
                    found = connection.exchange(attempt)
                    pool.give_back(connection)
                except BaseException:
                    pool.discard(connection)
                    raise
                if type(found) is bytes:
                    if not attempt.sender.tells:
                        return finish.stored(attempt, found, connection.used_at)
                    found = Reply(found)  # hooks want it read, which is the operation's business
                    found.arrived = connection.used_at
            except RocketMQError as error:
                found = error
            except BaseException:  # the thread is interrupted: the send ends where it stands
                attempt.give_up()
                raise
            return self._go_on(attempt.operation(), found)
        except BaseException:
            finish.leave_order(attempt)  # an interrupt may come at any moment
            raise

    def send_oneway(self, attempt: SendAttempt) -> None:
        """Write an attempt that gets no answer.

        Raises:
            SendFailedError: it could not even be written.
        """
        try:
            if attempt.target is None:
                self.run(attempt.sender.oneway(attempt))
                return
            error = self._write_oneway(attempt)
            if error is None:
                finish.written_oneway(attempt, self._clock())
            else:
                self._go_on(attempt.sender.oneway(attempt), error)
        except BaseException:
            finish.leave_order(attempt)
            raise

    def _write_oneway(self, attempt: SendAttempt) -> RocketMQError | None:
        pool = self._pool
        try:
            connection = pool.take(attempt.where.address, attempt.deadline, attempt.began)
            try:
                connection.write_oneway(attempt, attempt.deadline, None)
                pool.give_back(connection)
            except BaseException:
                pool.discard(connection)
                raise
        except RocketMQError as error:
            return error
        except BaseException:
            attempt.give_up()
            raise
        return None

    def _go_on(self, operation: Op[T], answer: object) -> T:
        """Run an operation whose first effect was done already, and came to this."""
        try:
            next(operation)
        except BaseException:
            operation.close()
            raise
        is_error = isinstance(answer, RocketMQError)
        return self._run(operation, operation.throw if is_error else operation.send, answer)

    def _run(self, operation: Op[T], step: Callable[[Any], Effect], answer: object) -> T:
        try:
            effect = step(answer)
            while True:
                try:
                    answer = self._perform(effect)
                except RocketMQError as error:
                    effect = operation.throw(error)
                else:
                    effect = operation.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            operation.close()

    def _invoke(self, effect: Invoke) -> Reply:
        connection = self._pool.take(effect.address, effect.deadline)
        try:
            reply = connection.call(effect.request, effect.deadline, effect.observer)
            self._pool.give_back(connection)
        except BaseException:
            self._pool.discard(connection)
            raise
        return reply

    def _perform(self, effect: Effect) -> object:
        if type(effect) is Invoke:
            return self._invoke(effect)
        if type(effect) is Send:
            return self.send(effect.attempt)
        if type(effect) is Oneway:
            self._oneway(effect)
            return None
        if type(effect) is Wait:
            return self._wait(effect)
        if type(effect) is Sleep:
            time.sleep(max(0.0, effect.until - self._clock()))
            return None
        if type(effect) is InvokeAll:
            return self._invoke_all(effect)
        assert_never(effect)

    def _oneway(self, effect: Oneway) -> None:
        connection = self._pool.take(effect.address, effect.deadline)
        try:
            connection.write_oneway(effect.request, effect.deadline, effect.observer)
            self._pool.give_back(connection)
        except BaseException:
            self._pool.discard(connection)
            raise

    def _wait(self, effect: Wait) -> bool:
        event = effect.event
        if not event.is_set and (event.setter == threading.get_ident() or self._must_not_wait()):
            # Only the interrupted code further down this stack can set the event: waiting would deadlock.
            return False
        latch = Latch()
        event.add_waiter(latch.open)
        return latch.wait(effect.deadline - self._clock())

    def _invoke_all(self, effect: InvokeAll) -> list[Reply | RocketMQError]:
        """Pipelined: all requests to one address on one connection, all written, then all read."""
        results: list[Reply | RocketMQError | None] = [None] * len(effect.invokes)
        for start in range(0, len(effect.invokes), _PIPELINE):
            rows: dict[str, _Row] = {}
            try:
                for index in range(start, min(start + _PIPELINE, len(effect.invokes))):
                    invoke = effect.invokes[index]
                    row = rows.setdefault(invoke.address, _Row(self._pool, results))
                    row.write(index, invoke)
                for row in rows.values():
                    row.flush()
                self._read_rows([row for row in rows.values() if row.waiting])
            except BaseException:
                for row in rows.values():
                    row.close()
                raise
        return [r if r is not None else TransportError("no answer") for r in results]

    def _read_rows(self, rows: list[_Row]) -> None:
        """Read whichever has an answer first, so that a slow broker does not age the others'."""
        while rows:
            limit = max(0.0, min(row.deadline for row in rows) - self._clock())
            ready = [row for row in rows if row.has_more()]
            if not ready:
                ready = wait_for(rows, POLLIN, limit)
            for row in ready or [row for row in rows if row.deadline <= self._clock()]:
                row.read()
            rows = [row for row in rows if row.waiting]


class _Row:
    """Requests in a row on one connection."""

    def __init__(self, pool: Pool, results: list[Reply | RocketMQError | None]) -> None:
        self._pool = pool
        self._results = results
        self._connection: Connection | None = None
        self._failure: RocketMQError | None = None
        #: Requests that leave together, by their numbers.
        self._held: dict[int, bytes] = {}
        self.waiting: dict[int, Invoke] = {}
        self._indexes: dict[int, int] = {}

    @property
    def deadline(self) -> float:
        """The first moment at which a request of this row is overdue."""
        return min(invoke.deadline for invoke in self.waiting.values())

    def fileno(self) -> int:
        """For polling."""
        return self._connection.fileno() if self._connection is not None else -1

    def has_more(self) -> bool:
        """Whether an answer is in memory already."""
        return self._connection is not None and self._connection.has_more()

    def close(self) -> None:
        """Give up."""
        if self._connection is not None:
            self._pool.discard(self._connection)

    def write(self, index: int, invoke: Invoke) -> None:
        """Write one request; a failure stands for it and for those behind it.

        Small ones that nobody observes are held until all of the row are known: a system call for each
        is most of what a pull costs. Of a send it must be told when it left, and whether.
        """
        is_held = invoke.observer is None and len(invoke.request.body) < JOIN_BELOW
        if not is_held:
            self.flush()
        if self._failure is not None:
            self._results[index] = ConnectionLostError(str(self._failure))
            return
        try:
            if self._connection is None:
                self._connection = self._pool.take(invoke.address, invoke.deadline)
            if is_held:
                opaque, head = self._connection.session.issue(invoke.request)
                self._held[opaque] = head + invoke.request.body
            else:
                opaque = self._connection.write(invoke.request, invoke.deadline, invoke.observer)
        except (TransportError, ProtocolError) as error:
            self._failure = self._results[index] = error
            if not self.waiting:  # nobody will read from it
                self.close()
        else:
            self.waiting[opaque] = invoke
            self._indexes[opaque] = index

    def flush(self) -> None:
        """Write what was held; a failure stands for all of it."""
        held, self._held = self._held, {}
        if not held or self._connection is None:
            return
        limit = min([self.waiting[opaque].deadline for opaque in held])
        try:
            self._connection.write_frames(list(held.values()), limit)
        except (TransportError, ProtocolError) as error:
            self._failure = error
            for opaque in held:
                self._results[self._indexes[opaque]] = error
                del self.waiting[opaque]
            if not self.waiting:
                self.close()

    def read(self) -> None:
        """Take one answer, or the end of the connection."""
        if self._connection is None:
            return
        try:
            reply = self._connection.read(self.deadline)
        except (TransportError, ProtocolError) as error:
            for opaque in self.waiting:
                self._results[self._indexes[opaque]] = error
            self.waiting.clear()
            self._connection.close()
            return
        if self.waiting.pop(reply.opaque, None) is not None:
            self._results[self._indexes[reply.opaque]] = reply
        if not self.waiting:
            if self._failure is None:
                self._pool.give_back(self._connection)
            else:
                self._connection.close()
            self._connection = None  # another thread may use it now
