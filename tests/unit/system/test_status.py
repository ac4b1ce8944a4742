from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rocketwire.core.sending.stats import Counters
from rocketwire.fault_policy import BrokerHealth
from rocketwire.system import status as module
from rocketwire.system.status import StatusFile, is_alive, make_status, read_statuses


def healthy(broker: str, **changes: Any) -> BrokerHealth:
    fields: dict[str, Any] = {
        "broker": broker,
        "state": "usable",
        "since": 10.0,
        "until": None,
        "why": "",
        "last_latency": 0.002,
        "smoothed": 0.002,
        "p50": 0.002,
        "p90": 0.003,
        "p99": 0.004,
        "in_flight": 1,
        "failures": 0,
        "record": 0,
    }
    return BrokerHealth(**(fields | changes))


def status(client_id: str = "client-1", **changes: Any) -> dict[str, Any]:
    made = make_status(
        client_id=client_id,
        group="orders",
        health=[],
        stats=Counters().snapshot(),
        now=0.0,
        wall=time.time(),
    )
    return made | changes


class Look:
    """Gives a status each time, and tells when the one before it must have been written."""

    def __init__(self, client_id: str = "client-1") -> None:
        self.client_id = client_id
        self.calls = 0
        self.is_gone = False
        self.fails = False
        self.looked_twice = threading.Event()

    def __call__(self) -> dict[str, Any] | None:
        self.calls += 1
        if self.calls >= 2:
            self.looked_twice.set()
        if self.fails:
            raise RuntimeError("no status today")
        return None if self.is_gone else status(self.client_id, calls=self.calls)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_INTERVAL", 0.01)


def written(path: Path, look: Look) -> StatusFile:
    """A status file that was written at least once."""
    file = StatusFile(str(path), look.client_id, look)
    file.start()
    assert look.looked_twice.wait(10)
    return file


def test_moments_are_in_wall_clock_time_and_everything_is_json() -> None:
    counters = Counters()
    counters.of("broker-a").answered(0.001)
    made = make_status(
        client_id="c",
        group="g",
        health=[
            healthy("broker-a", state="isolated", since=90.0, until=160.0, why="302 ms"),
            healthy("broker-b", since=float("-inf"), until=float("inf")),
        ],
        stats=counters.snapshot(in_flight=3),
        now=100.0,
        wall=5000.0,
    )
    read = json.loads(json.dumps(made, allow_nan=False))
    assert (read["time"], read["pid"], read["client_id"], read["group"]) == (
        5000.0,
        os.getpid(),
        "c",
        "g",
    )
    first, second = read["health"]
    assert (first["since"], first["until"], first["why"]) == (4990.0, 5060.0, "302 ms")
    assert (second["since"], second["until"]) == (None, None)
    assert read["stats"]["in_flight"] == 3
    assert read["stats"]["brokers"][0]["broker"] == "broker-a"


def test_the_file_is_there_while_it_runs_and_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "status.json"
    file = written(path, Look())
    (found,) = read_statuses(path)
    assert found["client_id"] == "client-1"
    assert is_alive(found)
    file.stop()
    assert list(path.parent.iterdir()) == []


def test_the_file_is_renewed_and_always_whole(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    look = Look()
    file = written(path, look)
    seen = set()
    while len(seen) < 5:
        (found,) = read_statuses(path)  # a half-written one would not be found
        seen.add(found["calls"])
    file.stop()


def test_two_producers_with_one_path_do_not_hide_one_another(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    first, second = written(path, Look("client-1")), written(path, Look("client-2"))
    assert [s["client_id"] for s in read_statuses(path)] == ["client-1", "client-2"]
    assert second.path == tmp_path / f"status.json.{os.getpid()}"
    first.stop()
    assert [s["client_id"] for s in read_statuses(path)] == ["client-2"]
    second.stop()
    assert list(tmp_path.iterdir()) == []


def test_the_path_of_a_producer_that_is_gone_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(60)
    for left in (
        json.dumps(status("old", pid=gone.pid)),
        json.dumps(status("old", time=time.time() - 60)),
    ):
        path.write_text(left)
        look = Look("new")
        file = written(path, look)
        assert [s["client_id"] for s in read_statuses(path)] == ["new"]
        file.stop()
        assert not path.exists()


def test_a_file_that_another_has_taken_over_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    look = Look("one")
    file = written(path, look)
    look.fails = True
    calls = look.calls
    while look.calls < calls + 2:
        look.looked_twice.wait(0.001)
    path.write_text(json.dumps(status("another", pid=os.getppid())))
    file.stop()
    assert [s["client_id"] for s in read_statuses(path)] == ["another"]


def test_it_ends_by_itself_when_the_producer_is_gone(tmp_path: Path) -> None:
    look = Look()
    file = written(tmp_path / "status.json", look)
    look.is_gone = True
    assert file._thread is not None
    file._thread.join(10)
    assert not file._thread.is_alive()
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_can_not_be_written_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    look = Look()
    file = written(tmp_path / "file" / "status.json", look)
    file.stop()
    assert look.calls >= 2
    assert len(caplog.records) == 1
    assert "can't be written" in caplog.text


def test_what_is_no_status_is_not_read(tmp_path: Path) -> None:
    assert read_statuses(tmp_path / "missing" / "status.json") == []
    (tmp_path / "status.json").write_text('{"half": ')
    (tmp_path / "status.json.12").mkdir()
    assert read_statuses(tmp_path / "status.json") == []


def test_a_status_is_alive_only_while_it_is_fresh_and_its_process_runs() -> None:
    made = status()
    assert is_alive(made)
    assert not is_alive(made, now=made["time"] + module.STALE + 1)
    assert not is_alive(made, now=made["time"] - module.STALE - 1)
    assert is_alive(made | {"pid": 1})
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(60)
    assert not is_alive(made | {"pid": gone.pid})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"precious",
        b"\xff\xfe",
        b"[]",
        b'{"half": ',
        b'{"time": "soon", "pid": -1}',
        b'{"time": 1, "pid": 1, "client_id": "x"}',
        b"[" * 100_000,
    ],
)
def test_only_a_status_file_is_replaced_or_deleted(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(content)
    written(path, Look()).stop()
    assert path.read_bytes() == content
    assert "is no status file" in caplog.text


def test_what_takes_the_place_of_a_status_file_is_left_alone(tmp_path: Path) -> None:
    path, look = tmp_path / "status.json", Look()
    file = written(path, look)
    while not path.is_dir():  # the file may be written again between the two
        path.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
    calls = look.calls
    while look.calls < calls + 2:
        time.sleep(0.01)
    file.stop()
    assert path.is_dir()
