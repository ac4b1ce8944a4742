"""Message ids for many rows at once.

The layout is RocketMQ's own: address, process, a number of our choice, milliseconds since the
month began, a counter of 16 bits. The last two are one number of 48 bits here, which only ever
grows: when a millisecond's 65,536 ids are used up, the next one's are taken early.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from rocketwire.columns.buffers import Bytes
from rocketwire.wire.message_id import MessageIdMaker

_HEX: Final[Bytes] = np.frombuffer(
    b"".join(b"%02X" % value for value in range(256)), dtype=np.uint8
).reshape(256, 2)

#: The four digits of every counter: ids made together have counters in sequence, so their digits
#: are a slice of this.
_COUNTERS: Final[Bytes] = np.empty((0x10000, 4), dtype=np.uint8)
_COUNTERS[:, :2] = np.repeat(_HEX, 256, axis=0)
_COUNTERS[:, 2:] = np.tile(_HEX, (256, 1))


def hex_matrix(data: Bytes) -> Bytes:
    """Upper-case hexadecimal digits of each row of a matrix of bytes."""
    rows, width = data.shape
    digits: Bytes = _HEX[data].reshape(rows, width * 2)
    return digits


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class MessageIdColumn:
    """Makes ids that no other instance makes, in this process or another.

    Args:
        address: four or sixteen bytes of this host's address.
        process: the process id; made anew after a fork, as a new instance.
        salt: 32 bits that tell instances of one process apart; random unless given.
        clock_ms: milliseconds since 1970.
    """

    def __init__(
        self,
        address: bytes,
        process: int,
        *,
        salt: int | None = None,
        clock_ms: Callable[[], int] = _now_ms,
    ) -> None:
        number = secrets.randbits(32) if salt is None else salt
        #: Knows how ids of a moment begin. It is asked for moments that only grow.
        self._maker: Final = MessageIdMaker(address, process, number, clock_ms)
        self._clock_ms = clock_ms
        self._next = 0

    def make(self, count: int, *, before: bytes = b"", after: bytes = b"") -> Bytes:
        """A matrix with one id in ASCII per row, each between the same bytes."""
        first = max(self._clock_ms() << 16, self._next)
        self._next = first + count
        digits = len(before) + len(self._maker.head_at(first >> 16))
        end = digits + _COUNTERS.shape[1]
        made = np.empty((count, end + len(after)), dtype=np.uint8)
        row = 0
        while row < count:  # once per millisecond, that is once but for very many rows
            moment, counter = (first + row) >> 16, (first + row) & 0xFFFF
            taken = min(count - row, 0x10000 - counter)
            block = made[row : row + taken]
            template = before + self._maker.head_at(moment).encode() + b"0000" + after
            block[:] = np.frombuffer(template, dtype=np.uint8)
            block[:, digits:end] = _COUNTERS[counter : counter + taken]
            row += taken
        return made
