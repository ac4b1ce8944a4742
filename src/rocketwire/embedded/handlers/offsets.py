"""Offsets: of a queue's ends, of a moment in time, and of what a group has consumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.headers import int_field, text_field

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker
    from rocketwire.embedded.store.consumequeue import ConsumeQueue


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    handler = OffsetHandler(broker)
    return {
        RequestCode.GET_MAX_OFFSET: handler.maximum,
        RequestCode.GET_MIN_OFFSET: handler.minimum,
        RequestCode.GET_EARLIEST_MESSAGE_STORE_TIME: handler.earliest_time,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: handler.by_time,
        RequestCode.QUERY_CONSUMER_OFFSET: handler.query,
        RequestCode.UPDATE_CONSUMER_OFFSET: handler.update,
    }


class OffsetHandler:
    """Answers questions about offsets."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def _queue(self, call: Call) -> ConsumeQueue | None:
        return self._broker.store.queues.get(
            text_field(call.ext, "topic"), int_field(call.ext, "queueId")
        )

    def maximum(self, call: Call) -> Answer:
        """The offset that the next message will get."""
        queue = self._queue(call)
        return _offset(queue.maximum if queue is not None else 0)

    def minimum(self, call: Call) -> Answer:
        """The oldest message's offset; -1 for a queue that never had one, as in Apache."""
        queue = self._queue(call)
        return _offset(queue.minimum if queue is not None else -1)

    def earliest_time(self, call: Call) -> Answer:
        """When the oldest message was stored; -1 without one."""
        queue = self._queue(call)
        unit = queue.unit(queue.minimum) if queue is not None else None
        stored = self._broker.store.store_ms_at(unit[0]) if unit is not None else -1
        return Answer(ext={"timestamp": str(stored)})

    def by_time(self, call: Call) -> Answer:
        """The first message at or after a time, or the last one at or before it."""
        ext = call.ext
        return _offset(
            self._broker.store.offset_by_time(
                text_field(ext, "topic"),
                int_field(ext, "queueId"),
                int_field(ext, "timestamp"),
                upper=ext.get("boundaryType", "LOWER").upper() == "UPPER",
            )
        )

    def query(self, call: Call) -> Answer:
        """What a group has consumed. A group that is new begins at 0 if nothing was deleted."""
        ext = call.ext
        group, topic = text_field(ext, "consumerGroup"), text_field(ext, "topic")
        queue_id = int_field(ext, "queueId")
        found = self._broker.offsets.get(group, topic, queue_id)
        if found is not None:
            return _offset(found)
        queue = self._broker.store.queues.get(topic, queue_id)
        if ext.get("setZeroIfNotFound") != "false" and (queue is None or queue.minimum <= 0):
            return _offset(0)
        raise Refusal(
            ResponseCode.QUERY_NOT_FOUND,
            "Not found, maybe this group consumer boot first: choose where to begin",
        )

    def update(self, call: Call) -> Answer:
        """A group has consumed so far."""
        ext, broker = call.ext, self._broker
        group, topic = text_field(ext, "consumerGroup"), text_field(ext, "topic")
        offset = int_field(ext, "commitOffset")
        if broker.topics.get(topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if offset < 0:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"commitOffset is {offset}: give 0 or more"
            )
        broker.groups.get(group)
        queue_id = int_field(ext, "queueId")
        if broker.offsets.is_reset(group, topic, queue_id):
            return Answer(remark="Offset has been previously reset")
        broker.offsets.put(group, topic, queue_id, offset)
        return Answer()


def _offset(value: int) -> Answer:
    return Answer(ext={"offset": str(value)})
