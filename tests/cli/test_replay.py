"""``rocketwire replay``: a night of a topic into another one, each message once."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.cli.letters import run_until

from rocketwire import Message, Producer, Reader
from rocketwire.columns import read_table

_numbers = itertools.count(1)


def make_topics(cluster, count=40):
    """A topic with messages, and an empty one."""
    number = next(_numbers)
    topic, into = f"night-{number}", f"again-{number}"
    for name in (topic, into):
        cluster.create_topic(name, 2)
    with Producer(cluster.name_server) as producer:
        producer.send_many(
            [
                Message(topic, f"{n}", tags="ab"[n % 2], keys=f"k{n}", properties={"n": str(n)})
                for n in range(count)
            ]
        )
    return topic, into


def bodies(cluster, topic):
    with Reader(cluster.name_server) as reader:
        return Counter(message.text for message in reader.read(topic))


def every(count):
    return {str(n): 1 for n in range(count)}


def test_a_topic_is_replayed_once_and_summed_up(rocketwire, cluster):
    topic, into = make_topics(cluster)
    planned = rocketwire("replay", topic, "--into", into, "--dry-run", "--json", cluster=cluster)
    assert (planned.json["read"], planned.json["sent"]) == (40, 0)
    assert bodies(cluster, into) == {}
    done = rocketwire("replay", topic, "--into", into, cluster=cluster)
    assert done.code == 0
    assert f"{topic} -> {into}: 40 read, 40 sent, " in done.out
    again = rocketwire("replay", topic, "--into", into, "--json", cluster=cluster).json
    assert (again["sent"], again["sent_before"], again["failed"]) == (0, 40, 0)
    assert bodies(cluster, into) == every(40)
    more = rocketwire("replay", topic, "--into", into, "--label", "2", "--json", cluster=cluster)
    assert more.json["sent"] == 40


def test_times_expressions_and_tags_choose(rocketwire, cluster):
    topic, into = make_topics(cluster, 10)
    time.sleep(0.05)
    middle = datetime.now(UTC).isoformat()
    time.sleep(0.05)
    with Producer(cluster.name_server) as producer:
        producer.send(Message(topic, "late", tags="z", properties={"n": "77"}))

    def sent(*options):
        label = f"l{next(_numbers)}"
        done = rocketwire(
            "replay", topic, "--into", into, "--label", label, "--json", *options, cluster=cluster
        )
        assert done.code == 0, done.err
        return done.json["sent"]

    assert sent("--from", middle) == 1
    assert sent("--to", middle) == 10
    assert sent("--from", "1h", "--to", middle, "--rate", "1000") == 10
    assert sent("--sql", "n >= 8 AND n < 50") == 2
    assert sent("--tag", "a || z", "--keep-order") == 6


def test_offsets_choose_too(rocketwire, cluster):
    topic, into = make_topics(cluster, 9)
    done = rocketwire("replay", topic, "--into", into, "--from", "1", "--json", cluster=cluster)
    assert done.code == 0, done.err
    with Reader(cluster.name_server) as reader:
        wanted = sorted(m.text for m in reader.read(topic) if m.offset >= 1)
        assert sorted(m.text for m in reader.read(into)) == wanted


def test_wrong_calls_are_told(rocketwire, cluster):
    topic, into = make_topics(cluster, 1)
    for arguments, words in [
        ((topic, "--into", topic), "into itself"),
        ((topic, "--into", into, "--from", "yesterday"), "is no position"),
        ((topic, "--into", into, "--sql", "n >"), "position"),
        ((topic, "--into", into, "--topic", "x"), "give the topic itself"),
        (("./nothing-here", "--into", into), "can't be read as an archive"),
    ]:
        done = rocketwire("replay", *arguments, cluster=cluster)
        assert done.code in {1, 2}, arguments
        assert words in done.err, (arguments, done.err)
        assert "Traceback" not in done.err
    for missing in ((topic, "--into", "nowhere"), ("nowhere", "--into", into)):
        done = rocketwire("replay", *missing, cluster=cluster)
        assert done.code == 1
        assert "nowhere" in done.err
    assert bodies(cluster, into) == {}


@pytest.fixture
def archive(cluster, tmp_path):
    """A topic, an empty one, and an archive of the first in the layout of ``rocketwire archive``."""
    topic, into = make_topics(cluster)
    with Reader(cluster.name_server) as reader:
        table = read_table(reader, topic)
    days = pa.array(["2026-11-15"] * len(table))
    folder = tmp_path / "archive"
    partitions = ds.partitioning(
        pa.schema([("topic", pa.string()), ("date", pa.string())]), flavor="hive"
    )
    ds.write_dataset(
        table.append_column("date", days), folder, format="parquet", partitioning=partitions
    )
    return topic, into, folder


def test_an_archive_is_replayed_as_its_topic_was(rocketwire, cluster, archive):
    topic, into, folder = archive
    part = rocketwire(
        "replay", str(folder), "--into", into, "--sql", "n < 10", "--json", cluster=cluster
    )
    assert part.json["sent"] == 10, part.err
    early = rocketwire(
        "replay", str(folder), "--into", into, "--to", "1h", "--json", cluster=cluster
    )
    assert early.json["read"] == 0
    done = rocketwire(
        "replay", str(folder), "--into", into, "--keep-order", "--json", cluster=cluster
    )
    assert (done.json["sent"], done.json["sent_before"]) == (30, 10)
    # The same messages, be they read from the archive or from the topic.
    same = rocketwire("replay", topic, "--into", into, "--json", cluster=cluster).json
    assert (same["sent"], same["sent_before"]) == (0, 40)
    with Reader(cluster.name_server) as reader:
        copies = {m.message_id: (m.text, m.keys, m.tags, m.properties) for m in reader.read(into)}
        originals = {
            m.message_id: (m.text, m.keys, m.tags, m.properties) for m in reader.read(topic)
        }
    assert copies == originals


def test_a_folder_with_parsed_bodies_or_other_columns_is_refused(
    rocketwire, cluster, tmp_path, archive
):
    _, into, folder = archive
    other = tmp_path / "other"
    ds.write_dataset(pa.table({"a": [1]}), other, format="parquet")
    assert (
        "is no archive of a topic"
        in rocketwire("replay", str(other), "--into", into, cluster=cluster).err
    )
    offset = rocketwire("replay", str(folder), "--into", into, "--from", "5", cluster=cluster)
    assert (offset.code, "is an offset" in offset.err) == (2, True)
    unknown = rocketwire("replay", str(folder), "--into", into, "--topic", "x", cluster=cluster)
    assert "say which one to replay" in unknown.err


def test_a_replay_that_is_killed_again_and_again_sends_each_once(rocketwire, cluster, tmp_path):
    topic, into = make_topics(cluster, 200)
    arguments = ["replay", topic, "--into", into, "--name-server", cluster.name_server]
    arguments += ["--keep-order"]
    for least in (1, 60, 120):
        run_until(lambda least=least: bodies(cluster, into).total() >= least, *arguments,
                  "--rate", "400", cwd=tmp_path)  # fmt: skip
    assert bodies(cluster, into).total() < 200
    done = rocketwire(*arguments, "--json", cluster=cluster)
    assert done.code == 0
    assert done.json["sent"] + done.json["sent_before"] == 200
    assert done.json["sent_before"] > 0
    assert bodies(cluster, into) == every(200)


def test_ctrl_c_ends_it_between_messages_and_says_how_to_go_on(rocketwire, cluster, tmp_path):
    topic, into = make_topics(cluster, 50)
    arguments = ["replay", topic, "--into", into, "--name-server", cluster.name_server]
    process = run_until(lambda: bodies(cluster, into).total() >= 1, *arguments, "--rate", "20",
                        cwd=tmp_path, number=2)  # fmt: skip
    assert process.returncode == 130
    assert "repeat the command to go on" in process.stderr
    assert rocketwire(*arguments, "--json", cluster=cluster).code == 0
    assert bodies(cluster, into) == every(50)
