"""Replies that a broker pushes to the client that asked, as messages.

A reply comes as a request of the broker, whose header has what a stored message has. It becomes a record
like those that brokers store, so that each field is read when it is asked for. The headers of one broker
look all the same: those that follow the first are read by its layout, in a third of the time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rocketwire.errors import LocalProtocolError
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.broker_requests import decode_pushed_reply
from rocketwire.wire.command import Command, MatchedRequest
from rocketwire.wire.lazy_message import messages_in
from rocketwire.wire.properties import MAX_PROPERTIES_BYTES, Property, rewritten_bytes
from rocketwire.wire.record_layout import INNER_BATCH
from rocketwire.wire.reply_layout import separated
from rocketwire.wire.stored_message import encode_record, pack_host

_FIELDS: Final = (
    "topic", "properties", "queueId", "sysFlag", "bornTimestamp", "flag", "reconsumeTimes",
    "bornHost", "storeHost", "storeTimestamp", "producerGroup",
)  # fmt: skip
_CORRELATION: Final = f"\x02{Property.CORRELATION_ID}\x01".encode()


def read_reply(command: Command, broker: str) -> tuple[str, StoredMessage]:
    """A pushed reply, and the correlation id of its request.

    Raises:
        RemoteProtocolError: it can't be read.
        InvalidMessageError: it has more properties than a message can have.
    """
    found = _by_layout(command) if type(command) is MatchedRequest else None
    if found is None:
        found = _in_full(command)
    correlation_id, record = found
    (message,) = messages_in(record, broker=broker)
    return correlation_id, message


def _by_layout(command: MatchedRequest) -> tuple[str, bytes] | None:
    """Correlation id and record; None where something needs a closer look."""
    groups = command.layout.groups_of(_FIELDS)
    if not groups:
        return None
    values: tuple[bytes, ...] = command.match.group(*groups)
    if not all(values):
        return None
    topic, written, queue, flags, born, flag, times, born_host, store_host, stored, _ = values
    properties = separated(written)
    behind = (b"\x02" + properties).partition(_CORRELATION)[2]
    correlation_id = behind.partition(b"\x02")[0]
    if not correlation_id or _CORRELATION in behind or len(properties) > MAX_PROPERTIES_BYTES:
        return None
    try:
        record = encode_record(
            topic=topic,
            body=bytes(command.body),
            properties=properties,
            queue_id=int(queue),
            born_ms=int(born),
            born_host=_host(born_host.decode()),
            store_ms=int(stored),
            store_host=_host(store_host.decode()),
            flag=int(flag),
            system_flag=int(flags) & ~INNER_BATCH,  # one message, whatever it claims
            reconsume_times=int(times),
        )
    except LocalProtocolError:
        return None
    return correlation_id.decode(), record


def _in_full(command: Command) -> tuple[str, bytes]:
    pushed = decode_pushed_reply(command.ext)
    # The replier wrote the properties, the topic and the flags: they are taken as they are.
    record = encode_record(
        topic=pushed.topic.encode(errors="replace"),
        body=bytes(command.body),
        properties=rewritten_bytes(pushed.properties),
        queue_id=pushed.queue_id,
        born_ms=pushed.born_ms,
        born_host=_host(pushed.born_host),
        store_ms=pushed.store_ms,
        store_host=_host(pushed.store_host),
        flag=pushed.flag,
        system_flag=pushed.system_flag & ~INNER_BATCH,
        reconsume_times=pushed.reconsume_times,
    )
    return pushed.properties.get(Property.CORRELATION_ID, ""), record


@lru_cache(maxsize=1024)
def _host(text: str) -> bytes:
    """An address as a broker writes it; Java puts a slash before it."""
    try:
        return pack_host(text.rpartition("/")[2])
    except LocalProtocolError:
        return pack_host("0.0.0.0:0")
