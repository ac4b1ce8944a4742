"""The policy lab on Spark, from telemetry of known incidents to the page."""

import json
import random

import pytest

from rocketwire import spark as spark_room
from rocketwire.config import ProducerConfig
from rocketwire.errors import ConfigError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.hooks import AttemptEvent, ProbeEvent, RouteEvent
from rocketwire.message import MessageQueue
from rocketwire.spark import LabResult, lab
from rocketwire.spark.policy_lab.simulation import simulate
from rocketwire.system.telemetry import Telemetry
from rocketwire.system.telemetry_lines import settings_of
from rocketwire.telemetry_config import TelemetryConfig
from rocketwire.testing.simulated_cluster import Setting

BEGIN = 1_760_000_000.0
NAMES = ("a", "b", "c")
#: Every half minute one broker takes 300 ms for five seconds.
INCIDENTS = tuple((30.0 * n, 30.0 * n + 5.0, NAMES[n % 3]) for n in range(1, 9))
SECONDS = 280.0


def latency(broker, at):
    is_bad = any(begin <= at < end and broker == name for begin, end, name in INCIDENTS)
    return 0.3 if is_bad else 0.002


def record(folder, client, *, policy, version=2, rate=50):
    """A producer that takes brokers in turn whatever they do, as with the policy off."""
    config = ProducerConfig(fault=policy)
    hook = Telemetry(TelemetryConfig(str(folder), max_queue=100_000), client, settings_of(config))
    queues = tuple(MessageQueue("orders", name, n) for name in NAMES for n in range(4))
    hook.route_learned(RouteEvent("orders", (), queues, BEGIN))
    chance = random.Random(client)
    for number in range(int(SECONDS * rate)):
        at = number / rate
        broker = NAMES[number % 3]
        took = latency(broker, at) * chance.uniform(0.9, 1.1)
        hook.after_attempt(
            AttemptEvent(
                at=BEGIN + at + took,
                client_id=client,
                topic="orders",
                broker=broker,
                queue_id=number % 4,
                offset=number,
                message_id=f"{client}{number:X}",
                sharding_key=None,
                size=200,
                latency=took,
                outcome="stored",
                error=None,
                attempt=1,
                messages=1,
                state="usable",
                mode="async",
                send_at=BEGIN + at,
                timeout=3.0,
            )
        )
    hook.broker_probed(ProbeEvent(BEGIN + 1, "a", 0.002, True, ""))
    hook.close()
    assert hook.dropped == 0
    if version == 1:
        make_old(folder)
    return folder


def make_old(folder):
    """What version 1 did not have is taken from the files."""
    for path in folder.glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        old = [line for line in lines if line["kind"] == "attempt"]
        for line in old:
            for name in ("mode", "pinned", "sendTime", "timeout"):
                del line[name]
        path.write_text("".join(json.dumps(line) + "\n" for line in old))


@pytest.fixture(scope="module")
def told(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    source = record(folder / "telemetry", "one", policy=FaultPolicy.off())
    record(source, "two", policy=FaultPolicy.off(), rate=10)
    with (source / "torn.jsonl").open("w") as file:
        file.write('{"kind":"attempt","time":17600\n')
        file.write('{"kind":"header","time":1760000000.0,"clientId":"x","version":3}\n')
        file.write('{"level":"info"}\n')
        file.write('{"kind":"attempt","x":"' + "x" * 70_000 + '"}\n')
    plans = []
    result = lab(
        spark,
        source,
        folder / "page.html",
        policies=["default", "off"],
        grid={"floor": [0.5]},
        time_zone="UTC",
        on_plan=plans.append,
    )
    return result, plans


def test_the_lab_is_a_function_and_no_module():
    assert callable(spark_room.lab)
    with pytest.raises(ModuleNotFoundError):
        __import__("rocketwire.spark.lab")


def test_the_lab_finds_the_incidents_and_advises_what_steps_around_them(told):
    result, _ = told
    assert isinstance(result, LabResult)
    assert [one.brokers for one in result.incidents] == [(name,) for _, _, name in INCIDENTS]
    for found, (begin, end, _) in zip(result.incidents, INCIDENTS, strict=True):
        assert found.begin == pytest.approx(BEGIN + begin, abs=0.3)
        assert found.end == pytest.approx(BEGIN + end, abs=0.3)
    assert (result.verdict.advice, result.verdict.chosen) == ("change", "default")
    assert result.verdict.interval[0] > 0


def test_the_recorded_policy_costs_in_the_replay_what_it_cost(told):
    result, _ = told
    off = next(one for one in result.policies if one.name == "off")
    assert off.is_recorded
    assert off.sends == SECONDS * 60
    # A third of 60 sends a second, for five seconds of 0.298 s each, eight times.
    assert off.lost[0] == pytest.approx(20 * 5 * 8 * 0.298, rel=0.1)
    assert off.p99[0] == pytest.approx(0.3, rel=0.15)
    default = next(one for one in result.policies if one.name == "default")
    assert default.lost[1] < off.lost[0] / 5
    assert default.failed == off.failed == (0.0, 0.0)


def test_what_it_takes_is_told_before_it_begins(told):
    _, (plan,) = told
    assert plan.attempts == SECONDS * 60
    assert plan.policies == 3
    assert "core-seconds" in str(plan)


def test_the_page_and_the_tables_hold_what_was_found(told, spark):
    result, _ = told
    page = result.page.read_text()
    assert result.verdict.sentence in page
    assert "floor 0.5" in page
    rows = spark.read.parquet(result.tables["policies"]).collect()
    assert {row["name"] for row in rows} == {"default", "off", "floor 0.5"}
    assert not (result.page.parent / "page-tables" / "lines").exists()


def test_lines_that_can_not_be_used_are_counted_and_told(told):
    result, _ = told
    text = " ".join(result.trouble)
    for words in ("1 lines could not be read", "1 lines came from something else"):
        assert words in text
    assert "1 lines were longer" in text
    assert "1 lines are of a later version" in text
    # Both producers count their offsets from zero, in times that can't both be right.
    assert "clocks of some producers disagree" in text


WEIRD = (None, -1, 10**18, 1e308, "x", "", [], True, "<b>\x1b\x00")


def test_no_line_can_break_a_replay(spark, tmp_path):
    """Anything may be in a file: each value of each kind of line, one at a time."""
    source = record(tmp_path / "telemetry", "one", policy=FaultPolicy.off(), rate=10)
    (path,) = source.glob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = {line["kind"]: line for line in lines} | {"pinned": lines[-1] | {"pinned": True}}
    made = [
        json.dumps(line | {name: value})
        for line in kinds.values()
        for name in line
        for value in WEIRD
    ]
    (source / "hostile.jsonl").write_text("\n".join(made))
    result = lab(spark, source, tmp_path / "page.html", policies=["default", "off"], grid={})
    assert result.attempts >= sum(line["kind"] == "attempt" for line in lines)
    assert "came from something else" in " ".join(result.trouble)
    assert not set(result.page.read_text()) & {"\x1b", "\x00"}
    assert "<b>\ufffd" not in result.page.read_text()


def test_telemetry_of_version_1_is_replayed_without_advice(spark, tmp_path):
    source = record(tmp_path / "old", "one", policy=FaultPolicy.off(), version=1, rate=20)
    result = lab(spark, source, tmp_path / "p.html", policies=["default", "off"], grid={})
    assert result.verdict.advice == "none"
    assert "not known which policy" in result.verdict.sentence
    off = next(one for one in result.policies if one.name == "off")
    assert off.sends == SECONDS * 20
    assert len(result.incidents) == len(INCIDENTS)
    assert result.trouble == ()


def test_a_folder_without_attempts_is_refused_with_the_remedy(spark, tmp_path):
    (tmp_path / "x.jsonl").write_text('{"level":"info"}\n')
    with pytest.raises(ConfigError, match=r"no attempt to replay.*telemetry=FOLDER"):
        lab(spark, tmp_path, tmp_path / "p.html")
    with pytest.raises(ConfigError, match="no such folder"):
        lab(spark, tmp_path / "nothing", tmp_path / "p.html")
    with pytest.raises(ConfigError, match="'fast' is no fault policy"):
        lab(spark, tmp_path, tmp_path / "p.html", policies=["fast"])


def attempt(number, **changed):
    return {
        "kind": "attempt", "time": BEGIN + number, "clientId": "one", "topic": "orders", "broker": "a", "queueId": 0,
        "offset": number, "messageId": f"M{number}", "latency": 0.002, "outcome": "stored", "attempt": 1, "bytes": 1,
    } | changed  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "blamed"),
    [
        (
            [attempt(0), attempt(0, time=BEGIN + 32 * 86_400)],
            r"spans 32 days.*give since and until",
        ),
        ([attempt(n, broker=f"b{n}") for n in range(201)], "names 201 brokers; 200 at most"),
        (
            [attempt(n % 100, clientId=f"c{n}") for n in range(20_001)],
            "telemetry of 20001 producers; 20000 at most",
        ),
    ],
    ids=["days", "brokers", "producers"],
)
def test_more_than_can_be_replayed_at_once_is_refused(spark, tmp_path, lines, blamed):
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ConfigError, match=blamed):
        lab(spark, tmp_path, tmp_path / "p.html", policies=["default", "off"], grid={})


def test_simulations_are_split_by_spark_and_say_whether_the_default_does_harm(spark, tmp_path):
    plans, progress = [], []
    made = simulate(
        spark,
        Setting(producers=20, brokers=3, seconds=6.0),
        faults=["slow:0.3@broker-1"],
        policies=["default", "off"],
        out=tmp_path / "page.html",
        on_plan=plans.append,
        on_progress=lambda done, parts: progress.append((done, parts)),
    )
    ours, off = (
        next(e.figures for e in made.experiments if e.policy == name) for name in ("default", "off")
    )
    assert ours.lost < off.lost
    assert "no harm" in made.harm
    assert plans[0].experiments == 2
    assert progress[-1] == (2, 2)
    page = made.page.read_text()
    assert made.harm in page
    assert page.count("slow:0.3@broker-1") == 1
    assert page.count(">20 x 3</td>") == 2
