"""The store: what goes in comes out, files are what Apache expects, damage is cut off."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.wire_tools import iter_records

from rocketwire.embedded.store import (
    Draft,
    MessageRefusedError,
    MessageStore,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreSizes,
)
from rocketwire.embedded.store.disk import Disk
from rocketwire.embedded.store.fetch import FetchLimits, FetchStatus, Wanted
from rocketwire.wire.java_hash import java_string_hash
from rocketwire.wire.stored_message import Record

HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
SMALL = StoreSizes(log_file=8192, queue_units=16, index_slots=32, index_entries=64)


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Iterator[list[MessageStore]]:
    stores: list[MessageStore] = []
    yield stores
    for store in stores:
        store.abandon()


@pytest.fixture
def store(tmp_path: Path, clock: Clock, opened: list[MessageStore]) -> MessageStore:
    made = MessageStore(tmp_path / "s", host=HOST, clock_ms=clock, sizes=SMALL)
    opened.append(made)
    return made


def reopen(store: MessageStore, clock: Clock, opened: list[MessageStore]) -> MessageStore:
    again = MessageStore(store.folder.path, host=HOST, clock_ms=clock, sizes=SMALL)
    opened.append(again)
    return again


def draft(body: bytes = b"body", topic: str = "T", queue: int = 0, properties: str = "") -> Draft:
    return Draft(topic, queue, body, properties.encode(), 1_700_000_000_000, HOST)


def read_all(store: MessageStore, topic: str = "T", queue: int = 0) -> list[Record]:
    found: list[Record] = []
    offset = store.queues.need(topic, queue).minimum
    while True:
        part = store.fetch(topic, queue, offset)
        if part.status is not FetchStatus.FOUND:
            return found
        for piece in part.pieces:
            found += iter_records(piece)
        offset = part.next_offset


def test_records_come_back_in_order_over_many_files(store: MessageStore) -> None:
    for n in range(300):
        store.append(draft(b"%d" % n * 10, queue=n % 3, properties=f"TAGS\x01t{n}\x02"))
    assert len(store.log.files) > 3
    for queue in range(3):
        records = read_all(store, queue=queue)
        assert [r.body for r in records] == [b"%d" % n * 10 for n in range(queue, 300, 3)]
        assert [r.queue_offset for r in records] == list(range(100))


def test_files_have_the_names_and_sizes_that_apache_expects(store: MessageStore) -> None:
    for n in range(100):
        store.append(draft(b"%d" % n))
    store.close()
    folder = store.folder.path
    logs = sorted((folder / "commitlog").iterdir())
    assert [p.name for p in logs] == [f"{n * 8192:020d}" for n in range(len(logs))]
    assert {p.stat().st_size for p in logs} == {8192}
    queues = sorted((folder / "consumequeue" / "T" / "0").iterdir())
    assert [p.name for p in queues] == [f"{n * 320:020d}" for n in range(len(queues))]
    assert {p.stat().st_size for p in queues} == {320}
    assert (folder / "checkpoint").stat().st_size == 4096
    assert not (folder / "abort").exists()


def test_a_file_ends_with_a_blank_record_that_fills_it(store: MessageStore) -> None:
    while len(store.log.files) < 2:
        end = store.log.end
        store.append(draft(b"x" * 500))
    data = (store.folder.path / "commitlog" / f"{0:020d}").read_bytes()
    size, magic = struct.unpack_from(">iI", data, end)
    assert (size, magic) == (8192 - end, 0xCBD43194)


def test_a_queue_unit_holds_place_size_and_tag(store: MessageStore) -> None:
    first = store.append(draft(properties="KEYS\x01a\x02TAGS\x01pay\x02"))
    second = store.append(draft(properties="XTAGS\x01no\x02"))
    queue = store.queues.need("T", 0)
    assert queue.unit(0) == (0, first.size, java_string_hash("pay"))
    assert queue.unit(1) == (first.size, second.size, 0)
    assert queue.unit(2) is None


def test_a_record_is_laid_out_as_the_protocol_says(
    tmp_path: Path, opened: list[MessageStore]
) -> None:
    # The vector of the protocol's description, but for its place in the log.
    store = MessageStore(
        tmp_path / "v",
        host=bytes([10, 0, 0, 2]) + (10911).to_bytes(4, "big"),
        clock_ms=lambda: 1_700_000_000_100,
    )
    opened.append(store)
    born = bytes([10, 0, 0, 1]) + (50000).to_bytes(4, "big")
    store.append(Draft("T", 2, b"hello", b"TAGS\x01TagA\x02", 1_700_000_000_000, born))
    record = store.record_at(0)
    assert record is not None
    assert bytes(record).hex() == (
        "0000006bdaa320a73610a6860000000200000000"
        "0000000000000000"
        "0000000000000000"
        "000000000000018bcfe568000a0000010000c3500000018bcfe568640a00000200002a9f"
        "0000000000000000000000000000000568656c6c6f0154000a54414753015461674102"
    )


def test_ipv6_hosts_and_long_topics_are_stored(tmp_path: Path, opened: list[MessageStore]) -> None:
    six = bytes(15) + b"\1" + (10911).to_bytes(4, "big")
    store = MessageStore(tmp_path / "six", host=six, clock_ms=lambda: 5)
    opened.append(store)
    name = "%RETRY%" + "g" * 200
    store.append(Draft(name, 0, b"b", b"", 1, six))
    store.append(Draft(name, 0, b"c", b"", 1, HOST))
    assert [r.topic for r in read_all(store, name)] == [name, name]
    assert [r.born_host for r in read_all(store, name)] == ["[::1]:10911", "127.0.0.1:10911"]
    store.abandon()
    again = MessageStore(tmp_path / "six", host=six, clock_ms=lambda: 5)
    opened.append(again)
    assert [r.body for r in read_all(again, name)] == [b"b", b"c"]


def test_a_message_that_fits_nowhere_is_refused_and_harms_nothing(store: MessageStore) -> None:
    with pytest.raises(MessageRefusedError, match="do not fit into a log file"):
        store.append(draft(b"x" * 9000))
    with pytest.raises(MessageRefusedError, match="properties take 40000 bytes"):
        store.append(draft(properties="x" * 40000))
    with pytest.raises(MessageRefusedError, match=r"'\.\./\.\./etc'"):
        store.append(draft(topic="../../etc"))
    store.append(draft(b"ok"))
    assert [r.body for r in read_all(store)] == [b"ok"]


def test_pull_limits_hold_and_the_first_message_always_comes(store: MessageStore) -> None:
    for _ in range(20):
        store.append(draft(b"x" * 300))
    assert store.fetch("T", 0, 0, FetchLimits(messages=7)).count == 7
    assert store.fetch("T", 0, 0, FetchLimits(size=1000)).count == 2
    assert store.fetch("T", 0, 0, FetchLimits(size=10)).count == 1


def test_a_tag_filter_skips_and_says_how_far_it_looked(store: MessageStore) -> None:
    for n in range(30):
        store.append(draft(b"%d" % n, properties=f"TAGS\x01{'a' if n % 10 == 0 else 'b'}\x02"))
    wanted = Wanted({java_string_hash("a")})
    found = store.fetch("T", 0, 1, FetchLimits(), wanted)
    bodies = [r.body for piece in found.pieces for r in iter_records(piece)]
    assert (bodies, found.next_offset) == ([b"10", b"20"], 30)
    none = store.fetch("T", 0, 21, FetchLimits(), wanted)
    assert (none.status, none.next_offset) == (FetchStatus.NO_MATCHED_MESSAGE, 30)


@pytest.mark.parametrize("born", [HOST, bytes(20)])
def test_a_filter_by_properties_sees_those_of_each_message(
    store: MessageStore, born: bytes
) -> None:
    topic = "T" * 200
    for n in range(30):
        store.append(Draft(topic, 0, b"x" * n, f"n\x01{n}\x02".encode(), 1, born))
    wanted = Wanted(matches=lambda properties: int(properties["n"]) % 10 == 0)
    found = store.fetch(topic, 0, 1, FetchLimits(), wanted)
    bodies = [len(r.body) for piece in found.pieces for r in iter_records(piece)]
    assert (bodies, found.next_offset) == ([10, 20], 30)


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (-1, FetchStatus.OFFSET_TOO_SMALL, 0),
        (5, FetchStatus.OFFSET_OVERFLOW_ONE, 5),
        (6, FetchStatus.OFFSET_OVERFLOW_BADLY, 5),
    ],
)
def test_offsets_outside_of_the_queue(
    store: MessageStore, offset: int, status: FetchStatus, following: int
) -> None:
    for _ in range(5):
        store.append(draft())
    found = store.fetch("T", 0, offset)
    assert (found.status, found.next_offset) == (status, following)


def test_unknown_and_empty_queues_are_told_apart(store: MessageStore) -> None:
    assert store.fetch("T", 0, 0).status is FetchStatus.NO_MATCHED_LOGIC_QUEUE
    store.queues.need("T", 0)
    assert store.fetch("T", 0, 0).status is FetchStatus.NO_MESSAGE_IN_QUEUE


def test_offsets_by_time(store: MessageStore, clock: Clock) -> None:
    times = [100, 200, 200, 200, 300]
    for at in times:
        clock.now = at
        store.append(draft())
    lower = {t: store.offset_by_time("T", 0, t) for t in (50, 100, 150, 200, 250, 300, 301)}
    assert lower == {50: 0, 100: 0, 150: 1, 200: 1, 250: 4, 300: 4, 301: 5}
    upper = {t: store.offset_by_time("T", 0, t, upper=True) for t in (50, 100, 150, 200, 250, 400)}
    assert upper == {50: 0, 100: 0, 150: 0, 200: 3, 250: 3, 400: 4}
    assert store.offset_by_time("none", 0, 5) == 0


def test_a_record_is_found_only_at_its_own_place(store: MessageStore) -> None:
    place = store.append(draft(b"abc"))
    assert store.record_at(place.physical_offset) is not None
    assert store.record_at(place.physical_offset + 1) is None
    assert store.record_at(10**12) is None
    assert store.record_at(-5) is None
    assert store.store_ms_at(place.physical_offset) == 1_700_000_000_000
    assert store.store_ms_at(7) == -1


# The index


def test_messages_are_found_by_every_key_and_by_unique_id(store: MessageStore) -> None:
    for n in range(100):
        text = f"KEYS\x01k{n} all\x02UNIQ_KEY\x01U{n}\x02"
        store.append(draft(b"%d" % n, properties=text))
    assert store.follower.behind > 0
    store.follower.step(10_000)
    assert store.follower.behind == 0
    assert len(store.index.files) > 3
    for n in range(100):
        for key in (f"k{n}", f"U{n}"):
            (record,) = store.find("T", key, 0, 1 << 62, 32)
            assert next(iter_records(record)).body == b"%d" % n
    assert len(store.find("T", "all", 0, 1 << 62, 64)) == 64
    assert store.find("T", "none", 0, 1 << 62, 64) == []
    assert store.find("other", "k1", 0, 1 << 62, 64) == []


def test_a_query_keeps_to_its_span_of_time(store: MessageStore, clock: Clock) -> None:
    begin = clock.now
    for n in range(5):
        clock.now = begin + n * 60_000
        store.append(draft(b"%d" % n, properties="KEYS\x01k\x02"))
    store.follower.step(100)

    def bodies(low: int, high: int) -> list[bytes]:
        found = store.find("T", "k", begin + low, begin + high, 64)
        return [next(iter_records(r)).body for r in found]

    assert bodies(0, 240_000) == [b"4", b"3", b"2", b"1", b"0"]
    assert bodies(60_000, 120_000) == [b"2", b"1"]
    assert bodies(300_000, 400_000) == []


def test_keys_of_odd_texts_are_found(store: MessageStore) -> None:
    keys = ["ключ", "😀", "x" * 300, "a\x01b", "TAGS"]
    for key in keys:
        store.append(draft(key.encode(), properties=f"KEYS\x01{key}\x02"))
    store.follower.step(100)
    for key in keys:
        (record,) = store.find("T", key, 0, 1 << 62, 32)
        assert next(iter_records(record)).body == key.encode()


def test_the_index_follows_on_after_a_clean_end_and_is_made_again_after_a_crash(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    for n in range(50):
        store.append(draft(b"%d" % n, properties=f"KEYS\x01k{n} x{n}\x02"))
    store.follower.step(30)
    store.close()
    again = reopen(store, clock, opened)
    again.append(draft(b"last", properties="KEYS\x01last\x02"))
    again.follower.step(1000)
    assert len(again.find("T", "k49", 0, 1 << 62, 9)) == 1
    assert len(again.find("T", "last", 0, 1 << 62, 9)) == 1
    again.abandon()
    crashed = reopen(store, clock, opened)
    crashed.follower.step(1000)
    for n in range(50):
        assert len(crashed.find("T", f"x{n}", 0, 1 << 62, 9)) == 1


# Damage


def test_a_torn_tail_is_cut_off(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    for n in range(10):
        store.append(draft(b"%d" % n))
    last = store.append(draft(b"torn" * 20))
    store.abandon()
    path = store.folder.path / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(last.physical_offset + 100)
        file.write(b"\xff" * 500)
    again = reopen(store, clock, opened)
    assert [r.body for r in read_all(again)] == [b"%d" % n for n in range(10)]
    assert again.log.end == last.physical_offset
    assert not any(path.read_bytes()[last.physical_offset :])
    again.append(draft(b"new"))
    assert read_all(again)[-1].body == b"new"


def test_a_truncated_last_file_is_mended(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    for n in range(10):
        store.append(draft(b"%d" % n))
    store.abandon()
    path = store.folder.path / "commitlog" / f"{0:020d}"
    os.truncate(path, 150)
    again = reopen(store, clock, opened)
    assert [r.body for r in read_all(again)] == [b"0"]
    assert path.stat().st_size == 8192


def test_an_old_record_in_the_rubbish_is_not_taken_for_a_new_one(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    first = store.append(draft(b"first"))
    record = store.record_at(0)
    assert record is not None
    copy = bytes(record)
    del record
    store.abandon()
    path = store.folder.path / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(first.size)
        file.write(copy)
    again = reopen(store, clock, opened)
    assert [r.body for r in read_all(again)] == [b"first"]


def test_lost_queues_are_rebuilt_from_the_log(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    for n in range(100):
        store.append(draft(b"%d" % n, queue=n % 2, properties=f"TAGS\x01t{n}\x02"))
    units = [[store.queues.need("T", q).unit(n) for n in range(50)] for q in (0, 1)]
    store.abandon()
    again = reopen(store, clock, opened)
    assert again.recovered == 100
    assert [[again.queues.need("T", q).unit(n) for n in range(50)] for q in (0, 1)] == units


def test_a_missing_checkpoint_means_reading_everything_again(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    for n in range(100):
        store.append(draft(b"%d" % n))
    store.close()
    (store.folder.path / "checkpoint").unlink()
    again = reopen(store, clock, opened)
    assert again.recovered == 100
    assert [r.body for r in read_all(again)] == [b"%d" % n for n in range(100)]


def test_after_a_clean_end_nothing_is_read_again(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    for n in range(100):
        store.append(draft(b"%d" % n))
    store.close()
    again = reopen(store, clock, opened)
    assert again.recovered == 0
    assert len(read_all(again)) == 100


def test_only_what_came_after_the_flush_is_read_again(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    for n in range(60):
        store.append(draft(b"%d" % n))
        if n == 49:
            store.flush()
    store.abandon()
    again = reopen(store, clock, opened)
    assert again.recovered == 10
    assert len(read_all(again)) == 60


# Room


def test_a_full_disk_refuses_and_still_reads(
    tmp_path: Path, clock: Clock, opened: list[MessageStore]
) -> None:
    disk = Disk(limit=3000)
    store = MessageStore(tmp_path / "full", host=HOST, clock_ms=clock, sizes=SMALL, disk=disk)
    opened.append(store)
    stored = 0
    with pytest.raises(StoreFullError, match="disk is full"):
        while True:
            store.append(draft(b"x" * 200))
            stored += 1
    assert stored > 5
    assert len(read_all(store)) == stored
    disk.limit = None
    store.append(draft(b"room again"))
    assert len(read_all(store)) == stored + 1


def test_a_write_that_fails_half_way_leaves_nothing(
    tmp_path: Path, clock: Clock, opened: list[MessageStore]
) -> None:
    class Torn(Disk):
        tear = False

        def write(self, descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
            if self.tear:
                os.pwrite(descriptor, bytes(data)[: len(data) // 2], offset)
                raise StoreFullError("the disk is full: torn on purpose")
            super().write(descriptor, data, offset)

    disk = Torn()
    store = MessageStore(tmp_path / "torn", host=HOST, clock_ms=clock, sizes=SMALL, disk=disk)
    opened.append(store)
    store.append(draft(b"before"))
    disk.tear = True
    with pytest.raises(StoreFullError):
        store.append(draft(b"lost" * 100))
    disk.tear = False
    store.append(draft(b"after"))
    store.abandon()
    again = MessageStore(tmp_path / "torn", host=HOST, clock_ms=clock, sizes=SMALL)
    opened.append(again)
    assert [r.body for r in read_all(again)] == [b"before", b"after"]


def test_retention_by_size_deletes_whole_files_and_moves_the_minimum(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    for n in range(300):
        store.append(draft(b"%03d" % n, queue=n % 2, properties=f"KEYS\x01k{n}\x02"))
    store.follower.step(1000)
    store.flush()
    before = len(store.log.files)
    deleted = store.retain(max_bytes=3 * 8192)
    assert 0 < deleted == before - len(store.log.files)
    assert not (store.folder.path / "commitlog" / f"{0:020d}").exists()
    queue = store.queues.need("T", 0)
    assert queue.minimum > 0
    records = read_all(store)
    assert records[0].queue_offset == queue.minimum
    assert records[-1].body == b"298"
    assert store.fetch("T", 0, 0).status is FetchStatus.OFFSET_TOO_SMALL
    assert store.find("T", "k0", 0, 1 << 62, 9) == []
    store.close()
    again = reopen(store, clock, opened)
    assert again.queues.need("T", 0).minimum == queue.minimum
    assert [r.body for r in read_all(again)] == [r.body for r in records]
    again.append(draft(b"on"))
    (again.folder.path / "checkpoint").unlink()
    again.abandon()
    third = reopen(store, clock, opened)
    assert [r.body for r in read_all(third)] == [*(r.body for r in records), b"on"]


def test_retention_by_age_spares_the_file_in_use(store: MessageStore, clock: Clock) -> None:
    for _ in range(100):
        store.append(draft(b"x" * 100))
    store.flush()
    import time

    clock.now = int(time.time() * 1000) + 10_000
    assert store.retain(max_age_ms=60_000) == 0
    assert store.retain(max_age_ms=5_000) > 0
    assert len(store.log.files) == 1
    store.append(draft(b"more"))
    assert read_all(store)[-1].body == b"more"


def test_a_deleted_topic_begins_again_at_zero_even_after_a_crash(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    for n in range(30):
        store.append(draft(b"old%d" % n))
    store.delete_topic("T")
    store.append(draft(b"new"))
    store.abandon()
    again = reopen(store, clock, opened)
    assert [(r.body, r.queue_offset) for r in read_all(again)] == [(b"new", 0)]


# The folder


def test_a_folder_has_one_owner(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    with pytest.raises(StoreLockedError, match="open in this process"):
        reopen(store, clock, opened)
    store.close()
    reopen(store, clock, opened)


def test_the_sizes_of_a_folder_are_kept(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    store.append(draft())
    store.close()
    again = MessageStore(store.folder.path, host=HOST, clock_ms=clock, sizes=StoreSizes())
    opened.append(again)
    assert again.sizes == SMALL
    text = (store.folder.path / "config" / "store.properties").read_text()
    assert "mappedFileSizeCommitLog=8192" in text
    assert "mappedFileSizeConsumeQueue=320" in text


def test_a_gap_in_the_log_is_an_error_and_not_a_guess(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    while len(store.log.files) < 3:
        store.append(draft(b"x" * 500))
    store.close()
    (store.folder.path / "commitlog" / f"{8192:020d}").unlink()
    with pytest.raises(StoreError, match="does not follow on"):
        reopen(store, clock, opened)


@pytest.mark.parametrize(
    "sizes",
    [{"log_file": 100}, {"queue_units": 1}, {"index_slots": 0}, {"index_entries": 10**9}],
)
def test_impossible_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(StoreError, match=next(iter(sizes))):
        StoreSizes(**sizes)


def test_apaches_sizes_are_a_gibibyte_and_420_megabytes() -> None:
    sizes = StoreSizes.apache()
    assert (sizes.log_file, sizes.queue_file, sizes.index_file) == (1 << 30, 6_000_000, 420_000_040)


def test_many_queues_need_few_descriptors(store: MessageStore) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for n in range(300):
        store.append(draft(b"%d" % n, topic=f"T{n}"))
    store.flush()
    for n in range(300):
        assert read_all(store, f"T{n}")[0].body == b"%d" % n
    if before:
        assert len(os.listdir("/proc/self/fd")) - before < 120


def test_a_long_log_needs_few_descriptors(
    store: MessageStore, clock: Clock, opened: list[MessageStore]
) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to count open files")
    before = len(os.listdir("/proc/self/fd"))
    for n in range(2400):
        store.append(draft(b"%04d" % n + b"x" * 500))
        if n % 100 == 0:
            store.flush()
    store.flush()
    assert len(store.log.files) > 160
    assert len(read_all(store)) == 2400
    assert len(os.listdir("/proc/self/fd")) - before < 120
    store.close()
    again = reopen(store, clock, opened)
    assert [r.body[:4] for r in read_all(again)] == [b"%04d" % n for n in range(2400)]
    assert len(os.listdir("/proc/self/fd")) - before < 120
