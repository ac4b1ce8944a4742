"""A connection without a socket: bytes in, answers out.

It numbers requests, remembers who waits for which number, recognises late replies to requests
that were given up, and surfaces what the peer asks of us. It never waits and never writes: the
shells do that.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from rocketwire.wire.command import ONEWAY, RESPONSE, Command, Reply, Request, decode_command
from rocketwire.wire.framing import MAX_FRAME, FrameBuffer
from rocketwire.wire.reply_layout import Layout, stored_in_binary

T = TypeVar("T")

LAST_OPAQUE = 0x7FFFFFFF


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
        #: Who waits, by opaque number, with the size of his request, and whether he takes the
        #: frame of an answer that says "stored" as it is.
        self.pending: dict[int, tuple[T, int, bool]] = {}
        #: Bytes of requests that have no answer yet.
        self.unanswered = 0
        #: Replies that came after their request was given up.
        self.late = 0

    def issue(self, request: Request, waiter: T) -> tuple[int, bytes]:
        """Number a request; returns its opaque number and its head, to be written with the body."""
        opaque = self.opaque = self.opaque + 1 if self.opaque < LAST_OPAQUE else 1
        head = request.head(opaque)
        size = len(head) + len(request.body)
        self.pending[opaque] = (waiter, size, False)
        self.unanswered += size
        return opaque, head

    def next_opaque(self) -> int:
        """A number for a request of the caller's making, who enters it in ``pending`` himself."""
        opaque = self.opaque = self.opaque + 1 if self.opaque < LAST_OPAQUE else 1
        return opaque

    def issue_oneway(self, request: Request) -> bytes:
        """The head of a request that gets no answer."""
        self.opaque = self.opaque + 1 if self.opaque < LAST_OPAQUE else 1
        return request.head(self.opaque, ONEWAY)

    def abandon(self, opaque: int) -> T | None:
        """Nobody waits for this one any more; its reply, if it comes, is late."""
        entry = self.pending.pop(opaque, None)
        if entry is None:
            return None
        self.unanswered -= entry[1]
        return entry[0]

    def receive(
        self, data: bytes
    ) -> tuple[list[tuple[T, bytes]], list[tuple[T, Reply]], list[Command]]:
        """Take what was read.

        Returns:
            The frames of answers that say "stored", with those of their waiters who take them so;
            the other answers, each with its waiter; and the peer's requests.

        Raises:
            RemoteProtocolError: the stream is broken; close the connection.
        """
        # All frames are read before anybody is taken off the list: if one is malformed, those whose
        # answers came before it in the same bytes still wait, and are told of the loss.
        usual: list[tuple[int, bytes]] = []
        replies: list[Reply] = []
        asked: list[Command] = []
        layout, pattern = self._layout, self._usual
        for frame in self._buffer.feed(data):
            if frame[0]:  # a binary header, as brokers before 5.0 answer
                number = stored_in_binary(frame)
            else:
                number = 0 if pattern is None else pattern.stored_number(frame)
            if number:
                usual.append((number, frame))
                continue
            reply = Reply(frame, layout)
            layout = reply.layout
            if reply.flag & RESPONSE:
                replies.append(reply)
            else:
                asked.append(decode_command(frame))
            if layout is not None and layout.has_place:
                self._usual = pattern = layout
        self._layout = layout
        stored: list[tuple[T, bytes]] = []
        answers: list[tuple[T, Reply]] = []
        pending = self.pending
        for number, frame in usual:
            entry = pending.pop(number, None)
            if entry is None:
                self.late += 1
                continue
            waiter, size, takes_frame = entry
            self.unanswered -= size
            if takes_frame:
                stored.append((waiter, frame))
            else:
                answers.append((waiter, Reply(frame, pattern)))
        for reply in replies:
            entry = pending.pop(reply.opaque, None)
            if entry is None:
                self.late += 1
                continue
            self.unanswered -= entry[1]
            answers.append((entry[0], reply))
        return stored, answers, asked

    def lose(self) -> list[T]:
        """The connection is gone; returns everybody who waited."""
        waiters = [entry[0] for entry in self.pending.values()]
        self.pending.clear()
        self.unanswered = 0
        return waiters
