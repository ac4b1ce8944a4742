from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketwire.config import ProducerConfig, from_mapping
from rocketwire.errors import ConfigError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.hooks import AttemptEvent, BrokerEvent, HookSet, ProbeEvent, RouteEvent
from rocketwire.message import MessageQueue
from rocketwire.system import telemetry
from rocketwire.system.telemetry import LineFiles, Telemetry
from rocketwire.system.telemetry_lines import Formatter, hashed_key, settings_of
from rocketwire.telemetry_config import TelemetryConfig, as_telemetry

CLIENT = "10.0.0.9@77#123"


def attempt(number: int = 1, **changes: Any) -> AttemptEvent:
    event = AttemptEvent(
        at=1_700_000_000.25,
        client_id=CLIENT,
        topic="orders",
        broker="broker-a",
        queue_id=3,
        offset=number,
        message_id=f"ID{number}",
        sharding_key="customer-7",
        size=200,
        latency=0.0125,
        outcome="stored",
        error=None,
        attempt=1,
        messages=1,
        state="usable",
    )
    return event._replace(**changes)


def all_lines(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("attempts-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [line for line in all_lines(folder) if line["kind"] != "header"]


def opened(folder: Path, **settings: Any) -> Telemetry:
    return Telemetry(TelemetryConfig(str(folder), **settings), CLIENT)


def test_an_attempt_is_one_line_with_all_its_fields(tmp_path: Path) -> None:
    hook = opened(tmp_path)
    hook.after_attempt(
        attempt(5, mode="async", is_pinned=True, send_at=1_700_000_000.0, timeout=3.0)
    )
    hook.close()
    assert lines(tmp_path) == [
        {
            "kind": "attempt",
            "time": 1_700_000_000.25,
            "clientId": CLIENT,
            "topic": "orders",
            "broker": "broker-a",
            "queueId": 3,
            "offset": 5,
            "messageId": "ID5",
            "shardingKey": "customer-7",
            "bytes": 200,
            "latency": 0.0125,
            "outcome": "stored",
            "error": None,
            "attempt": 1,
            "messages": 1,
            "state": "usable",
            "mode": "async",
            "pinned": True,
            "sendTime": 1_700_000_000.0,
            "timeout": 3.0,
        }
    ]


def test_odd_text_is_still_json(tmp_path: Path) -> None:
    hook = opened(tmp_path)
    text = 'a "quoted"\n\x01\u2028\ud800 line'
    hook.after_attempt(attempt(sharding_key=text, error=text, offset=None, topic=text))
    hook.close()
    (line,) = lines(tmp_path)
    assert (line["shardingKey"], line["error"], line["topic"]) == (text, text, text)
    assert line["offset"] is None


def test_isolation_and_return_are_lines_with_their_reason(tmp_path: Path) -> None:
    hook = opened(tmp_path)
    hook.broker_isolated(BrokerEvent(1000.0, "broker-b", "302 ms, 151 times the others", 1030.0))
    hook.broker_isolated(BrokerEvent(1001.0, "broker-c", "no answer", None))
    hook.broker_returned(BrokerEvent(1002.0, "broker-b", "answers again", None))
    hook.close()
    assert lines(tmp_path) == [
        {
            "kind": "isolated",
            "time": 1000.0,
            "clientId": CLIENT,
            "broker": "broker-b",
            "reason": "302 ms, 151 times the others",
            "until": 1030.0,
        },
        {
            "kind": "isolated",
            "time": 1001.0,
            "clientId": CLIENT,
            "broker": "broker-c",
            "reason": "no answer",
            "until": None,
        },
        {
            "kind": "returned",
            "time": 1002.0,
            "clientId": CLIENT,
            "broker": "broker-b",
            "reason": "answers again",
            "until": None,
        },
    ]


def test_it_hears_of_attempts_brokers_and_routes_and_of_nothing_else(tmp_path: Path) -> None:
    hooks = HookSet((opened(tmp_path),))
    heard = [name for name in HookSet.__slots__ if getattr(hooks, name)]
    assert heard == [
        "after_attempt",
        "broker_isolated",
        "broker_probed",
        "broker_returned",
        "route_learned",
    ]


def test_an_event_of_an_earlier_version_has_defaults_for_what_is_new() -> None:
    assert attempt()[15:] == ("blocking", False, None, None)


def test_probes_are_lines_with_what_came_of_them(tmp_path: Path) -> None:
    hook = opened(tmp_path)
    hook.broker_probed(ProbeEvent(1000.0, "broker-b", 0.25, True, ""))
    hook.broker_probed(ProbeEvent(1001.0, "broker-b", None, False, "gave no answer"))
    hook.close()
    common = {"kind": "probe", "clientId": CLIENT, "broker": "broker-b"}
    assert lines(tmp_path) == [
        common | {"time": 1000.0, "latency": 0.25, "good": True, "reason": ""},
        common | {"time": 1001.0, "latency": None, "good": False, "reason": "gave no answer"},
    ]


def route(topic: str, **queues: int) -> RouteEvent:
    after = tuple(
        MessageQueue(topic, name, n) for name, most in queues.items() for n in range(most)
    )
    return RouteEvent(f"space%{topic}", (), after, 1000.0)


def test_every_file_begins_with_the_settings_and_the_routes_known_then(tmp_path: Path) -> None:
    config = ProducerConfig(fault=FaultPolicy(floor=0.05), retries=4, send_timeout=2.0)
    settings = TelemetryConfig(str(tmp_path), rotate_bytes=4096, files=3)
    hook = Telemetry(settings, CLIENT, settings_of(config))
    hook.route_learned(route("orders", a=2))
    hook.route_learned(route("orders", a=2, b=1))
    for number in range(200):
        hook.after_attempt(attempt(number))
    hook.close()
    for path in tmp_path.iterdir():
        first, second, *others = map(json.loads, path.read_text().splitlines())
        assert (first["kind"], first["version"], first["clientId"]) == ("header", 2, CLIENT)
        assert FaultPolicy(**first["policy"]) == config.fault
        assert (first["sendTimeout"], first["attemptTimeout"], first["retries"]) == (2.0, "auto", 4)
        assert (second["topic"], second["queues"]) == ("orders", {"a": 2, "b": 1})
        assert others


def test_routes_take_no_more_than_a_part_of_a_file(tmp_path: Path) -> None:
    hook = opened(tmp_path, rotate_bytes=4096, files=100)
    for number in range(500):
        hook.route_learned(route(f"topic-{number}", a=1))
    hook.close()
    assert all(path.stat().st_size <= 4096 for path in tmp_path.iterdir())
    assert {line["topic"] for line in lines(tmp_path)} == {f"topic-{n}" for n in range(500)}


def test_the_sharding_key_can_be_hashed_or_left_out(tmp_path: Path) -> None:
    for form in ("hashed", "off"):
        hook = opened(tmp_path / form, sharding_key=form)
        hook.after_attempt(attempt())
        hook.after_attempt(attempt(sharding_key=None))
        hook.close()
    assert [line["shardingKey"] for line in lines(tmp_path / "hashed")] == [
        hashed_key("customer-7"),
        None,
    ]
    assert [line["shardingKey"] for line in lines(tmp_path / "off")] == [None, None]
    # The same in every process, so that files of several can be compared.
    assert hashed_key("customer-7") == "698e94ed4ec1a85a"
    assert hashed_key("customer-7") != hashed_key("customer-8")


def test_nothing_is_lost_however_many_threads_record(tmp_path: Path) -> None:
    hook = opened(tmp_path, max_queue=100_000)

    def record(first: int) -> None:
        for number in range(first, first + 2000):
            hook.after_attempt(attempt(number))

    threads = [threading.Thread(target=record, args=(first,)) for first in range(0, 10_000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hook.close()
    assert sorted(line["offset"] for line in lines(tmp_path)) == list(range(10_000))
    assert hook.dropped == 0


def test_no_thread_and_no_file_before_the_first_record(tmp_path: Path) -> None:
    before = threading.active_count()
    hook = opened(tmp_path / "made-later")
    assert threading.active_count() == before
    hook.close()
    assert not (tmp_path / "made-later").exists()


def test_closing_twice_and_recording_afterwards_harm_nobody(tmp_path: Path) -> None:
    hook = opened(tmp_path)
    hook.after_attempt(attempt(1))
    hook.close()
    hook.close()
    hook.after_attempt(attempt(2))
    assert [line["offset"] for line in lines(tmp_path)] == [1]
    assert hook.dropped == 1


def test_a_full_file_is_followed_by_the_next_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    hook = opened(tmp_path, rotate_bytes=4096, files=3)
    for number in range(200):
        hook.after_attempt(attempt(number))
    hook.close()
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 3
    assert all(0 < path.stat().st_size <= 4096 for path in paths)
    offsets = [line["offset"] for line in lines(tmp_path)]
    assert offsets == list(range(offsets[0], 200))
    assert int(paths[-1].stem.rpartition("-")[2]) > 3


def test_a_line_that_is_larger_than_a_file_gets_one_of_its_own(tmp_path: Path) -> None:
    hook = opened(tmp_path, rotate_bytes=4096)
    for error in ("short", "x" * 9000, "short"):
        hook.after_attempt(attempt(error=error))
    hook.close()
    assert [len(line["error"]) for line in lines(tmp_path)] == [5, 9000, 5]
    assert len(list(tmp_path.iterdir())) == 3


def test_two_writers_with_one_client_id_never_share_a_file(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    for number in range(3):
        first.after_attempt(attempt(number))
        second.after_attempt(attempt(number + 10))
    first.close()
    second.close()
    contents = [
        {json.loads(line)["offset"] for line in path.read_text().splitlines()[1:]}
        for path in tmp_path.iterdir()
    ]
    assert sorted(contents, key=min) == [{0, 1, 2}, {10, 11, 12}]


def test_file_names_are_safe_whatever_the_client_id_is(tmp_path: Path) -> None:
    files = LineFiles(TelemetryConfig(str(tmp_path)), "../../etc/a b#1" + "x" * 500)
    files.write([b"{}\n"])
    files.close()
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("attempts-.._.._etc_a_b_1xxx")
    assert len(path.name) < 160


class Disk:
    """A disk whose writes can be made to fail; what it can't do, the real one does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.real = os.write
        self.is_full = True
        self.takes = 0
        self.refused = threading.Event()
        monkeypatch.setattr(telemetry.os, "write", self.write)
        monkeypatch.setattr(telemetry, "_RETRY", 0.01)

    def write(self, descriptor: int, data: bytes) -> int:
        if not self.is_full:
            return self.real(descriptor, data)
        self.refused.set()
        if self.takes:
            return self.real(descriptor, data[: self.takes])
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("takes", [0, 17])
def test_a_full_disk_delays_records_and_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, takes: int
) -> None:
    disk = Disk(monkeypatch)
    disk.takes = takes
    hook = opened(tmp_path)
    hook.after_attempt(attempt(1))
    assert disk.refused.wait(10)
    hook.after_attempt(attempt(2))
    disk.is_full = False
    hook.close()
    assert [line["offset"] for line in lines(tmp_path)] == [1, 2]
    assert hook.dropped == 0
    assert len(caplog.records) == 1  # once, not for every try


def test_a_record_that_can_t_be_written_costs_itself_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usual = Formatter.line

    def line(self: Formatter, record: Any) -> bytes:
        if record.offset == 1:
            raise TypeError("an odd record")
        return usual(self, record)

    monkeypatch.setattr(Formatter, "line", line)
    hook = opened(tmp_path)
    for number in range(3):
        hook.after_attempt(attempt(number))
    hook.close()
    assert [line["offset"] for line in lines(tmp_path) if line["kind"] == "attempt"] == [0, 2]
    assert hook.dropped == 1
    assert "an odd record" in caplog.text


def test_whatever_fails_in_the_writer_telemetry_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread ended, and all that came later was dropped in silence."""
    usual, failed = LineFiles.write, threading.Event()

    def write(self: LineFiles, given: list[bytes]) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("not of the disk")
        usual(self, given)

    monkeypatch.setattr(LineFiles, "write", write)
    hook = opened(tmp_path)
    hook.after_attempt(attempt(1))
    assert failed.wait(10)
    hook.after_attempt(attempt(2))
    hook.close()
    assert [line["offset"] for line in lines(tmp_path) if line["kind"] == "attempt"] == [2]
    assert hook.dropped == 1
    assert "telemetry failed, and goes on" in caplog.text


def test_what_does_not_fit_is_dropped_counted_and_told_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    hook = opened(tmp_path, max_queue=10)
    hook.after_attempt(attempt(0))
    assert disk.refused.wait(10)
    for number in range(1, 31):
        hook.after_attempt(attempt(number))
    assert hook.dropped == 20
    disk.is_full = False
    hook.close()
    found = lines(tmp_path)
    assert [line["offset"] for line in found if line["kind"] == "attempt"] == list(range(11))
    assert [line["dropped"] for line in found if line["kind"] == "dropped"] == [20]
    assert hook.dropped == 20


def test_a_disk_that_stays_full_costs_records_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    hook = opened(tmp_path, max_queue=10)
    hook.after_attempt(attempt(0))
    assert disk.refused.wait(10)
    for number in range(1, 31):
        hook.after_attempt(attempt(number))
    hook.close()
    assert lines(tmp_path) == []
    assert hook.dropped == 31


def test_a_folder_that_can_not_be_made_costs_records_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    hook = opened(tmp_path / "file" / "below")
    for number in range(5):
        hook.after_attempt(attempt(number))
    hook.close()
    assert hook.dropped == 5
    assert "sends go on" in caplog.text


def test_records_survive_an_end_of_python_without_shutdown(tmp_path: Path) -> None:
    program = (
        "from tests.unit.system.test_telemetry import attempt, opened\n"
        "from pathlib import Path\n"
        f"hook = opened(Path({str(tmp_path)!r}))\n"
        "for number in range(100): hook.after_attempt(attempt(number))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert [line["offset"] for line in lines(tmp_path)] == list(range(100))


def test_a_forked_child_leaves_what_is_in_line_to_its_parent(tmp_path: Path) -> None:
    program = (
        "import os\n"
        "from pathlib import Path\n"
        "from tests.unit.system.test_telemetry import attempt, opened\n"
        f"hook = opened(Path({str(tmp_path)!r}))\n"
        "for number in range(50): hook.after_attempt(attempt(number))\n"
        "if not os.fork():\n"
        "    hook.forget()\n"
        "    hook.after_attempt(attempt(1000))\n"
        "    hook.close()\n"
        "    raise SystemExit\n"
        "os.wait()\n"
        "hook.close()\n"
    )
    subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program], check=True, timeout=60
    )
    assert [line["offset"] for line in lines(tmp_path)] == list(range(50))


def test_settings_come_as_a_folder_a_mapping_json_or_a_value(tmp_path: Path) -> None:
    folder = str(tmp_path)
    wanted = TelemetryConfig(folder, sharding_key="hashed", files=2)
    mapping = {"folder": folder, "sharding_key": "hashed", "files": 2}
    assert as_telemetry(tmp_path) == as_telemetry(folder) == TelemetryConfig(folder)
    assert as_telemetry(mapping) == as_telemetry(json.dumps(mapping)) == as_telemetry(wanted)
    assert as_telemetry(None) is as_telemetry("") is None
    environ = {"ROCKETWIRE_TELEMETRY": folder}
    assert from_mapping(ProducerConfig, environ=environ).telemetry == TelemetryConfig(folder)


@pytest.mark.parametrize(
    ("value", "blamed"),
    [
        ({"folder": ""}, "folder"),
        ({"folder": "f", "rotate_bytes": 10}, "rotate_bytes"),
        ({"folder": "f", "files": 0}, "files"),
        ({"folder": "f", "max_queue": True}, "max_queue"),
        ({"folder": "f", "sharding_key": "secret"}, "plain, hashed, off"),
        ({"folder": "f", "colour": 1}, "colour"),
        ("{nonsense", "no JSON object"),
        (7, "give a folder"),
    ],
)
def test_wrong_settings_are_refused_with_the_field_and_the_remedy(
    value: object, blamed: str
) -> None:
    with pytest.raises(ConfigError, match=blamed):
        ProducerConfig(telemetry=value)
