"""Receive and acknowledge ("POP"): the fields of its requests, and receipts.

A receipt says which delivery of which message is meant. A client gets one with each message, and
gives it back with what it wants: acknowledge, or change for how long the message is invisible.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.headers import int_field, text_field
from rocketwire.wire.lenient_json import dumps

RETRY_PREFIX: Final = "%RETRY%"
#: Where a queue is popped for the first time by a group that has no offset: its first message.
FROM_FIRST: Final = 0
#: The queue id that means all queues of a topic.
ANY_QUEUE: Final = -1
#: Brokers give no more at once.
MOST: Final = 32
#: Far more than one delivery has; each becomes a receipt of its own.
_MOST_BITS: Final = 1024
_PARTS: Final = 8
#: Any sender may write a property, and the digits of a number may be without end.
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


def retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Where messages of a topic come again for a group: by the old name and by the new one.

    >>> retry_topics("orders", "billing")
    ('%RETRY%billing_orders', '%RETRY%billing+orders')
    """
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"


def topic_mark(topic: str) -> str:
    """Which sort of topic it is: ``0`` an ordinary one, ``1`` or ``2`` one of the retry topics."""
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


class Receipt(NamedTuple):
    """One delivery of one message."""

    start: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    mark: str
    broker: str
    queue_id: int
    offset: int

    def encode(self) -> str:
        """As brokers want it back."""
        return " ".join(map(str, self))

    def topic(self, topic: str, group: str) -> str:
        """The topic that the message really lies in."""
        if self.mark == "0":
            return topic
        return retry_topics(topic, group)[self.mark == "2"]


def decode_receipt(text: str) -> Receipt:
    """A receipt from its text.

    Raises:
        RemoteProtocolError: it is none.
    """
    parts = text.split(" ")
    numbers = [*parts[:4], *parts[6:8]]
    if len(parts) != _PARTS or not all(_NUMBER.fullmatch(number) for number in numbers):
        raise RemoteProtocolError(f"a receipt is {text[:80]!r}: eight words are expected")
    start, pop_ms, invisible_ms, revive_queue, queue_id, offset = map(int, numbers)
    return Receipt(start, pop_ms, invisible_ms, revive_queue, parts[4], parts[5], queue_id, offset)


# Requests


def pop_fields(
    *,
    group: str,
    topic: str,
    count: int,
    invisible_ms: int,
    poll_ms: int,
    expression: str = "*",
    kind: str = "TAG",
    born_ms: int = 0,
) -> dict[str, str]:
    """Messages of any queue of a topic on one broker.

    The broker takes its own time for a ``born_ms`` of 0, so that clocks which differ do no harm. One
    that checks signatures has read the field before that, and takes it as it is.
    """
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(ANY_QUEUE),
        "maxMsgNums": str(count),
        "invisibleTime": str(invisible_ms),
        "pollTime": str(poll_ms),
        "bornTime": str(born_ms),
        "initMode": str(FROM_FIRST),
        "expType": kind,
        "exp": expression,
        "order": "false",
    }


def ack_fields(receipt: Receipt, topic: str, group: str) -> dict[str, str]:
    """One message is done with. ``topic`` is the one that users know."""
    return {
        "consumerGroup": group,
        "topic": receipt.topic(topic, group),
        "queueId": str(receipt.queue_id),
        "extraInfo": receipt.encode(),
        "offset": str(receipt.offset),
    }


def change_fields(receipt: Receipt, topic: str, group: str, invisible_ms: int) -> dict[str, str]:
    """One message stays invisible for so long from now on."""
    return ack_fields(receipt, topic, group) | {"invisibleTime": str(invisible_ms)}


def batch_ack_body(receipts: Iterable[tuple[Receipt, str]], broker: str, group: str) -> bytes:
    """Several messages of one broker are done with: receipts and the topics that users know."""
    merged: dict[tuple[Any, ...], tuple[Receipt, str, int]] = {}
    for receipt, topic in receipts:
        key = (topic, receipt.mark, receipt.queue_id, receipt.start, receipt.pop_ms)
        bits = merged[key][2] if key in merged else 0
        merged[key] = (receipt, topic, bits | 1 << (receipt.offset - receipt.start))
    acks = [
        {
            "c": group,
            "t": topic,
            "r": receipt.mark,
            "so": receipt.start,
            "q": receipt.queue_id,
            "rq": receipt.revive_queue,
            "pt": receipt.pop_ms,
            "it": receipt.invisible_ms,
            "b": base64.b64encode(bits.to_bytes(bits.bit_length() // 8 + 1, "little")).decode(),
        }
        for receipt, topic, bits in merged.values()
    ]
    return dumps({"brokerName": broker, "acks": acks})


# Replies


class PopReply(NamedTuple):
    """What a broker tells of the messages that it gives.

    By mark of the topic and queue, ``starts`` has the offset at which it began to look, and
    ``offsets`` those of the messages.
    """

    pop_ms: int
    invisible_ms: int
    revive_queue: int
    starts: dict[tuple[str, int], int]
    offsets: dict[tuple[str, int], frozenset[str]]

    def has_given(self, receipt: Receipt, broker: str, queue_id: int, offset: int) -> bool:
        """Whether a receipt that a message brings along is of this delivery of it.

        A broker writes one into messages of retry topics only. Whatever else bears one got it from its
        sender: made up, or copied from another message.
        """
        return (
            receipt.mark != "0"
            and receipt.pop_ms == self.pop_ms
            and (receipt.broker, receipt.queue_id, receipt.offset) == (broker, queue_id, offset)
        )

    def receipt(
        self, topic: str, broker: str, queue_id: int, offset: int, *, is_retried: bool = False
    ) -> Receipt:
        """Of one of the messages.

        Args:
            topic: the one that its record names; brokers write the ordinary one into those of retry
                topics, too.
            broker: its broker.
            queue_id: its queue.
            offset: its place there.
            is_retried: whether it says of itself that it comes again, which counts in doubt.
        """
        mark = topic_mark(topic)
        if mark == "0":
            mark = self._mark(queue_id, str(offset), is_retried=is_retried)
        start = self.starts.get((mark, queue_id), offset)
        return Receipt(
            min(start, offset), self.pop_ms, self.invisible_ms, self.revive_queue, mark, broker,
            queue_id, offset,
        )  # fmt: skip

    def _mark(self, queue_id: int, offset: str, *, is_retried: bool) -> str:
        """In which sort of topic a message lies, of those that have it at this place."""
        marks = [mark for mark in "021" if offset in self.offsets.get((mark, queue_id), ())]
        return marks[-1 if is_retried else 0] if marks else "0"


def decode_pop_reply(ext: Mapping[str, str]) -> PopReply:
    """The fields of a reply that has messages.

    Raises:
        RemoteProtocolError: one is missing or garbled.
    """
    starts = _by_queue(ext.get("startOffsetInfo"))
    return PopReply(
        int_field(ext, "popTime"),
        int_field(ext, "invisibleTime"),
        int_field(ext, "reviveQid", 0),
        {queue: int(text) for queue, text in starts.items() if _NUMBER.fullmatch(text)},
        {
            queue: frozenset(text.split(","))
            for queue, text in _by_queue(ext.get("msgOffsetInfo")).items()
        },
    )


def _by_queue(text: str | None) -> dict[tuple[str, int], str]:
    """What a reply tells of each queue: the mark of its topic, its number, and that."""
    found = {}
    for item in (text or "").split(";"):
        words = item.split(" ")
        if len(words) == 3 and _NUMBER.fullmatch(words[1]):
            found[words[0], int(words[1])] = words[2]
    return found


def decode_change_reply(ext: Mapping[str, str], old: Receipt) -> Receipt:
    """The receipt that counts from now on.

    Raises:
        RemoteProtocolError: a field is missing or garbled.
    """
    return old._replace(
        start=old.offset,
        pop_ms=int_field(ext, "popTime"),
        invisible_ms=int_field(ext, "invisibleTime"),
        revive_queue=int_field(ext, "reviveQid", old.revive_queue),
    )


# What a broker reads


class PopRequest(NamedTuple):
    """The header of a pop."""

    group: str
    topic: str
    queue_id: int
    most: int
    invisible_ms: int
    poll_ms: int
    from_first: bool
    expression: str
    kind: str


def decode_pop_request(ext: Mapping[str, str]) -> PopRequest:
    """The fields of a pop.

    Raises:
        RemoteProtocolError: one is missing or garbled.
    """
    return PopRequest(
        text_field(ext, "consumerGroup"),
        text_field(ext, "topic"),
        int_field(ext, "queueId"),
        int_field(ext, "maxMsgNums"),
        int_field(ext, "invisibleTime"),
        int_field(ext, "pollTime"),
        int_field(ext, "initMode", FROM_FIRST) == FROM_FIRST,
        ext.get("exp") or "*",
        ext.get("expType") or "TAG",
    )


def decode_batch_ack(data: Any) -> list[tuple[str, Receipt, str]]:
    """Group, receipt and ordinary topic of each message that a batch acknowledges.

    Raises:
        RemoteProtocolError: it is no such body.
    """
    acks = data.get("acks") if isinstance(data, dict) else None
    if not isinstance(acks, list):
        raise RemoteProtocolError("field 'acks' is no list: send one")
    broker = str(data.get("brokerName"))
    found = []
    for item in acks:
        if not isinstance(item, dict):
            raise RemoteProtocolError("field 'acks' holds something that is no object")
        fields = {short: item.get(short, item.get(long)) for short, long in _LONG_NAMES.items()}
        numbers: list[Any] = [fields[name] for name in ("so", "q", "rq", "pt", "it")]
        if not all(type(number) is int for number in numbers):
            raise RemoteProtocolError("an acknowledgement lacks a number")
        start, queue_id, revive_queue, pop_ms, invisible_ms = numbers
        for bit in _set_bits(fields["b"]):
            receipt = Receipt(
                start, pop_ms, invisible_ms, revive_queue, str(fields["r"] or "0"), broker,
                queue_id, start + bit,
            )  # fmt: skip
            found.append((str(fields["c"]), receipt, str(fields["t"])))
    return found


_LONG_NAMES: Final = {
    "c": "consumerGroup",
    "t": "topic",
    "r": "retry",
    "so": "startOffset",
    "q": "queueId",
    "rq": "reviveQueueId",
    "pt": "popTime",
    "it": "invisibleTime",
    "b": "bitSet",
}


def _set_bits(text: Any) -> list[int]:
    try:
        data = base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise RemoteProtocolError("field 'b' of an acknowledgement is no base64") from None
    if int.from_bytes(data, "little").bit_count() > _MOST_BITS:
        raise RemoteProtocolError(f"an acknowledgement is of more than {_MOST_BITS} messages")
    return [
        place * 8 + bit
        for place, byte in enumerate(data)
        if byte
        for bit in range(8)
        if byte >> bit & 1
    ]
