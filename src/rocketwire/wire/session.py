"""A connection without a socket: bytes in, answers out.

It numbers requests, remembers who waits for which number, recognises late replies to requests
that were given up, and surfaces what the peer asks of us. It never waits and never writes: the
shells do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from rocketwire.errors import LocalProtocolError
from rocketwire.wire.command import ONEWAY, RESPONSE, Command, Reply, Request, decode_command
from rocketwire.wire.framing import MAX_FRAME, FrameBuffer
from rocketwire.wire.reply_layout import Layout, stored_numbers
from rocketwire.wire.send_request import TemplatedSend, encode_sends

LAST_OPAQUE = 0x7FFFFFFF


class Expectant(Protocol):
    """What waits for one answer at a time."""

    #: The number and the bytes of its request, set when it is numbered.
    opaque: int
    size: int
    #: Whether it takes the frame of an answer that says "stored" as it is, in ``answer``.
    takes_frame: bool
    answer: bytes


T = TypeVar("T", bound=Expectant)


class Session(Generic[T]):
    """One connection's state. ``T`` is whatever the shell uses to wake the one who waits."""

    __slots__ = ("_buffer", "_layout", "_usual", "late", "opaque", "pending", "unanswered")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._buffer = FrameBuffer(limit)
        #: The last number given.
        self.opaque = 0
        self._layout: Layout | None = None
        #: How answers that say "stored" look here.
        self._usual: Layout | None = None
        #: Who waits, by opaque number, the oldest first.
        self.pending: dict[int, T] = {}
        #: Bytes of requests that have no answer yet.
        self.unanswered = 0
        #: Replies that came after their request was given up.
        self.late = 0

    def issue(self, request: Request, waiter: T) -> tuple[int, bytes]:
        """Number a request; returns its opaque number and its head, to be written with the body."""
        opaque = self.opaque = self.opaque + 1 if self.opaque < LAST_OPAQUE else 1
        head = request.head(opaque)
        waiter.opaque = opaque
        waiter.size = size = len(head) + len(request.body)
        self.pending[opaque] = waiter
        self.unanswered += size
        return opaque, head

    def issue_sends(
        self, waiters: Sequence[T], sends: Sequence[TemplatedSend]
    ) -> tuple[list[bytes | memoryview], list[int], list[tuple[T, LocalProtocolError]]]:
        """Number several send requests, each with its waiter.

        Returns:
            Their bytes in pieces; the size of each; and those that can't be written, with the
            reason: their size is 0, and nothing is expected for them.
        """
        first, last = self.opaque + 1, self.opaque + len(waiters)
        if last > LAST_OPAQUE:
            first, last = 1, len(waiters)
        self.opaque = last
        pieces, sizes, errors = encode_sends(sends, first)
        numbers = range(first, last + 1)
        for opaque, waiter, size in zip(numbers, waiters, sizes, strict=True):
            waiter.opaque, waiter.size = opaque, size
            self.pending[opaque] = waiter
        self.unanswered += sum(sizes)
        return pieces, sizes, [(self.pending.pop(number), error) for number, error in errors]

    def issue_oneway(self, request: Request) -> bytes:
        """The head of a request that gets no answer."""
        self.opaque = self.opaque + 1 if self.opaque < LAST_OPAQUE else 1
        return request.head(self.opaque, ONEWAY)

    def abandon(self, opaque: int) -> T | None:
        """Nobody waits for this one any more; its reply, if it comes, is late."""
        waiter = self.pending.pop(opaque, None)
        if waiter is not None:
            self.unanswered -= waiter.size
        return waiter

    def receive(self, data: bytes) -> tuple[list[T], list[tuple[T, Reply]], list[Command]]:
        """Take what was read.

        Returns:
            Those who take frames and whose ``answer``, which says "stored", came; the other
            answers, each with its waiter; and the peer's requests.

        Raises:
            RemoteProtocolError: the stream is broken; close the connection.
        """
        frames = self._buffer.feed(data)
        numbers = stored_numbers(self._usual, frames)
        replies: list[Reply] = []
        asked: list[Command] = []
        if 0 in numbers:
            # All frames are read before anybody is taken off the list: if one is malformed, those
            # whose answers came before it in the same bytes still wait, and are told of the loss.
            replies, asked = self._read(numbers, frames)
        stored: list[T] = []
        answers: list[tuple[T, Reply]] = []
        take, answered = self.pending.pop, 0
        for number, frame in zip(numbers, frames, strict=True):
            if not number:
                continue
            waiter = take(number, None)
            if waiter is None:
                self.late += 1
                continue
            answered += waiter.size
            if waiter.takes_frame:
                waiter.answer = frame
                stored.append(waiter)
            else:
                answers.append((waiter, Reply(frame, self._usual)))
        self.unanswered -= answered
        for reply in replies:
            waiter = self.abandon(reply.opaque)
            if waiter is None:
                self.late += 1
            else:
                answers.append((waiter, reply))
        return stored, answers, asked

    def _read(self, numbers: list[int], frames: list[bytes]) -> tuple[list[Reply], list[Command]]:
        """The answers without a number yet, unless they look like one before, and requests."""
        replies: list[Reply] = []
        asked: list[Command] = []
        known = self._usual
        for place, frame in enumerate(frames):
            if not numbers[place] and self._usual is not known:  # learned from one just before
                numbers[place : place + 1] = stored_numbers(self._usual, [frame])
            if numbers[place]:
                continue
            reply = Reply(frame, self._layout)
            layout = self._layout = reply.layout
            if reply.flag & RESPONSE:
                replies.append(reply)
            else:
                asked.append(decode_command(frame))
            if layout is not None and layout.has_place:
                self._usual = layout
        return replies, asked

    def lose(self) -> list[T]:
        """The connection is gone; returns everybody who waited."""
        waiters = list(self.pending.values())
        self.pending.clear()
        self.unanswered = 0
        return waiters
