"""A trace that Java began goes on here: its agent writes the context into a user property."""

from typing import Any

import pytest
from tests.interop.driver import message

from rocketwire import Consumer

pytest.importorskip("opentelemetry.sdk", reason="needs rocketwire[otel] and opentelemetry-sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rocketwire.integrations.opentelemetry import OpenTelemetry


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
