"""Which pulls to send for a range of one queue, and in which order their bodies are handed on.

Offsets are contiguous, so the next pulls go out before the first has come back. Brokers give as
many messages as they like (32 by default): what comes short is asked for again, and how much they
give is learned on the way. No sockets and no clocks here.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from rocketwire.columns.buffers import Bytes
from rocketwire.columns.record_starts import Checker, PullBody
from rocketwire.message import MessageQueue

MOST_MESSAGES: Final = 1024
_WINDOW: Final = 64
#: Bytes of answers under way that are enough to keep a connection busy.
_WINDOW_BYTES: Final = 4 * 1024 * 1024
#: Full answers in a row after which a broker is asked for more than it gave before.
_TRUST: Final = 256


class RangeCursor:
    """The state of reading one range.

    Args:
        queue: which queue.
        start: the first offset.
        end: the offset after the last one.
        is_filtered: the broker leaves messages out, so that how far an answer reaches is unknown
            before it is here; then one pull is under way at a time.
        accounts: checks the bodies when their records are found.
    """

    def __init__(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        is_filtered: bool = False,
        accounts: Checker | None = None,
    ) -> None:
        self.queue = queue
        self.end = end
        self._is_filtered = is_filtered
        self._accounts = accounts
        self._front = start
        self._emitted = start
        #: Parts that must be asked for (again), lowest first.
        self._gaps: list[tuple[int, int]] = []
        self._under_way: dict[int, int] = {}
        self._arrived: dict[int, tuple[int, PullBody | None]] = {}
        self._step = MOST_MESSAGES
        self._ceiling = MOST_MESSAGES
        self._window = 1
        self._full_in_row = 0

    @property
    def position(self) -> int:
        """Everything before this offset was handed on."""
        return self._emitted

    @property
    def is_done(self) -> bool:
        """Whether the whole range was handed on."""
        return self._emitted >= self.end

    def next_pulls(self, most: int) -> Iterator[tuple[int, int]]:
        """Offset and number of messages of up to ``most`` pulls that should go out now."""
        while most > 0 and len(self._under_way) < self._window:
            if self._gaps:
                offset, stop = heapq.heappop(self._gaps)
                if stop - offset > self._step and not self._is_filtered:
                    heapq.heappush(self._gaps, (offset + self._step, stop))
                    stop = offset + self._step
            elif self._front < self.end and self._is_near():
                offset = self._front
                stop = self.end if self._is_filtered else min(self.end, offset + self._step)
                self._front = stop
            else:
                return
            self._under_way[offset] = stop
            most -= 1
            yield offset, min(stop - offset, MOST_MESSAGES)

    def _is_near(self) -> bool:
        """Whether what has arrived and waits for its turn is still little."""
        return len(self._arrived) < 2 * _WINDOW

    def answered(
        self,
        offset: int,
        next_offset: int,
        body: bytes | memoryview,
        *,
        offset_delta: int = 0,
        buffer: Bytes | None = None,
        at: int = 0,
    ) -> None:
        """A pull brought everything from ``offset`` up to ``next_offset``."""
        stop = min(self.end, self._under_way.pop(offset))
        if offset >= stop:
            return
        reached = min(next_offset, stop)
        if reached <= offset:
            heapq.heappush(self._gaps, (offset, stop))
            return
        if reached < stop:
            heapq.heappush(self._gaps, (reached, stop))
        if not self._is_filtered:
            self._learn(reached - offset, stop - offset, len(body))
        part = None
        if len(body):
            part = PullBody(
                self.queue, body, offset_delta, offset, reached, buffer, at, next_offset,
                self._accounts,
            )  # fmt: skip
        self._arrived[offset] = (reached, part)

    def _learn(self, came: int, asked: int, size: int) -> None:
        if came < asked:
            self._step = self._ceiling = max(1, came)
            self._full_in_row = 0
        elif asked >= self._step:
            self._full_in_row += 1
            if self._full_in_row >= _TRUST or self._step < self._ceiling:
                self._step = min(MOST_MESSAGES, self._step * 2)
                self._ceiling = max(self._ceiling, self._step)
                self._full_in_row = 0
        self._window = max(2, min(_WINDOW, _WINDOW_BYTES // max(1, size)))

    def is_under_way(self, offset: int) -> bool:
        """Whether a pull that begins at an offset has neither an answer nor failed."""
        return offset in self._under_way

    def unanswered(self, offset: int) -> None:
        """A pull failed: it must be sent again."""
        stop = min(self.end, self._under_way.pop(offset))
        if offset < stop:
            heapq.heappush(self._gaps, (offset, stop))

    def skip(self, offset: int, to: int) -> None:
        """Messages that a pull asked for are gone: go on at ``to``."""
        stop = min(self.end, self._under_way.pop(offset))
        if offset >= stop:
            return
        self._arrived[offset] = (min(to, stop), None)
        if to < stop:
            heapq.heappush(self._gaps, (to, stop))

    def end_at(self, offset: int) -> None:
        """Everything from ``offset`` on is gone; pulls for it may still be under way."""
        self.end = max(offset, self._emitted)
        self._front = min(self._front, self.end)
        self._gaps = [(low, min(high, self.end)) for low, high in self._gaps if low < self.end]
        heapq.heapify(self._gaps)

    def ready(self) -> Iterator[PullBody]:
        """Bodies whose turn has come, in the order of their offsets."""
        while (found := self._arrived.pop(self._emitted, None)) is not None:
            self._emitted, part = found
            if part is not None:
                yield part
