"""What a topic of messages that are small when stored, and huge when decompressed, costs a worker."""

import zlib
from pathlib import Path

import pytest
from bench.spark_processes import forget_peaks, peak_of_workers
from tests.embedded.wire_client import WireClient, send_ext

from rocketwire.message import Message
from rocketwire.wire.codes import RequestCode

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc"
)
#: Just below the size from which a body stays as it is stored.
SIZE = 60 * 1024 * 1024
BOMBS = 5
#: Megabytes of a worker; it has 110 or so before it reads anything.
LIMIT = 400


@pytest.fixture(scope="module")
def bombs(cluster, producer):
    topic = "bombs"
    cluster.create_topic(topic, queues=1)
    queue = producer.publish_queues(topic)[0]
    address = next(broker.address for broker in cluster.brokers if broker.name == queue.broker)
    bomb = zlib.compress(bytes(SIZE), 9)
    assert len(bomb) < 64 * 1024
    with WireClient(address) as client:
        for body in [bomb] * BOMBS + [b"no zlib"]:
            ext = send_ext(topic) | {"e": str(queue.id), "f": str(0x301)}
            assert client.call(RequestCode.SEND_MESSAGE_V2, ext, body).code == 0
    producer.send(Message(topic, "good"), queue=queue)
    return topic


@pytest.mark.parametrize("on_bad_body", ["raw", "skip"])
def test_a_worker_stays_small_while_a_batch_decompresses(spark, cluster, bombs, on_bad_body):
    reader = spark.read.format("rocketmq").option("nameServers", cluster.name_server)
    frame = reader.options(topic=bombs, onBadBody=on_bad_body).load()
    forget_peaks()
    total = frame.selectExpr("sum(length(body))").first()[0]
    peak = peak_of_workers()
    assert total == BOMBS * SIZE + 4 + (len(b"no zlib") if on_bad_body == "raw" else 0)
    assert 50 < peak < LIMIT


def test_a_worker_stays_small_while_a_stream_decompresses(spark, cluster, bombs, tmp_path):
    reader = spark.readStream.format("rocketmq").option("nameServers", cluster.name_server)
    frame = reader.options(topic=bombs, startingOffsets="earliest", onBadBody="skip").load()
    forget_peaks()
    writer = frame.selectExpr("length(body)").writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query = writer.start()
    assert query.awaitTermination(250)
    peak = peak_of_workers()
    assert sum(progress.numInputRows for progress in query.recentProgress) == BOMBS + 1
    assert 50 < peak < LIMIT
