"""Java's hash codes, so that a key leads to the same queue from Python as from Java.

Types that have a counterpart in Java, and a hash that Java specifies, are here. What Java hashes by
identity (arrays, enums, plain objects) differs from run to run there, so it is refused here.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from operator import mul
from struct import pack, unpack
from typing import Any, Final, NamedTuple

from rocketwire.errors import InvalidMessageError
from rocketwire.message import MessageQueue

_BLOCK: Final = 64
# 31 to the powers 63 ... 0, each in 32 bits: a sum of products in C beats a loop in Python.
_POWERS: Final = tuple(pow(31, power, 1 << 32) for power in range(_BLOCK - 1, -1, -1))
_BY_LENGTH: Final = tuple(_POWERS[_BLOCK - length :] for length in range(_BLOCK + 1))
_BLOCK_FACTOR: Final = pow(31, _BLOCK, 1 << 32)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _signed(value: int) -> int:
    """The low 32 bits as Java's int."""
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def java_string_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 code units, so that a smiley counts as two."""
    units: bytes | tuple[int, ...]
    if text.isascii():
        units = text.encode()
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        units = unpack(f">{len(data) // 2}H", data)
    length = len(units)
    if length <= _BLOCK:
        total: int = sum(map(mul, units, _BY_LENGTH[length]))
        return ((total + 0x80000000) & 0xFFFFFFFF) - 0x80000000
    # The odd rest comes first, so that all further blocks are whole.
    start = length % _BLOCK
    total = sum(map(mul, units, _BY_LENGTH[start]))
    for position in range(start, length, _BLOCK):
        block = units[position : position + _BLOCK]
        total = (total * _BLOCK_FACTOR + sum(map(mul, block, _POWERS))) & 0xFFFFFFFF
    return _signed(total)


class JavaLong(NamedTuple):
    """An int that Java keeps as ``long``: negative ones hash unlike an ``int``."""

    value: int


def java_long(value: int) -> JavaLong:
    """A key that is a ``long`` in Java.

    Raises:
        InvalidMessageError: it does not fit into 64 bits.
    """
    _check_range(value, 64, "long")
    return JavaLong(value)


def _check_range(value: object, bits: int, name: str) -> None:
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        # Python refuses to print numbers of thousands of digits.
        shown = "a huge number" if isinstance(value, int) and value.bit_length() > 99 else value
        raise InvalidMessageError(f"{shown!r:.60} is not a Java {name}: that has {bits} bits")


def java_hash(value: object) -> int:
    """``hashCode`` of what a value would be in Java.

    An int within 32 bits counts as ``Integer``, beyond as ``Long``; wrap it in :func:`java_long`
    where the Java side uses ``long`` throughout. A float is a ``Double``, an aware datetime a
    ``Date``, a list or tuple a ``List``.

    Raises:
        InvalidMessageError: Java has no stable hash for such a value.
    """
    if type(value) is str:
        return java_string_hash(value)
    if value is None:
        raise InvalidMessageError("None has no hash code: give a key")
    try:
        return _signed(_hash(value))
    except RecursionError:
        raise InvalidMessageError("the key is nested too deeply, or contains itself") from None


def _hash(value: object) -> int:
    """The hash before it is cut to 32 bits; of None, within a collection, 0 as in Java."""
    if value is None:
        return 0
    known = _BY_TYPE.get(type(value))
    if known is not None:
        return known(value)
    for cls, function in _BY_BASE:
        if isinstance(value, cls):
            return function(value)
    # A caller that has a UUID has imported its module; we need not pay for that.
    uuid = sys.modules.get("uuid")
    if uuid is not None and isinstance(value, uuid.UUID):
        return _hash_bits((value.int >> 64) ^ value.int)
    raise InvalidMessageError(
        f"a {type(value).__name__} has no hash code that Java would agree with: "
        "give a str, e.g. str(key)"
    )


def _hash_bits(bits: int) -> int:
    """A ``long`` folded into an ``int``."""
    return (bits ^ bits >> 32) & 0xFFFFFFFF


def _hash_int(value: int) -> int:
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    _check_range(int(value), 64, "long")
    return _hash_bits(value & 0xFFFFFFFFFFFFFFFF)


def _hash_bool(value: bool) -> int:  # noqa: FBT001 - the value itself
    return 1231 if value else 1237


def _hash_double(value: float) -> int:
    if math.isnan(value):
        return 0x7FF80000
    return _hash_bits(int.from_bytes(pack(">d", value), "big"))


def _hash_date(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidMessageError(
            f"the key {moment!r} has no time zone: say which, e.g. datetime(..., tzinfo=UTC)"
        )
    return _hash_bits((moment - _EPOCH) // timedelta(milliseconds=1) & 0xFFFFFFFFFFFFFFFF)


def _hash_list(items: Iterable[object]) -> int:
    result = 1
    for item in items:
        result = (31 * result + _hash(item)) & 0xFFFFFFFF
    return result


def _hash_set(items: Iterable[object]) -> int:
    return sum(_signed(_hash(item)) for item in items)


def _hash_map(items: dict[object, object]) -> int:
    return sum(_signed(_hash(key)) ^ _signed(_hash(value)) for key, value in items.items())


def _hash_queue(queue: MessageQueue) -> int:
    return _hash_list((queue.broker, queue.id, queue.topic))


_BY_TYPE: Final[dict[type, Callable[[Any], int]]] = {
    str: java_string_hash,
    bool: _hash_bool,
    int: _hash_int,
    float: _hash_double,
    JavaLong: lambda wrapped: _hash_bits(wrapped.value & 0xFFFFFFFFFFFFFFFF),
    MessageQueue: _hash_queue,
    datetime: _hash_date,
    list: _hash_list,
    tuple: _hash_list,
    set: _hash_set,
    frozenset: _hash_set,
    dict: _hash_map,
}
# For subclasses (a StrEnum, a Timestamp of some library), in this order.
_BY_BASE: Final[tuple[tuple[type, Callable[[Any], int]], ...]] = (
    (str, java_string_hash),
    (int, _hash_int),
    (float, _hash_double),
    (datetime, _hash_date),
    (list, _hash_list),
    (tuple, _hash_list),
    (dict, _hash_map),
)


def hash_index(value: object, number: int) -> int:
    """Which of ``number`` queues a key leads to: Java's hash selector.

    Java takes the remainder first and its absolute value then, which is the same as this.
    """
    if number < 1:
        raise InvalidMessageError("there is no queue to choose from: the list is empty")
    return abs(java_hash(value)) % number
