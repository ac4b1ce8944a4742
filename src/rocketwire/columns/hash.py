"""Java's ``String.hashCode`` of a whole column, and the queue that it chooses.

The hash of one string is the sum of unit[j] * 31^(length - 1 - j) modulo 2^32. As 31 is odd it has
an inverse there, so with S[k] = the sum of unit[j] * 31^-j over everything before position k of
the *whole* column, each row's hash is (S[end] - S[start]) * 31^(end - 1): one running sum for all
rows, however long each is. Stepping by character position needs a pass per character of the
longest key, and one long key then slows all others down.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketwire.columns.buffers import Bytes, Int32s, Int64s, data_of, offsets_of

_MODULUS: Final = 2**32
#: Units per running sum. The tables and the intermediate arrays of this many stay in the cache.
_BLOCK: Final = 1 << 15


def _powers(factor: int, first: int, count: int) -> npt.NDArray[np.uint32]:
    with np.errstate(over="ignore"):
        table = np.full(count, factor, dtype=np.uint32)
        table[0] = first
        return np.cumprod(table, dtype=np.uint32)


_INVERSE: Final = pow(31, -1, _MODULUS)
_DOWN: Final = _powers(_INVERSE, 1, _BLOCK)  # 31^-j
_UP: Final = _powers(31, _INVERSE, _BLOCK + 1)  # 31^(j - 1)


def java_hash_column(strings: Any) -> Int32s:
    """The hash codes of a string array; 0 stands where a value is null.

    Args:
        strings: a string, large string, view or dictionary array. Bytes that are no UTF-8 count
            as U+FFFD, as they do in Java.
    """
    if pa.types.is_dictionary(strings.type):
        # Few distinct keys are the common case of a dictionary: hash each of them once.
        distinct = java_hash_column(strings.dictionary)
        return _null_as_zero(pa.array(distinct).take(strings.indices))
    if not pa.types.is_string(strings.type):
        strings = strings.cast(pa.string())
    units, offsets = _utf16_units(strings)
    hashes = _hash_slices(units, offsets)
    if strings.null_count:
        hashes[strings.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes


def queue_index_column(hashes: Int32s, queues: int) -> Int64s:
    """Which of ``queues`` queues Java's hash selector chooses for each hash."""
    result: Int64s = np.abs(hashes.astype(np.int64)) % queues
    return result


def _null_as_zero(hashes: Any) -> Int32s:
    filled: Int32s = hashes.fill_null(0).to_numpy(zero_copy_only=False)
    return filled


def _utf16_units(strings: Any) -> tuple[npt.NDArray[np.integer[Any]], Int64s]:
    """The UTF-16 code units of all rows in one array, and where each row begins in it."""
    offsets = offsets_of(strings).astype(np.int64)
    data = data_of(strings)[offsets[0] : offsets[-1]]
    offsets -= offsets[0]
    if len(data) == 0 or int(data.max()) < 0x80:
        return data, offsets
    try:
        text = data.tobytes().decode()
    except UnicodeDecodeError:
        return _units_row_by_row(data, offsets)
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), dtype="<u2")
    return units, _unit_counts(data)[offsets]


def _unit_counts(data: Bytes) -> Int64s:
    """How many UTF-16 units come before each byte position of valid UTF-8."""
    counts = np.zeros(len(data) + 1, dtype=np.int64)
    starts_character = (data & 0xC0) != 0x80
    np.cumsum(starts_character.astype(np.int64) + (data >= 0xF0), out=counts[1:])
    return counts


def _units_row_by_row(data: Bytes, offsets: Int64s) -> tuple[npt.NDArray[np.uint16], Int64s]:
    raw = data.tobytes()
    rows = [
        raw[start:end].decode(errors="replace").encode("utf-16-le")
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) // 2 for row in rows], out=starts[1:])
    return np.frombuffer(b"".join(rows), dtype="<u2"), starts


def _hash_slices(units: npt.NDArray[np.integer[Any]], offsets: Int64s) -> Int32s:
    rows = len(offsets) - 1
    hashes = np.zeros(rows, dtype=np.uint32)
    start = 0
    while start < rows:
        limit = int(offsets[start]) + _BLOCK
        stop = min(rows, int(np.searchsorted(offsets, limit, side="right")) - 1)
        if stop <= start:
            hashes[start] = _hash_long(units[offsets[start] : offsets[start + 1]])
            start += 1
            continue
        hashes[start:stop] = _hash_block(units, offsets[start : stop + 1])
        start = stop
    return hashes.view(np.int32)


def _hash_block(units: npt.NDArray[np.integer[Any]], offsets: Int64s) -> npt.NDArray[np.uint32]:
    first = offsets[0]
    places = offsets - first
    size = int(places[-1])
    running = np.zeros(size + 1, dtype=np.uint32)
    weighted = units[first : first + size] * _DOWN[:size]
    np.cumsum(weighted, dtype=np.uint32, out=running[1:])
    at_edges = running[places]
    result: npt.NDArray[np.uint32] = (at_edges[1:] - at_edges[:-1]) * _UP[places[1:]]
    return result


def _hash_long(units: npt.NDArray[np.integer[Any]]) -> int:
    """A single string longer than a block: block by block, as Java would character by character."""
    total = 0
    for start in range(0, len(units), _BLOCK):
        part = units[start : start + _BLOCK]
        edges = np.array([0, len(part)], dtype=np.int64)
        total = (total * pow(31, len(part), _MODULUS) + int(_hash_block(part, edges)[0])) % _MODULUS
    return total
