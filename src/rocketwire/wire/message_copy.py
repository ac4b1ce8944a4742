"""A stored message as it is sent again under its own id: body, flags and properties.

The body travels as it is stored, compressed or damaged as it may be. Of the properties, what a
broker or a timer made for one storing of the message is left out.
"""

# ruff: noqa: SLF001 - a message and what reads it are one thing in two rooms

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rocketwire.stored_message import StoredMessage
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.message_fields import all_properties, stored_body
from rocketwire.wire.properties import Property

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KEPT_FLAGS: Final = SystemFlag.COMPRESSED | SystemFlag.COMPRESSION_MASK
#: What belongs to one storing of a message, or would make the copy something else: a half of a
#: transaction, a delayed message, one that was received.
_DROPPED: Final = frozenset(
    {
        Property.DELAY,
        Property.TIMER_DELAY_SEC,
        Property.TIMER_DELAY_MS,
        Property.TIMER_DELIVER_MS,
        Property.TIMER_OUT_MS,
        Property.TIMER_ENQUEUE_MS,
        Property.TIMER_DEQUEUE_MS,
        Property.TIMER_ROLL_TIMES,
        Property.TIMER_DELAY_LEVEL,
        Property.TIMER_DEL_UNIQKEY,
        Property.REAL_TOPIC,
        Property.REAL_QID,
        Property.TRAN_MSG,
        Property.TRAN_PREPARED_QUEUE_OFFSET,
        Property.RECONSUME_TIME,
        Property.MAX_RECONSUME_TIMES,
        Property.CONSUME_START_TIME,
        Property.MIN_OFFSET,
        Property.MAX_OFFSET,
        Property.MSG_REGION,
        Property.TRACE_ON,
        Property.CLUSTER,
        Property.POP_CK,
        Property.POP_CK_OFFSET,
        Property.FIRST_POP_TIME,
        Property.INNER_NUM,
        Property.INNER_BASE,
        Property.CRC32,
        Property.ERROR,
    }
)


@dataclass(slots=True)
class MessageCopy:
    """What is sent again of a message; ``properties`` may be changed before."""

    body: bytes
    flag: int
    system_flag: int
    born_ms: int
    properties: dict[str, str]


def copy_of(message: StoredMessage) -> MessageCopy:
    """The copy of a message that was read."""
    born_ms = round((message.born_at - _EPOCH).total_seconds() * 1000)
    if not hasattr(message, "_record"):
        return MessageCopy(message.body, message.flag, 0, born_ms, _from_fields(message))
    source, position, size, _ = message._record
    body, system_flag, _ = stored_body(source.data, position, size)
    everything = all_properties(source, message, position, size)
    kept = {name: value for name, value in everything.items() if name not in _DROPPED}
    return MessageCopy(body, message.flag, system_flag & _KEPT_FLAGS, born_ms, kept)


def _from_fields(message: StoredMessage) -> dict[str, str]:
    """The properties of a message that was changed since it was read."""
    own = {
        Property.UNIQ_KEY: message.message_id,
        Property.TAGS: message.tags,
        Property.KEYS: message.keys,
        Property.SHARDING_KEY: message.sharding_key,
    }
    return {name: value for name, value in own.items() if value} | dict(message.properties)
