"""Hashes of values: by content alone, whatever lies beside them, and different for different ones."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from rocketwire.columns import value_hash
from rocketwire.columns.value_hash import hash_values


def hashed(values: Sequence[bytes | None]) -> list[int]:
    column = pa.array(values, pa.binary())
    found: list[int] = hash_values(column, np.zeros(len(values), dtype=np.uint64)).tolist()
    return found


def alone(value: bytes | None) -> int:
    return hashed([value])[0]


LENGTHS = [1, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 200, 511, 512, 513, 2000, 70_000]


@pytest.mark.parametrize("seed", range(5))
def test_a_hash_depends_on_its_value_alone(seed: int) -> None:
    chance = random.Random(seed)
    values = [chance.randbytes(chance.choice(LENGTHS)) for _ in range(60)]
    assert hashed(values) == [alone(value) for value in values]
    chance.shuffle(values)
    assert hashed(values) == [alone(value) for value in values]


def test_blocks_of_many_values_give_what_single_ones_give(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [b"%d" % (number**3) for number in range(500)]
    expected = hashed(values)
    monkeypatch.setattr(value_hash, "_BLOCK", 7)
    assert hashed(values) == expected


def test_a_slice_of_a_column_is_hashed_as_it_is() -> None:
    column = pa.array([b"one", b"two", None, b"three", b"f"], pa.binary()).slice(1, 3)
    seed = np.zeros(3, dtype=np.uint64)
    assert hash_values(column, seed).tolist() == [alone(b"two"), alone(None), alone(b"three")]


def test_null_and_empty_are_alike_and_nothing_else_is_like_them() -> None:
    assert alone(None) == alone(b"")
    assert len({alone(b""), *(alone(bytes(count)) for count in range(1, 40))}) == 40


def test_an_empty_column_has_no_hashes() -> None:
    assert hashed([]) == []


def test_a_hash_goes_on_from_what_came_before() -> None:
    column = pa.array([b"same", b"same"], pa.binary())
    found = hash_values(column, np.array([1, 2], dtype=np.uint64))
    assert found[0] != found[1]


@pytest.mark.parametrize("length", [8, 24, 200])
def test_values_that_differ_in_one_bit_or_two_bytes_differ(length: int) -> None:
    base = bytearray(b"x" * length)
    values = {bytes(base)}
    for bit in range(8 * length):
        changed = bytearray(base)
        changed[bit // 8] ^= 1 << bit % 8
        values.add(bytes(changed))
    # The last byte of a word is the weakest place of a product.
    places = range(7, length, 8)
    for one, other in itertools.combinations_with_replacement(places, 2):
        for first, second in itertools.product(b"0123456789", repeat=2):
            changed = bytearray(base)
            changed[one], changed[other] = first, second
            values.add(bytes(changed))
    assert len(set(hashed(sorted(values)))) == len(values)


def test_numbers_in_text_all_differ() -> None:
    values = [b'{"order":%d,"amount":%d}' % (n, n * 7919 % 100003) for n in range(200_000)]
    assert len(set(hashed(values))) == len(values)


def test_words_in_another_order_differ() -> None:
    words = [b"aaaaaaaa", b"bbbbbbbb", b"cccccccc", b"dddddddd"]
    values = [b"".join(order) for order in itertools.permutations(words)]
    assert len(set(hashed(values))) == 24
