"""Apache's own store classes open a folder that the embedded broker wrote."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rocketwire.embedded.store import Draft, MessageStore, StoreSizes

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.real import jars

HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
SOURCE = Path(__file__).parent / "java" / "OpenStore.java"


def fill(folder: Path) -> MessageStore:
    store = MessageStore(
        folder,
        host=HOST,
        clock_ms=lambda: int(time.time() * 1000),
        # Small, so that several files of every kind are filled.
        sizes=StoreSizes(log_file=32768, queue_units=64, index_slots=100, index_entries=400),
    )
    for n in range(500):
        text = f"KEYS\x01k{n} shared\x02UNIQ_KEY\x01u{n}\x02TAGS\x01t{n % 4}\x02"
        store.append(
            Draft(f"T{n % 3}", n % 2, f"body{n}".encode(), text.encode(), 1_700_000_000_000, HOST)
        )
    return store


def what_apache_sees(version: str, folder: Path, home: Path, *keys: str) -> list[str]:
    command = ["java", "-Xmx256m", f"-Duser.home={home}", "-cp"]
    command += [jars.compiled(version, [SOURCE]), "OpenStore", str(folder), *keys]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.real
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
@pytest.mark.parametrize("ending", ["closed", "killed"])
def test_apache_finds_every_message_where_we_put_it(
    tmp_path: Path, version: str, ending: str
) -> None:
    jars.require_tools(version)
    store = fill(tmp_path / "store")
    if ending == "closed":
        store.close()
    else:
        store.abandon()
    # A copy: Apache writes to what it opens, and ours is compared with it afterwards.
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "store", copy)
    lines = what_apache_sees(version, copy, tmp_path, "T1=k1", "T0=u3", "T2=shared", "T1=none")
    assert "loaded true" in lines
    found = {}
    for line in lines:
        if line.startswith("message "):
            _, topic, queue, queue_offset, log_offset, body, tags = line.split()
            found[topic, int(queue), int(queue_offset)] = (int(log_offset), body, tags)
    assert len(found) == 500
    again = MessageStore(tmp_path / "store", host=HOST, clock_ms=lambda: 0)
    try:
        for (topic, queue_id, offset), (log_offset, body, tags) in found.items():
            queue = again.queues.get(topic, queue_id)
            assert queue is not None
            unit = queue.unit(offset)
            assert unit is not None
            assert unit[0] == log_offset
            number = int(body.removeprefix("body"))
            assert (f"T{number % 3}", number % 2, f"t{number % 4}") == (topic, queue_id, tags)
    finally:
        again.close()
    assert {"key T1=k1 1", "key T0=u3 1", "key T2=shared 32", "key T1=none 0"} <= set(lines)


@pytest.mark.real
@pytest.mark.timeout(600)
def test_a_folder_that_apache_had_open_is_still_ours(tmp_path: Path) -> None:
    jars.require_tools("5.3.3")
    fill(tmp_path / "store").close()
    what_apache_sees("5.3.3", tmp_path / "store", tmp_path)
    again = MessageStore(tmp_path / "store", host=HOST, clock_ms=lambda: 0)
    try:
        assert sum(queue.maximum for queue in again.queues) == 500
        assert len(again.find("T2", "shared", 0, 1 << 62, 64)) == 64
    finally:
        again.close()
