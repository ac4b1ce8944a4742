"""Requests that a broker sends to a client, over the connection of the client's heartbeats.

A producer is asked about transactions that it left open, and is handed replies to its requests; a
consumer hears that its group has changed, or that its offsets were set. What to do then is decided
in ``core``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.client_bodies import decode_queue
from rocketwire.wire.headers import int_field, text_field
from rocketwire.wire.lenient_json import loads, pairs, shown
from rocketwire.wire.properties import decode_properties


class TransactionCheck(NamedTuple):
    """A broker asks what became of a transaction. The half message is the request's body."""

    queue_offset: int
    commit_log_offset: int
    message_id: str | None
    transaction_id: str | None
    offset_message_id: str | None
    broker: str | None


def decode_transaction_check(ext: Mapping[str, str]) -> TransactionCheck:
    """The fields of CHECK_TRANSACTION_STATE.

    Raises:
        RemoteProtocolError: an offset is missing or garbled.
    """
    return TransactionCheck(
        int_field(ext, "tranStateTableOffset"),
        int_field(ext, "commitLogOffset"),
        ext.get("msgId") or None,
        ext.get("transactionId") or None,
        ext.get("offsetMsgId") or None,
        ext.get("bname") or None,
    )


class PushedReply(NamedTuple):
    """A reply to a request of ours. Its body is the command's, its correlation id a property."""

    group: str
    topic: str
    queue_id: int
    system_flag: int
    born_ms: int
    flag: int
    properties: dict[str, str]
    reconsume_times: int
    born_host: str
    store_host: str
    store_ms: int


def decode_pushed_reply(ext: Mapping[str, str]) -> PushedReply:
    """The fields of PUSH_REPLY_MESSAGE_TO_CLIENT.

    Raises:
        RemoteProtocolError: a field is missing or garbled.
    """
    return PushedReply(
        text_field(ext, "producerGroup"),
        text_field(ext, "topic"),
        int_field(ext, "queueId"),
        int_field(ext, "sysFlag"),
        int_field(ext, "bornTimestamp"),
        int_field(ext, "flag"),
        decode_properties(ext.get("properties") or ""),
        int_field(ext, "reconsumeTimes", 0),
        text_field(ext, "bornHost"),
        text_field(ext, "storeHost"),
        int_field(ext, "storeTimestamp"),
    )


def decode_group_changed(ext: Mapping[str, str]) -> str:
    """The group of NOTIFY_CONSUMER_IDS_CHANGED, whose members must share its queues anew.

    Raises:
        RemoteProtocolError: it is missing.
    """
    return text_field(ext, "consumerGroup")


class ResetOffsets(NamedTuple):
    """An operator set a group's offsets."""

    topic: str
    group: str
    offsets: dict[MessageQueue, int]


def decode_reset_offsets(ext: Mapping[str, str], body: bytes | memoryview) -> ResetOffsets:
    """The content of RESET_CONSUMER_CLIENT_OFFSET: a table whose keys are queues.

    Brokers that talk to clients of other languages write a list of queues with an ``offset`` each;
    both forms are read.

    Raises:
        RemoteProtocolError: it is something else.
    """
    value = loads(body)
    table = value.get("offsetTable") if isinstance(value, dict) else None
    if isinstance(table, list) and all(isinstance(item, dict) for item in table):
        entries = [(item, item.get("offset")) for item in table]
    else:
        entries = pairs({} if table is None else table)
    return ResetOffsets(
        text_field(ext, "topic"),
        text_field(ext, "group"),
        {decode_queue(queue): _offset(offset) for queue, offset in entries},
    )


def _offset(value: object) -> int:
    if type(value) is not int:
        raise RemoteProtocolError(f"expected the offset of a queue, found {shown(value)}")
    return value
