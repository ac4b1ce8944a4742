"""One multiplexed connection to a server.

Everything that is written in one tick of the loop leaves in one ``write``; replies wake their
waiters right where they are read. The connection keeps its own line of requests that it could not
hand over yet (while connecting, or while the peer does not read), so that a request whose deadline
comes there is known not to have been sent. One timer serves all deadlines.

Which connection serves an address, and what a failure means, is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from operator import call
from typing import Final, cast

from rocketwire.aio.responding import Responder, answer, refuse
from rocketwire.aio.waiter import (
    Call,
    SendWaiter,
    Waiter,
    fail_each,
    finish_stored,
    number_together,
    tell_unwritten,
)
from rocketwire.core.durations import span
from rocketwire.core.effects import Observer, Oneway
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.tell_each import tell_each
from rocketwire.errors import (
    ConnectFailedError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeoutError,
)
from rocketwire.system.socket_tuning import tune
from rocketwire.system.unreachable import could_not_connect, in_words, shut_down, too_slow, was_lost
from rocketwire.wire.command import RESPONSE, Command, Reply, Request
from rocketwire.wire.framing import MAX_FRAME
from rocketwire.wire.send_request import ended_by
from rocketwire.wire.session import SharedSession

_log = logging.getLogger("rocketwire.aio")

#: Brokers close a connection at 120 s; one that was silent for half of that is not trusted.
IDLE_LIMIT: Final = 60.0
#: A connection on which nothing came for this long after a request is given up.
_SILENCE: Final = 0.5
#: Bytes gathered in one tick before they are written without waiting for its end.
_GATHER: Final = 64 * 1024
#: Pieces of this size on average are written as they are: copies of batches of 128 KiB make the
#: allocator return memory and ask for it again, for up to a tenth of a batch's CPU time.
_LARGE: Final = 16 * 1024
#: A sweep looks at every request in flight. Spacing sweeps by this much for each of them keeps the
#: cost under a tenth of the time, for a lateness of 10 ms when 10,000 are in flight.
_SWEEP_SPACING: Final = 1e-6
#: Loops round timers to a millisecond, so a timer may come early; then this is the next wait.
_SHORTEST_TIMER: Final = 0.001


class Connection(asyncio.Protocol):
    """A connection, from the moment at which it is wanted.

    ``is_ready`` tells whether ``issue`` may be called; ``enqueue`` may always be, until
    ``is_over``.
    """

    def __init__(
        self,
        address: str,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        on_over: Callable[[Connection], None],
        responder: Responder = refuse,
        limit: int = MAX_FRAME,
    ) -> None:
        """Begin in the state of connecting.

        Args:
            address: for texts.
            loop: the loop whose protocol this is.
            clock: the clock on which deadlines are.
            on_over: called once, when no further request may be given to this connection.
            responder: answers requests of the peer.
            limit: the largest frame accepted.
        """
        self.address = address
        self.is_ready = False
        self.is_over = False
        #: The name of the host, while its addresses are not known.
        self.looked_up: str | None = None
        self.session: SharedSession[Waiter] = SharedSession(limit)
        self.closed: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._call_soon = loop.call_soon
        self._clock = clock
        self._on_over = on_over
        self._responder = responder
        self._transport: asyncio.Transport | None = None
        self._began = self._last_used = self._last_heard = clock()
        self._line: OrderedDict[Waiter, Call] = OrderedDict()
        self._out: list[bytes | memoryview] = []
        self._out_size = 0
        self._gathered: list[SendWaiter] = []
        self._sweep_at = math.inf
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._broken: RemoteProtocolError | None = None
        self._is_paused = False
        self._is_silent = False

    # -- requests ---------------------------------------------------------------------------

    def issue(
        self, waiter: Waiter, request: Request, deadline: float, observer: Observer | None
    ) -> bool:
        """Write a request; ``waiter`` waits for its reply. Only while ``is_ready``.

        Returns:
            False if nothing was done, because the connection was idle for too long to be trusted.

        Raises:
            LocalProtocolError: the request fits into no frame; the connection is unharmed.
        """
        now = self._clock()
        if now - self._last_used > IDLE_LIMIT and self.is_stale():
            return False
        self._last_used = now
        session = self.session
        head = session.issue_for(waiter, request)
        waiter.connection, waiter.deadline, waiter.issued = self, deadline, now
        self._write(head, request.body)
        if deadline < self._sweep_at:
            self._arm(deadline - now, deadline)
        if observer is not None:
            observer.written(now, session.unanswered)
        return True

    def gather(self, waiter: SendWaiter, attempt: SendAttempt) -> bool:
        """Write an attempt at the end of this tick, with all others of it. Only while ``is_ready``.

        Done for many at once, numbering, heads and the fault table's notes take half the time.

        Returns:
            False if nothing was done, because the connection was idle for too long to be trusted.
        """
        gathered = self._gathered
        if not gathered:
            if attempt.began - self._last_used > IDLE_LIMIT and self.is_stale():
                return False
            if not self._out:
                self._call_soon(self._flush)
        gathered.append(waiter)
        waiter.connection = self
        waiter.opaque = 0
        size = self._out_size = self._out_size + len(attempt.body)
        if size > _GATHER:
            self._flush()
        return True

    def _number_gathered(self) -> None:
        """Make requests of the gathered attempts: from here on they count as written."""
        waiters = self._take_gathered()
        if not waiters:
            self._out_size = sum(map(len, self._out))  # those that were given up count no more
            return
        now = self._last_used = self._clock()
        pieces, deadline, errors = number_together(self.session, waiters, now)
        self._out += pieces
        if deadline < self._sweep_at:
            self._arm(deadline - now, deadline)
        tell_unwritten(errors, self._call_soon)

    def write_oneway(self, request: Request, observer: Observer | None) -> None:
        """Write a request that gets no answer. Only while ``is_ready``.

        Raises:
            LocalProtocolError: the request fits into no frame; the connection is unharmed.
        """
        now = self._last_used = self._clock()
        self._write(self.session.issue_oneway(request), request.body)
        if observer is not None:
            observer.written(now, self.session.unanswered)

    def enqueue(self, waiter: Waiter, call: Call) -> None:
        """Write a request as soon as that is possible."""
        waiter.connection, waiter.opaque, waiter.deadline = self, 0, call.deadline
        self._line[waiter] = call
        if call.deadline < self._sweep_at:
            self._arm(call.deadline - self._clock(), call.deadline)

    def abandon(self, waiter: Waiter) -> None:
        """The waiter has gone. A reply that comes all the same is dropped."""
        if not waiter.opaque:
            self._line.pop(waiter, None)
        elif self.session.pending.get(waiter.opaque) is waiter:
            self.session.abandon(waiter.opaque)
            self._close_if_done()

    def is_stale(self) -> bool:
        """Whether it was silent for so long that the peer may have dropped it."""
        return (
            self._transport is not None
            and not self.session.pending
            and self._clock() - max(self._last_used, self._last_heard) > IDLE_LIMIT
        )

    @property
    def is_connected(self) -> bool:
        """Whether there is a socket, even one about to close."""
        return self._transport is not None

    @property
    def descriptor(self) -> int:
        """The number of the socket; -1 without one."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if sock is None else int(sock.fileno())

    # -- writing ----------------------------------------------------------------------------

    def _write(self, head: bytes, body: bytes | memoryview) -> None:
        if self._gathered:  # they came before it
            self._number_gathered()
        elif not self._out:
            self._call_soon(self._flush)
        self._out += (head, body)
        self._out_size += len(body)
        if self._out_size > _GATHER:
            self._flush()

    def _flush(self) -> None:
        if self._gathered:
            self._number_gathered()
        if self._out and self._transport is not None:
            out, size = self._out, self._out_size
            self._out, self._out_size = [], 0
            if size > _LARGE * len(out):
                # Not ``writelines``: in Python 3.12 and 3.13.0 it never says that there is enough.
                for piece in out:
                    self._transport.write(piece)
            else:
                self._transport.write(b"".join(out))

    def _advance_line(self) -> None:
        """Hand over what waits, until the transport has enough of it."""
        tell_each(self._next_in_line(), self._hand_over)

    def _next_in_line(self) -> Iterator[tuple[Waiter, Call]]:
        transport = self._transport
        while (
            self._line and not self._is_paused and not (transport is None or transport.is_closing())
        ):
            yield self._line.popitem(last=False)

    def _hand_over(self, waiting: tuple[Waiter, Call]) -> None:
        waiter, call = waiting
        self._last_used = self._clock()  # it was paused, not idle: the peer has just read
        try:
            if type(call) is not Oneway:
                self.issue(waiter, call.request, call.deadline, call.observer)
                return
            self.write_oneway(call.request, call.observer)
        except LocalProtocolError as error:
            waiter.fail(error)
        except BaseException as error:  # a function that gives the keys ends the program
            waiter.fail(ended_by(error))
            raise
        else:
            waiter.resume(None)

    # -- asyncio.Protocol -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected: write what waited for it."""
        # uvloop's transports have all of Transport's methods without being one.
        self._transport = stream = cast("asyncio.Transport", transport)
        self._last_used = self._last_heard = self._clock()
        tune(stream.get_extra_info("socket"))
        stream.set_write_buffer_limits(high=_GATHER)
        if self.is_over and not self._line:  # nobody wants it any more
            stream.abort()
            return
        self.is_ready = not self.is_over
        self._advance_line()

    def connect_failed(self, text: str, cause: BaseException | None = None) -> None:
        """No connection came about: all that waited are told."""
        if self._transport is not None:  # cut short just after it was made
            self._transport.abort()
            self.connection_lost(None)
            return
        self._finish()
        self._set_closed()
        waiters = list(self._line)
        self._line.clear()
        fail_each(waiters, partial(could_not_connect, f"{self.address} {text}", cause))

    def pause_writing(self) -> None:
        """The peer does not read fast enough."""
        self._is_paused = True
        self.is_ready = False

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._is_paused = False
        self.is_ready = not self.is_over
        self._advance_line()

    def data_received(self, data: bytes) -> None:
        """Wake those whose answers are in it."""
        now = self._last_heard = self._clock()
        try:
            stored, answers, asked = self.session.receive(data)
        except RemoteProtocolError as error:
            self._break(error)
            return
        try:
            if stored:
                finish_stored(cast("list[SendWaiter]", stored), now)
        finally:  # a hook or a callback ends the program: the others are told all the same
            self._resume_all(answers, asked, now)

    def _resume_all(
        self, answers: list[tuple[Waiter, Reply]], asked: list[Command], now: float
    ) -> None:
        for _, reply in answers:
            reply.arrived = now
        try:
            tell_each(answers, lambda answered: answered[0].resume(answered[1]))
        finally:
            tell_each(asked, self._answer)
            self._close_if_done()

    def connection_lost(self, exc: Exception | None) -> None:
        """All that wait are told at once."""
        self._finish()
        self._transport = None
        self._out.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._set_closed()
        ending = "closed the connection before it answered"
        if self._broken is not None:
            ending = f"was disconnected, because it broke the protocol: {self._broken}"
        elif exc is not None:
            ending = f"was lost before it answered: {in_words(exc)}"
        self._fail_all(f"{self.address} {ending}", self._broken or exc)

    def _fail_all(self, text: str, cause: BaseException | None) -> None:
        waiters, left = self.session.lose(), [*self._take_gathered(), *self._line]
        self._line.clear()
        try:
            fail_each(waiters, partial(was_lost, text, cause, written=True))
        finally:
            fail_each(left, partial(was_lost, text, cause, written=False))

    # -- the end ----------------------------------------------------------------------------

    def retire(self) -> None:
        """Take no further requests; close when the last one is settled."""
        self._finish()
        self._close_if_done()

    def dismiss(self, owner: object) -> None:
        """One of several clients closes: its requests get no answer any more."""
        pending = self.session.pending.values()
        waiters = [w for w in (*pending, *self._gathered, *self._line) if w.owner is owner]
        for waiter in waiters:
            self.abandon(waiter)
        fail_each(waiters, shut_down)

    def close(self) -> None:
        """The client closes: no answer is waited for any more, what is written still leaves."""
        self._finish()
        waiters = [*self.session.lose(), *self._take_gathered(), *self._line]
        self._line.clear()
        if self._transport is None:
            self._set_closed()
        self._close_if_done()
        fail_each(waiters, shut_down)

    def abort(self) -> None:
        """Close at once, whatever is still to be written."""
        self._finish()
        if self._transport is None:
            self._set_closed()
        else:
            self._transport.abort()

    def _take_gathered(self) -> list[SendWaiter]:
        """What was gathered, and is not written yet."""
        waiters = [waiter for waiter in self._gathered if not waiter.is_over]
        self._gathered = []
        return waiters

    def _set_closed(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def _finish(self) -> None:
        self.is_ready = False
        if not self.is_over:
            self.is_over = True
            self._on_over(self)

    def _close_if_done(self) -> None:
        if not self.is_over or self.session.pending or self._line or self._transport is None:
            return
        self._flush()
        if self.session.pending:  # some were still gathered
            return
        if self._is_silent:
            # A close would first wait for the peer to take what is buffered, maybe for ever.
            self._transport.abort()
        elif not self._transport.is_closing():
            # A second close makes asyncio's TLS transport deaf to the abort that may follow.
            self._transport.close()

    def _break(self, error: RemoteProtocolError) -> None:
        _log.warning("%s broke the protocol, its connection is closed: %s", self.address, error)
        self._broken = error
        if self._transport is not None:
            self._transport.abort()
        # The transport tells of the loss in the next tick; nobody may write to it until then.
        self._finish()

    # -- requests of the peer ---------------------------------------------------------------

    def _answer(self, command: Command) -> None:
        answer(self._responder, command, self.address, partial(self._send_answer, command))

    def _send_answer(self, command: Command, answer: Command) -> None:
        if command.is_oneway or self._transport is None:
            return
        answer.header = command.header
        self._write(answer.head(command.opaque, RESPONSE), answer.body)

    # -- deadlines --------------------------------------------------------------------------

    def _arm(self, delay: float, moment: float) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._sweep_at = moment
        self._sweep_timer = self._loop.call_later(max(delay, _SHORTEST_TIMER), self._sweep)

    def _sweep(self) -> None:
        """Tell those whose deadline has come, and set the timer for the next one."""
        self._sweep_timer, self._sweep_at = None, math.inf
        # First of all what was accepted in this tick, which counts as written.
        tell_each((self._flush, self._sweep_line, self._sweep_pending, self._sweep_later), call)

    def _sweep_later(self) -> None:
        """Set the timer for the next deadline."""
        self._close_if_done()
        now = self._clock()
        deadlines = [w.deadline for w in self.session.pending.values()]
        deadlines += [w.deadline for w in self._line]
        if deadlines:
            moment = max(min(deadlines), now + _SWEEP_SPACING * len(deadlines))
            if moment < self._sweep_at:
                self._arm(moment - now, moment)

    def _sweep_pending(self) -> None:
        pending, now = self.session.pending, self._clock()
        due = [(o, w) for o, w in pending.items() if w.deadline <= now]
        if any(self._last_heard < w.issued <= now - _SILENCE for _, w in due):
            # Not a byte since the request was written: the connection itself may be dead. Others
            # in flight keep their chance, new requests get a new connection.
            self._is_silent = True
            self._finish()
        tell_each(due, self._give_up)

    def _give_up(self, due: tuple[int, Waiter]) -> None:
        opaque, waiter = due
        if opaque in self.session.pending:  # resuming one may have cancelled another
            self.session.abandon(opaque)
            text = f"{self.address} gave no answer in {span(waiter.deadline - waiter.issued)}"
            waiter.fail(RequestTimeoutError(text, written=True))

    def _sweep_line(self) -> None:
        now = self._clock()
        tell_each([w for w in self._line if w.deadline <= now], self._drop)

    def _drop(self, waiter: Waiter) -> None:
        """Tell one in the line that its time is over."""
        if self._line.pop(waiter, None) is None:
            return
        if self._transport is None:
            text = too_slow(self.looked_up, self._clock() - self._began)
            waiter.fail(ConnectFailedError(f"{self.address} {text}"))
        else:
            text = f"{self.address} did not read, so the request was not written in time"
            waiter.fail(RequestTimeoutError(text))
