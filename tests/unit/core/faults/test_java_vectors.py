"""The presets against vectors that Apache's own classes made (``tests/vectors/java/FaultVectors.java``).

Where Java's answer is one of its known defects the test says which, and what holds instead.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.fault_lab import FaultLab, FixedRandom
from tests.unit.core.world import World

from rocketwire.core.faults.entries import NEVER
from rocketwire.core.faults.positions import RoundRobinCounter
from rocketwire.core.sending.mode import SendMode
from rocketwire.errors import SendFailedError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.message import Message, MessageQueue
from rocketwire.testing.simulated_network import Hang, Refuse, Reset

FOLDER = Path(__file__).parents[3] / "vectors" / "java"
RELEASES = {"java4": "4.9.7", "java5": "5.3.3", "java5-detector": "5.3.3"}
PRESETS = ["java4", "java5"]


@cache
def vectors(release: str) -> list[dict[str, Any]]:
    text = (FOLDER / f"faults-{release}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def of_kind(kind: str, policy: str) -> list[dict[str, Any]]:
    found = [each for each in vectors(RELEASES[policy]) if each["kind"] == kind]
    return [each for each in found if each.get("policy", policy) == policy]


def tell(lab: FaultLab, broker: str, latency: float, *, failed: bool) -> None:
    """A send that began so many milliseconds ago is over now."""
    attempt = lab.table.begin(broker, lab.now - latency / 1000)
    if failed:
        lab.table.failed(attempt, lab.now, "refused the connection")
    else:
        lab.table.answered(attempt, lab.now)


def left_out(lab: FaultLab, broker: str) -> float:
    until = lab.health(broker).until
    return 0 if until is None else round((until - lab.now) * 1000)


@pytest.mark.parametrize("policy", PRESETS)
def test_a_latency_leaves_out_for_as_long_as_in_java(policy: str) -> None:
    found = of_kind("duration", policy)
    assert len(found) > 50
    for each in found:
        lab = FaultLab(FaultPolicy.named(policy))
        tell(lab, "broker-a", each["latency"], failed=each["failed"])
        assert left_out(lab, "broker-a") == each["out"], each
        ranked = lab.table.entry_of("broker-a").last_wait * 1000
        assert ranked == pytest.approx(each["ranked"], abs=1e-3), each


@pytest.mark.parametrize("policy", PRESETS)
def test_a_table_of_the_users_own_is_read_as_java_reads_it(policy: str) -> None:
    preset = {"java4": FaultPolicy.java4, "java5": FaultPolicy.java5}[policy]
    found = of_kind("table", policy)
    assert len(found) > 200
    for each in found:
        pairs = zip(each["latencies"], each["durations"], strict=True)
        table = [(latency / 1000, duration / 1000) for latency, duration in pairs]
        lab = FaultLab(preset(latency_table=table))
        tell(lab, "broker-a", each["latency"], failed=each["failed"])
        assert left_out(lab, "broker-a") == each["out"], each


@pytest.mark.parametrize("policy", PRESETS)
def test_several_reports_come_to_what_they_come_to_in_java(policy: str) -> None:
    """Java 5 forgets to end an isolation by a good answer; ours ends, and the rest can't be compared."""
    compared = 0
    for each in of_kind("history", policy):
        lab = FaultLab(FaultPolicy.named(policy))
        for latency, failed, out in each["reports"]:
            was_out = lab.table.entry_of("broker-a").state == "isolated"
            tell(lab, "broker-a", latency, failed=failed)
            if policy == "java5" and was_out and not failed and latency < 550:
                assert left_out(lab, "broker-a") == 0
                break
            assert left_out(lab, "broker-a") == out, each
            compared += 1
    assert compared > 100


class Unreset(RoundRobinCounter):
    """Java's reset for a retry goes to a random index; the vectors are without."""

    def __init__(self, at: int) -> None:
        super().__init__(FixedRandom())
        self._positions["t"] = at

    def reset(self, topic: str) -> None:
        """Stay."""

    @property
    def position(self) -> int:
        return self._positions["t"]


def choose(lab: FaultLab, each: dict[str, Any]) -> tuple[MessageQueue, int]:
    """Which queue is taken, and the index after that."""
    for broker, latency, failed in each["reports"]:
        tell(lab, broker, latency, failed=failed)
    counters = Unreset(each["index"])
    judge: Any = lab.table._judge
    judge._turn = each["worst"]
    failed = () if each["last"] is None else (each["last"],)
    return lab.view.best(counters, lab.now, failed), counters.position


def lab_for(each: dict[str, Any], policy: str) -> FaultLab:
    names = [f"b{number}" for number in range(each["brokers"])]
    return FaultLab(FaultPolicy.named(policy), brokers=names, queues=each["queues"])


@pytest.mark.parametrize("policy", ["java5", "java5-detector"])
def test_java5_chooses_the_queue_that_java_chooses(policy: str) -> None:
    found = of_kind("choice", policy)
    assert len(found) > 300
    for each in found:
        lab = lab_for(each, policy)
        chosen, position = choose(lab, each)
        assert (chosen.broker, chosen.id) == (each["broker"], each["queue"]), each
        assert position == each["next"], each


@pytest.mark.parametrize("release", ["4.9.7", "5.3.3"])
def test_off_chooses_the_queue_that_java_chooses(release: str) -> None:
    found = [v for v in vectors(release) if v["kind"] == "choice" and v["policy"] == "off"]
    assert len(found) > 300
    for each in found:
        lab = lab_for(each, "off")
        chosen, position = choose(lab, each)
        assert (chosen.broker, chosen.id) == (each["broker"], each["queue"]), each
        assert position == each["next"], each


def available(each: dict[str, Any]) -> set[str]:
    """Brokers that Java 4 holds for usable; it knows nothing against the others."""
    out = {broker for broker, latency, failed in each["reports"] if failed or latency >= 550}
    return {f"b{number}" for number in range(each["brokers"])} - out


def test_java4_chooses_the_queue_that_java_chooses() -> None:
    """But for two defects: 4.9.7 forgets on a retry which broker failed, and steps its counter twice
    more to choose a queue of the least bad, which leaves queues out."""
    exact = least_bad = retries = 0
    for each in of_kind("choice", "java4"):
        lab = lab_for(each, "java4")
        chosen, position = choose(lab, each)
        usable = available(each)
        if not usable:
            assert chosen.broker == each["broker"], each
            least_bad += 1
        elif each["broker"] != each["last"]:
            assert (chosen.broker, chosen.id) == (each["broker"], each["queue"]), each
            assert position == each["next"], each
            exact += 1
        else:
            assert (chosen.broker != each["last"]) == bool(usable - {each["last"]}) or (
                chosen.broker not in usable
            ), each
            retries += 1
    assert exact > 200
    assert least_bad > 20
    assert retries > 20


# -- which sends are told of -----------------------------------------------------------------

MODES = {"blocking": SendMode.BLOCKING, "async": SendMode.ASYNC, "oneway": SendMode.ONEWAY}
FAULTS: dict[str, Any] = {
    "closed": Reset(), "silent": Hang(), "refused": Refuse(),
}  # fmt: skip


def first(queues: Any, message: Any, argument: Any) -> MessageQueue:
    return queues[0]


PLACES: dict[str, dict[str, Any]] = {
    "default": {},
    "queue": {"queue": MessageQueue("T", "broker-a", 0)},
    "selector": {"selector": first},
}


@pytest.mark.parametrize("policy", RELEASES)
def test_the_table_learns_of_the_sends_that_java_tells_it_of(policy: str) -> None:
    """But for four defects of Java. An asynchronous send tells twice, once when it was only handed over.
    One that fails is said to be of a reachable broker, detector or not; and a blocking one that an
    error code ends marks its broker as unreachable even if there is no detector to find it again. To
    5.x a oneway send to a broker that refuses the connection is a success.
    """
    found = of_kind("marks", policy)
    assert len(found) == 12 * 3 * 3
    for each in found:
        world = World(
            1, retries=0, async_retries=0, ordered_retries=0, send_timeout=1.5,
            fault=FaultPolicy.named(policy),
        )  # fmt: skip
        broker = world.brokers["broker-a"]
        if each["fate"] in FAULTS:
            broker.break_now(FAULTS[each["fate"]])
        elif each["fate"].startswith("code-"):
            world.codes["broker-a"] = [int(each["fate"][5:])]
        try:
            world.send(Message("T", b"x"), MODES[each["mode"]], **PLACES[each["place"]])
        except SendFailedError:
            assert each["fate"] not in {"stored", "code-10"}, each
        entry = world.instance.faults.entry_of("broker-a")
        told = entry.verdict_at != NEVER
        assert told == bool(each["reports"]), each
        if told:
            has_failed = any(failed for failed, _ in each["reports"])
            if (each["fate"], each["mode"]) == ("refused", "oneway") and policy != "java4":
                assert not has_failed
                has_failed = True
            isolation = (600 if policy == "java4" else 10) if has_failed else 0
            assert entry.until - entry.verdict_at == pytest.approx(isolation), each
            assert entry.reachable == (not has_failed or policy != "java5-detector"), each
            if each["mode"] == "blocking" and policy == "java5-detector":
                assert [entry.reachable] == [good for _, good in each["reports"]], each
