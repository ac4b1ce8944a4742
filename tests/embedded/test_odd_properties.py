"""A message whose properties are odd stops nobody: it is retried, given up and received like others.

Brokers look at the properties of a single message; those in a batch they store as they come, from clients
in any language.
"""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from wire_client import WireClient, batch_item, send_ext

from rocketwire import Consumer, SimpleConsumer, StoredMessage
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode

ODD = [
    b"a\x01b\x01c\x02",
    b"\x01x\x02",
    b"\x02\x02\x02",
    b"no separator",
    b"a\x01\xc3\x28\x02",
    b"a\x01" + b"x" * 32_700 + b"\x02",
    b"POP_CK\x01" + b"9" * 5000 + b" 1 60000 0 1 broker-a 0 0\x02",
    b"POP_CK\x010 1 60000 0 0 broker-a 0 3\x02",
    b"REAL_TOPIC\x01other\x02REAL_QID\x01" + b"9" * 5000 + b"\x02",
    b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01" + b"9" * 5000 + b"\x02",
    b"DELAY\x01" + b"9" * 5000 + b"\x02",
    b"",
]
#: There is no room for what a retry adds: the broker refuses it, as Apache's does.
FULL = 5
BODIES = {b"%d" % number for number in range(len(ODD))}


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    cluster.create_topic("t", queues=1)
    items = b"".join(
        batch_item(b"%d" % number, properties) for number, properties in enumerate(ODD)
    )
    with WireClient(cluster.broker("broker-a").address) as client:
        ext = send_ext("t", batch="true")
        assert client.call(RequestCode.SEND_BATCH_MESSAGE, ext, items).code == 0
    return "t"


def test_each_is_received_again_until_it_is_acknowledged(
    cluster: EmbeddedCluster, topic: str
) -> None:
    with SimpleConsumer(cluster.name_server, group="g", start="earliest") as consumer:
        consumer.subscribe(topic)
        assert {message.body for message in consumer.receive(wait=5, invisible=10)} == BODIES
        for attempt in (2, 3):
            cluster.clock.advance(11)
            again = consumer.receive(wait=5, invisible=10)
            assert {message.body for message in again} == BODIES
            assert {message.delivery_attempt for message in again} == {attempt}
        consumer.acknowledge(again[:6])
        for message in again[6:]:
            message.ack()
        cluster.clock.advance(11)
        assert consumer.receive(wait=0.2) == []


def test_each_is_tried_again_and_given_up(cluster: EmbeddedCluster, topic: str) -> None:
    tries: Counter[bytes] = Counter()

    def refuse(message: StoredMessage) -> None:
        tries[message.body] += 1
        if message.body != b"%d" % FULL:
            raise ValueError("no")

    with Consumer(cluster.name_server, group="g", start="earliest", max_attempts=2) as consumer:
        consumer.subscribe(topic)
        thread = threading.Thread(target=consumer.run, args=(refuse,))
        thread.start()
        cluster.wait_idle("g")
        cluster.clock.advance("10s")
        cluster.wait_idle("g")
        consumer.stop()
        thread.join()
    others = BODIES - {b"%d" % FULL}
    assert tries == dict.fromkeys(others, 2) | {b"%d" % FULL: 1}
    assert {message.body for message in cluster.dead_letters("g")} == others
