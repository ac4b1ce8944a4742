"""Whole tables go to topics and come back, on the embedded cluster, also when brokers fail."""

import json
import threading
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from rocketwire import columns
from rocketwire.columns import DataLossError, read_batches, read_table, send_table
from rocketwire.columns.client_parts import parts_of
from rocketwire.columns.fetch import FetchPolicy, QueueSpan, fetch_spans
from rocketwire.columns.hash import java_hash_column
from rocketwire.embedded.cluster import EmbeddedCluster
from rocketwire.errors import ClientClosedError, ConfigError, InvalidMessageError, SendFailedError
from rocketwire.message import Message, MessageQueue
from rocketwire.sync.producer import Producer
from rocketwire.sync.reader import Reader


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2) as running:
        yield running


@pytest.fixture(scope="module")
def producer(cluster):
    with Producer(cluster.name_server, group="tables") as running:
        yield running


@pytest.fixture(scope="module")
def reader(cluster):
    with Reader(cluster.name_server) as running:
        yield running


_numbers = iter(range(10_000))


@pytest.fixture
def topic(cluster):
    name = f"table-{next(_numbers)}"
    cluster.create_topic(name, queues=3)
    return name


def table_of(rows, **more):
    return pa.table({"body": [f"body-{i}" for i in range(rows)], **more})


def test_every_column_comes_back(producer, reader, topic):
    sent = pa.table(
        {
            "body": pa.array([b"one", b"two \xff"], pa.binary()),
            "tags": ["TagA", None],
            "keys": ["k1 k2", "ключ"],
            "shardingKey": ["s", None],
            "rowId": ["mine", None],
            "flag": pa.array([7, None], pa.int32()),
            "properties": pa.array([[("a", "1"), ("ü", "ö")], None], pa.map_("string", "string")),
        }
    )
    before = datetime.now(UTC) - timedelta(minutes=1)
    result = send_table(producer, sent, topic)
    assert (result.rows, result.bad_rows, result.may_repeat) == (2, {}, 0)
    assert sum(result.by_broker.values()) == 2
    rows = sorted(read_table(reader, topic).to_pylist(), key=lambda row: row["body"])
    first, second = rows
    assert first["body"] == b"one"
    assert (first["tags"], first["keys"], first["shardingKey"]) == ("TagA", "k1 k2", "s")
    assert (first["rowId"], first["flag"], first["topic"]) == ("mine", 7, topic)
    assert dict(first["properties"]) == {"a": "1", "ü": "ö"}
    assert (second["tags"], second["keys"], second["rowId"]) == (None, "ключ", None)
    assert before < first["bornTimestamp"] <= first["storeTimestamp"]
    assert len(first["messageId"]) == 32


def test_keyed_rows_keep_their_order_on_the_queue_that_java_chooses(producer, reader, topic):
    keys = [f"key-{i % 17}" for i in range(5000)]
    send_table(producer, table_of(5000, shardingKey=keys), topic)
    queues = producer.publish_queues(topic)
    got = read_table(reader, topic, columns=["shardingKey", "body", "broker", "queueId"])
    by_key = defaultdict(list)
    for row in got.to_pylist():
        by_key[row["shardingKey"]].append(int(row["body"].decode().removeprefix("body-")))
        index = abs(int(java_hash_column(pa.array([row["shardingKey"]]))[0])) % len(queues)
        assert queues[index] == MessageQueue(topic, row["broker"], row["queueId"])
    assert set(by_key) == set(keys)
    for numbers in by_key.values():
        assert numbers == sorted(numbers)
    assert sum(map(len, by_key.values())) == 5000


def test_rows_are_stamped_and_counted(producer, reader, topic):
    result = send_table(producer, table_of(20_000, keys=["x" * 300] * 20_000), topic, stamp="w:")
    assert result.rows == 20_000
    assert sum(result.by_broker.values()) == 20_000
    ids = read_table(reader, topic, columns=["rowId"]).column("rowId").to_pylist()
    assert sorted(ids) == sorted(f"w:{i}" for i in range(20_000))


def test_rows_for_a_retry_topic_arrive_too(cluster, producer, reader, topic):
    """Brokers refuse a batch for such a topic (MESSAGE_ILLEGAL), so each row has its own request."""
    retry = f"%RETRY%{topic}"
    cluster.create_topic(retry, queues=1)
    bodies = [f"body-{i}" for i in range(6)]
    result = send_table(producer, {"body": bodies, "topic": [retry, topic] * 3})
    assert (result.rows, result.retries) == (6, 0)
    assert sorted(m.body.decode() for m in cluster.messages(retry)) == bodies[0::2]
    assert sorted(m.body.decode() for m in cluster.messages(topic)) == bodies[1::2]
    send_table(producer, table_of(3, shardingKey=["a", "b", "a"]), retry)
    found = read_table(reader, retry, columns=["body", "shardingKey"]).to_pylist()
    by_key = [row["body"] for row in found if row["shardingKey"] == "a"]
    assert by_key == [b"body-0", b"body-2"]
    assert len(found) == 6


def test_delayed_and_oversized_rows_arrive_too(producer, reader, topic):
    limit = producer._config.max_message_size
    sent = pa.table(
        {
            "body": [b"x" * (limit - 1), b"later", b"now"],
            "delayLevel": pa.array([None, 1, None], pa.int32()),
        }
    )
    result = send_table(producer, sent, topic)
    assert result.rows == 3
    bodies = read_table(reader, topic, columns=["body"]).column("body").to_pylist()
    assert b"now" in bodies
    assert b"x" * (limit - 1) in bodies  # it was compressed on the way


def test_a_bad_row_stops_the_table_or_is_left_out(producer, reader, topic):
    bad = pa.table({"body": ["fine", None, "also fine", ""]})
    with pytest.raises(InvalidMessageError, match=r"the table, row 1: body is null.*in all: 2"):
        send_table(producer, bad, topic)
    result = send_table(producer, bad, topic, on_bad_row="drop")
    assert (result.rows, sorted(result.bad_rows)) == (2, [1, 3])
    assert read_table(reader, topic).num_rows == 2


def test_a_wrong_table_is_refused_before_anything_is_sent(producer, reader, topic):
    with pytest.raises(ConfigError, match="did you mean 'body'"):
        send_table(producer, {"bodies": ["x"]}, topic)
    with pytest.raises(ConfigError, match="table is a list"):
        send_table(producer, ["x"], topic)
    assert read_table(reader, topic).num_rows == 0


def test_whatever_speaks_arrow_can_be_sent(producer, reader, topic):
    class Frame:
        def __arrow_c_stream__(self, requested_schema=None):
            return table_of(3).__arrow_c_stream__(requested_schema)

    batch = table_of(2).to_batches()[0]
    for given in (Frame(), batch, table_of(4).to_reader(), {"body": ["x"]}):
        send_table(producer, given, topic)
    assert read_table(reader, topic).num_rows == 10


def test_reading_can_begin_and_end_anywhere(producer, reader, topic):
    queue = producer.publish_queues(topic)[0]
    for i in range(10):
        producer.send(Message(topic, f"m{i}"), queue=queue)
    some = read_table(reader, [queue], start={queue: 3}, end={queue: 7}, columns=["queueOffset"])
    assert some.column(0).to_pylist() == [3, 4, 5, 6]
    assert read_table(reader, topic, start="latest").num_rows == 0
    recent = datetime.now(UTC) - timedelta(hours=1)
    assert read_table(reader, topic, start=recent).num_rows == 10


def test_tags_filter(producer, reader, topic):
    tags = ["Aa", "BB", "other", None] * 50
    send_table(producer, table_of(200, tags=tags), topic)
    got = read_table(reader, topic, tags="Aa || other", columns=["tags"])
    # Aa and BB have the same hash code, so the broker lets both pass.
    assert Counter(got.column("tags").to_pylist()) == {"Aa": 50, "other": 50}


def test_batches_come_before_the_whole_topic_is_read(producer, reader, topic):
    send_table(producer, table_of(50_000, keys=["x" * 400] * 50_000), topic)
    with read_batches(reader, topic, columns=["body"]) as batches:
        first = batches.read_next_batch()
        assert 0 < first.num_rows < 50_000


def test_clients_must_be_running(cluster, topic):
    with pytest.raises(ClientClosedError):
        send_table(Producer(cluster.name_server, group="x"), table_of(1), topic)
    with pytest.raises(ClientClosedError):
        read_table(Reader(cluster.name_server), topic)


def test_unknown_names_of_the_package_are_an_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = columns.nonsense
    assert set(columns.__all__) == set(columns._HOMES)


def test_lost_messages_are_told_with_queue_and_offsets(reader, topic, producer):
    queue = producer.publish_queues(topic)[0]
    producer.send(Message(topic, "only"), queue=queue)
    span = QueueSpan(queue, 0, 5)
    policy = FetchPolicy(timeout=0.5)
    with pytest.raises(DataLossError, match=f"queue {queue.id}: offsets 1 to 4 are gone"):
        list(fetch_spans(parts_of(reader), [span], policy))
    lenient = FetchPolicy(timeout=0.5, fail_on_data_loss=False)
    bodies = list(fetch_spans(parts_of(reader), [span], lenient))
    assert [(part.first, part.end) for part in bodies] == [(0, 1)]


def test_offsets_of_a_topic_that_was_made_anew_are_told_as_such(cluster, reader, topic):
    """The broker has "0 to -1" of it, which says nothing to anyone."""
    queue = reader.queues(topic)[0]
    with pytest.raises(DataLossError, match="are gone; the queue is empty: the topic was deleted"):
        list(fetch_spans(parts_of(reader), [QueueSpan(queue, 0, 5)], FetchPolicy(timeout=0.2)))


def test_a_reader_that_stops_early_stops_its_threads(producer, reader, topic):
    send_table(producer, table_of(100_000, keys=["x" * 400] * 100_000), topic)
    before = threading.active_count()
    spans = [QueueSpan(q, 0, reader.max_offset(q)) for q in reader.queues(topic)]
    bodies = fetch_spans(parts_of(reader), spans, FetchPolicy())
    next(bodies)
    bodies.close()
    for thread in threading.enumerate():
        if thread.name == "rocketwire-fetch":
            thread.join(10)
    assert threading.active_count() <= before


def test_telemetry_tells_frames_apart_by_the_id_of_their_first_row(
    cluster, topic, reader, tmp_path
):
    """Without it all frames of a producer would be taken for tries of one send."""
    with Producer(cluster.name_server, group="told", telemetry=tmp_path) as producer:
        rows = table_of(9000, keys=["x" * 300] * 9000, delayLevel=[18, *[0] * 8999])
        send_table(producer, rows, topic)
    lines = [
        json.loads(line)
        for path in tmp_path.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    attempts = [line for line in lines if line["kind"] == "attempt"]
    assert sum(line["messages"] for line in attempts) == 9000
    ids = [line["messageId"] for line in attempts]
    assert len(ids) == len(set(ids)) > 2
    stored = set(read_table(reader, topic, columns=["messageId"])["messageId"].to_pylist())
    assert len(set(ids) - stored) <= 1  # the delayed row is not there yet


class TestFaults:
    @pytest.fixture
    def broken(self):
        with EmbeddedCluster(brokers=3) as running:
            running.create_topic("t", queues=2)
            yield running

    def test_rows_without_a_key_go_around_a_dead_broker(self, broken):
        with Producer(broken.name_server, group="f") as producer, Reader(broken.name_server) as r:
            producer.publish_queues("t")
            broken.broker("broker-a").kill()
            big = table_of(30_000, keys=["x" * 300] * 30_000)
            result = send_table(producer, big, "t", stamp="w:", timeout=30)
            assert result.rows == 30_000
            assert "broker-a" not in result.by_broker
            queues = [q for q in producer.publish_queues("t") if q.broker != "broker-a"]
            got = read_table(r, queues, columns=["rowId"]).column("rowId").to_pylist()
            assert set(got) == {f"w:{i}" for i in range(30_000)}

    def test_keyed_rows_wait_for_their_broker(self, broken):
        with Producer(broken.name_server, group="f") as producer, Reader(broken.name_server) as r:
            queues = producer.publish_queues("t")
            keys = [f"k{i % 40}" for i in range(2000)]
            broken.broker("broker-b").kill()
            revival = threading.Timer(1.0, broken.broker("broker-b").restart)
            revival.start()
            result = send_table(
                producer, table_of(2000, shardingKey=keys), "t", stamp="w:", timeout=60
            )
            revival.join()
            assert result.rows == 2000
            assert result.retries > 0
            got = read_table(r, queues, columns=["shardingKey", "rowId"]).to_pylist()
            assert {row["rowId"] for row in got} == {f"w:{i}" for i in range(2000)}

    def test_what_cannot_be_delivered_in_time_is_told_with_its_rows(self, broken):
        with Producer(broken.name_server, group="f") as producer:
            producer.publish_queues("t")
            for name in ("broker-a", "broker-b", "broker-c"):
                broken.broker(name).kill()
            with pytest.raises(SendFailedError, match=r"topic t, rows 0 to 9 .10 rows.: "):
                send_table(producer, table_of(10), "t", timeout=1.0)

    def test_reading_goes_on_when_a_broker_comes_back(self, broken):
        with Producer(broken.name_server, group="f") as producer, Reader(broken.name_server) as r:
            send_table(producer, table_of(5000), "t")
            spans = [QueueSpan(q, 0, r.max_offset(q)) for q in r.queues("t")]
            broken.broker("broker-c").kill()
            revival = threading.Timer(0.7, broken.broker("broker-c").restart)
            revival.start()
            bodies = list(fetch_spans(parts_of(r), spans, FetchPolicy(timeout=60)))
            revival.join()
            assert sum(part.end - part.first for part in bodies) == 5000
