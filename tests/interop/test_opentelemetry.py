"""Traces go on between Java's clients and ours, in both directions."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop import targets
from tests.interop.conftest import Meeting
from tests.interop.driver import JavaDriver, message
from tests.real import jars

from rocketwire import Consumer, Message, Producer

pytest.importorskip("opentelemetry.sdk", reason="needs rocketwire[otel] and opentelemetry-sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketwire.integrations.opentelemetry import OpenTelemetry

AGENT = Path(__file__).parent / "agent-pom.xml"
VERSION = "5.3.3"
#: How the agent's own exporter writes a span: its name, and the ids of trace and span.
SPAN = re.compile(r"'(\S+ \w+)' : ([0-9a-f]{32}) ([0-9a-f]{16}) (\w+)")


@pytest.fixture(scope="module")
def traced() -> Iterator[Meeting]:
    """Java's client with OpenTelemetry's own agent, which writes spans to its log."""
    jars.require_tools(VERSION)
    jars.require_tools(VERSION, AGENT)
    folder = Path(jars.class_path(VERSION, AGENT).removesuffix("/*"))
    (agent,) = folder.glob("opentelemetry-javaagent-*.jar")
    options = [f"-javaagent:{agent}", "-Dotel.traces.exporter=logging"]
    options += ["-Dotel.metrics.exporter=none", "-Dotel.logs.exporter=none"]
    with JavaDriver(VERSION, options) as driver:
        meeting = Meeting(targets.embedded(), driver)
        yield meeting
        meeting.close()


def java_spans(meeting: Meeting, kind: str, topic: str) -> list[tuple[str, str]]:
    """The trace and span ids of Java's spans of a kind about a topic, as soon as there are any."""
    deadline = time.monotonic() + 30
    while True:
        said = meeting.client.errors.read_text(errors="replace")
        found = [m for m in SPAN.finditer(said) if m[4] == kind and topic in m[1]]
        if found:
            return [(m[2], m[3]) for m in found]
        assert time.monotonic() < deadline, f"no {kind} span of {topic}:\n{said[-3000:]}"
        time.sleep(0.1)


def test_we_continue_a_trace_of_java_s_agent(traced: Meeting):
    topic = traced.topic()
    traced.call(
        "producer.send", producer=traced.producer(), mode="sync", message=message(topic, "hello")
    )
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    consumer = Consumer(
        traced.target.name_server,
        group=f"otel-{topic}",
        start="earliest",
        middleware=[OpenTelemetry(tracers)],
    )
    consumer.subscribe(topic).run(lambda _: consumer.stop())
    (span,) = exporter.get_finished_spans()
    ours = f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}"
    assert ours in java_spans(traced, "PRODUCER", topic)


def test_java_s_agent_continues_our_trace(traced: Meeting):
    topic = traced.topic()
    reader = traced.consumer("push", topic)
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    with Producer(traced.target.name_server, middleware=[OpenTelemetry(tracers)]) as producer:
        producer.send(Message(topic, b"hello"))
    assert len(traced.take(reader, 1)) == 1
    (span,) = exporter.get_finished_spans()
    traces = {trace for trace, _ in java_spans(traced, "CONSUMER", topic)}
    assert f"{span.context.trace_id:032x}" in traces


def test_a_message_whose_context_another_client_wrote_is_continued(meeting: Any):
    topic = meeting.topic()
    context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    sent = message(topic, "hello", properties={"traceparent": context, "tracestate": "vendor=a"})
    meeting.call("producer.send", producer=meeting.producer(), mode="sync", message=sent)
    exporter, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    layer = OpenTelemetry(tracers)
    server = meeting.target.name_server
    consumer = Consumer(server, group=f"otel-{topic}", start="earliest", middleware=[layer])
    consumer.subscribe(topic).run(lambda _: consumer.stop())
    (span,) = exporter.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert f"{span.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert span.context.trace_state.get("vendor") == "a"
