"""Receive and acknowledge over the wire: what is out, what comes back, and what is refused."""

from __future__ import annotations

import json
import pickle
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.wire_tools import iter_records
from wire_client import WireClient

from rocketwire import (
    ClientClosedError,
    ConfigError,
    InvalidMessageError,
    Message,
    Producer,
    SimpleConsumer,
    StoredMessage,
    TransportError,
)
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire import pop
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import JSON


@pytest.fixture
def broker(cluster: EmbeddedCluster) -> Iterator[WireClient]:
    cluster.create_topic("t", queues=2)
    with WireClient(cluster.broker("broker-a").address) as client:
        yield client


def take(client: WireClient, count: int = 32, **more: Any) -> Any:
    fields = (
        pop.pop_fields(group="g", topic="t", count=count, invisible_ms=60_000, poll_ms=0) | more
    )
    return client.call(RequestCode.POP_MESSAGE, fields, header=JSON)


def receipts(reply: Any) -> list[pop.Receipt]:
    told = pop.decode_pop_reply(reply.ext)
    found = []
    for record in iter_records(reply.body):
        text = record.properties.get("POP_CK")
        found.append(
            pop.decode_receipt(text)
            if text
            else told.receipt(record.topic, "broker-a", record.queue_id, record.queue_offset)
        )
    return found


def bodies(reply: Any) -> list[bytes]:
    return [record.body for record in iter_records(reply.body)]


def ack(client: WireClient, receipt: pop.Receipt) -> Any:
    fields = pop.ack_fields(receipt, "t", "g")
    return client.call(RequestCode.ACK_MESSAGE, fields, header=JSON)


def committed(client: WireClient, topic: str = "t", queue: int = 0) -> str:
    ext = {"consumerGroup": "g", "topic": topic, "queueId": queue}
    return client.call(RequestCode.QUERY_CONSUMER_OFFSET, ext).ext["offset"]


def test_a_message_is_given_once_and_its_offset_follows_the_acknowledgement(
    broker: WireClient,
) -> None:
    for n in range(3):
        broker.send_message("t", b"%d" % n)
    reply = take(broker)
    assert (bodies(reply), reply.ext["restNum"]) == ([b"0", b"1", b"2"], "0")
    assert reply.ext["startOffsetInfo"] == "0 0 0"
    assert reply.ext["msgOffsetInfo"] == "0 0 0,1,2"
    assert take(broker).code == ResponseCode.POLLING_TIMEOUT
    first, second, third = receipts(reply)
    assert committed(broker) == "0"
    assert ack(broker, second).code == 0
    assert committed(broker) == "0"
    assert ack(broker, first).code == 0
    assert committed(broker) == "2"
    assert ack(broker, third).code == 0
    assert committed(broker) == "3"


@pytest.mark.parametrize("new_name", [False, True])
def test_what_comes_back_comes_through_a_retry_topic_of_either_name(new_name: bool) -> None:
    with EmbeddedCluster(retry_topic_v2=new_name) as cluster:
        cluster.create_topic("t", queues=2)
        with WireClient(cluster.broker("broker-a").address) as client:
            client.send_message("t", b"again", properties="TAGS\x01a\x02k\x01v\x02")
            take(client)
            cluster.clock.advance("59s")
            assert take(client).code == ResponseCode.POLLING_TIMEOUT
            cluster.clock.advance("1s")
            retry = f"%RETRY%g{'+' if new_name else '_'}t"
            (stored,) = cluster.messages(retry)
            assert (stored.body, stored.reconsume_times) == (b"again", 1)
            # A message that matched once is not filtered again.
            reply = take(client, exp="b", expType="TAG")
            (record,) = iter_records(reply.body)
            assert (record.topic, record.reconsume_times) == ("t", 1)
            assert record.properties["k"] == "v"
            (receipt,) = receipts(reply)
            assert receipt.mark == ("2" if new_name else "1")
            assert ack(client, receipt).code == 0
            cluster.clock.advance("1h")
            assert take(client).code == ResponseCode.POLLING_TIMEOUT
            assert committed(client, retry) == "1"


def test_a_batch_of_acknowledgements(broker: WireClient) -> None:
    for n in range(8):
        broker.send_message("t", b"%d" % n, queue=n % 2)
    found = receipts(take(broker))
    body = pop.batch_ack_body([(r, "t") for r in found[:-1]], "broker-a", "g")
    assert broker.call(RequestCode.BATCH_ACK_MESSAGE, {}, body, header=JSON).code == 0
    offsets = sorted([committed(broker), committed(broker, queue=1)])
    assert offsets == ["3", "4"]


def change(client: WireClient, receipt: pop.Receipt, invisible_ms: int) -> Any:
    fields = pop.change_fields(receipt, "t", "g", invisible_ms)
    return client.call(RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME, fields, header=JSON)


def test_a_change_makes_the_old_receipt_void(broker: WireClient, cluster: EmbeddedCluster) -> None:
    broker.send_message("t", b"x")
    (old,) = receipts(take(broker))
    reply = change(broker, old, 120_000)
    assert reply.code == 0
    new = pop.decode_change_reply(reply.ext, old)
    cluster.clock.advance("100s")
    assert take(broker).code == ResponseCode.POLLING_TIMEOUT
    ack(broker, old)
    assert committed(broker) == "0"
    assert change(broker, new, 0).code == 0
    deadline = time.monotonic() + 5
    while (reply := take(broker)).code and time.monotonic() < deadline:
        time.sleep(0.01)
    assert bodies(reply) == [b"x"]
    late = change(broker, new, 5)
    assert late.code == ResponseCode.NO_MESSAGE
    assert "another member" in (late.remark or "")


def test_a_held_request_is_woken_by_a_message_of_any_queue(
    broker: WireClient, cluster: EmbeddedCluster
) -> None:
    fields = pop.pop_fields(group="g", topic="t", count=4, invisible_ms=5000, poll_ms=9000)
    opaque = broker.send(RequestCode.POP_MESSAGE, fields, header=JSON)
    with WireClient(cluster.broker("broker-a").address) as other:
        other.send_message("t", b"woken", queue=1)
    reply = broker.receive()
    assert (reply.opaque, bodies(reply)) == (opaque, [b"woken"])
    # And by one that comes back.
    opaque = broker.send(RequestCode.POP_MESSAGE, fields, header=JSON)
    cluster.clock.advance("5s")
    reply = broker.receive()
    assert (reply.opaque, bodies(reply)) == (opaque, [b"woken"])


def test_a_held_request_ends_when_its_time_is_up(broker: WireClient) -> None:
    reply = take(broker, pollTime="100")
    assert reply.code == ResponseCode.POLLING_TIMEOUT


def test_a_filter_looks_behind_any_number_of_others(broker: WireClient) -> None:
    for n in range(2000):
        broker.send(310, send_fields(n), b"%d" % n, flag=2)
    broker.send_message("t", b"wanted", properties="TAGS\x01w\x02")
    assert bodies(take(broker, exp="w", expType="TAG")) == [b"wanted"]
    assert committed(broker) == "2000"


def send_fields(n: int) -> dict[str, Any]:
    from wire_client import send_ext

    return send_ext("t", properties=f"TAGS\x01o{n}\x02")


def test_what_is_out_stays_out_over_a_restart(broker: WireClient, cluster: EmbeddedCluster) -> None:
    for n in range(2):
        broker.send_message("t", b"%d" % n)
    first, second = receipts(take(broker))
    cluster.broker("broker-a").restart()
    with WireClient(cluster.broker("broker-a").address) as client:
        assert take(client).code == ResponseCode.POLLING_TIMEOUT
        assert ack(client, first).code == 0
        cluster.clock.advance("60s")
        assert bodies(take(client)) == [b"1"]
    assert second.offset == 1


def test_a_killed_broker_brings_everything_back(
    broker: WireClient, cluster: EmbeddedCluster
) -> None:
    for n in range(5):
        broker.send_message("t", b"%d" % n)
    take(broker, 3)
    cluster.broker("broker-a").kill()
    cluster.broker("broker-a").restart()
    cluster.clock.advance("60s")
    seen: set[bytes] = set()
    with WireClient(cluster.broker("broker-a").address) as client:
        while (reply := take(client)).code == 0:
            seen.update(bodies(reply))
    assert seen == {b"0", b"1", b"2", b"3", b"4"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "9"}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": "33"}, ResponseCode.INVALID_PARAMETER),
        ({"exp": "|| ||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"exp": "a >", "expType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"invisibleTime": "x"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_pop_that_is_refused(broker: WireClient, changes: dict[str, str], code: int) -> None:
    reply = take(broker, **changes)
    assert reply.code == code
    assert reply.remark


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "9"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"offset": "99"}, ResponseCode.NO_MESSAGE),
        ({"extraInfo": "rubbish"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_an_acknowledgement_that_is_refused(
    broker: WireClient, changes: dict[str, str], code: int
) -> None:
    broker.send_message("t", b"x")
    (receipt,) = receipts(take(broker))
    fields = pop.ack_fields(receipt, "t", "g") | changes
    reply = broker.call(RequestCode.ACK_MESSAGE, fields, header=JSON)
    assert reply.code == code
    assert reply.remark


def test_a_group_that_may_not_consume(broker: WireClient) -> None:
    broker.call(200, {}, json.dumps({"groupName": "g", "consumeEnable": False}).encode())
    assert take(broker).code == ResponseCode.NO_PERMISSION


# The client, where only the embedded cluster can make trouble


def test_a_dead_broker_does_not_keep_messages_of_the_other_one() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("t", queues=2)
        with (
            Producer(cluster.name_server) as producer,
            SimpleConsumer(cluster.name_server, group="g", start="earliest").subscribe(
                "t"
            ) as consumer,
        ):
            consumer.receive(wait=0)
            cluster.broker("broker-b").kill()
            queue = next(q for q in producer.publish_queues("t") if q.broker == "broker-a")
            producer.send(Message("t", b"here"), queue=queue)
            (message,) = consumer.receive(wait=10)
            message.ack()
            assert message.body == b"here"
            cluster.broker("broker-a").kill()
            with pytest.raises(TransportError):
                consumer.receive(wait=0.5)
            with pytest.raises(TransportError):
                message.ack()


def test_a_broker_without_batches_is_told_one_by_one(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", queues=1)
    handle = cluster.broker("broker-a")
    handle.reject(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, code=RequestCode.BATCH_ACK_MESSAGE)
    with (
        Producer(cluster.name_server) as producer,
        SimpleConsumer(cluster.name_server, group="g", start="earliest").subscribe("t") as consumer,
    ):
        producer.send_many([Message("t", b"%d" % n) for n in range(5)])
        consumer.acknowledge(consumer.receive(wait=5))
        producer.send_many([Message("t", b"%d" % n) for n in range(5)])
        consumer.acknowledge(consumer.receive(wait=5))
        cluster.clock.advance("1h")
        assert consumer.receive(wait=0) == []
    batches = [e for e in cluster.journal if e.code == RequestCode.BATCH_ACK_MESSAGE]
    assert len(batches) == 1


def test_an_expression_needs_the_switch_of_the_broker() -> None:
    with EmbeddedCluster(property_filter=False) as cluster:
        cluster.create_topic("t")
        consumer = SimpleConsumer(cluster.name_server, group="g").subscribe("t", sql="a = 1")
        with pytest.raises(ConfigError, match="enablePropertyFilter=true"):
            consumer.start()


def test_a_group_that_receives_is_idle_when_all_is_acknowledged(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", queues=2)
    with (
        Producer(cluster.name_server) as producer,
        SimpleConsumer(cluster.name_server, group="g", start="earliest").subscribe("t") as consumer,
    ):
        producer.send(Message("t", b"x"))
        (message,) = consumer.receive(wait=5)
        with pytest.raises(TimeoutError, match=r"t\[\d\] at 0 of 1"):
            cluster.wait_idle("g", timeout=0.1)
        message.ack()
        cluster.wait_idle("g", timeout=1)


def test_a_received_message_is_a_stored_message_like_any_other(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", queues=1)
    with (
        Producer(cluster.name_server) as producer,
        SimpleConsumer(cluster.name_server, group="g", start="earliest").subscribe("t") as consumer,
    ):
        producer.send(Message("t", b"x", tags="a", keys="k", properties={"p": "1"}))
        (message,) = consumer.receive(wait=5)
        (stored,) = cluster.messages("t")
        for name in (
            "topic",
            "body",
            "tags",
            "keys",
            "properties",
            "queue",
            "offset",
            "message_id",
        ):
            assert getattr(message, name) == getattr(stored, name), name
        assert isinstance(message, StoredMessage)
        assert "b'x'" in repr(message)
        assert message.to_message().body == b"x"
        copy = pickle.loads(pickle.dumps(message))
        assert type(copy) is StoredMessage
        assert copy.body == b"x"
        for other in (copy, message.replace(body=b"y")):
            with pytest.raises(InvalidMessageError, match="was not received"):
                consumer.acknowledge([other])
        with pytest.raises(InvalidMessageError, match="was not received"):
            message.replace(body=b"y").ack()
        message.ack()


def test_what_is_done_with_takes_no_room(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", queues=1)
    with (
        Producer(cluster.name_server) as producer,
        SimpleConsumer(cluster.name_server, group="g", start="earliest").subscribe("t") as consumer,
    ):
        for _ in range(10):
            producer.send_many([Message("t", b"x")] * 1000)
            left = 1000
            while left:
                found = consumer.receive(1000, wait=5)
                consumer.acknowledge(found)
                left -= len(found)
        pops = cluster._brokers["broker-a"].pops
        assert len(pops._heap) < 6000
        assert pops._out == 0
        assert len(consumer.receive(wait=0)) == 0


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_shutdown_ends_a_wait_for_messages(brokers: int) -> None:
    with EmbeddedCluster(brokers=brokers) as cluster:
        cluster.create_topic("t")
        consumer = SimpleConsumer(cluster.name_server, group="g").subscribe("t").start()
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                consumer.receive(wait=60)
            except ClientClosedError as error:
                failures.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        cluster.journal.wait_for(
            lambda entries: any(e.code == RequestCode.POP_MESSAGE for e in entries)
        )
        consumer.shutdown()
        thread.join(20)
        assert not thread.is_alive()
        assert "shut down while it waited" in str(failures[0])


class Ledger:
    """What may be received when, by the clock of the cluster."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sent = 0
        #: When each message that is not done with can be received (again).
        self.visible: dict[str, float] = {}
        self.tries: dict[str, int] = {}


@pytest.mark.parametrize("seed", range(6))
def test_any_history_gives_each_message_to_one_member_at_a_time(seed: int) -> None:
    chance, ledger = random.Random(seed), Ledger()
    with (
        EmbeddedCluster(brokers=2, retry_topic_v2=seed % 2 == 1) as cluster,
        Producer(cluster.name_server) as producer,
        ExitStack() as stack,
    ):
        cluster.create_topic("t", queues=2)
        members = [
            stack.enter_context(
                SimpleConsumer(cluster.name_server, group="g", start="earliest").subscribe("t")
            )
            for _ in range(3)
        ]
        held: list[Any] = []
        for _ in range(250):
            act(chance, ledger, cluster, producer, members, held)
        # In the end everything comes that is not done with, and nothing else.
        cluster.clock.advance(1000)
        ledger.now += 1000
        while found := members[0].receive(wait=0.3):
            for message in found:
                del ledger.visible[message.text]
            members[0].acknowledge(found)
        assert ledger.visible == {}
        assert ledger.sent > 10


def act(
    chance: random.Random, ledger: Ledger, cluster: EmbeddedCluster, producer: Producer,
    members: list[SimpleConsumer], held: list[Any],
) -> None:  # fmt: skip
    """One random step, and what it does to the ledger."""
    what = chance.choice(["send", "receive", "receive", "ack", "extend", "release", "wait"])
    if what == "send":
        producer.send(Message("t", f"m-{ledger.sent}"))
        ledger.visible[f"m-{ledger.sent}"] = ledger.now
        ledger.sent += 1
    elif what == "receive":
        invisible = chance.choice([5, 30, 100])
        for message in chance.choice(members).receive(
            chance.randint(1, 4), wait=0, invisible=invisible
        ):
            # It was nobody's: margins are for the real time that goes by meanwhile.
            assert ledger.visible[message.text] <= ledger.now + 4
            ledger.tries[message.text] = ledger.tries.get(message.text, 0) + 1
            assert message.delivery_attempt == ledger.tries[message.text]
            ledger.visible[message.text] = ledger.now + invisible
            held.append(message)
    elif what == "wait":
        span = chance.choice([10, 50])
        cluster.clock.advance(span)
        ledger.now += span
        held[:] = [m for m in held if ledger.visible[m.text] > ledger.now]
    elif held:
        message = held.pop(chance.randrange(len(held)))
        if what == "ack":
            message.ack()
            del ledger.visible[message.text]
        elif what == "release":
            message.release(after=5)
            ledger.visible[message.text] = ledger.now + 5
        else:
            message.extend(200)
            ledger.visible[message.text] = ledger.now + 200
            held.append(message)
