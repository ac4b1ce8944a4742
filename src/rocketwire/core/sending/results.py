"""What a broker's answer says about where messages are."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, cast

from rocketwire.core.sending.attempt import MessageIds, SendAttempt, as_texts
from rocketwire.message import MessageQueue, SendResult, SendStatus
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import Reply
from rocketwire.wire.headers import decode_send_reply
from rocketwire.wire.reply_layout import Layout
from rocketwire.wire.send_properties import id_of

_STATUS = {
    ResponseCode.SUCCESS: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}

#: What is kept of an attempt and its answer.
_Answered: TypeAlias = tuple[Reply | bytes, MessageIds | bytes, MessageQueue, bool]
#: What the end of a transaction needs of an answer.
_HALF: Final = ("queueOffset", "msgId", "transactionId")
#: How the answer that was read last is written: the next one probably is, too. In a list, so that it can be
#: replaced in place; threads share it, and the worst that comes of it is that one of them learns the layout anew.
_seen: list[Layout | None] = [None]


def result_later(attempt: SendAttempt, reply: Reply | bytes) -> SendResult:
    """The result of an attempt, which reads the answer when one of its fields is first asked for.

    Args:
        attempt: one that was stored.
        reply: the answer, or its frame.
    """
    target, batch = attempt.target, attempt.batch
    assert target is not None
    # The properties hold the only id: most are never asked for.
    ids = attempt.properties if batch is None else batch.ids
    return SendResult.read_by(result_fields, (reply, ids, target.queue, batch is not None))


def result_fields(given: _Answered) -> dict[str, Any]:
    """The fields of a result, as arguments of its constructor.

    Args:
        given: the answer, or its frame; the unique ids, or the encoded properties that hold the
            only one; where the request went; and whether it carried a batch. In one tuple, because
            the garbage collector counts the objects of every result, and a function that holds
            these would be three more.

    Raises:
        RemoteProtocolError: the answer does not tell them.
    """
    reply, ids, queue, is_batch = given
    if isinstance(reply, bytes):
        reply = Reply(reply, _seen[0])
    place = decode_send_reply(reply.ext)
    _seen[0] = reply.layout
    if place.queue_id != queue.id:
        queue = MessageQueue(queue.topic, queue.broker, place.queue_id)
    stored_as = place.offset_message_id
    message_ids = (id_of(ids),) if isinstance(ids, bytes) else as_texts(ids)
    return {
        "status": _STATUS[reply.code],
        "message_id": place.batch_id or ",".join(message_ids),
        "offset_message_id": stored_as,
        "queue": queue,
        "offset": place.queue_offset,
        "transaction_id": place.transaction_id,
        "region": place.region,
        "message_ids": message_ids,
        "offset_message_ids": tuple(stored_as.split(",")) if is_batch else (stored_as,),
        "recall_handle": place.recall_handle,
    }


class HalfPlace(NamedTuple):
    """What the end of a transaction needs of the answer to its half message."""

    #: Whether it is stored as safely as was asked for.
    is_safe: bool
    offset: int
    offset_message_id: str
    message_id: str
    transaction_id: str


def half_place(result: SendResult) -> HalfPlace:
    """Where a half message is, without reading the rest of its result: few ask for that.

    Raises:
        RemoteProtocolError: the answer does not tell it.
    """
    layout = _seen[0]
    if layout is not None and result._read is result_fields:  # noqa: SLF001 - made by us
        frame, ids, _, _ = cast("_Answered", result._given)  # noqa: SLF001
        if type(frame) is bytes and type(ids) is bytes and layout.has_place and not layout.code:
            match, groups = layout.match(frame, 4), layout.groups_of(_HALF)
            if match is not None and groups and int.from_bytes(frame[:4], "big") == len(frame) - 4:
                offset, place, own = match.group(*groups)
                if own and "batchUniqId" not in layout.fields:
                    # True, as every answer with this code.
                    return HalfPlace(True, int(offset), place.decode(), id_of(ids), own.decode())  # noqa: FBT003
    return HalfPlace(
        result.status is SendStatus.OK,
        result.offset,
        result.offset_message_id,
        result.message_id,
        result.transaction_id or result.message_id,
    )


def share(result: SendResult, place: int) -> SendResult:
    """The result of one message of a batch; read when one of its fields is asked for."""
    return SendResult.read_by(partial(_share, result), place)


def share_all(result: SendResult, count: int) -> list[SendResult]:
    """The results of all messages of a batch."""
    return SendResult.read_each(partial(_share, result), count)


def _share(result: SendResult, place: int) -> dict[str, Any]:
    ids, offset_ids = result.message_ids, result.offset_message_ids
    offset_id = offset_ids[place] if place < len(offset_ids) else result.offset_message_id
    return {
        "status": result.status,
        "message_id": ids[place],
        "offset_message_id": offset_id,
        "queue": result.queue,
        "offset": result.offset + place,
        "transaction_id": result.transaction_id,
        "region": result.region,
        "message_ids": (ids[place],),
        "offset_message_ids": (offset_id,),
        "attempts": result.attempts,
        "maybe_duplicate": result.maybe_duplicate,
    }
