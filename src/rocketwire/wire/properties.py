"""The text in which a message's properties travel: ``name 0x01 value 0x02``, repeated.

Which names RocketMQ keeps for itself is decided here; whether a user may set a name is asked by
``core/sending/validate.py`` with :data:`RESERVED`, and :data:`SYSTEM` splits what users wrote from what
clients and brokers added when a message is read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketwire.errors import InvalidMessageError

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"

#: The length of properties is an int16 in every layout that stores them.
MAX_PROPERTIES_BYTES: Final = 32767

#: Properties whose name begins like this are for the broker's eyes only; it does not store them.
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."


class Property:
    """Names that RocketMQ gives a meaning to."""

    # What a user says through fields of Message.
    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    WAIT: Final = "WAIT"
    DELAY: Final = "DELAY"
    SHARDING_KEY: Final = "__SHARDINGKEY"
    UNIQ_KEY: Final = "UNIQ_KEY"

    # Timers of 5.x: the first three ask, in this order of precedence, the others keep the books.
    TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
    TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
    #: The delivery time of the cloud edition; Java's trace still looks at it.
    START_DELIVER_TIME: Final = "__STARTDELIVERTIME"

    # Transactions.
    TRAN_MSG: Final = "TRAN_MSG"
    PGROUP: Final = "PGROUP"
    TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
    TRANSACTION_ID: Final = "__transactionId__"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"

    # Where a message belongs while it is parked elsewhere, and how often it was tried.
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QID: Final = "REAL_QID"
    RECONSUME_TIME: Final = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    CONSUME_START_TIME: Final = "CONSUME_START_TIME"
    DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

    # Ours: why a consumer gave a message up, and of which dead letter or message one is the copy.
    ERROR: Final = "ROCKETWIRE_ERROR"
    DEAD_LETTER: Final = "ROCKETWIRE_DEAD_LETTER"
    REPLAYED: Final = "ROCKETWIRE_REPLAYED"

    # Added by brokers, or by a client that pulls.
    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"
    MSG_REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    CLUSTER: Final = "CLUSTER"
    BORN_HOST: Final = "__BORNHOST"
    BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
    CRC32: Final = "__CRC32#"

    # Request and reply.
    MSG_TYPE: Final = "MSG_TYPE"
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    ARRIVE_TIME: Final = "ARRIVE_TIME"
    PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"

    # Batches in one record, multi-dispatch, redirection.
    INNER_NUM: Final = "INNER_NUM"
    INNER_BASE: Final = "INNER_BASE"
    INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
    INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
    REDIRECT: Final = "REDIRECT"
    FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
    TRACE_CONTEXT: Final = "TRACE_CONTEXT"

    # The rest: namespaces, pop consumption, relics.
    INSTANCE_ID: Final = "INSTANCE_ID"
    BUYER_ID: Final = "BUYER_ID"
    TRANSFER_FLAG: Final = "TRANSFER_FLAG"
    CORRECTION_FLAG: Final = "CORRECTION_FLAG"
    MQ2_FLAG: Final = "MQ2_FLAG"
    POP_CK: Final = "POP_CK"
    POP_CK_OFFSET: Final = "POP_CK_OFFSET"
    FIRST_POP_TIME: Final = "1ST_POP_TIME"
    EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
    DUP_INFO: Final = "DUP_INFO"


#: Everything that clients and brokers set themselves: not a user's property when read back.
SYSTEM: Final[frozenset[str]] = frozenset(
    value for name, value in vars(Property).items() if not name.startswith("_")
)

#: Names that a user may not set. Java refuses the same but for our own two; the others in SYSTEM it lets pass,
#: because applications of old set some of them by hand.
RESERVED: Final[frozenset[str]] = SYSTEM - {
    Property.START_DELIVER_TIME,
    Property.SHARDING_KEY,
    Property.TRANSACTION_ID,
    Property.TRANSACTION_CHECK_TIMES,
    Property.CHECK_IMMUNITY_TIME,
    Property.INNER_NUM,
    Property.INNER_BASE,
    Property.INNER_MULTI_DISPATCH,
    Property.REDIRECT,
    Property.FORWARD_QUEUE_ID,
    Property.TRACE_CONTEXT,
}


def rewritten(properties: Mapping[str, str]) -> str:
    r"""The text for properties that were read, whatever their sender wrote: as Java writes it, unchecked.

    >>> rewritten(decode_properties("a\x01b\x01c\x02")) == "a\x01b\x01c\x02"
    True
    """
    items = [name + NAME_END + value + VALUE_END for name, value in properties.items() if value]
    return "".join(items)


def rewritten_bytes(properties: Mapping[str, str]) -> bytes:
    """Like :func:`rewritten`, as UTF-8.

    Raises:
        InvalidMessageError: they are more than a message can have.
    """
    data = rewritten(properties).encode(errors="replace")
    if len(data) > MAX_PROPERTIES_BYTES:
        raise InvalidMessageError(
            f"properties take {len(data)} bytes, at most {MAX_PROPERTIES_BYTES} fit"
        )
    return data


def decode_properties(text: str) -> dict[str, str]:
    """The mapping for a text, as forgiving as Java's reader.

    The last separator may be missing, items without a name or without a value are dropped, and
    the last of several values of one name wins.
    """
    found: dict[str, str] = {}
    for item in text.split(VALUE_END):
        name, _, value = item.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


_VALUE_END: Final = ord(VALUE_END)
#: Every byte that is no separator, to be deleted.
_TEXT: Final = bytes(value for value in range(256) if value not in {1, 2})
#: The separators of blocks in which names and values take turns; the last one may be missing.
_REGULAR: Final = frozenset(
    (b"\x01\x02" * count)[:length]
    for count in range(1, 129)
    for length in (2 * count - 1, 2 * count)
)


def decode_properties_bytes(data: bytes) -> dict[str, str]:
    """Like :func:`decode_properties`; bytes that are not UTF-8 become replacement characters.

    A reader must get past a message that some other client wrote badly.
    """
    if not data:
        return {}
    text = data.decode("utf-8", "replace")
    # Nearly every block is regular. It is taken apart by a handful of calls, whatever the number of
    # properties; a call for each of them would double the time.
    if data.translate(None, _TEXT) in _REGULAR and b"\x01\x02" not in data:
        parts = iter(text.replace(VALUE_END, NAME_END).split(NAME_END))
        found = dict(zip(parts, parts))  # noqa: B905 - what follows the last one is no property
        if "" not in found and data[-1] != 1:
            return found
    return decode_properties(text)


def property_in(data: bytes, start: int, stop: int, name: bytes) -> str | None:
    """One property of a block that lies within other bytes, as if the block had been decoded.

    Args:
        data: has the block.
        start: where that begins.
        stop: where it ends.
        name: that of the property, with the byte that ends a name.
    """
    limit = stop
    while (at := data.rfind(name, start, limit)) >= 0:
        if at == start or data[at - 1] == _VALUE_END:
            first = at + len(name)
            end = data.find(_VALUE_END, first, stop)
            if value := data[first : end if end >= 0 else stop]:
                return value.decode("utf-8", "replace")
        limit = at + len(name) - 1
    return None


def number_in(text: str | None, default: int) -> int:
    """A number in a property; at most as many digits as an int64 has."""
    if text is None or len(text) > 20:
        return default
    try:
        return int(text)
    except ValueError:
        return default


def is_user_property(name: str) -> bool:
    """Whether a property that was read back is the user's own."""
    return name not in SYSTEM and not name.startswith(TRANSIENT_PREFIX)
