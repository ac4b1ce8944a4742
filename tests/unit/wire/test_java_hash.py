"""Java hash codes: published values, and values that Java can't agree on. See test_java_vectors."""

import enum
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from rocketwire.errors import InvalidMessageError
from rocketwire.wire.java_hash import (
    hash_index,
    java_hash,
    java_long,
    java_string_hash,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("order-1001", 708180863),
        ("Aa", 2112),
        ("BB", 2112),
        ("", 0),
        ("中文", 646394),
        ("😀", 1772899),
        ("polygenelubricants", -2147483648),
    ],
)
def test_published_hashes_of_text(text, expected):
    assert java_string_hash(text) == expected


def naive(text):
    """The definition, step by step."""
    result = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(data), 2):
        result = (31 * result + int.from_bytes(data[i : i + 2], "big")) & 0xFFFFFFFF
    return result - (1 << 32) if result >> 31 else result


@pytest.mark.parametrize("unit", ["x", "中", "a😀"])
def test_text_of_every_length_around_a_block(unit):
    for count in (*range(140), 1000, 4096):
        assert java_string_hash(unit * count) == naive(unit * count)


def test_negative_longs_differ_from_ints():
    assert java_hash(-1) == -1
    assert java_hash(java_long(-1)) == 0
    assert java_hash(java_long(7)) == java_hash(7) == 7


def test_a_date_is_its_milliseconds_whatever_its_zone():
    moment = datetime(2023, 11, 14, 22, 13, 20, 123999, tzinfo=UTC)
    expected = java_hash(java_long(1700000000123))
    assert java_hash(moment) == expected
    assert java_hash(moment.astimezone(timezone(timedelta(hours=8)))) == expected


def test_subclasses_hash_as_what_they_are():
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    assert java_hash(Colour.RED) == java_string_hash("red")
    assert java_hash(Level.HIGH) == 3


def test_collections_nest():
    assert java_hash([["a", 1], {"k": [True]}]) == java_hash((("a", 1), {"k": (True,)}))


class Plain(enum.Enum):
    A = 1


@pytest.mark.parametrize(
    "value", [b"bytes", bytearray(b"x"), object(), Plain.A, Decimal(1), 1j, date(2024, 1, 1), len]
)
def test_what_java_hashes_by_identity_is_refused(value):
    with pytest.raises(InvalidMessageError, match="give a str"):
        java_hash(value)
    with pytest.raises(InvalidMessageError):
        java_hash([value])


def test_none_is_refused_as_a_key():
    with pytest.raises(InvalidMessageError, match="None"):
        java_hash(None)


def test_a_naive_datetime_is_refused():
    with pytest.raises(InvalidMessageError, match="time zone"):
        java_hash(datetime(2024, 1, 1))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, pytest.param(10**5000, id="huge")])
def test_numbers_beyond_64_bits_are_refused(value):
    with pytest.raises(InvalidMessageError, match="64 bits"):
        java_hash(value)
    with pytest.raises(InvalidMessageError, match="64 bits"):
        java_long(value)


def test_wrappers_refuse_what_does_not_fit():
    with pytest.raises(InvalidMessageError, match="64 bits"):
        java_long("7")


def test_a_key_that_contains_itself_is_refused():
    key = []
    key.append(key)
    with pytest.raises(InvalidMessageError, match="contains itself"):
        java_hash(key)


@pytest.mark.parametrize("number", [1, 2, 3, 7, 8, 1000])
def test_the_index_is_javas(number):
    # Java: the remainder keeps the sign of the hash, then its absolute value is taken.
    for value in ("polygenelubricants", "order-1001", "中文", -7, -1, 0, 2**40, uuid.UUID(int=9)):
        code = java_hash(value)
        remainder = code - int(code / number) * number
        assert hash_index(value, number) == abs(remainder)
        assert 0 <= hash_index(value, number) < number


def test_no_queues_make_no_index():
    with pytest.raises(InvalidMessageError, match="no queue"):
        hash_index("key", 0)
