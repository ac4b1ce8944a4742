"""The store against a model in memory, with crashes at every write and lost writes at random."""

from __future__ import annotations

import os
import random
import shutil
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire_tools import iter_records

from rocketwire.embedded.store import Draft, MessageStore, StoreError, StoreSizes
from rocketwire.embedded.store.disk import Disk
from rocketwire.embedded.store.fetch import FetchStatus

HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
TINY = StoreSizes(log_file=4096, queue_units=8, index_slots=16, index_entries=32)


class SimulatedCrash(BaseException):
    """Not an ``Exception``: no code under test may catch it."""


class CrashingDisk(Disk):
    """Ends everything at one write, of which only a part reaches the file."""

    def __init__(self, at: int | None = None, part: float = 0.5, garbage: bytes = b"") -> None:
        super().__init__()
        self.at = at
        self.part = part
        self.garbage = garbage
        self.writes = 0

    def write(self, descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        if self.writes == self.at:
            size = os.fstat(descriptor).st_size
            kept = bytes(data)[: int(len(data) * self.part)]
            # What lies behind a torn write is anything, but the file does not grow.
            os.pwrite(descriptor, (kept + self.garbage)[: size - offset], offset)
            raise SimulatedCrash
        self.writes += 1
        super().write(descriptor, data, offset)


class ForgetfulDisk(Disk):
    """Remembers what each unsynced write replaced, and can undo any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.unsynced: dict[int, list[tuple[Path, int, bytes]]] = {}

    def write(self, descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        old = os.pread(descriptor, len(data), offset)
        self.unsynced.setdefault(os.fstat(descriptor).st_ino, []).append((path, offset, old))
        super().write(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self.unsynced.pop(os.fstat(descriptor).st_ino, None)

    def lose(self, chance: random.Random) -> None:
        for writes in self.unsynced.values():
            for path, offset, old in reversed(writes):
                if chance.random() < 0.5 and path.exists():
                    with path.open("r+b") as file:
                        file.seek(offset)
                        file.write(old)


@dataclass
class Model:
    """What must be there, and what may be: the operation under way when the crash came."""

    queues: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    pending: tuple[tuple[str, int], list[bytes]] | None = None
    flushed: int = 0
    order: list[tuple[tuple[str, int], bytes]] = field(default_factory=list)

    def begin(self, key: tuple[str, int], bodies: list[bytes]) -> None:
        self.pending = (key, bodies)

    def done(self) -> None:
        assert self.pending is not None
        key, bodies = self.pending
        self.queues.setdefault(key, []).extend(bodies)
        self.order += [(key, body) for body in bodies]
        self.pending = None


Operation = tuple[str, int, int, int]


def properties(body: bytes) -> bytes:
    return b"KEYS\x01%b\x02TAGS\x01t\x02" % body.split(b".")[0]


def perform(store: MessageStore, model: Model, operations: list[Operation]) -> None:
    number = 0
    for kind, queue, size, count in operations:
        if kind == "flush":
            if flush_or_fail(store):
                model.flushed = len(model.order)
        elif kind == "index":
            store.follower.step(count)
        elif kind == "send":
            number += 1
            body = b"m%d." % number + b"x" * size
            model.begin(("T", queue), [body])
            store.append(Draft("T", queue, body, properties(body), 1, HOST))
            model.done()
        else:
            bodies = [b"b%d-%d." % (number, n) + b"y" * (size % 100) for n in range(count)]
            number += 1
            items = b"".join(_item(body) for body in bodies)
            model.begin(("B", queue), bodies)
            store.append_batch(Draft("B", queue, items, b"", 1, HOST), b"S\x01s\x02")
            model.done()


def _item(body: bytes) -> bytes:
    text = properties(body)
    head = struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, 0, len(body))
    return head + body + struct.pack(">h", len(text)) + text


def contents(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}
    for key, queue in store.queues.items():
        offset = queue.minimum
        assert offset == 0
        bodies: list[bytes] = []
        while (part := store.fetch(*key, offset)).status is FetchStatus.FOUND:
            for piece in part.pieces:
                for record in iter_records(piece):
                    assert record.queue_offset == len(bodies)
                    assert record.topic == key[0]
                    bodies.append(record.body)
            offset = part.next_offset
        if bodies:
            found[key] = bodies
    return found


def check_whole(store: MessageStore, model: Model) -> None:
    """Everything acknowledged is there; of the last operation, a beginning at most."""
    found = contents(store)
    expected = {key: list(bodies) for key, bodies in model.queues.items()}
    if model.pending is not None:
        key, bodies = model.pending
        had = len(expected.get(key, []))
        extra = found.get(key, [])[had:]
        assert extra == bodies[: len(extra)]
        if extra:
            expected.setdefault(key, []).extend(extra)
    assert found == expected
    check_index(store, model.queues)


def check_index(store: MessageStore, found: dict[tuple[str, int], list[bytes]]) -> None:
    store.follower.step(100_000)
    assert store.follower.behind == 0
    for (topic, _), bodies in found.items():
        for body in bodies:
            records = store.find(topic, body.split(b".")[0].decode(), 0, 1 << 62, 64)
            assert body in [next(iter_records(r)).body for r in records]


def make(folder: Path, disk: Disk | None = None) -> MessageStore:
    return MessageStore(
        folder, host=HOST, clock_ms=lambda: 1_700_000_000_000, sizes=TINY, disk=disk
    )


SCRIPT: list[Operation] = [
    *[("send", n % 2, 40 * n, 1) for n in range(12)],
    ("batch", 0, 10, 5),
    ("flush", 0, 0, 0),
    *[("send", n % 3, 300, 1) for n in range(12)],
    ("index", 0, 0, 7),
    ("batch", 1, 30, 12),
    ("flush", 0, 0, 0),
    *[("send", 0, 20, 1) for n in range(20)],
    ("batch", 1, 0, 3),
]


def count_writes(folder: Path) -> int:
    disk = CrashingDisk()
    store = make(folder, disk)
    perform(store, Model(), SCRIPT)
    store.abandon()
    return disk.writes


@pytest.mark.parametrize(
    ("part", "garbage"),
    [
        (0.0, b""),
        (0.4, b"\xff" * 200),
        (0.97, struct.pack(">iI", 95, 0xDAA320A7) * 20),
        (1.0, b"\xff" * 200),
    ],
)
def test_a_crash_at_any_write_loses_nothing_acknowledged(
    tmp_path: Path, part: float, garbage: bytes
) -> None:
    total = count_writes(tmp_path / "count")
    assert total > 50
    for at in range(total):
        folder, model = tmp_path / f"at{at}", Model()
        store = make(folder, CrashingDisk(at, part, garbage))
        with pytest.raises(SimulatedCrash):
            perform(store, model, SCRIPT)
        store.abandon()
        again = make(folder)
        check_whole(again, model)
        again.append(Draft("T", 0, b"after.", properties(b"after."), 1, HOST))
        again.close()
        third = make(folder)
        assert contents(third)["T", 0][-1] == b"after."
        assert third.recovered == 0
        third.abandon()
        shutil.rmtree(folder)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), st.integers(0, 900), st.just(1)),
        st.tuples(st.just("batch"), st.integers(0, 1), st.integers(0, 99), st.integers(1, 9)),
        st.tuples(st.just("flush"), st.just(0), st.just(0), st.just(0)),
        st.tuples(st.just("index"), st.just(0), st.just(0), st.integers(1, 20)),
    ),
    max_size=60,
)


@settings(max_examples=40)
@given(operations, st.integers(0, 120), st.floats(0, 1), st.binary(max_size=300))
def test_any_history_survives_a_crash(
    history: list[Operation], at: int, part: float, garbage: bytes
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), Model()
        store = make(folder, CrashingDisk(at, part, garbage))
        try:
            perform(store, model, history)
            store.close()
        except SimulatedCrash:
            store.abandon()
        again = make(folder)
        check_whole(again, model)
        again.abandon()
        third = make(folder)
        check_whole(third, model)
        third.abandon()


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="needs /proc to name open files"
)


@needs_proc
@settings(max_examples=40)
@given(operations, st.randoms(use_true_random=False))
def test_a_power_failure_loses_nothing_that_was_flushed(
    history: list[Operation], chance: random.Random
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, model, disk = Path(name), Model(), ForgetfulDisk()
        store = make(folder, disk)
        perform(store, model, history)
        store.abandon()
        disk.lose(chance)
        check_power_failure(folder, model)


def check_power_failure(folder: Path, model: Model) -> None:
    """What was flushed is there, and what is left is the beginning, without a hole."""
    again = make(folder)
    found = contents(again)
    survivors = sum(len(bodies) for bodies in found.values())
    assert survivors >= model.flushed
    expected: dict[tuple[str, int], list[bytes]] = {}
    for key, body in model.order[:survivors]:
        expected.setdefault(key, []).append(body)
    assert found == expected
    check_index(again, found)
    again.close()


class BrokenDisk(ForgetfulDisk):
    """Some syncs fail; then the kernel forgets that the pages have to be written, as Linux does."""

    def __init__(self, fail: Callable[[], bool]) -> None:
        super().__init__()
        self.fail = fail
        self.dropped: dict[int, list[tuple[Path, int, bytes]]] = {}

    def sync(self, descriptor: int) -> None:
        if self.fail():
            number = os.fstat(descriptor).st_ino
            self.dropped.setdefault(number, []).extend(self.unsynced.pop(number, []))
            raise OSError(5, "broken on purpose")
        super().sync(descriptor)

    def write_again(self, descriptor: int, start: int, end: int) -> None:
        number = os.fstat(descriptor).st_ino
        dropped = self.dropped.pop(number, [])
        again = [w for w in dropped if start <= w[1] and w[1] + len(w[2]) <= end]
        self.unsynced.setdefault(number, [])[:0] = again
        self.dropped[number] = [w for w in dropped if w not in again]
        super().write_again(descriptor, start, end)

    def lose(self, chance: random.Random) -> None:
        for number, writes in self.dropped.items():
            self.unsynced[number] = writes + self.unsynced.get(number, [])
        super().lose(chance)


class AllLost(random.Random):
    """Chance at its worst."""

    def random(self) -> float:
        return 0.0


def flush_or_fail(store: MessageStore) -> bool:
    job = store.begin_flush(queues=True)
    job.run()
    try:
        store.end_flush(job)
    except StoreError:
        return False
    return True


@needs_proc
@pytest.mark.parametrize("failing", range(4))
def test_a_flush_that_failed_is_done_again_before_the_checkpoint_vouches_for_it(
    tmp_path: Path, failing: int
) -> None:
    syncs = iter([n == failing for n in range(4)])
    disk = BrokenDisk(lambda: next(syncs, False))
    store = make(tmp_path, disk)
    for queue in range(3):
        store.append(Draft("T", queue, b"m", properties(b"m."), 1, HOST))
    assert not flush_or_fail(store)
    assert store.checkpointed == -1
    assert flush_or_fail(store)
    store.append(Draft("T", 0, b"later", properties(b"l."), 1, HOST))
    assert flush_or_fail(store)
    store.abandon()
    disk.lose(AllLost())
    again = make(tmp_path)
    assert contents(again) == {("T", 0): [b"m", b"later"], ("T", 1): [b"m"], ("T", 2): [b"m"]}
    again.close()


@needs_proc
def test_a_failed_flush_that_nobody_asked_about_is_done_again_too(tmp_path: Path) -> None:
    fails = iter([True])
    disk = BrokenDisk(lambda: next(fails, False))
    store = make(tmp_path, disk)
    store.append(Draft("T", 0, b"m", properties(b"m."), 1, HOST))
    store.begin_flush(queues=True).run()
    store.close()
    disk.lose(AllLost())
    again = make(tmp_path)
    assert contents(again) == {("T", 0): [b"m"]}
    again.close()


@needs_proc
@settings(max_examples=40)
@given(operations, st.randoms(use_true_random=False), st.floats(0, 0.7))
def test_syncs_that_fail_at_random_cost_nothing_that_was_flushed(
    history: list[Operation], chance: random.Random, failures: float
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), Model()
        disk = BrokenDisk(lambda: chance.random() < failures)
        store = make(folder, disk)
        perform(store, model, history)
        store.abandon()
        disk.lose(chance)
        check_power_failure(folder, model)


#: What a client may send as properties and what a torn write may leave look the same.
ODD = [b"a\x01\xff\xfe\x02", b"a\x01b\x02c\x01\0", b"a\x01\xc3", b"\0", b"a\x01b\x02\xff"]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("sync", [False, True])
def test_a_message_whose_properties_look_torn_survives_a_crash(
    tmp_path: Path, odd: bytes, sync: bool
) -> None:
    store = make(tmp_path)
    store.append(Draft("T", 0, b"first", b"", 1, HOST))
    store.append(Draft("T", 0, b"odd", odd, 1, HOST))
    if sync:
        store.begin_flush(queues=False).run()
    store.abandon()
    again = make(tmp_path)
    assert contents(again) == {("T", 0): [b"first", b"odd"]}
    again.abandon()
    third = make(tmp_path)
    assert contents(third) == {("T", 0): [b"first", b"odd"]}
    third.close()


@pytest.mark.parametrize("odd", ODD)
def test_a_batch_whose_last_message_looks_torn_survives_a_crash(tmp_path: Path, odd: bytes) -> None:
    item = struct.pack(">iiiii", 23 + len(odd), 0, 0, 0, 1) + b"x" + struct.pack(">h", len(odd))
    store = make(tmp_path)
    store.append_batch(Draft("B", 0, (item + odd) * 3, b"", 1, HOST), b"")
    store.abandon()
    again = make(tmp_path)
    assert contents(again) == {("B", 0): [b"x"] * 3}
    again.close()


@needs_proc
def test_a_synced_message_that_looks_torn_survives_a_power_failure(tmp_path: Path) -> None:
    disk = ForgetfulDisk()
    store = make(tmp_path, disk)
    store.append(Draft("T", 0, b"odd", ODD[0], 1, HOST))
    job = store.begin_flush(queues=False)
    job.run()
    store.end_flush(job)
    store.append(Draft("T", 0, b"another", ODD[1], 1, HOST))
    store.append(Draft("T", 0, b"one more", ODD[2], 1, HOST))
    store.abandon()
    disk.lose(AllLost())
    again = make(tmp_path)
    assert contents(again) == {("T", 0): [b"odd"]}
    again.close()


@pytest.mark.parametrize("part", [0.0, 0.5, 0.9])
def test_a_torn_message_that_would_have_looked_torn_anyway_is_cut(
    tmp_path: Path, part: float
) -> None:
    disk = CrashingDisk(part=part)
    store = make(tmp_path, disk)
    store.append(Draft("T", 0, b"odd", ODD[0], 1, HOST))
    disk.at = disk.writes + 1  # the note, and then the record
    with pytest.raises(SimulatedCrash):
        store.append(Draft("T", 0, b"torn", ODD[0] * 9, 1, HOST))
    store.abandon()
    again = make(tmp_path)
    assert contents(again) == {("T", 0): [b"odd"]}
    again.close()
