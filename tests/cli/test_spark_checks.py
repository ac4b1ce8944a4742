"""What can be told without Spark is told before Spark starts, in one line."""

import json
import re
from functools import partial

import pytest

from rocketwire.cli import archive, lab, publish, report, simulate, transform
from rocketwire.cli.invocation import Invocation, parse_options
from rocketwire.cli.spark_work import source_options
from rocketwire.config import canonical
from rocketwire.errors import ConfigError

pytest.importorskip("pyspark")

from rocketwire.spark.options import (
    CLIENT_OPTIONS,
    SOURCE_OPTIONS,
    read_options,
    write_options,
)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("Spark was started")

    for command in (archive, lab, publish, report, simulate, transform):
        monkeypatch.setattr(command, "started_spark", refuse)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["archive", "nowhere", "lake"], "topic nowhere is unknown"),
        (["archive", "known,nowhere", "lake"], "topic nowhere is unknown"),
        (["archive", "known", "file"], "file is a file: name a folder"),
        (["archive", "known", "lake", "--verify"], "there is no archive"),
        (["archive", "known", "lake", "--set", "tag=x"], "did you mean tags"),
        (["archive", "known", "lake", "--set", "subscribe=x"], "is Kafka's: here it is topics"),
        (["archive", "known", "lake", "--set", "readTimeout=soon"], "option readTimeout"),
        (["archive", "known", "lake", "--body", "xml"], "body is 'xml'"),
        (["archive", "known", "lake", "--body", "avro"], "give schema=, a file"),
        (["archive", "known", "lake", "--format", "orc"], "format is 'orc': parquet, delta"),
        (
            ["archive", "known", "a.b", "--format", "iceberg"],
            "checkpoint is missing: a.b is a table",
        ),
        (
            ["archive", "known", "lake", "--conf", "fs.s3a.x=1"],
            "Spark's settings begin with spark.",
        ),
        (["archive", "known", "lake", "--conf", "spark.x"], "--conf 'spark.x': write NAME=VALUE"),
        (["transform", "nowhere", "x", "--sql", "select 1"], "topic nowhere is unknown"),
        (["archive", "known", "lake", "--body", "avro", "--schema", "none"], "none can't be read"),
        (["archive", "known", "lake", "--from", "noon"], "option startingOffsets"),
        (["transform", "known", "known", "--sql", "select 1"], "the stream would feed itself"),
        (["transform", "known", "x", "--sql", "s", "--from", "noon"], "option startingOffsets"),
        (["publish", "missing.json", "x"], "missing.json: there is no such file, folder or table"),
        (["transform", "known", "x", "--sql", "s", "--set", "stampRows=1"], "option stampRows"),
        (["publish", "rows.json", "x", "--set", "onBadRow=no"], "option onBadRow"),
        (["publish", "rows.json", "x", "--state", "file"], "file is a file"),
        (["transform", "known", "x y", "--sql", "s"], "option topic: 'x y'"),
        (
            ["archive", "known", "lake", "--set", 'expectedBrokers={"knwon":2}'],
            "topic 'knwon' is not",
        ),
        (
            ["archive", "known", "old", "--forget-broker", "broker-x"],
            "knows no 'broker-x'; it has b",
        ),
        (["archive", "known", "old", "--body", "text"], "its stream had body 'raw', not 'text'"),
        (["transform", "known", "old", "--sql", "select 2"], "its stream had statement 'select 1'"),
        (["lab", "nowhere"], "telemetry 'nowhere': there is no such folder"),
        (["lab", "folder"], "telemetry 'folder' has no telemetry files"),
        (["lab", "notes.jsonl", "--policy", "java9"], "'java9' is no fault policy"),
        (["lab", "notes.jsonl", "--grid", "speed=1"], "'speed' is no number of FaultPolicy"),
        (["lab", "notes.jsonl", "--grid", "floor=-1"], "floor is -1.0"),
        (["lab", "notes.jsonl", "--time-zone", "Mars/North"], "time_zone 'Mars/North' is unknown"),
        (["lab", "notes.jsonl", "--out", "file/lab.html"], "out 'file/lab.html' can't be written"),
        (["report", "notes.jsonl", "--out", "folder"], "out 'folder' is a folder"),
        (["report", "notes.jsonl", "--time-zone", "Mars/North"], "time_zone 'Mars/North'"),
        (["simulate", "--out", "file/page.html"], "out 'file/page.html' can't be written"),
        (["simulate", "--fault", "rain@all"], "fault 'rain@all': write KIND"),
        (["simulate", "--fault", "hang@broker-9"], "there are brokers from broker-0 to broker-2"),
        (["simulate", "--policy", "java9"], "'java9' is no fault policy"),
        (["simulate", "--size", "9000000x900"], "take fewer of either"),
    ],
)
def test_one_fault_is_one_line(rocketwire, cluster, tmp_path, monkeypatch, words, line):
    monkeypatch.chdir(tmp_path)
    for name in ("file", "notes.jsonl"):
        (tmp_path / name).write_text("")
    (tmp_path / "folder").mkdir()
    earlier_runs(tmp_path)
    cluster.create_topic("known", queues=2)
    done = rocketwire(*words, cluster=cluster)
    assert done.code != 0
    (told,) = done.err.strip().splitlines()
    assert line in told


def earlier_runs(folder):
    """What an archive and a stream leave behind."""
    queues = {"queues": {"known": {"b": [0]}}, "forgotten": [], "missing": {}}
    stream = "rocketwire-checkpoints/transform-known-old"
    for name, content in {
        ".old.queues.json": queues,
        ".old.checkpoint/rocketwire.json": {"topic": "known", "folder": "old", "body": "raw"},
        f"{stream}/rocketwire.json": {"source": "known", "target": "old", "statement": "select 1"},
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))


#: Names that the commands ask for in words of their own.
OWN_WORDS = {"topic": "{topic}", "topics": "{topic}", "startingOffsets": "--from"}


@pytest.mark.parametrize("option", SOURCE_OPTIONS)
def test_an_option_of_the_source_given_as_a_setting_is_answered_with_the_way_to_give_it(option):
    way = OWN_WORDS.get(option, f"--set {option}=...")
    for spelling in (option, snake(option)):
        with pytest.raises(ConfigError, match="is an option of the Spark source") as told:
            parse_options([f"{spelling}=secret"])
        assert str(told.value).endswith(f" {way}")
        assert "secret" not in str(told.value)


@pytest.mark.parametrize("option", SOURCE_OPTIONS)
def test_a_misspelled_option_of_the_source_is_answered_with_itself(option):
    with pytest.raises(ConfigError) as told:
        parse_options([f"{option}x=1"])
    assert f"did you mean {option} of the Spark source" in str(told.value)


@pytest.mark.parametrize(
    "words",
    [
        ["archive", "known", "lake"],
        ["transform", "known", "x", "--sql", "s"],
        ["publish", "rows.json", "x"],
        ["report", "notes.jsonl"],
    ],
)
def test_all_commands_on_spark_say_that_an_option_is_the_sources(rocketwire, words):
    done = rocketwire(*words, "-o", "readTimeout=3s")
    assert done.code == 2
    (told,) = done.err.strip().splitlines()
    assert "--set readTimeout=..." in told
    assert "send_timeout" not in told


@pytest.mark.parametrize("option", [name for name in CLIENT_OPTIONS if name != "group"])
def test_a_setting_of_the_client_reaches_the_source(option):
    here = Invocation(given={snake(option): "7"})
    assert source_options(here, None)[canonical(option)] == "7"


@pytest.mark.parametrize(
    "option", ["readTimeout", "deliveryTimeout", "offsetRetryInterval", "maxTriggerDelay"]
)
def test_a_wrong_span_is_answered_with_the_form_of_one(option):
    read = write_options if option == "deliveryTimeout" else partial(read_options, streaming=True)
    with pytest.raises(ConfigError, match=rf"^option {option}: .*e\.g\. \d+") as told:
        read({"topic": "t", option.lower(): "soon", "minoffsetspertrigger": "5"})
    assert "'soon'" in str(told.value)


def snake(name):
    return re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), name)
