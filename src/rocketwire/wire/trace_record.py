"""Records of a message's way, as Java writes them into the trace topic.

Fields are separated by 0x01, records end with 0x02. What to record is decided by producers and
consumers; here it becomes text and back. Writing never fails on account of odd text, because a
trace must not harm the message it tells of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rocketwire.errors import RemoteProtocolError

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

#: Names of the numbers that stand for the kind of a message and for how consuming it ended.
MESSAGE_TYPES: Final = ("Normal", "Trans_Msg_Half", "Trans_msg_Commit", "Delay_Msg", "Order_Msg")
CONTEXT_CODES: Final = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")

_BLANKS: Final = str.maketrans({FIELD_END: " ", RECORD_END: " "})


class PubRecord(NamedTuple):
    """A message was sent, or could not be."""

    start_ms: int
    region: str | None
    group: str | None
    topic: str
    message_id: str | None
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    body_length: int = 0
    cost_ms: int = 0
    message_type: int = 0
    offset_message_id: str | None = None
    success: bool = True
    client_host: str | None = None


class SubBeforeRecord(NamedTuple):
    """A message is about to be handled."""

    time_ms: int
    region: str | None
    group: str | None
    request_id: str
    message_id: str
    retry_times: int = 0
    keys: str | None = None


class SubAfterRecord(NamedTuple):
    """A message was handled. ``time_ms`` and ``group`` are absent in the cloud's own form."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str | None = None
    context_code: int = 0
    time_ms: int | None = None
    group: str | None = None


class EndTransactionRecord(NamedTuple):
    """A transaction was committed or rolled back. ``state`` is Java's name for which."""

    time_ms: int
    region: str | None
    group: str | None
    topic: str
    message_id: str
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    message_type: int = 2
    transaction_id: str | None = None
    state: str = "COMMIT_MESSAGE"
    from_check: bool = False


class RecallRecord(NamedTuple):
    """A timed message was called back before its time."""

    time_ms: int
    region: str | None
    group: str | None
    topic: str
    message_id: str | None
    success: bool = True


TraceRecord = PubRecord | SubBeforeRecord | SubAfterRecord | EndTransactionRecord | RecallRecord


def encode_trace_record(record: TraceRecord) -> str:
    """One record, with its end."""
    fields = _fields_of(record)
    return FIELD_END.join([_text(value) for value in fields]) + RECORD_END


def _fields_of(record: TraceRecord) -> tuple[object, ...]:
    r = record
    if isinstance(r, PubRecord):
        fields = (
            "Pub", r.start_ms, r.region, r.group, r.topic, r.message_id, r.tags, r.keys,
            r.store_host, r.body_length, r.cost_ms, r.message_type, r.offset_message_id, r.success,
        )  # fmt: skip
        return fields if r.client_host is None else (*fields, r.client_host)
    if isinstance(r, SubBeforeRecord):
        return (
            "SubBefore", r.time_ms, r.region, r.group, r.request_id, r.message_id, r.retry_times,
            r.keys,
        )  # fmt: skip
    if isinstance(r, SubAfterRecord):
        short = (
            "SubAfter",
            r.request_id,
            r.message_id,
            r.cost_ms,
            r.success,
            r.keys,
            r.context_code,
        )
        return short if r.time_ms is None else (*short, r.time_ms, r.group)
    if isinstance(r, RecallRecord):
        return ("Recall", r.time_ms, r.region, r.group, r.topic, r.message_id, r.success)
    return (
        "EndTransaction", r.time_ms, r.region, r.group, r.topic, r.message_id, r.tags, r.keys,
        r.store_host, r.message_type, r.transaction_id, r.state, r.from_check,
    )  # fmt: skip


def words_in(*texts: str | None) -> list[str]:
    r"""The words by which a trace message can be found, whatever the sender of a traced message wrote.

    >>> words_in("id", "a\x01b  c", None)
    ['id', 'a', 'b', 'c']
    """
    return [word for text in texts if text for word in text.translate(_BLANKS).split(" ") if word]


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).translate(_BLANKS)


def decode_trace(body: bytes | memoryview) -> list[TraceRecord]:
    """The records in a trace message. Kinds that we do not know are passed over.

    Raises:
        RemoteProtocolError: a record of a known kind lacks fields, or a number is none.
    """
    text = str(body, "utf-8", "replace")
    records: list[TraceRecord] = []
    for line in filter(None, text.split(RECORD_END)):
        fields = line.split(FIELD_END)
        if fields[0] in _DECODERS:
            fewest, decoder = _DECODERS[fields[0]]
            if len(fields) < fewest:
                raise RemoteProtocolError(
                    f"a trace record {fields[0]} has {len(fields)} fields, not {fewest}"
                )
            records.append(decoder(fields))
    return records


def _pub(f: list[str]) -> PubRecord:
    # 13 fields: before the offset id was added. 15 and more: with the client's address.
    has_offset_id = len(f) > 13
    return PubRecord(
        start_ms=_number(f, 1),
        region=_optional(f[2]),
        group=_optional(f[3]),
        topic=f[4],
        message_id=_optional(f[5]),
        tags=_optional(f[6]),
        keys=_optional(f[7]),
        store_host=_optional(f[8]),
        body_length=_number(f, 9),
        cost_ms=_number(f, 10),
        message_type=_number(f, 11),
        offset_message_id=_optional(f[12]) if has_offset_id else None,
        success=f[13 if has_offset_id else 12] == "true",
        client_host=_optional(f[14]) if len(f) > 14 else None,
    )


def _sub_before(f: list[str]) -> SubBeforeRecord:
    return SubBeforeRecord(
        time_ms=_number(f, 1),
        region=_optional(f[2]),
        group=_optional(f[3]),
        request_id=f[4],
        message_id=f[5],
        retry_times=_number(f, 6),
        keys=_optional(f[7]) if len(f) > 7 else None,
    )


def _sub_after(f: list[str]) -> SubAfterRecord:
    return SubAfterRecord(
        request_id=f[1],
        message_id=f[2],
        cost_ms=_number(f, 3),
        success=f[4] == "true",
        keys=_optional(f[5]),
        context_code=_number(f, 6) if len(f) > 6 else 0,
        time_ms=_number(f, 7) if len(f) > 8 else None,
        group=_optional(f[8]) if len(f) > 8 else None,
    )


def _end_transaction(f: list[str]) -> EndTransactionRecord:
    return EndTransactionRecord(
        time_ms=_number(f, 1),
        region=_optional(f[2]),
        group=_optional(f[3]),
        topic=f[4],
        message_id=f[5],
        tags=_optional(f[6]),
        keys=_optional(f[7]),
        store_host=_optional(f[8]),
        message_type=_number(f, 9),
        transaction_id=_optional(f[10]),
        state=f[11],
        from_check=f[12] == "true",
    )


def _recall(f: list[str]) -> RecallRecord:
    return RecallRecord(
        time_ms=_number(f, 1),
        region=_optional(f[2]),
        group=_optional(f[3]),
        topic=f[4],
        message_id=_optional(f[5]),
        success=f[6] == "true",
    )


#: For each kind the fewest fields that a reader accepts, and the reader.
_DECODERS: Final[dict[str, tuple[int, Callable[[list[str]], TraceRecord]]]] = {
    "Pub": (13, _pub),
    "SubBefore": (7, _sub_before),
    "SubAfter": (6, _sub_after),
    "EndTransaction": (13, _end_transaction),
    "Recall": (7, _recall),
}


def _optional(text: str) -> str | None:
    return None if text in {"null", ""} else text


def _number(fields: list[str], index: int) -> int:
    text = fields[index]
    if len(text) <= 20 and text.removeprefix("-").isdecimal():
        return int(text)
    raise RemoteProtocolError(
        f"field {index + 1} of a trace record {fields[0]} is {text[:40]!r}: a number expected"
    )
