"""Spans and metrics with the real SDK: both shells, two processes, and a context that Java wrote."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rocketwire import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    FaultPolicy,
    Message,
    Producer,
    Reply,
    Retry,
    SendFailedError,
)
from rocketwire.embedded import EmbeddedCluster

otel = pytest.importorskip(
    "opentelemetry.sdk", reason="needs rocketwire[otel] and opentelemetry-sdk"
)

from opentelemetry import trace  # noqa: E402
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.trace import SpanKind, StatusCode  # noqa: E402

from rocketwire.integrations.opentelemetry import OpenTelemetry, instrument, uninstrument  # noqa: E402


class Recorder:
    """An SDK that keeps what it gets."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.layer = OpenTelemetry(self.tracers, self.meters)

    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def span(self, name: str) -> Any:
        (found,) = [span for span in self.spans() if span.name == name]
        return found

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    found = Recorder()
    yield found
    found.meters.shutdown()
    found.tracers.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, queues=1) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    name = f"otel-{abs(hash(request.node.name)) % 10**9}"
    cluster.create_topic(name, 1)
    return name


def context_of(message: Any) -> tuple[str, str]:
    _, trace_id, span_id, _ = message.properties["traceparent"].split("-")
    return trace_id, span_id


def ids(span: Any) -> tuple[str, str]:
    context = span.get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def consume(
    cluster: EmbeddedCluster, topic: str, handler: Callable[[Any], Any], **options: Any
) -> None:
    """Handle messages until the handler stops the consumer that it gets."""
    consumer = Consumer(cluster.name_server, group=f"g-{topic}", start="earliest", **options)
    consumer.subscribe(topic).run(lambda given: handler(consumer, given))


def stop_after(count: int, result: Any = None) -> Callable[..., Any]:
    seen: list[Any] = []

    def handle(consumer: Any, given: Any) -> Any:
        seen.extend(given if isinstance(given, list) else [given])
        if len(seen) >= count:
            consumer.stop()
        return result

    handle.seen = seen  # type: ignore[attr-defined]
    return handle


def test_a_trace_goes_on_from_the_sender_to_the_handler(cluster, topic, recorder):
    with Producer(cluster.name_server, group="shop", middleware=[recorder.layer]) as producer:
        result = producer.send(Message(topic, b"paid", tags="pay", keys=["a", "b"]))
        client_id = producer.client_id
    handle = stop_after(1)
    consume(cluster, topic, handle, middleware=[recorder.layer])
    sent, processed = recorder.span(f"send {topic}"), recorder.span(f"process {topic}")
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert context_of(handle.seen[0]) == ids(sent)
    assert processed.context.trace_id == sent.context.trace_id
    assert processed.parent.span_id == sent.context.span_id
    assert [link.context.span_id for link in processed.links] == [sent.context.span_id]
    assert dict(sent.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.destination.name": topic,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": client_id,
        "messaging.rocketmq.client_group": "shop",
        "messaging.message.body.size": 4,
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "pay",
        "messaging.rocketmq.message.keys": ("a", "b"),
        "messaging.message.id": result.message_id,
        "messaging.destination.partition.id": f"{result.queue.broker}:{result.queue.id}",
    }
    assert processed.attributes["messaging.consumer.group.name"] == f"g-{topic}"
    assert processed.attributes["messaging.message.id"] == result.message_id


def test_a_span_of_the_caller_is_the_parent_and_in_a_handler_ours_is_current(
    cluster, topic, recorder
):
    tracer = recorder.tracers.get_tracer("test")
    with (
        Producer(cluster.name_server, middleware=[recorder.layer]) as producer,
        tracer.start_as_current_span("checkout") as outer,
    ):
        producer.send(Message(topic, b"x"))
    inside: list[Any] = []

    def handle(consumer, message):
        inside.append(trace.get_current_span().get_span_context().span_id)
        consumer.stop()

    consume(cluster, topic, handle, middleware=[recorder.layer])
    assert recorder.span(f"send {topic}").parent.span_id == outer.get_span_context().span_id
    assert inside == [recorder.span(f"process {topic}").context.span_id]


def test_where_a_span_is_current_the_message_is_linked_and_not_the_parent(cluster, topic, recorder):
    with Producer(cluster.name_server, middleware=[recorder.layer]) as producer:
        producer.send(Message(topic, b"x"))
    tracer = recorder.tracers.get_tracer("test")

    def outer(message, call_next):
        with tracer.start_as_current_span("worker"):
            return call_next(message)

    consume(cluster, topic, stop_after(1), middleware=[outer, recorder.layer])
    processed, sent = recorder.span(f"process {topic}"), recorder.span(f"send {topic}")
    assert processed.parent.span_id == recorder.span("worker").context.span_id
    assert processed.context.trace_id != sent.context.trace_id
    assert [link.context.span_id for link in processed.links] == [sent.context.span_id]


def test_a_batch_of_a_handler_has_links(cluster, topic, recorder):
    with Producer(cluster.name_server, middleware=[recorder.layer]) as producer:
        queue = producer.publish_queues(topic)[0]
        for number in range(3):
            producer.send(Message(topic, f"{number}"), queue=queue)
    consume(cluster, topic, stop_after(3), middleware=[recorder.layer], batch=10)
    sent = {s.context.span_id for s in recorder.spans() if s.name == f"send {topic}"}
    processed = [s for s in recorder.spans() if s.name == f"process {topic}"]
    links = [link for span in processed for link in span.links]
    assert {link.context.span_id for link in links} == sent
    assert all("messaging.message.id" in link.attributes for link in links)
    several = [s for s in processed if len(s.links) > 1]
    assert several
    assert several[0].parent is None
    assert several[0].attributes["messaging.batch.message_count"] == len(several[0].links)


def test_messages_of_a_list_have_spans_of_their_own(cluster, topic, recorder):
    with Producer(cluster.name_server, middleware=[recorder.layer]) as producer:
        producer.send([Message(topic, f"{n}") for n in range(3)])
        producer.send_many([Message(topic, f"m{n}") for n in range(2)])
    handle = stop_after(5)
    consume(cluster, topic, handle)
    created = [s for s in recorder.spans() if s.name == f"create {topic}"]
    assert {ids(s) for s in created} == {context_of(m) for m in handle.seen}
    assert len({s.context.trace_id for s in created}) == 5
    assert {s.attributes["messaging.operation.type"] for s in created} == {"create"}


@pytest.mark.parametrize("how", ["submit", "oneway", "transaction", "request"])
def test_every_way_of_sending_has_its_span(how, cluster, topic, recorder):
    with Producer(cluster.name_server, middleware=[recorder.layer]) as producer:
        message = Message(topic, b"x", sharding_key="k" if how == "submit" else None)
        if how == "submit":
            producer.submit(message).result(10)
            producer.flush()
        elif how == "oneway":
            producer.send_oneway(message)
        elif how == "transaction":
            with producer.transaction(message):
                pass
        else:
            consumer = Consumer(
                cluster.name_server, group=f"g-{topic}", start="earliest"
            ).subscribe(topic)
            with consumer:
                import threading

                thread = threading.Thread(target=consumer.run, args=(lambda m: Reply(b"y"),))
                thread.start()
                assert producer.request(message, timeout=20).text == "y"
                consumer.stop()
                thread.join()
    span = recorder.span(f"send {topic}")
    assert span.attributes["messaging.operation.name"] == how
    kind = {"submit": "fifo", "transaction": "transaction"}.get(how, "normal")
    assert span.attributes["messaging.rocketmq.message.type"] == kind
    assert ("messaging.message.id" in span.attributes) == (how in {"submit", "transaction"})
    assert [event.name for event in span.events] == (
        ["rocketwire.reply"] if how == "request" else []
    )
    (count,) = recorder.points("messaging.client.sent.messages")
    assert count.value == 1


def test_a_context_that_the_application_gave_is_kept_and_linked(cluster, topic, recorder):
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Producer(cluster.name_server, middleware=[recorder.layer]) as producer:
        producer.send(Message(topic, b"x", properties={"traceparent": given}))
    handle = stop_after(1)
    consume(cluster, topic, handle)
    assert handle.seen[0].properties["traceparent"] == given
    (link,) = recorder.span(f"send {topic}").links
    assert f"{link.context.span_id:016x}" == "b7ad6b7169203331"


def test_retries_are_events_with_broker_and_reason(recorder):
    with EmbeddedCluster(brokers=2, queues=1) as cluster:
        cluster.create_topic("t", 1)
        options = {"fault": FaultPolicy.off(), "middleware": [recorder.layer]}
        with Producer(cluster.name_server, **options) as producer:
            producer.send(Message("t", b"x"))
            cluster.brokers[0].busy()
            for _ in range(4):
                producer.send(Message("t", b"x"))
            cluster.brokers[1].busy()
            with pytest.raises(SendFailedError):
                producer.send(Message("t", b"x"))
        spans = [s for s in recorder.spans() if s.name == "send t"]
        retried = [s for s in spans if s.events and s.status.status_code is not StatusCode.ERROR]
        assert retried
        event = retried[0].events[0]
        assert event.name == "rocketwire.retry"
        assert event.attributes["rocketwire.broker"] == cluster.brokers[0].name
        assert "busy" in event.attributes["rocketwire.reason"].lower()
        failed = spans[-1]
        assert failed.status.status_code is StatusCode.ERROR
        assert failed.attributes["error.type"] == "SendFailedError"
        assert len([e for e in failed.events if e.name == "rocketwire.retry"]) >= 2


def test_a_handler_that_fails_and_one_that_retries(cluster, topic, recorder):
    with Producer(cluster.name_server) as producer:
        producer.send(Message(topic, b"x"))
    tries: list[int] = []

    def handle(consumer, message):
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("no such order")
        consumer.stop()
        return Retry(after=5.0)

    consume(cluster, topic, handle, middleware=[recorder.layer], ordered=True, retry_pause=0.05)
    first, second = [s for s in recorder.spans() if s.name == f"process {topic}"]
    assert first.status.status_code is StatusCode.ERROR
    assert first.attributes["error.type"] == "ValueError"
    assert second.status.status_code is StatusCode.UNSET
    assert [(e.name, dict(e.attributes)) for e in second.events] == [
        ("rocketwire.retry", {"rocketwire.after": 5.0})
    ]
    errors = {
        p.attributes.get("error.type"): p.value
        for p in recorder.points("messaging.client.consumed.messages")
    }
    assert errors == {"ValueError": 1, None: 1}


def test_in_a_loop_the_span_is_current_in_the_body(cluster, topic, recorder):
    with Producer(cluster.name_server, middleware=[recorder.layer]) as producer:
        producer.send(Message(topic, b"x"))
        producer.send(Message(topic, b"x"))
    inside = []
    consumer = Consumer(
        cluster.name_server, group=f"g-{topic}", start="earliest", middleware=[recorder.layer]
    )
    with consumer.subscribe(topic):
        for message in consumer:
            inside.append(
                (trace.get_current_span().get_span_context().trace_id, context_of(message)[0])
            )
            if len(inside) == 2:
                break
    assert all(f"{current:032x}" == carried for current, carried in inside)
    assert not trace.get_current_span().get_span_context().is_valid


def test_asyncio_has_the_same_spans(cluster, topic, recorder):
    async def main() -> None:
        async with AsyncProducer(cluster.name_server, middleware=[recorder.layer]) as producer:
            await producer.send(Message(topic, b"x"))
            await (await producer.submit(Message(topic, b"x")))
            await producer.send([Message(topic, b"x")] * 2)
        consumer = AsyncConsumer(
            cluster.name_server, group=f"g-{topic}", start="earliest", middleware=[recorder.layer]
        )
        seen = []

        async def handle(message):
            await asyncio.sleep(0)
            seen.append(
                (trace.get_current_span().get_span_context().trace_id, context_of(message)[0])
            )
            if len(seen) == 4:
                consumer.stop()

        await consumer.subscribe(topic).run(handle)
        assert all(f"{current:032x}" == carried for current, carried in seen)

    asyncio.run(main())
    names = sorted(s.name for s in recorder.spans())
    assert names == sorted(
        [f"send {topic}"] * 2 + [f"create {topic}"] * 2 + [f"process {topic}"] * 4
    )


def test_metrics_have_the_names_of_the_conventions_and_gauges_of_our_own(cluster, topic, recorder):
    with Producer(cluster.name_server, middleware=[recorder.layer]) as producer:
        for _ in range(3):
            producer.send(Message(topic, b"x"))
        (sent,) = recorder.points("messaging.client.sent.messages")
        (duration,) = recorder.points("messaging.client.operation.duration")
        assert (sent.value, duration.count) == (3, 3)
        assert duration.sum > 0
        assert dict(duration.attributes) == {
            "messaging.system": "rocketmq",
            "messaging.destination.name": topic,
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
        }
        (in_flight,) = recorder.points("rocketwire.producer.in_flight")
        assert in_flight.value == 0
        isolated = recorder.points("rocketwire.broker.isolated")
        assert {p.attributes["rocketwire.broker"]: p.value for p in isolated} == {
            broker.name: 0 for broker in cluster.brokers
        }
    seen: list[Any] = []

    def handle(consumer, message):
        if not seen:
            seen.append(recorder.points("rocketwire.consumer.lag"))
            seen.append(recorder.points("rocketwire.consumer.held"))
        if len(seen) < 4:
            seen.append(message)
        else:
            consumer.stop()

    consume(cluster, topic, handle, middleware=[recorder.layer], workers=1)
    lag, held = seen[0], seen[1]
    assert sum(point.value for point in lag) >= 1
    assert held[0].value >= 1
    (process,) = recorder.points("messaging.process.duration")
    assert process.count == 3
    assert process.attributes["messaging.consumer.group.name"] == f"g-{topic}"


def test_instrument_surrounds_clients_made_afterwards_once(cluster, topic, recorder):
    layer = instrument(recorder.tracers, recorder.meters)
    try:
        assert instrument() is layer
        producer = Producer(cluster.name_server)
    finally:
        uninstrument()
    with producer, Producer(cluster.name_server) as other:
        producer.send(Message(topic, b"x"))
        other.send(Message(topic, b"x"))
    assert [s.name for s in recorder.spans()] == [f"send {topic}"]


def test_a_client_with_an_instrument_of_its_own_has_each_span_once(cluster, topic, recorder):
    instrument(recorder.tracers, recorder.meters)
    try:
        producer = Producer(cluster.name_server, middleware=[OpenTelemetry(recorder.tracers)])
        consumer = Consumer(
            cluster.name_server, group=f"g-{topic}", start="earliest", middleware=[recorder.layer]
        )
    finally:
        uninstrument()
    with producer:
        producer.send(Message(topic, b"x"))
    consumer.subscribe(topic).run(lambda message: consumer.stop())
    assert [s.name for s in recorder.spans()] == [f"send {topic}", f"process {topic}"]


CHILD = """
import json, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rocketwire import Consumer
from rocketwire.integrations.opentelemetry import OpenTelemetry

exporter, tracers = InMemorySpanExporter(), TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(exporter))
consumer = Consumer(sys.argv[1], group="other-process", start="earliest", middleware=[OpenTelemetry(tracers)])
consumer.subscribe(sys.argv[2]).run(lambda message: consumer.stop())
(span,) = exporter.get_finished_spans()
print(json.dumps([f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}"]))
"""


def test_another_process_continues_the_trace(cluster, topic, recorder):
    with Producer(cluster.name_server, middleware=[recorder.layer]) as producer:
        producer.send(Message(topic, b"x"))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, cluster.name_server, topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert tuple(json.loads(done.stdout)) == ids(recorder.span(f"send {topic}"))


def test_a_context_in_properties_is_continued_with_its_state(cluster, topic, recorder):
    """What Java's client itself writes is tested in ``interop``."""
    properties = {
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "tracestate": "vendor=a,other=b",
    }
    with Producer(cluster.name_server) as producer:
        producer.send(Message(topic, b"x", properties=properties))
    consume(cluster, topic, stop_after(1), middleware=[recorder.layer])
    span = recorder.span(f"process {topic}")
    assert f"{span.context.trace_id:032x}" == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert f"{span.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert span.context.trace_state.get("vendor") == "a"


def test_without_an_sdk_nothing_is_recorded_and_nothing_breaks(cluster, topic):
    with Producer(cluster.name_server, middleware=[OpenTelemetry()]) as producer:
        producer.send(Message(topic, b"x"))
        producer.submit(Message(topic, b"x")).result(10)
    handle = stop_after(2)
    consume(cluster, topic, handle, middleware=[OpenTelemetry()])
    assert [dict(message.properties) for message in handle.seen] == [{}, {}]
