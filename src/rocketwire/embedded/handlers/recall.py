"""A producer calls a timed message back (5.3.2 and later)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.headers import text_field
from rocketwire.wire.message_id import RecallHandle, decode_recall_handle, encode_recall_handle

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    return {RequestCode.RECALL_MESSAGE: RecallHandler(broker).recall}


class RecallHandler:
    """Takes handles back. The checks are Apache's, in Apache's order."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def recall(self, call: Call) -> Answer:
        """The message will not come, unless it has already."""
        broker = self._broker
        topic = text_field(call.ext, "topic")
        if broker.topics.get(topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"the topic[{topic}] not exist")
        handle = self._decode(text_field(call.ext, "recallHandle"))
        if handle.topic != topic:
            raise _illegal("topic not match")
        if handle.broker != broker.name:
            raise _illegal("broker service not available")
        broker.schedule.wheel.check_recall(handle.deliver_ms)
        broker.schedule.wheel.recall(topic, handle.message_id, handle.deliver_ms - 1)
        region = broker.options.region
        return Answer(
            ResponseCode.SUCCESS,
            {"msgId": handle.message_id, "MSG_REGION": region, "TRACE_ON": "true"},
        )

    def _decode(self, text: str) -> RecallHandle:
        try:
            return decode_recall_handle(text)
        except RemoteProtocolError as error:
            raise _illegal(str(error)) from None


def _illegal(why: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {why}")


def make_handle(broker: Broker, topic: str, message_id: str, due: str) -> str:
    """The handle of a message that waits for its time (``TIMER_OUT_MS``)."""
    return encode_recall_handle(RecallHandle(topic, broker.name, int(due) + 1, message_id))
