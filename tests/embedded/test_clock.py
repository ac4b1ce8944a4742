"""The clock of a cluster, put forward by a test: what waits for a time is due at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import pytest
from wire_client import WireClient, heartbeat, lock, send_ext

from rocketwire import Consumer, Message, Producer, Reader, StoredMessage
from rocketwire.embedded import EmbeddedCluster
from rocketwire.embedded.store import StoreSizes
from rocketwire.errors import ClientClosedError, ConfigError
from rocketwire.testing.plugin import TopicForTest
from rocketwire.wire.codes import RequestCode


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, transaction_check_max=3) as cluster:
        cluster.create_topic("t", queues=2)
        yield cluster


def bodies(cluster: EmbeddedCluster, topic: str = "t") -> list[bytes]:
    return sorted(message.body for message in cluster.messages(topic))


def send_to_each(cluster: EmbeddedCluster, *messages: Message) -> None:
    with Producer(cluster.name_server) as producer:
        for message in messages:
            for queue in producer.publish_queues("t")[::2]:
                producer.send(message, queue=queue)


def test_delayed_messages_are_due_on_all_brokers_when_advance_returns(
    cluster: EmbeddedCluster,
) -> None:
    send_to_each(cluster, Message("t", b"5s", delay_level=2), Message("t", b"2h", delay_level=18))
    cluster.clock.advance(4)
    assert bodies(cluster) == []
    cluster.clock.advance("1s")
    assert bodies(cluster) == [b"5s", b"5s"]
    cluster.clock.advance("2h")
    assert bodies(cluster) == [b"2h", b"2h", b"5s", b"5s"]
    assert cluster.clock.ahead == pytest.approx(7205)


def test_what_is_due_earlier_comes_earlier(cluster: EmbeddedCluster) -> None:
    now = time.time()
    with Producer(cluster.name_server) as producer:
        queue = producer.publish_queues("t")[0]
        for body, wait in ((b"60", 60), (b"7", 7), (b"20", 20)):
            producer.send(Message("t", body, deliver_at=now + wait), queue=queue)
        producer.send(Message("t", b"30", delay_level=4), queue=queue)
        producer.send(Message("t", b"10", delay_level=3), queue=queue)
    cluster.clock.advance("2m")
    assert [m.body for m in cluster.messages("t")] == [b"7", b"10", b"20", b"30", b"60"]
    times = [m.stored_at.timestamp() - now for m in cluster.messages("t")]
    assert [round(t, -1) for t in times[1:]] == [10, 20, 30, 60]


def test_a_timed_message_waits_as_long_as_its_sender_thinks(cluster: EmbeddedCluster) -> None:
    cluster.clock.advance("1h")
    with Producer(cluster.name_server) as producer:
        producer.send(Message("t", b"later", deliver_at=time.time() + 30))
    cluster.clock.advance("25s")
    assert bodies(cluster) == []
    cluster.clock.advance("6s")
    assert bodies(cluster) == [b"later"]


def test_a_thousand_delayed_messages_come_with_one_step(cluster: EmbeddedCluster) -> None:
    with Producer(cluster.name_server) as producer:
        for n in range(1000):
            producer.send_oneway(Message("t", b"%d" % n, delay_level=1 + n % 3))
    cluster.journal.wait_for(lambda entries: sum(e.code == 310 for e in entries) == 1000)
    cluster.clock.advance("10s")
    assert len(bodies(cluster)) == 1000


def test_a_message_is_tried_again_and_given_up_without_waiting(cluster: EmbeddedCluster) -> None:
    attempts: list[int] = []

    def fail(message: StoredMessage) -> None:
        attempts.append(message.reconsume_times)
        raise ValueError("on purpose")

    with (
        Consumer(cluster.name_server, group="g", start="earliest", max_attempts=3) as consumer,
        Producer(cluster.name_server) as producer,
    ):
        consumer.subscribe("t")
        with running(consumer, fail):
            producer.send(Message("t", b"poison"))
            for wait in ("10s", "30s"):
                cluster.wait_idle("g")
                assert cluster.dead_letters("g") == []
                cluster.clock.advance(wait)
            cluster.wait_idle("g")
            deadline = time.monotonic() + 10
            while not cluster.dead_letters("g") and time.monotonic() < deadline:
                time.sleep(0.01)
    assert attempts == [0, 1, 2]
    (letter,) = cluster.dead_letters("g")
    assert letter.body == b"poison"


class running:
    """A consumer at work in a thread for the length of a block."""

    def __init__(self, consumer: Consumer, handler: object) -> None:
        self._consumer = consumer
        self._thread = threading.Thread(target=consumer.run, args=(handler,))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._consumer.stop()
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_open_transactions_are_asked_for_and_given_up(cluster: EmbeddedCluster) -> None:
    ext = {"properties": "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01u1\x02"}
    broker = cluster.broker("broker-a")
    with WireClient(broker.address) as client:
        body = {"clientID": "p", "producerDataSet": [{"groupName": "pg"}], "consumerDataSet": []}
        client.call(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())
        client.send_message("t", **ext)
        cluster.clock.advance("5s")
        cluster.clock.advance("1s")
        question = client.receive()
        assert question.code == RequestCode.CHECK_TRANSACTION_STATE
        # Moved often and a little, the clock does not ask more often.
        for _ in range(20):
            cluster.clock.advance("1s")
        client.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.receive()
        client.socket.settimeout(10)
        for _ in range(2):
            cluster.clock.advance("30s")
            assert client.receive().code == RequestCode.CHECK_TRANSACTION_STATE
        cluster.clock.advance("30s")
    assert len(cluster.messages("TRANS_CHECK_MAX_TIME_TOPIC")) == 1


def test_locks_and_members_stay_in_real_time(cluster: EmbeddedCluster) -> None:
    with (
        WireClient(cluster.broker("broker-a").address) as one,
        WireClient(cluster.broker("broker-a").address) as two,
    ):
        heartbeat(one, "one", "g", "t")
        assert lock(one, 41, "one", "t", [0]) == [0]
        cluster.clock.advance("5h")
        assert lock(two, 41, "two", "t", [0]) == []
        reply = one.call(38, {"consumerGroup": "g"})
        assert reply.code == 0
        assert b"one" in reply.body


def test_files_do_not_age_with_the_clock() -> None:
    sizes = StoreSizes(log_file=4096)
    with EmbeddedCluster(sizes=sizes, retention=3600.0) as cluster:
        with Producer(cluster.name_server) as producer:
            for n in range(20):
                producer.send(Message("t", b"x" * 1000, keys=str(n)))
        cluster.clock.advance("100h")
        broker = cluster._brokers["broker-a"]
        cluster._check_running().run(broker.store.flush)
        cluster._check_running().run(broker._upkeep)
        assert len(cluster.messages("t")) == 20


def test_healing_and_a_restart_do_not_turn_the_clock_back(cluster: EmbeddedCluster) -> None:
    cluster.clock.advance("1h")
    for broker in cluster.brokers:
        broker.heal()
    cluster.brokers[0].restart()
    with WireClient(cluster.brokers[0].address) as client:
        client.call(RequestCode.SEND_MESSAGE_V2, send_ext("t"), b"now")
    (message,) = cluster.messages("t")
    assert message.stored_at.timestamp() - time.time() == pytest.approx(3600, abs=30)


def test_a_message_parked_before_a_crash_is_due_by_the_same_clock(
    cluster: EmbeddedCluster,
) -> None:
    cluster.clock.advance("1h")
    with Producer(cluster.name_server) as producer:
        for queue in producer.publish_queues("t"):
            producer.send(Message("t", b"delayed", delay_level=3), queue=queue)
            producer.send(Message("t", b"timed", deliver_at=time.time() + 10), queue=queue)
    for broker in cluster.brokers:
        broker.kill()
        broker.restart()
    assert bodies(cluster) == []
    cluster.clock.advance("10s")
    assert bodies(cluster) == [b"delayed"] * 4 + [b"timed"] * 4


def test_a_full_disk_does_not_stop_the_clock(cluster: EmbeddedCluster) -> None:
    send_to_each(cluster, Message("t", b"5s", delay_level=2))
    cluster.broker("broker-a").disk_full()
    cluster.clock.advance("10s")
    assert bodies(cluster) == [b"5s"]
    cluster.broker("broker-a").heal()
    cluster.clock.advance(0)
    assert bodies(cluster) == [b"5s", b"5s"]


@pytest.mark.parametrize("span", [-1, "soon", "-5s", None, float("nan"), float("inf"), 1e12])
def test_a_span_that_is_none_is_refused(cluster: EmbeddedCluster, span: object) -> None:
    with pytest.raises(ConfigError, match=r"span|forward"):
        cluster.clock.advance(span)  # type: ignore[arg-type]
    assert cluster.clock.ahead == 0.0


def test_a_stopped_cluster_has_no_clock() -> None:
    cluster = EmbeddedCluster()
    with pytest.raises(ClientClosedError):
        cluster.clock.advance(1)


def test_a_group_is_idle_when_all_is_handled_and_not_before(cluster: EmbeddedCluster) -> None:
    go = threading.Event()
    with Consumer(cluster.name_server, group="g", start="earliest") as consumer:
        consumer.subscribe("t")
        with Producer(cluster.name_server) as producer:
            producer.send_many([Message("t", b"%d" % n) for n in range(50)])
        with running(consumer, lambda _: go.wait(20)):
            with pytest.raises(TimeoutError, match=r"'g' is not idle after 0\.3 s: broker-"):
                cluster.wait_idle("g", timeout=0.3)
            go.set()
            cluster.wait_idle("g")
    # Now by what was committed.
    cluster.wait_idle("g", timeout=1)


def test_a_group_without_members_is_not_called_idle(cluster: EmbeddedCluster) -> None:
    with pytest.raises(TimeoutError, match="start a consumer of this group"):
        cluster.wait_idle("nobody", timeout=0.05)


def test_the_fixture_has_the_clock(rocketmq: TopicForTest) -> None:
    with Producer(rocketmq.name_server) as producer:
        producer.send(Message(rocketmq.topic, b"x", delay_level=3))
    assert rocketmq.messages() == []
    rocketmq.clock.advance("10s")
    assert [m.body for m in rocketmq.messages()] == [b"x"]
    assert rocketmq.dead_letters("none") == []
    with Reader(rocketmq.name_server) as reader:
        assert len(list(reader.read(rocketmq.topic))) == 1
