"""The Spark commands, each once: they are thin."""

import json
import os
from pathlib import Path

import pytest

from rocketwire import Message, Producer, Reader
from rocketwire.cli.invocation import Invocation
from rocketwire.cli.spark_work import source_options
from rocketwire.spark import session

pytest.importorskip("pyspark")

SOURCES = str(Path(__file__).parents[2] / "src")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """One session for all of them; the commands use one that runs."""
    folder = tmp_path_factory.mktemp("spark")
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SOURCES, before]))
    running = session(
        "cli-tests",
        master="local[2,4]",
        memory="1g",
        fast_start=True,
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    yield running
    running.stop()


@pytest.fixture
def run(rocketwire, cluster, spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        done = rocketwire(*arguments, "--json", cluster=cluster)
        assert done.code == 0, done.out + done.err
        return json.loads(done.out.splitlines()[-1])

    return call


def test_rows_are_published_transformed_archived_and_verified(run, cluster, tmp_path):
    rows = [{"id": n, "city": f"c{n % 3}", "total": n * 1.5} for n in range(300)]
    (tmp_path / "orders.json").write_text("\n".join(map(json.dumps, rows)))
    # The session's folder is not this one: paths must be whole here.
    words = [
        "publish",
        str(tmp_path / "orders.json"),
        "orders",
        "--key",
        "id",
        "--sharding-key",
        "city",
    ]
    published = run(*words, "--order-by", "id", "--verify")
    assert published["rows"] == 300
    assert published["verification"]["problems"] == []
    sql = "select keys, shardingKey, body from messages where cast(keys as int) < 100"
    checkpoint = ["--checkpoint", str(tmp_path / "checkpoint")]
    changed = run("transform", "orders", "small", "--sql", sql, *checkpoint)
    assert changed["rows_written"] == 100
    archive = str(tmp_path / "archive")
    added = run("archive", "small", archive)
    assert added["rows"] == 100
    assert run("archive", "small", archive)["rows"] == 0
    assert run("archive", "small", archive, "--verify")["problems"] == []
    cluster.create_topic("small-again", 2)
    assert run("replay", archive, "--into", "small-again")["sent"] == 100
    assert run("replay", "small", "--into", "small-again")["sent_before"] == 100
    with Reader(cluster.name_server) as reader:
        keys = {message.keys for message in reader.read("small")}
        again = [message.keys for message in reader.read("small-again")]
    assert keys == {str(number) for number in range(100)}
    assert sorted(again) == sorted(keys)


def test_a_function_of_the_current_folder_changes_messages(run, cluster, tmp_path):
    with Producer(cluster.name_server, group="python") as producer:
        producer.send([Message("plain", text, keys=text) for text in ("a", "b")])
    module = "def louder(messages):\n    return messages.selectExpr('keys', 'upper(string(body)) as body')\n"
    (tmp_path / "own_change.py").write_text(module)
    checkpoint = ["--checkpoint", str(tmp_path / "checkpoint")]
    changed = run("transform", "plain", "loud", "--python", "own_change:louder", *checkpoint)
    assert changed["rows_written"] == 2
    with Reader(cluster.name_server) as reader:
        found = {(message.keys, message.body) for message in reader.read("loud")}
    assert found == {("a", b"A"), ("b", b"B")}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["transform", "a", "b"], "exactly one of --sql and --python"),
        (["transform", "a", "b", "--sql", "x", "--python", "y:z"], "exactly one of"),
        (["transform", "a", "b", "--python", "json"], "write MODULE:FUNCTION"),
        (["transform", "a", "b", "--python", "no_such_module:f"], "No module named"),
        (["transform", "a", "b", "--python", "json:nothing"], "json has no function nothing"),
        (["archive", "a", "./nowhere", "--verify"], "there is no archive"),
        (["publish", "orders.json"], "exactly one of topic and topic_expression"),
    ],
)
def test_wrong_calls_are_told_in_a_line(rocketwire, cluster, spark, words, complaint):
    done = rocketwire(*words, cluster=cluster)
    assert done.code == 2
    assert complaint in done.err
    assert "Traceback" not in done.err


def test_where_a_stream_keeps_its_progress_is_told_before_it_runs(
    rocketwire, cluster, spark, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with Producer(cluster.name_server, group="early") as producer:
        producer.send(Message("early", "x"))
    done = rocketwire(
        "transform", "early", "late", "--sql", "select * from messages", cluster=cluster
    )
    assert done.code == 0, done.err
    place = tmp_path / "rocketwire-checkpoints" / "transform-early-late"
    assert f"checkpoint: {place}" in done.err.replace("\n", "")
    assert place.is_dir()


def test_a_summary_tells_of_bad_rows_and_of_several_topics(rocketwire, cluster, spark, tmp_path):
    rows = [{"id": n, "to": f"many-{n % 2}", "text": "x" if n else None} for n in range(5)]
    (tmp_path / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    done = rocketwire(
        "publish", str(tmp_path / "rows.json"), "--topic-expression", "to", "--body", "text",
        "--set", "onBadRow=drop", cluster=cluster,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "4 rows" in done.out
    assert "1 bad rows were not sent to the topic" in done.out
    with Reader(cluster.name_server) as reader:
        assert [len(list(reader.read(f"many-{number}"))) for number in (0, 1)] == [2, 2]


def test_a_report_is_made_of_telemetry(run, cluster, tmp_path):
    telemetry = tmp_path / "telemetry"
    with Producer(cluster.name_server, group="told", telemetry=str(telemetry)) as producer:
        for number in range(20):
            producer.send(Message("told", str(number)))
    made = run("report", str(telemetry), "--out", str(tmp_path / "page.html"), "--since", "1h")
    assert made["sends"] == 20
    assert made["failed_sends"] == 0
    assert "<html" in (tmp_path / "page.html").read_text()[:200].lower()


def test_connection_settings_become_options_of_the_source():
    here = Invocation(
        given={"send_timeout": "5s", "access_key": "a", "secret_key": "b"},
        file={"address_map": {"1.2.3.4:1": "5.6.7.8:2"}},
    )
    assert source_options(here, ["tags=paid"]) == {
        "addressmap": '{"1.2.3.4:1": "5.6.7.8:2"}',
        "sendtimeout": "5s",
        "accesskey": "a",
        "secretkey": "b",
        "tags": "paid",
    }


def test_a_lab_replays_telemetry_and_says_what_it_can_not_advise(run, cluster, tmp_path):
    telemetry = tmp_path / "telemetry"
    with Producer(cluster.name_server, group="lab", telemetry=str(telemetry)) as producer:
        for number in range(50):
            producer.send(Message("told", str(number)))
    page = tmp_path / "lab.html"
    words = ["--policy", "default", "--policy", "off", "--grid", "floor=0.05"]
    made = run("lab", str(telemetry), "--out", str(page), *words)
    assert made["verdict"]["advice"] == "none"
    assert [one["name"] for one in made["policies"]] == ["default", "off", "floor 0.05"]
    assert {one["sends"] for one in made["policies"]} == {50}
    assert "No advice" in page.read_text()


def test_a_simulation_is_told_as_figures(run):
    words = ["--producers", "10", "--brokers", "3", "--seconds", "6", "--policy", "default"]
    made = run("simulate", *words, "--policy", "off", "--fault", "slow:0.3@broker-1")
    assert {one["policy"] for one in made["experiments"]} == {"default", "off"}
    assert "no harm" in made["harm"]


@pytest.mark.parametrize(
    ("words", "blamed"),
    [
        (["lab", "nothing", "--grid", "floor"], "floor=0.01,0.05"),
        (["lab", "nothing"], "no such folder"),
        (["simulate", "--fault", "melt@all"], "kinds are slow"),
        (["simulate", "--size", "many"], "1000x10"),
    ],
)
def test_wrong_words_of_lab_and_simulate_are_told_in_one_line(rocketwire, spark, words, blamed):
    done = rocketwire(*words)
    assert done.code != 0
    assert blamed in done.err
    assert "Traceback" not in done.err
