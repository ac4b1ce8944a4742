"""The fields of each request that a client sends, and of each reply that it reads.

One function per request gives its ext fields by Java's names, all as text; fields that are None or
empty are left out, because a binary header can't tell empty from absent. What to ask for is decided
in ``core``. The JSON bodies that go with them are made in ``client_bodies``; requests that come *from*
a broker are read in ``broker_requests``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire import client_bodies as _bodies
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.properties import Property

DEFAULT_TOPIC: Final = "TBW102"
DEFAULT_REGION: Final = "DefaultRegion"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"

# Offered here, too: code that makes a request needs its fields and its body together.
ConsumerData = _bodies.ConsumerData
Subscription = _bodies.Subscription
heartbeat_body = _bodies.heartbeat_body
lock_body = _bodies.lock_body
decode_lock_reply = _bodies.decode_lock_reply
decode_consumer_list = _bodies.decode_consumer_list


def _ext(**fields: str | int | bool | None) -> dict[str, str]:
    """Fields as text, without those that say nothing."""
    return {
        name: value if type(value) is str else _as_text(value)
        for name, value in fields.items()
        if value is not None and value != ""
    }


def _as_text(value: str | int | bool) -> str:  # noqa: FBT001 - a value, not a switch
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


#: The names of a send's fields, long (V1) and short (V2).
SEND_NAMES: Final[dict[str, str]] = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}


def send_v2(  # noqa: PLR0913 - a send has that many fields
    *,
    group: str,
    topic: str,
    queue_id: int,
    born_ms: int,
    properties: str = "",
    system_flag: int = 0,
    flag: int = 0,
    default_topic: str = DEFAULT_TOPIC,
    default_queues: int = 4,
    reconsume_times: int = 0,
    max_reconsume_times: int | None = None,
    unit_mode: bool = False,
    batch: bool = False,
    broker: str | None = None,
) -> dict[str, str]:
    """SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and SEND_REPLY_MESSAGE_V2."""
    return _ext(
        a=group, b=topic, c=default_topic, d=default_queues, e=queue_id, f=system_flag, g=born_ms,
        h=flag, i=properties, j=reconsume_times, k=unit_mode, l=max_reconsume_times, m=batch,
        n=broker,
    )  # fmt: skip


class SendRequest(NamedTuple):
    """The fields of a send in either version, as a server reads them."""

    group: str
    topic: str
    default_topic: str
    default_queues: int
    queue_id: int
    system_flag: int
    born_ms: int
    flag: int
    properties: str
    reconsume_times: int
    unit_mode: bool
    max_reconsume_times: int | None
    batch: bool
    broker: str | None


_LONG: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)


def decode_send_request(code: int, ext: Mapping[str, str]) -> SendRequest:
    """The fields of a send of any of the five codes.

    Raises:
        RemoteProtocolError: a mandatory field is missing, or a number is none.
    """
    if code in _LONG:
        a, b, c, d, e, f, g, h, i, j, k, l, m, n = SEND_NAMES  # noqa: E741 - Java's letters
    else:
        a, b, c, d, e, f, g, h, i, j, k, l, m, n = SEND_NAMES.values()  # noqa: E741
    return SendRequest(
        text_field(ext, a),
        text_field(ext, b),
        text_field(ext, c),
        int_field(ext, d),
        int_field(ext, e),
        int_field(ext, f),
        int_field(ext, g),
        int_field(ext, h),
        ext.get(i) or "",
        int_field(ext, j, 0),
        ext.get(k) == "true",
        int_field(ext, l) if ext.get(l) else None,
        ext.get(m) == "true",
        ext.get(n) or None,
    )


class SendReply(NamedTuple):
    """Where a message was stored. A batch has several offset ids, joined by commas."""

    offset_message_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None
    region: str
    batch_id: str | None
    recall_handle: str | None


def decode_send_reply(ext: Mapping[str, str]) -> SendReply:
    """The fields of a send's reply.

    Raises:
        RemoteProtocolError: the place is missing or garbled; the text names the field.
    """
    return SendReply(
        text_field(ext, "msgId"),
        int_field(ext, "queueId"),
        int_field(ext, "queueOffset"),
        ext.get("transactionId") or None,
        ext.get(Property.MSG_REGION) or DEFAULT_REGION,
        ext.get("batchUniqId") or None,
        ext.get("recallHandle") or None,
    )


def pull(  # noqa: PLR0913
    *,
    group: str,
    topic: str,
    queue_id: int,
    offset: int,
    max_messages: int,
    system_flag: int,
    commit_offset: int = 0,
    suspend_ms: int = 0,
    subscription: str | None = "*",
    subscription_version: int = 0,
    expression_type: str | None = "TAG",
    max_bytes: int | None = None,
    broker: str,
) -> dict[str, str]:
    """PULL_MESSAGE and LITE_PULL_MESSAGE; ``system_flag`` is made of ``PullFlag``."""
    return _ext(
        consumerGroup=group, topic=topic, queueId=queue_id, queueOffset=offset,
        maxMsgNums=max_messages, sysFlag=system_flag, commitOffset=commit_offset,
        suspendTimeoutMillis=suspend_ms, subscription=subscription,
        subVersion=subscription_version, expressionType=expression_type, maxMsgBytes=max_bytes,
        bname=broker,
    )  # fmt: skip


class PullReply(NamedTuple):
    """Where to go on, and what the queue holds now."""

    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    offset_delta: int


def decode_pull_reply(ext: Mapping[str, str]) -> PullReply:
    """The fields of a pull's reply, whatever its code.

    Raises:
        RemoteProtocolError: an offset is missing or garbled; the text names the field.
    """
    return PullReply(
        int_field(ext, "nextBeginOffset"),
        int_field(ext, "minOffset"),
        int_field(ext, "maxOffset"),
        int_field(ext, "suggestWhichBrokerId", 0),
        int_field(ext, "offsetDelta", 0),
    )


def query_message(
    *,
    topic: str,
    key: str,
    max_messages: int,
    begin_ms: int = 0,
    end_ms: int = 2**63 - 1,
    unique: bool | None = None,
    broker: str | None = None,
) -> dict[str, str]:
    """QUERY_MESSAGE. ``unique`` asks by unique id; leave it out when requests are signed.

    Brokers of 4.9 leave that field out of the content that they check a signature against.
    """
    ext = _ext(
        topic=topic, key=key, maxNum=max_messages, beginTimestamp=begin_ms, endTimestamp=end_ms,
        bname=broker,
    )  # fmt: skip
    if unique is not None:
        ext[UNIQUE_KEY_QUERY] = _as_text(unique)
    return ext


def view_message(
    offset: int, *, topic: str | None = None, broker: str | None = None
) -> dict[str, str]:
    """VIEW_MESSAGE_BY_ID: the record at an offset of the commit log."""
    return _ext(topic=topic, offset=offset, bname=broker)


def queue(topic: str, queue_id: int, *, broker: str) -> dict[str, str]:
    """GET_MAX_OFFSET, GET_MIN_OFFSET and GET_EARLIEST_MESSAGE_STORE_TIME."""
    return _ext(topic=topic, queueId=queue_id, bname=broker)


def search_offset(
    topic: str,
    queue_id: int,
    timestamp_ms: int,
    *,
    boundary: str | None = None,
    broker: str,
) -> dict[str, str]:
    """SEARCH_OFFSET_BY_TIMESTAMP; ``boundary`` is LOWER, which is the default, or UPPER."""
    return _ext(
        topic=topic, queueId=queue_id, timestamp=timestamp_ms, boundaryType=boundary, bname=broker
    )


def query_consumer_offset(
    group: str,
    topic: str,
    queue_id: int,
    *,
    zero_if_not_found: bool | None = None,
    broker: str,
) -> dict[str, str]:
    """QUERY_CONSUMER_OFFSET."""
    return _ext(
        consumerGroup=group, topic=topic, queueId=queue_id, setZeroIfNotFound=zero_if_not_found,
        bname=broker,
    )  # fmt: skip


def update_consumer_offset(
    group: str, topic: str, queue_id: int, offset: int, *, broker: str
) -> dict[str, str]:
    """UPDATE_CONSUMER_OFFSET, usually oneway."""
    return _ext(
        consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=offset, bname=broker
    )


def decode_offset(ext: Mapping[str, str]) -> int:
    """The offset in the reply to any question for one."""
    return int_field(ext, "offset")


def route(topic: str) -> dict[str, str]:
    """GET_ROUTE_BY_TOPIC, asking for JSON that any reader can read."""
    return _ext(topic=topic, acceptStandardJsonOnly=True)


def create_topic(
    topic: str,
    *,
    read_queues: int = 8,
    write_queues: int = 8,
    permission: int = 6,
    system_flag: int = 0,
    ordered: bool = False,
    attributes: Mapping[str, str] | None = None,
    default_topic: str = DEFAULT_TOPIC,
) -> dict[str, str]:
    """UPDATE_AND_CREATE_TOPIC. ``attributes`` are those of 5.x, such as ``queue.type``."""
    listed = ",".join(f"+{name}={value}" for name, value in (attributes or {}).items())
    return _ext(
        topic=topic, defaultTopic=default_topic, readQueueNums=read_queues,
        writeQueueNums=write_queues, perm=permission, topicFilterType="SINGLE_TAG",
        topicSysFlag=system_flag, order=ordered, attributes=listed,
    )  # fmt: skip


def topic_only(topic: str, *, cluster: str | None = None) -> dict[str, str]:
    """DELETE_TOPIC_IN_BROKER, DELETE_TOPIC_IN_NAME_SERVER, GET_TOPIC_STATS_INFO and the like."""
    return _ext(topic=topic, clusterName=cluster)


def unregister_client(
    client_id: str, *, producer_group: str | None = None, consumer_group: str | None = None
) -> dict[str, str]:
    """UNREGISTER_CLIENT, for one group at a time."""
    return _ext(clientID=client_id, producerGroup=producer_group, consumerGroup=consumer_group)


def consumer_list(group: str) -> dict[str, str]:
    """GET_CONSUMER_LIST_BY_GROUP."""
    return _ext(consumerGroup=group)


def send_message_back(
    *,
    group: str,
    offset: int,
    delay_level: int,
    origin_message_id: str | None = None,
    origin_topic: str | None = None,
    max_reconsume_times: int | None = None,
    broker: str | None = None,
) -> dict[str, str]:
    """CONSUMER_SEND_MESSAGE_BACK: try again later, from the group's retry topic."""
    return _ext(
        offset=offset, group=group, delayLevel=delay_level, originMsgId=origin_message_id,
        originTopic=origin_topic, unitMode=False, maxReconsumeTimes=max_reconsume_times,
        bname=broker,
    )  # fmt: skip


def end_transaction(  # noqa: PLR0913
    *,
    group: str,
    topic: str | None,
    queue_offset: int,
    commit_log_offset: int,
    decision: int,
    message_id: str,
    transaction_id: str | None = None,
    from_check: bool = False,
    broker: str | None = None,
) -> dict[str, str]:
    """END_TRANSACTION; ``decision`` is one of ``SystemFlag.TRANSACTION_*``, or 0 for not yet."""
    return _ext(
        topic=topic, producerGroup=group, tranStateTableOffset=queue_offset,
        commitLogOffset=commit_log_offset, commitOrRollback=decision,
        fromTransactionCheck=from_check, msgId=message_id, transactionId=transaction_id,
        bname=broker,
    )  # fmt: skip


def recall_message(
    *, group: str, topic: str, handle: str, broker: str | None = None
) -> dict[str, str]:
    """RECALL_MESSAGE: a timed message that shall not be delivered after all."""
    return _ext(producerGroup=group, topic=topic, recallHandle=handle, bname=broker)


def text_field(ext: Mapping[str, str], name: str) -> str:
    """A field that must be there.

    Raises:
        RemoteProtocolError: it is not.
    """
    value = ext.get(name)
    if not value:
        raise RemoteProtocolError(f"field {name!r} is missing: the peer must send it")
    return value


def int_field(ext: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A number that must be there, unless it has a default, and fit into 64 bits.

    Raises:
        RemoteProtocolError: it is missing or garbled.
    """
    value = ext.get(name)
    if not value:
        if default is not None:
            return default
        raise RemoteProtocolError(f"field {name!r} is missing: the peer must send it")
    # Python would also take blanks and underscores; 20 characters hold any int64.
    if len(value) <= 20 and value.removeprefix("-").isdecimal():
        number = int(value)
        if -(1 << 63) <= number < 1 << 63:
            return number
    raise RemoteProtocolError(f"field {name!r} is {value[:40]!r}: a whole number expected")
