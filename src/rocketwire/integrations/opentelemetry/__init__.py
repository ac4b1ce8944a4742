"""OpenTelemetry: spans and metrics of producers and consumers, by the messaging conventions.

Needs the extra ``rocketwire[otel]``, which has the API only: without an SDK in the application
nothing is recorded, and messages still carry the trace context that they were sent in.
"""

from __future__ import annotations

from rocketwire.integrations.extras import needs

needs("otel", "opentelemetry.trace", "opentelemetry.semconv")

from rocketwire.integrations.opentelemetry.layer import OpenTelemetry, instrument, uninstrument

__all__ = ["OpenTelemetry", "instrument", "uninstrument"]
