"""The way of one message, from what producers and consumers wrote into the trace topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rocketwire.admin_values import TraceEvent
from rocketwire.core.admin.messages import find_by_key
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.reading.arguments import check_id
from rocketwire.errors import RemoteProtocolError, TopicNotFoundError
from rocketwire.stored_message import StoredMessage, utc_from_ms
from rocketwire.wire.trace_record import (
    CONTEXT_CODES,
    TRACE_TOPIC,
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TraceRecord,
    decode_trace,
)

#: Brokers give up to 64 of an index at a time: far more than one message is tried.
_MOST: Final = 64


def trace(
    instance: Instance, message_id: str, trace_topic: str | None, deadline: float
) -> Op[tuple[TraceEvent, ...]]:
    """What happened to a message, oldest first; nothing where no client traced it.

    Raises:
        TopicNotFoundError: there is no trace topic.
    """
    check_id(message_id)
    topic = trace_topic or TRACE_TOPIC
    try:
        found = yield from find_by_key(
            instance, topic, message_id, max_messages=_MOST, deadline=deadline
        )
    except TopicNotFoundError:
        raise TopicNotFoundError(
            f"there is no topic {topic}, so nothing is traced: set traceTopicEnable=true on the "
            "brokers and trace=True on clients, or give trace_topic="
        ) from None
    return tuple(sorted(_events(message_id, found), key=lambda event: event.at))


def _events(message_id: str, found: Iterable[StoredMessage]) -> list[TraceEvent]:
    told = [(record, stored) for stored in found for record in _records(stored)]
    own = [(record, stored) for record, stored in told if record.message_id == message_id]
    ends = {r.request_id: r for r, _ in own if isinstance(r, SubAfterRecord)}
    events: list[TraceEvent] = []
    for record, stored in own:
        client = stored.born_host.rpartition(":")[0] or stored.born_host
        if isinstance(record, PubRecord):
            events.append(_sent(record, client))
        elif isinstance(record, SubBeforeRecord):
            events.append(_consumed(record, ends.get(record.request_id), client))
        elif isinstance(record, EndTransactionRecord):
            events.append(_ended(record, client))
        elif isinstance(record, RecallRecord):
            events.append(
                TraceEvent(
                    "recalled",
                    utc_from_ms(record.time_ms),
                    record.group,
                    client,
                    success=record.success,
                )
            )
    return events


def _records(stored: StoredMessage) -> list[TraceRecord]:
    """A garbled trace tells nothing, and must not hide the others."""
    try:
        return decode_trace(stored.body)
    except RemoteProtocolError:
        return []


def _sent(record: PubRecord, client: str) -> TraceEvent:
    return TraceEvent(
        "sent",
        utc_from_ms(record.start_ms),
        record.group,
        record.client_host or client,
        record.store_host,
        record.success,
        record.cost_ms / 1000,
    )


def _consumed(record: SubBeforeRecord, end: SubAfterRecord | None, client: str) -> TraceEvent:
    outcome = None
    if end is not None and 0 <= end.context_code < len(CONTEXT_CODES):
        outcome = CONTEXT_CODES[end.context_code]
    return TraceEvent(
        "consumed",
        utc_from_ms(record.time_ms),
        record.group,
        client,
        None,
        end.success if end is not None else None,
        end.cost_ms / 1000 if end is not None else None,
        record.retry_times + 1,
        outcome,
    )


def _ended(record: EndTransactionRecord, client: str) -> TraceEvent:
    return TraceEvent(
        "transaction",
        utc_from_ms(record.time_ms),
        record.group,
        client,
        record.store_host,
        success=record.state == "COMMIT_MESSAGE",
        outcome=record.state,
    )
