"""A connection without a socket: bytes in, answers out.

A ``Session`` numbers requests, learns how answers look and finds the answer to a request: for a
caller that reads its answers itself, as blocking connections and the columns do. A ``SharedSession``
also remembers what waits for which number, counts late answers, and surfaces what the peer asks of us. Neither ever waits or writes: the shells do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from rocketwire.errors import LocalProtocolError
from rocketwire.wire.command import ONEWAY, RESPONSE, Command, Reply, Request
from rocketwire.wire.framing import MAX_FRAME, FrameBuffer
from rocketwire.wire.reply_layout import Layout, stored_in_binary, stored_numbers
from rocketwire.wire.send_request import TemplatedSend, encode_send, encode_sends

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


class Session:
    """One connection's state. It has one request under way, or a row of them."""

    __slots__ = ("_layout", "_usual", "buffer", "frames", "opaque")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        #: Holds the first part of a frame whose rest is under way.
        self.buffer = FrameBuffer(limit)
        #: Whole answers that were not given out yet.
        self.frames: list[bytes] = []
        #: The last number given.
        self.opaque = 0
        self._layout: Layout | None = None
        #: How answers that say "stored" look here.
        self._usual: Layout | None = None

    @property
    def limit(self) -> int:
        """The largest frame accepted, its length field included."""
        return self.buffer.limit

    # -- requests ---------------------------------------------------------------------------

    def number(self, count: int = 1) -> int:
        """The first of so many numbers in a row, for as many requests."""
        first, last = self.opaque + 1, self.opaque + count
        if last > LAST_OPAQUE:
            first, last = 1, count
        self.opaque = last
        return first

    def issue(self, request: Request) -> tuple[int, bytes]:
        """Number a request; returns its opaque number and its head, to be written with the body."""
        opaque = self.opaque = self.opaque + 1 if self.opaque < LAST_OPAQUE else 1
        return opaque, request.head(opaque)

    def issue_send(self, send: TemplatedSend) -> tuple[int, bytes]:
        """As ``issue`` for a send whose body is copied behind its head: its number, and all of it."""
        opaque = self.opaque = self.opaque + 1 if self.opaque < LAST_OPAQUE else 1
        return opaque, encode_send(send, opaque)

    def issue_oneway(self, request: Request) -> bytes:
        """The head of a request that gets no answer."""
        return request.head(self.number(), ONEWAY)

    # -- answers ----------------------------------------------------------------------------

    def expect(self, opaque: int) -> tuple[bytes, bytes] | None:
        """How the answer to a request looks that says "stored" (``says_stored``), if that is known.

        None, too, while the rest of another frame is to be read first. To be asked for while the peer
        works: when the answer is here, every µs counts.
        """
        usual = self._usual
        if usual is None or self.buffer.held:
            return None
        return usual.stored_answer(opaque)

    def feed(self, data: bytes) -> None:
        """Take what was read.

        Raises:
            RemoteProtocolError: the stream is broken; close the connection.
        """
        self.frames += self.buffer.feed(data)

    def find(self, opaque: int) -> bytes | Reply | None:
        """The answer to a request, if it is here: the frame, as it is, of one that says "stored".

        Answers before it are late, and dropped.
        """
        while self.frames:
            frame = self.frames.pop(0)
            if self._stored_number(frame) == opaque:
                return frame
            reply = self.read(frame)
            if reply.flag & RESPONSE and reply.opaque == opaque:
                return reply
        return None

    def _stored_number(self, frame: bytes) -> int:
        """The number of the request whose answer this is, if it says "stored"; else 0."""
        if frame[0]:  # a binary header, as brokers before 5.0 answer
            return stored_in_binary(frame)
        return 0 if self._usual is None else self._usual.stored_number(frame)

    def next_reply(self) -> Reply | None:
        """The next answer that is here, whatever request it answers.

        What a broker asks of us is passed over: only upkeep's connections answer that.
        """
        while self.frames:
            reply = self.read(self.frames.pop(0))
            if reply.flag & RESPONSE:
                return reply
        return None

    def read(self, frame: bytes) -> Reply:
        """A frame, read by the layout of the one before if it has the same."""
        reply = Reply(frame, self._layout)
        layout = self._layout = reply.layout
        if layout is not None and layout.has_place:
            self._usual = layout
        return reply


class SharedSession(Session, Generic[T]):
    """The state of a connection that many use. ``T`` is how the shell wakes what waits."""

    __slots__ = ("late", "pending", "unanswered")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        super().__init__(limit)
        #: What waits, by opaque number, the oldest first.
        self.pending: dict[int, T] = {}
        #: Bytes of requests that have no answer yet.
        self.unanswered = 0
        #: Replies that came after their request was given up.
        self.late = 0

    def issue_for(self, waiter: T, request: Request) -> bytes:
        """Number the request of a waiter; returns its head, to be written with the body."""
        opaque, head = self.issue(request)
        waiter.opaque = opaque
        waiter.size = size = len(head) + len(request.body)
        self.pending[opaque] = waiter
        self.unanswered += size
        return head

    def issue_sends(
        self, waiters: Sequence[T], sends: Sequence[TemplatedSend]
    ) -> tuple[list[bytes | memoryview], list[int], list[tuple[T, LocalProtocolError]]]:
        """Number several send requests, each with its waiter.

        Returns:
            Their bytes in pieces; the size of each; and those that can't be written, with the
            reason: their size is 0, and nothing is expected for them.
        """
        first = self.number(len(waiters))
        pieces, sizes, errors = encode_sends(sends, first)
        numbers = range(first, first + len(waiters))
        for opaque, waiter, size in zip(numbers, waiters, sizes, strict=True):
            waiter.opaque, waiter.size = opaque, size
            self.pending[opaque] = waiter
        self.unanswered += sum(sizes)
        return pieces, sizes, [(self.pending.pop(number), error) for number, error in errors]

    def abandon(self, opaque: int) -> T | None:
        """Nobody waits for this one any more; its reply, if it comes, is late."""
        waiter = self.pending.pop(opaque, None)
        if waiter is not None:
            self.unanswered -= waiter.size
        return waiter

    def receive(self, data: bytes) -> tuple[list[T], list[tuple[T, Reply]], list[Command]]:
        """Take what was read.

        Returns:
            Those that take frames and whose ``answer``, which says "stored", came; the other
            answers, each with its waiter; and the peer's requests.

        Raises:
            RemoteProtocolError: the stream is broken; close the connection.
        """
        frames = self.buffer.feed(data)
        numbers = stored_numbers(self._usual, frames)
        replies: list[Reply] = []
        asked: list[Command] = []
        if 0 in numbers:
            # All frames are read before a waiter is taken off the list: if one is malformed, those
            # whose answers came before it in the same bytes still wait, and are told of the loss.
            replies, asked = self._read_others(numbers, frames)
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

    def _read_others(
        self, numbers: list[int], frames: list[bytes]
    ) -> tuple[list[Reply], list[Command]]:
        """The answers without a number yet, unless they look like one before, and requests."""
        replies: list[Reply] = []
        asked: list[Command] = []
        known = self._usual
        for place, frame in enumerate(frames):
            if not numbers[place] and self._usual is not known:  # learned from one just before
                numbers[place : place + 1] = stored_numbers(self._usual, [frame])
            if numbers[place]:
                continue
            reply = self.read(frame)
            if reply.flag & RESPONSE:
                replies.append(reply)
            else:
                asked.append(reply.as_request())
        return replies, asked

    def lose(self) -> list[T]:
        """The connection is gone; returns all that waited."""
        waiters = list(self.pending.values())
        self.pending.clear()
        self.unanswered = 0
        return waiters
