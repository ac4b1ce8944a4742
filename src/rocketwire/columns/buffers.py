"""Arrow arrays seen as numpy arrays, and back, without a Python object per row.

Everything here is about layout: offsets, slices, fixed widths. What the bytes mean is decided by
the modules that call it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_NO_BYTES: Final[Bytes] = np.zeros(0, dtype=np.uint8)


def as_binary(array: Any) -> Any:
    """The same values as a plain binary array, whatever kind of text or bytes they were.

    Strings are only reinterpreted, dictionaries are decoded, and the large and view kinds are
    narrowed. These address their bytes with 31 bits: a caller keeps each batch smaller with `split_rows`.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.binary())
    if pa.types.is_fixed_size_binary(array.type):
        return array.cast(pa.binary())
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    if pa.types.is_binary(array.type):
        return array
    return array.cast(pa.binary())


def offsets_of(array: Any) -> Int32s:
    """The offsets of a binary or string array into its data buffer; honours slices."""
    if len(array) == 0:
        return np.zeros(1, dtype=np.int32)
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def data_of(array: Any) -> Bytes:
    """The whole data buffer of a binary or string array, to be addressed by `offsets_of`."""
    data = array.buffers()[2] if len(array) else None
    return _NO_BYTES if data is None else np.frombuffer(data, dtype=np.uint8)


def used_bytes(array: Any) -> Bytes:
    """Only those bytes of the data buffer that the rows of the array span."""
    offsets = offsets_of(array)
    return data_of(array)[offsets[0] : offsets[-1]]


def lengths_of(array: Any) -> Int64s:
    """The length of each value in bytes, 0 for null, of any text or binary array."""
    if len(array) == 0:
        return np.zeros(0, dtype=np.int64)
    if array.null_count == 0 and (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        offsets = offsets_of(array)
        return np.subtract(offsets[1:], offsets[:-1], dtype=np.int64)
    if pa.types.is_null(array.type):
        return np.zeros(len(array), dtype=np.int64)
    if pa.types.is_dictionary(array.type):
        if len(array.dictionary) == 0:
            return np.zeros(len(array), dtype=np.int64)
        lengths = pa.array(lengths_of(array.dictionary)).take(array.indices)
    else:
        if pa.types.is_binary_view(array.type) or pa.types.is_string_view(array.type):
            array = array.cast(pa.large_binary())  # Arrow can't measure views
        lengths = pc.binary_length(array)
    filled = lengths.cast(pa.int64()).fill_null(0)
    result: Int64s = filled.to_numpy(zero_copy_only=False)
    return result


def nulls_of(array: Any) -> Bools:
    """True where a value is null."""
    if array.null_count == 0:
        return np.zeros(len(array), dtype=np.bool_)
    mask: Bools = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def from_matrix(matrix: npt.NDArray[Any]) -> Any:
    """A binary array whose values are the rows of a contiguous matrix of bytes."""
    rows, width = matrix.shape[0], matrix.nbytes // max(1, matrix.shape[0])
    offsets = np.arange(0, (rows + 1) * width, width or 1, dtype=np.int32)[: rows + 1]
    if width == 0:
        offsets = np.zeros(rows + 1, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(matrix)]
    )


def from_offsets(offsets: npt.NDArray[np.integer[Any]], data: Any, kind: Any = None) -> Any:
    """A binary (or string) array over an existing buffer."""
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    exact = np.ascontiguousarray(offsets, dtype=np.int32)
    return pa.Array.from_buffers(
        kind or pa.binary(), len(exact) - 1, [None, pa.py_buffer(exact), buffer]
    )


def gather_slices(
    data: pa.Buffer,
    starts: npt.NDArray[np.integer[Any]],
    ends: npt.NDArray[np.integer[Any]],
    kind: Any,
    *,
    places: Int64s | None = None,
) -> Any:
    """Copy ascending, non-overlapping slices of a buffer into one array.

    The slices and the gaps between them are read as the values of one array, of which every
    second one is taken: Arrow's ``take`` then copies in C what no numpy expression does well.

    Args:
        data: the buffer.
        starts: where each slice begins.
        ends: where each slice ends.
        kind: ``pa.binary()`` or ``pa.string()``.
        places: for each row of the result, which slice it takes, or -1 for null; without it,
            every slice in order.
    """
    if places is None and len(starts):
        width = int(ends[0] - starts[0])
        if width > 0 and bool((ends - starts == width).all()):
            return _gather_even(data, starts, width, kind)
    offsets = np.empty(2 * len(starts) + 1, dtype=np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = offsets[-2] if len(starts) else 0
    pieces = from_offsets(offsets, data, kind)
    if places is None:
        return pieces.take(pa.array(np.arange(0, 2 * len(starts), 2, dtype=np.int64)))
    return pieces.take(pa.array(places * 2, mask=places < 0))


def _gather_even(
    data: pa.Buffer, starts: npt.NDArray[np.integer[Any]], width: int, kind: Any
) -> Any:
    """The same for slices of one length: numpy copies values of a fixed size faster still."""
    values = np.ndarray((data.size - width + 1,), dtype=f"V{width}", buffer=data, strides=(1,))
    offsets = np.arange(0, (len(starts) + 1) * width, width, dtype=np.int32)
    return from_offsets(offsets, values[starts], kind)


def row_bytes(batch: Any, names: tuple[str, ...]) -> Int64s:
    """How many bytes of text and binary values each row holds, over the columns named."""
    total = np.zeros(batch.num_rows, dtype=np.int64)
    for name in names:
        index = batch.schema.get_field_index(name)
        if index >= 0:
            total += _value_bytes(batch.column(index))
    return total


def _value_bytes(array: Any) -> Int64s:
    if pa.types.is_map(array.type) or pa.types.is_list(array.type):
        return _entry_bytes(array)
    is_dictionary = pa.types.is_dictionary(array.type)
    kind = array.type.value_type if is_dictionary else array.type
    if _is_text_or_bytes(kind):
        return lengths_of(array)
    return np.full(len(array), 8, dtype=np.int64)


def _entry_bytes(array: Any) -> Int64s:
    offsets = np.asarray(array.offsets.to_numpy(zero_copy_only=False), dtype=np.int64)
    entries = array.values
    per_entry = np.zeros(len(entries) + 1, dtype=np.int64)
    for index in range(entries.type.num_fields):
        per_entry[1:] += _value_bytes(entries.field(index)) + 1
    running = np.cumsum(per_entry)
    result: Int64s = running[offsets[1:]] - running[offsets[:-1]]
    return result


def _is_text_or_bytes(kind: Any) -> bool:
    kinds = (
        pa.types.is_string, pa.types.is_binary, pa.types.is_large_string,
        pa.types.is_large_binary, pa.types.is_string_view, pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )  # fmt: skip
    return any(matches(kind) for matches in kinds)


def _is_narrow(kind: Any) -> bool:
    """Whether values take more room when they are read than they do in an array."""
    return bool(
        pa.types.is_dictionary(kind)
        or pa.types.is_run_end_encoded(kind)
        or any(_is_narrow(kind.field(index).type) for index in range(kind.num_fields))
    )


def split_rows(batch: Any, names: tuple[str, ...], limit: int) -> Iterator[tuple[int, Any]]:
    """Cut a batch into slices of at most ``limit`` bytes of values, each with its first row.

    A single row above the limit is a slice of its own. Slices share the batch's memory.
    """
    if batch.num_rows == 0:
        return
    if batch.nbytes <= limit and not any(map(_is_narrow, batch.schema.types)):
        yield 0, batch  # nearly all of them: what each row takes need not be known
        return
    running = np.cumsum(row_bytes(batch, names))
    start = 0
    while start < batch.num_rows:
        before = int(running[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(running, before + limit, side="right")))
        yield start, batch.slice(start, stop - start)
        start = stop
