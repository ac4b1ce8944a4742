"""The metrics: those of the conventions, and gauges of what clients know of themselves."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.semconv._incubating.attributes import messaging_attributes as words
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE

from rocketwire import Call, RocketMQError
from rocketwire.integrations.opentelemetry.attributes import Attributes

#: Upper bounds in seconds, as the conventions advise for durations.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


class Measures:
    """Records what middleware sees, and observes the clients that it has seen."""

    def __init__(self, meter: Meter) -> None:
        self._sending = _duration(meter, messaging_metrics.MESSAGING_CLIENT_OPERATION_DURATION)
        self._processing = _duration(meter, messaging_metrics.MESSAGING_PROCESS_DURATION)
        self._sent = messaging_metrics.create_messaging_client_sent_messages(meter)
        self._consumed = messaging_metrics.create_messaging_client_consumed_messages(meter)
        self._clients: weakref.WeakSet[Any] = weakref.WeakSet()
        for name, unit, text, observe in _GAUGES:
            meter.create_observable_gauge(name, [self._observing(observe)], unit, text)

    def saw(self, client: object) -> None:
        """Observe a client from now on, as long as it lives."""
        self._clients.add(client)

    def sent(self, began: float, attributes: Attributes, error: BaseException | None) -> None:
        """A message was sent, or not."""
        found = _with_error(attributes, error)
        self._sending.record(time.perf_counter() - began, found)
        self._sent.add(1, found)

    def processed(
        self, began: float, attributes: Attributes, count: int, error: BaseException | None
    ) -> None:
        """Messages were handled, or not."""
        found = _with_error(attributes, error)
        self._processing.record(time.perf_counter() - began, found)
        self._consumed.add(count, found)

    def _observing(
        self, observe: Callable[[Any], Iterator[Observation]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def callback(_: CallbackOptions) -> Iterable[Observation]:
            found: list[Observation] = []
            for client in list(self._clients):
                try:
                    found += observe(client)
                except RocketMQError:  # it is closed, or was never a member
                    continue
            return found

        return callback


def _duration(meter: Meter, name: str) -> Any:
    text = "Duration of sends" if name.startswith("messaging.client") else "Duration of handlers"
    return meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=BOUNDS)


def _with_error(attributes: Attributes, error: BaseException | None) -> Attributes:
    return attributes if error is None else attributes | {ERROR_TYPE: type(error).__qualname__}


def _in_flight(client: Any) -> Iterator[Observation]:
    if hasattr(client, "health"):
        yield Observation(client.stats().in_flight, _client(client))


def _isolated(client: Any) -> Iterator[Observation]:
    if hasattr(client, "health"):
        for broker in client.health():
            is_left_out = int(broker.state in {"isolated", "trial"})
            yield Observation(is_left_out, _client(client) | {"rocketwire.broker": broker.broker})


def _lag(client: Any) -> Iterator[Observation]:
    if hasattr(client, "assignment"):
        for state in client.stats().queues:
            yield Observation(max(0, state.end - state.handled), _client(client) | _queue(state))


def _held(client: Any) -> Iterator[Observation]:
    if hasattr(client, "assignment"):
        yield Observation(client.stats().held, _client(client))


def _client(client: Any) -> Attributes:
    return {words.MESSAGING_SYSTEM: "rocketmq", words.MESSAGING_CLIENT_ID: client.client_id}


def _queue(state: Any) -> Attributes:
    queue = state.queue
    return {
        words.MESSAGING_DESTINATION_NAME: queue.topic,
        words.MESSAGING_DESTINATION_PARTITION_ID: f"{queue.broker}:{queue.id}",
    }


_GAUGES = (
    ("rocketwire.producer.in_flight", "{message}", "Submitted and not answered yet", _in_flight),
    ("rocketwire.broker.isolated", "1", "1 while the fault policy leaves a broker out", _isolated),
    ("rocketwire.consumer.lag", "{message}", "Not handled yet, as last seen of the queue", _lag),
    ("rocketwire.consumer.held", "{message}", "Pulled and not handled yet", _held),
)


def duration_attributes(call: Call, found: Attributes) -> Attributes:
    """The attributes of metrics: few values each."""
    if call.operation != "process":
        return found
    return found | {words.MESSAGING_CONSUMER_GROUP_NAME: call.group}
