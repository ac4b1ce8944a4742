"""The middleware: one for both directions and both shells.

A producer's span is the parent of what happens to the message elsewhere: its context travels in the
message's properties, where Java's agent puts and looks for it, too. A consumer's span continues the
trace of its message, or is linked to it where there is a span already, or there are several messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from rocketwire import (
    AsyncCall,
    AsyncDelivery,
    Attempt,
    Call,
    Delivery,
    Message,
    Retry,
    SendFailedError,
    SendResult,
    StoredMessage,
    __version__,
)
from rocketwire.integrations.opentelemetry.attributes import (
    RETRY,
    common,
    of_message,
    of_process,
    of_result,
    of_send,
)
from rocketwire.integrations.opentelemetry.measures import Measures, duration_attributes
from rocketwire.middleware import install, uninstall

_NAME: Final = "rocketwire"
_SCHEMA: Final = "https://opentelemetry.io/schemas/1.40.0"

Given = StoredMessage | list[StoredMessage]


class OpenTelemetry:
    """Spans and metrics of a client: give it as ``middleware=[OpenTelemetry()]``.

    Args:
        tracer_provider: the global one by default.
        meter_provider: the global one by default.
        propagator: how contexts travel in properties; the global one by default (W3C).
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, __version__, tracer_provider, _SCHEMA)
        meter = metrics.get_meter(_NAME, __version__, meter_provider, _SCHEMA)
        self._measures = Measures(meter)
        self._propagator = propagator

    def __call__(self, message: Any, call_next: Call) -> Any:
        """Surround a send or a handler."""
        self._measures.saw(call_next.client)
        visit: _Sending | _Processing
        if call_next.operation == "process":
            visit = _Processing(self, message, call_next)
        else:
            visit = _Sending(self, message, call_next)
        if isinstance(call_next, AsyncCall):
            return _run_later(visit, call_next)
        with trace.use_span(visit.span, end_on_exit=False):
            try:
                result = call_next(visit.message)
            except BaseException as error:
                visit.failed(error)
                raise
        visit.ended(result)
        return result

    @property
    def tracer(self) -> trace.Tracer:
        """Makes the spans."""
        return self._tracer

    @property
    def measures(self) -> Measures:
        """Records the metrics."""
        return self._measures

    @property
    def propagator(self) -> TextMapPropagator:
        """How contexts travel."""
        return self._propagator or propagate.get_global_textmap()


async def _run_later(visit: _Sending | _Processing, call_next: AsyncCall) -> Any:
    with trace.use_span(visit.span, end_on_exit=False):
        try:
            result = await call_next(visit.message)
        except BaseException as error:
            visit.failed(error)
            raise
    visit.ended(result)
    return result


class _Sending:
    """One message on its way out."""

    def __init__(self, owner: OpenTelemetry, message: Message, call: Call) -> None:
        self._measures = owner.measures
        # Each message of a batch has a span of its own, in which it was created.
        kind = "create" if call.count > 1 else "send"
        self._metric = common(call, message.topic, "send")
        carried = owner.propagator.extract(message.properties, Context())
        earlier = trace.get_current_span(carried).get_span_context()
        is_carried = any(field in message.properties for field in owner.propagator.fields)
        self.span = owner.tracer.start_span(
            f"{kind} {message.topic}",
            kind=SpanKind.PRODUCER,
            attributes=common(call, message.topic, kind) | of_send(call, message),
            links=[Link(earlier)] if is_carried and earlier.is_valid else (),
        )
        self.message = message if is_carried else self._carrying(owner, message)
        self._began = time.perf_counter()

    def _carrying(self, owner: OpenTelemetry, message: Message) -> Message:
        """The message with the context of its span, unless the application gave it one."""
        carrier: dict[str, str] = {}
        owner.propagator.inject(carrier, trace.set_span_in_context(self.span))
        if not carrier:
            return message
        return message.replace(properties={**message.properties, **carrier})

    def ended(self, result: Any) -> None:
        """It was sent, or handed over."""
        if isinstance(result, (Delivery, AsyncDelivery)):
            result.add_done_callback(self._delivered)
            return
        if isinstance(result, SendResult):
            self.span.set_attributes(of_result(result))
            _add_retries(self.span, result.attempts)
        elif isinstance(result, StoredMessage):  # a reply
            self.span.add_event("rocketwire.reply", of_message(result))
        self._finish(None)

    def _delivered(self, delivery: Any) -> None:
        error = delivery.exception()
        if error is None:
            self.ended(delivery.result())
        else:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """It was not sent, or that is not known."""
        if isinstance(error, SendFailedError):
            _add_retries(self.span, error.attempts)
        _fail(self.span, error)
        self._finish(error)

    def _finish(self, error: BaseException | None) -> None:
        self.span.end()
        self._measures.sent(self._began, self._metric, error)


class _Processing:
    """A message, or a batch of them, in the hands of a handler."""

    def __init__(self, owner: OpenTelemetry, given: Given, call: Call) -> None:
        self._measures = owner.measures
        self.message = given
        messages = given if isinstance(given, list) else [given]
        self._count = len(messages)
        topic = messages[0].topic
        contexts = [owner.propagator.extract(message.properties, Context()) for message in messages]
        created = [trace.get_current_span(context).get_span_context() for context in contexts]
        is_inside = trace.get_current_span().get_span_context().is_valid
        is_continued = len(messages) == 1 and not is_inside and created[0].is_valid
        self._metric = duration_attributes(call, common(call, topic, "process"))
        self.span = owner.tracer.start_span(
            f"process {topic}",
            context=contexts[0] if is_continued else None,
            kind=SpanKind.CONSUMER,
            attributes=common(call, topic, "process") | of_process(call, messages),
            links=[
                Link(context, of_message(message))
                for context, message in zip(created, messages, strict=True)
                if context.is_valid
            ],
        )
        self._began = time.perf_counter()

    def ended(self, result: Any) -> None:
        """The handler returned."""
        if isinstance(result, Retry) or result is Retry:
            after = result.after if isinstance(result, Retry) else None
            self.span.add_event(RETRY, {} if after is None else {"rocketwire.after": after})
        self._finish(None)

    def failed(self, error: BaseException) -> None:
        """The handler failed, or the loop was left."""
        if isinstance(error, Exception):
            _fail(self.span, error)
        self._finish(error if isinstance(error, Exception) else None)

    def _finish(self, error: BaseException | None) -> None:
        self.span.end()
        self._measures.processed(self._began, self._metric, self._count, error)


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute(ERROR_TYPE, type(error).__qualname__)
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _add_retries(span: Span, attempts: Iterable[Attempt]) -> None:
    """One event for each try that failed: at which broker, and why."""
    for number, attempt in enumerate(attempts, 1):
        span.add_event(
            RETRY,
            {
                "rocketwire.attempt": number,
                "rocketwire.broker": attempt.broker,
                "rocketwire.reason": str(attempt.error),
                "rocketwire.latency": attempt.latency,
            },
        )


_instrumented: OpenTelemetry | None = None


def instrument(
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    propagator: TextMapPropagator | None = None,
) -> OpenTelemetry:
    """Surround every producer and consumer that is made from now on; once, until ``uninstrument``."""
    global _instrumented  # noqa: PLW0603 - there is one instrumentation of a program
    if _instrumented is None:
        _instrumented = OpenTelemetry(tracer_provider, meter_provider, propagator)
        install(_instrumented)
    return _instrumented


def uninstrument() -> None:
    """Surround no further clients; those that exist keep their spans."""
    global _instrumented  # noqa: PLW0603
    if _instrumented is not None:
        uninstall(_instrumented)
        _instrumented = None
