"""Parts are sent side by side, those of one queue one after the other, until each has its answer."""

import itertools
import threading

import numpy as np
import pytest
from tests.wire_tools import encode_item

from rocketwire.columns.client_parts import parts_of, sender_of
from rocketwire.columns.deliver import Deliverer
from rocketwire.columns.encode import Frame, Single
from rocketwire.embedded.cluster import EmbeddedCluster
from rocketwire.embedded.faults import Fault, FaultKind
from rocketwire.errors import SendFailedError
from rocketwire.sync.producer import Producer
from rocketwire.wire.codes import RequestCode


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2) as running:
        running.create_topic("t", queues=2)
        yield running


@pytest.fixture
def producer(cluster):
    with Producer(cluster.name_server, group="deliver") as running:
        yield running


@pytest.fixture
def deliver(producer):
    def make(**options):
        return Deliverer(parts_of(producer), sender_of(producer), **options)

    return make


def frame(queue=None, rows=1, topic="t"):
    body = encode_item(b"x" * 50, b"", 0) * rows
    return Frame(topic, queue, memoryview(body), np.arange(rows, dtype=np.int64))


def test_the_report_counts_rows_bytes_and_brokers(deliver, producer):
    queue = producer.publish_queues("t")[0]
    running = deliver()
    for _ in range(5):
        running.put(frame(queue, rows=3))
    report = running.finish()
    assert (report.rows, report.bytes) == (15, 15 * 72)
    assert dict(report.by_broker) == {queue.broker: 15}
    assert (report.retries, report.may_repeat) == (0, 0)


def test_one_request_at_a_time_is_under_way_to_a_queue(cluster, deliver, producer):
    queue = producer.publish_queues("t")[0]
    broker = cluster.broker(queue.broker)
    broker.slow(0.02)
    try:
        running = deliver()
        for _ in range(10):
            running.put(frame(queue))
        running.finish()
    finally:
        broker.heal()
    came = [
        entry.at
        for entry in cluster.journal
        if entry.server == queue.broker and entry.code == RequestCode.SEND_BATCH_MESSAGE
    ][-10:]
    # Each answer is held for 20 ms, so the next request comes no earlier than that.
    assert all(later - earlier > 0.015 for earlier, later in itertools.pairwise(came))


def test_an_unknown_topic_fails_at_once():
    """Not after the timeout: waiting does not make a topic."""
    with (
        EmbeddedCluster(brokers=1, auto_create_topics=False) as strict,
        Producer(strict.name_server, group="x") as own,
    ):
        running = Deliverer(parts_of(own), sender_of(own), timeout=3600)
        running.put(frame(topic="nowhere"))
        with pytest.raises(SendFailedError, match="topic nowhere"):
            running.finish()


def test_a_failure_is_told_to_whoever_hands_over_next(cluster, deliver, producer):
    queue = producer.publish_queues("t")[0]
    running = deliver(timeout=0.2)
    broken = Frame("t", queue, memoryview(b"no batch"), np.arange(1, dtype=np.int64))
    running.put(broken)
    with pytest.raises(SendFailedError, match="row"):
        running.finish()
    with pytest.raises(SendFailedError):
        running.put(frame())


@pytest.mark.parametrize("is_pinned", [True, False])
def test_rows_of_a_frame_whose_answer_was_lost_count_as_possible_repeats(is_pinned):
    """A frame is stored or not as a whole, so all of its rows are sent again."""
    with (
        EmbeddedCluster(brokers=1) as own,
        Producer(own.name_server, group="lost") as producer,
    ):
        own.create_topic("t", queues=1)
        queue = producer.publish_queues("t")[0]
        fault = Fault(FaultKind.DROP_REPLY, sends_only=True, remaining=1)
        own.broker(queue.broker).fault(fault)
        running = Deliverer(parts_of(producer), sender_of(producer), timeout=30)
        running.put(frame(queue if is_pinned else None, rows=7))
        running.put(frame(queue if is_pinned else None, rows=2))
        report = running.finish()
        # Either of the two may have met the fault.
        assert (report.rows, report.retries) == (9, 1)
        assert report.may_repeat == len(own.messages("t")) - 9
        assert dict(report.by_broker) == {queue.broker: 9}


def test_a_refusal_counts_as_a_retry_that_repeats_nothing():
    with (
        EmbeddedCluster(brokers=1) as own,
        Producer(own.name_server, group="busy") as producer,
    ):
        own.create_topic("t", queues=1)
        queue = producer.publish_queues("t")[0]
        own.broker(queue.broker).fault(Fault(FaultKind.BUSY, sends_only=True, remaining=1))
        running = Deliverer(parts_of(producer), sender_of(producer), timeout=30)
        running.put(frame(queue, rows=3))
        report = running.finish()
        assert (report.rows, report.retries, report.may_repeat) == (3, 1, 0)
        assert len(own.messages("t")) == 3


def test_every_try_of_a_send_that_failed_counts_as_a_retry():
    with (
        EmbeddedCluster(brokers=1) as own,
        Producer(own.name_server, group="tries", retries=2) as producer,
    ):
        own.create_topic("t", queues=1)
        broker = producer.publish_queues("t")[0].broker
        fault = Fault(FaultKind.DROP, sends_only=True, remaining=4)
        own.broker(broker).fault(fault)
        running = Deliverer(parts_of(producer), sender_of(producer), timeout=30)
        running.put(frame(rows=3))
        report = running.finish()
        # A first send of three tries, and one more of a second.
        assert (report.rows, report.retries) == (3, 4)
        assert dict(report.by_broker) == {broker: 3}


def test_threads_end_with_the_work(deliver):
    running = deliver()
    for _ in range(20):
        running.put(frame())
    running.finish()
    for thread in threading.enumerate():
        if thread.name == "rocketwire-send":
            thread.join(10)
            assert not thread.is_alive()


class Requests:
    """A hook that notes the first id and the bytes of each request."""

    def __init__(self):
        self.told = []

    def after_send(self, event):
        self.told.append((event.message_ids[0], event.size))


def test_hooks_are_told_of_a_row_as_of_any_message():
    """By the id of the first row of a request; a row that goes alone is compressed by the producer's rule."""
    hook = Requests()
    with (
        EmbeddedCluster(brokers=1) as own,
        Producer(own.name_server, group="ids", hooks=[hook], compress_over=1000) as producer,
    ):
        own.create_topic("t", queues=1)
        queue = producer.publish_queues("t")[0]
        fields = [f"UNIQ_KEY\x01{n:032X}\x02KEYS\x01k\x02".encode() for n in range(5)]
        items = b"".join(encode_item(b"x", text, 0) for text in fields[:3])
        running = Deliverer(parts_of(producer), sender_of(producer))
        running.put(Frame("t", queue, memoryview(items), np.arange(3, dtype=np.int64)))
        running.put(Single("t", queue, b"x" * 999, fields[3], 0, 3))
        running.put(Single("t", queue, b"x" * 1000, fields[4], 0, 4))
        running.put(frame(queue))
        running.finish()
        stored = own.messages("t")
    ids, sizes = zip(*hook.told, strict=True)
    assert ids == (*(f"{n:032X}" for n in (0, 3, 4)), "")
    assert sizes[1] == 999
    assert sizes[2] < 100
    assert [len(message.body) for message in stored[3:5]] == [999, 1000]
