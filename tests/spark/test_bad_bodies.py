"""Messages whose bodies can't be decoded, in Spark: given raw, refused or skipped, as asked."""

import sys
import zlib
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from tests.embedded.wire_client import WireClient, send_ext

from rocketwire.message import Message
from rocketwire.wire.codes import RequestCode

WHOLE = bytes(20_000)
BAD = [
    (0x301, b"no zlib"),
    (0x701, b"no kind"),
    (0xC0, b"no batch"),
    (0x301, zlib.compress(bytes(70 * 1024 * 1024))),
]


@pytest.fixture
def load(spark, cluster, topic, producer):
    queue = producer.publish_queues(topic)[0]
    address = next(broker.address for broker in cluster.brokers if broker.name == queue.broker)
    with WireClient(address) as client:
        for flag, body in [(0x301, zlib.compress(WHOLE)), *BAD]:
            ext = send_ext(topic) | {"e": str(queue.id), "f": str(flag), "g": str(2**62)}
            assert client.call(RequestCode.SEND_MESSAGE_V2, ext, body).code == 0
    producer.send(Message(topic, "good"), queue=queue)

    def load_with(**options):
        reader = spark.read.format("rocketmq").option("nameServers", cluster.name_server)
        return reader.option("topic", topic).options(**options).load()

    return load_with


def test_bodies_that_can_t_be_decoded_are_raw_by_default_and_say_why(load):
    asked = load(columns="queueOffset,body,undecodable,bornTimestamp")
    rows = sorted(asked.select("queueOffset", "body", "undecodable").collect())
    assert [bytes(row.body) for row in rows] == [WHOLE, *[body for _, body in BAD], b"good"]
    assert [row.undecodable is None for row in rows] == [True] + [False] * len(BAD) + [True]
    assert "too large" in rows[4].undecodable
    assert asked.selectExpr("max(year(bornTimestamp))").first()[0] == 9999
    assert "undecodable" not in load().columns


def test_they_are_skipped_or_refused_on_request(load):
    kept = load(onBadBody="skip").select("body").collect()
    assert sorted(bytes(row.body) for row in kept) == sorted([WHOLE, b"good"])
    with pytest.raises(PySparkException, match="offset 1: the body can't be decoded: a zlib body"):
        load(onBadBody="fail").collect()
    with pytest.raises(AnalysisException, match="onBadBody: 'never' is none of raw, fail, skip"):
        load(onBadBody="never")


@pytest.mark.real
@pytest.mark.parametrize("release", ["4.9.7", "5.3.3"])
def test_poison_by_apache_s_own_encoders_on_its_own_broker_is_read(spark, release):
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)
    from tests.interop.driver import JavaDriver
    from tests.real import jars
    from tests.real.apache import ApacheCluster

    jars.require_tools(release)
    topic, count = "poisoned", 60
    with ApacheCluster(release, brokers=1) as apache, JavaDriver(release) as java:
        apache.create_topic(topic, 1)
        where = {"address": apache.brokers[0].listen, "topic": topic, "queue": 0}
        codes = java.call("poison.write", seed=15, count=count, **where)
        stored = codes.count(0)  # a broker refuses some of it
        assert codes[1::2] == [0] * count
        source = spark.read.format("rocketmq").option("nameServers", apache.name_server)
        asked = source.option("topic", topic).option(
            "columns", "queueOffset,body,undecodable,bornTimestamp,properties"
        )
        rows = sorted(asked.load().collect(), key=lambda row: row.queueOffset)
        kept = asked.option("onBadBody", "skip").load().count()
    assert [row.queueOffset for row in rows] == list(range(stored))
    assert stored > 1.5 * count
    good = [bytes(row.body) for row in rows if bytes(row.body).startswith(b"good ")]
    assert good == [f"good {n}".encode() for n in range(count)]
    bad = [row for row in rows if row.undecodable is not None]
    assert len(bad) > 15
    assert kept == stored - len(bad)
