"""Ids by content: the same for a repeat in any order, and never shared by two rows of a task."""

import itertools
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketwire.columns import row_ids
from rocketwire.columns.row_ids import ContentIds, NoIds, hash_rows
from rocketwire.columns.rows import Rows

PROPERTIES = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [("body", pa.binary()), ("keys", pa.string()), ("rowId", pa.string()), ("properties", PROPERTIES),
     ("flag", pa.int32())]
)  # fmt: skip

row = st.fixed_dictionaries(
    {
        "body": st.sampled_from([b"a", b"b", b"c" * 9, b"d" * 600, b"d" * 601])
        | st.binary(max_size=20),
        "keys": st.none() | st.sampled_from(["", "k", "kk"]),
        "rowId": st.none() | st.sampled_from(["s:0", "s:1"]),
        "properties": st.none() | st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12")),
        "flag": st.none() | st.integers(0, 1),
    }
)


def batch_of(rows):
    columns = [
        pa.array(
            [list(r[f.name].items()) if f.name == "properties" and r[f.name] else r[f.name] for r in rows],
            f.type,
        )
        for f in SCHEMA
    ]  # fmt: skip
    return pa.record_batch(columns, schema=SCHEMA)


def ids_of(rows, cuts=(), **options):
    maker, found = ContentIds("w:7:", **options), []
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for start, stop in itertools.pairwise(edges):
        if start < stop:
            ids, _ = maker.make(Rows.of(batch_of(rows[start:stop])), start)
            found += [value.decode() for value in ids.to_pylist()]
    return found


def content_of(row):
    entries = sorted((row["properties"] or {}).items())
    return (row["body"], row["keys"] or "", row["rowId"] or "", entries, row["flag"] or 0)


@settings(deadline=None)
@given(st.lists(row, max_size=30), st.lists(st.integers(0, 30), max_size=3), st.randoms())
def test_the_ids_of_a_task_are_all_different_and_the_same_in_any_order(rows, cuts, random):
    first = ids_of(rows)
    assert len(set(first)) == len(rows)
    order = list(range(len(rows)))
    random.shuffle(order)
    again = ids_of([rows[at] for at in order], cuts)
    assert sorted(again) == sorted(first)
    # A repeat has the id of a row with the same content.
    content = dict(zip(first, map(content_of, rows), strict=True))
    for number, at in enumerate(order):
        assert content[again[number]] == content[first[at]]


@settings(deadline=None)
@given(st.lists(row, min_size=2, max_size=12, unique_by=lambda r: (r["body"], r["rowId"])))
def test_rows_that_differ_have_different_hashes(rows):
    assert len(set(hash_rows(Rows.of(batch_of(rows))).tolist())) == len(rows)


def test_a_hash_does_not_depend_on_how_a_column_is_laid_out():
    values = [b"", b"abcdefgh", None, b"abcdefghi", b"x" * 511, b"x" * 513]
    whole = pa.array([b"skipped", *values], pa.binary())
    seed = np.full(len(values), 5, dtype=np.uint64)
    one = row_ids.hash_values(whole.slice(1), seed)
    assert one.tolist() == row_ids.hash_values(pa.array(values, pa.binary()), seed).tolist()
    assert len(set(one.tolist())) == 5  # null and empty are alike


def test_memory_stays_bounded_and_ids_stay_different(monkeypatch):
    monkeypatch.setattr(row_ids, "SECTION", 10)
    rows = [{"body": b"same", "keys": None, "rowId": None, "properties": None, "flag": None}] * 45
    found = ids_of(rows, cuts=range(0, 45, 5))
    assert len(set(found)) == 45
    assert Counter(("s" in i.rsplit(":", 1)[0][4:]) for i in found)[True] > 0


def test_ids_of_ones_own_are_kept_only_when_asked_for():
    rows = [
        {"body": b"b", "keys": None, "rowId": i, "properties": None, "flag": None}
        for i in ("a", None)
    ]
    own, fresh = ids_of(rows, keeps_own=True)
    assert own == "a"
    assert fresh.startswith("w:7:")
    ids, sources = ContentIds("w:").make(Rows.of(batch_of(rows)), 0)
    assert sources.to_pylist() == [b"a", None]
    assert b"a" not in ids.to_pylist()
    assert NoIds().make(Rows.of(batch_of(rows)), 0)[0] is None


@pytest.mark.parametrize("size", [20, 200, 2000])
def test_a_hash_of_many_rows_has_no_collision(size):
    bodies = [b"%d" % i + b"." * size for i in range(20_000)]
    rows = Rows.of(pa.record_batch({"body": bodies}))
    assert len(set(hash_rows(rows).tolist())) == len(bodies)


@pytest.mark.parametrize("kinds", [1, 7, 300, 5000])
def test_ordinals_count_equal_rows_over_all_batches(monkeypatch, kinds):
    monkeypatch.setattr(row_ids, "_SLOT_BITS", 8)  # so that most find another one in their slot
    numbers = np.random.default_rng(kinds)
    pool = numbers.integers(0, 2**64, kinds, dtype=np.uint64)
    seen, counts = row_ids._Seen(), Counter()
    for size in (0, 1, 500, 3, 800, 2000):
        hashes = pool[numbers.integers(0, kinds, size)]
        expected = []
        for value in hashes.tolist():
            expected.append(counts[value])
            counts[value] += 1
        assert seen.ordinals(hashes).tolist() == expected
