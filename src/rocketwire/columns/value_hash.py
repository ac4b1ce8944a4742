"""A hash of 64 bits of each value of a column, whole blocks of values at a time.

Values of about one length are laid side by side as a matrix of words. Each word is mixed, so that what
differs in it differs in many bits, and a value's hash is the sum of its words, each times a number of
its place. So no step waits for the one before, as it would in a chain, and none is made for each
value. Those of 2,000 bytes take a quarter of the time that SHA-256 takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketwire.columns.buffers import Bytes, Int64s, data_of, lengths_of, offsets_of

Hashes = npt.NDArray[np.uint64]

_WORD: Final = 8
#: Words of a block: it stays in the cache while it is mixed.
_BLOCK: Final = 1 << 15
#: From so many words on numpy adds rows up faster than columns.
_FEW: Final = 6
_FACTOR: Final = np.uint64(0xFF51AFD7ED558CCD)
_LAST_FACTOR: Final = np.uint64(0xC4CEB9FE1A85EC53)
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_MASKS: Final[Hashes] = np.array(
    [(1 << (8 * count)) - 1 for count in range(_WORD + 1)], dtype=np.uint64
)


def mix(hashes: Hashes, words: Any) -> Hashes:
    """Hashes that go on with one more word each."""
    mixed: Hashes = (hashes ^ words) * _FACTOR
    mixed ^= mixed >> _HALF
    return mixed


def finish(hashes: Hashes) -> Hashes:
    """Spread what came last over all bits."""
    hashes ^= hashes >> np.uint64(33)
    hashes *= _LAST_FACTOR
    hashes ^= hashes >> np.uint64(29)
    return hashes


def hash_values(column: Any, seed: Hashes) -> Hashes:
    """A hash of each value of a binary array, going on from the hash of what came before.

    Null and empty are alike: neither is sent.
    """
    lengths = lengths_of(column)
    starts = np.asarray(offsets_of(column)[:-1], dtype=np.int64)
    hashes = mix(seed, lengths.astype(np.uint64))
    data = data_of(column)
    for rows, least, most in _blocks(lengths):
        matrix = _matrix(data, starts[rows], lengths[rows], -(-most // _WORD))
        hashes[rows] = mix(hashes[rows], _sums(matrix, lengths[rows], least))
    return hashes


def _blocks(lengths: Int64s) -> Iterator[tuple[Any, int, int]]:
    """Rows of about one length, with the least and the greatest; those of length 0 are left out."""
    if len(lengths) == 0 or (most := int(lengths.max())) == 0:
        return
    least = int(lengths.min())
    if least > 0 and most <= _alike(least):
        size = max(1, _BLOCK * _WORD // most)
        for first in range(0, len(lengths), size):
            yield slice(first, first + size), least, most
        return
    # Radix sort, if 16 bits are enough.
    order = np.argsort(lengths.astype(np.uint16) if most < 2**16 else lengths, kind="stable")
    in_order = lengths[order]
    first = int(np.searchsorted(in_order, 0, side="right"))
    while first < len(order):
        least = int(in_order[first])
        size = max(1, _BLOCK * _WORD // _alike(least))
        stop = int(np.searchsorted(in_order, _alike(least), side="right"))
        stop = min(stop, first + size)
        yield order[first:stop], least, int(in_order[stop - 1])
        first = stop


def _alike(length: int) -> int:
    """How long a value may be to share a matrix with one of a length."""
    return length + length // 4 + 2 * _WORD


def _matrix(data: Bytes, starts: Int64s, lengths: Int64s, words: int) -> Hashes:
    """The values as rows of so many words; what lies behind a shorter value is still in its row."""
    width, reach = words * _WORD, len(data) - words * _WORD
    kind = f"V{width}"
    if reach >= 0 and int(starts.max()) <= reach:
        windows = np.ndarray((reach + 1,), kind, data.data, strides=(1,))
        rows = windows[starts]
    else:
        # The last few values of the buffer are nearer to its end than a row is long.
        rows = np.zeros(len(starts), kind)
        inside = starts <= reach
        if inside.any():
            rows[inside] = np.ndarray((reach + 1,), kind, data.data, strides=(1,))[starts[inside]]
        flat = rows.view(np.uint8).reshape(len(starts), width)
        for row in np.flatnonzero(~inside).tolist():
            start, length = int(starts[row]), int(lengths[row])
            flat[row, :length] = data[start : start + length]
    made: Hashes = rows.view("<u8").reshape(len(starts), words)
    return made


def _sums(matrix: Hashes, lengths: Int64s, least: int) -> Hashes:
    """The mixed words of each row, each times the number of its place, added up."""
    words = matrix.shape[1]
    whole = least // _WORD
    if whole < words:
        left = lengths[:, None] - np.arange(whole, words, dtype=np.int64) * _WORD
        matrix[:, whole:] &= _MASKS[np.clip(left, 0, _WORD)]
    # A word of zeros stays one: what lies behind a value counts for nothing, whatever the block.
    matrix ^= matrix >> _HALF
    matrix *= _FACTOR
    matrix ^= matrix >> np.uint64(29)
    numbers = _numbers(words)
    if words >= _FEW:
        sums: Hashes = np.einsum("ij,j->i", matrix, numbers)
        return sums
    sums = matrix[:, 0] * numbers[0]
    for place in range(1, words):
        sums += matrix[:, place] * numbers[place]
    return sums


@lru_cache(maxsize=64)
def _numbers(words: int) -> Hashes:
    """An odd number for each place, that none near it resembles."""
    made: Hashes = finish(np.arange(1, words + 1, dtype=np.uint64) * _STEP) | np.uint64(1)
    made.flags.writeable = False
    return made
