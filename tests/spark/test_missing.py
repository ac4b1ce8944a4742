"""A broker that died leaves the route, and nothing that reads its topic returns less in silence."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from rocketwire.columns import send_table
from rocketwire.embedded.cluster import EmbeddedCluster
from rocketwire.spark import archive, lag, transform, verify_archive
from rocketwire.spark.spark_api import HAS_LIMITS
from rocketwire.sync.producer import Producer

ROWS = 60
GONE = "topic {topic}, broker broker-b, queues 0, 1"


@pytest.fixture(scope="module")
def pair():
    with EmbeddedCluster(brokers=2) as running:
        yield running


@pytest.fixture
def topic(pair, request):
    name = request.node.name.split("[")[0]
    pair.create_topic(name, queues=2)
    fill(pair, name)
    yield name
    pair.broker("broker-b").restart()


def fill(pair, topic):
    with Producer(pair.name_server) as producer:
        for queue in producer.publish_queues(topic):
            count = ROWS // 4
            rows = {
                "body": [f"{queue.broker}-{queue.id}-{i}" for i in range(count)],
                "targetBroker": [queue.broker] * count,
                "targetQueueId": [queue.id] * count,
            }
            send_table(producer, rows, topic)


@pytest.fixture
def options(pair, topic):
    return {"nameServers": pair.name_server, "topic": topic, "readTimeout": "1s"}


@pytest.fixture
def kill(pair):
    return pair.broker("broker-b").kill


def test_a_batch_fails_or_says_what_it_leaves_out(spark, options, topic, kill):
    def load(**more):
        return spark.read.format("rocketmq").options(**(options | more))

    assert load().load().count() == ROWS
    kill()
    with pytest.raises(PySparkException, match=GONE.format(topic=topic)):
        load().load().count()
    assert load(failOnDataLoss="false").load().count() == ROWS // 2
    # Without a record only the user can say what should be there.
    with pytest.raises(PySparkException, match="all queues: expectedBrokers names its broker"):
        load(expectedBrokers="broker-a,broker-z").load().count()
    assert load(expectedBrokers="broker-a").load().count() == ROWS // 2


def run(spark, options, folder, **more):
    read = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest")
    writer = read.load().writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder)).options(**more).start()
    query.awaitTermination(100)
    return query


def test_a_stream_that_would_end_with_success_fails(spark, options, topic, pair, kill, tmp_path):
    run(spark, options, tmp_path / "c")
    fill(pair, topic)
    kill()
    with pytest.raises(StreamingQueryException, match=GONE.format(topic=topic)):
        run(spark, options, tmp_path / "c")
    fill_a(pair, topic)
    last = run(spark, options | {"failOnDataLoss": "false"}, tmp_path / "c").lastProgress
    assert (lag(last).missing, lag(last).is_known) == ((2, True) if HAS_LIMITS else (0, False))
    pair.broker("broker-b").restart()
    again = run(spark, options, tmp_path / "c")
    assert sum(p.numInputRows for p in again.recentProgress) == ROWS // 2


def test_the_checkpoint_alone_tells_that_a_broker_is_missing(spark, options, topic, kill, tmp_path):
    """A run that comes a day after the last one finds no other record."""
    run(spark, options, tmp_path / "c")
    kill()
    for folder in Path(spark.conf.get("spark.local.dir")).glob("rocketwire-brokers-*"):
        shutil.rmtree(folder)
    gone = GONE.format(topic=topic) + ": it is in the checkpoint"
    with pytest.raises(StreamingQueryException, match=gone):
        run(spark, options, tmp_path / "c")


def test_a_topic_of_a_pattern_that_vanished_with_its_broker_is_missed(
    spark, options, topic, pair, kill
):
    """Name servers do not even list it then."""
    pair.create_topic(f"{topic}-b", queues=2, brokers=["broker-b"])
    chosen = {name: value for name, value in options.items() if name != "topic"}

    def load(**more):
        frame = spark.read.format("rocketmq").options(**chosen, topicPattern=f"{topic}.*")
        return frame.options(**more).load()

    assert load().count() == ROWS
    kill()
    with pytest.raises(PySparkException, match=f"topic {topic}-b, broker broker-b, queues 0, 1"):
        load().count()
    assert load(failOnDataLoss="false").count() == ROWS // 2


def fill_a(pair, topic):
    with Producer(pair.name_server) as producer:
        rows = {"body": ["x"], "targetBroker": ["broker-a"], "targetQueueId": [0]}
        send_table(producer, rows, topic)


def test_an_archive_is_never_called_whole_without_a_broker(
    spark, options, topic, pair, kill, tmp_path
):
    folder, servers = tmp_path / "lake", pair.name_server
    short = {"readTimeout": "1s"}
    assert archive(spark, topic, folder, name_servers=servers, options=short).missing == 0
    fill(pair, topic)
    kill()
    with pytest.raises(StreamingQueryException, match=GONE.format(topic=topic)):
        archive(spark, topic, folder, name_servers=servers, options=short)
    lenient = short | {"failOnDataLoss": "false"}
    done = archive(spark, topic, folder, name_servers=servers, options=lenient)
    # What broker-a had was added before it failed; before 4.2 nothing is read without the others.
    assert (done.rows, done.missing) == (0 if HAS_LIMITS else ROWS // 2, 2)
    found = verify_archive(spark, folder, name_servers=servers)
    assert any("broker broker-b, queues 0, 1" in text for text in found.problems)
    pair.broker("broker-b").restart()
    found = verify_archive(spark, folder, name_servers=servers)
    late = "it could not be read when the archive was last run; run it again"
    assert found.problems == (f"{GONE.format(topic=topic)}: {late}",)
    done = archive(spark, topic, folder, name_servers=servers, options=short)
    assert (done.rows, done.missing) == (ROWS // 2, 0)
    found = verify_archive(spark, folder, name_servers=servers)
    assert (found.rows, found.problems) == (2 * ROWS, ())


def test_a_broker_that_was_taken_away_for_good_is_forgotten(
    spark, options, topic, pair, kill, tmp_path
):
    folder, servers = tmp_path / "lake", pair.name_server
    archive(spark, topic, folder, name_servers=servers)
    kill()
    done = archive(
        spark, topic, folder, name_servers=servers, forget_brokers=["broker-b"],
        options={"readTimeout": "1s"},
    )  # fmt: skip
    assert (done.rows, done.missing) == (0, 0)
    record = json.loads((tmp_path / ".lake.queues.json").read_text())
    assert record["forgotten"] == ["broker-b"]
    assert verify_archive(spark, folder, name_servers=servers).is_good


def test_a_transform_tells_what_it_could_not_read(spark, options, topic, pair, kill, tmp_path):
    pair.create_topic(f"{topic}-out", queues=2)
    settings = {"readTimeout": "1s", "failOnDataLoss": "false"}

    def go():
        return transform(
            spark, topic, f"{topic}-out", name_servers=pair.name_server,
            sql="select body from messages", checkpoint=tmp_path / "c", options=settings,
        )  # fmt: skip

    first = go()
    assert (first.rows_read, first.missing) == (ROWS, 0)
    kill()
    assert (go().rows_read, go().missing) == (0, 2)


def test_a_topic_whose_only_broker_died_is_not_called_unknown(spark, tmp_path):
    with EmbeddedCluster(brokers=1) as alone:
        alone.create_topic("lonely", queues=2)
        with Producer(alone.name_server) as producer:
            send_table(producer, {"body": ["x"] * 10}, "lonely")
        options = {"nameServers": alone.name_server, "readTimeout": "1s"}

        def load(**more):
            return spark.read.format("rocketmq").options(**(options | more)).load()

        assert load(topic="lonely").count() == 10
        alone.broker("broker-a").kill()
        gone = "broker broker-a, queues? 0.*left the route"
        with pytest.raises(PySparkException, match=gone):
            load(topic="lonely").count()
        assert load(topic="lonely", failOnDataLoss="false").count() == 0
        with pytest.raises(PySparkException, match="queues can't be read, after"):
            load(assign='{"lonely":{"broker-a":[0]}}').count()
        with pytest.raises(PySparkException, match="topic lonesome is unknown"):
            load(topic="lonesome").count()
