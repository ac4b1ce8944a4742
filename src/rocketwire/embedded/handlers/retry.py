"""Messages that a consumer gives back in order to have them again later, or never."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.embedded.parked import Parked, read_parked
from rocketwire.embedded.store import Draft
from rocketwire.embedded.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rocketwire.wire.codes import Permission, RequestCode, ResponseCode
from rocketwire.wire.headers import int_field, text_field
from rocketwire.wire.properties import rewritten_bytes

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

#: Clients since this version say how often a message may be retried.
_RETRIES_FROM = 121


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    return {RequestCode.CONSUMER_SEND_MESSAGE_BACK: RetryHandler(broker).send_back}


class RetryHandler:
    """Puts messages into retry topics, through the delay schedule, or to the dead letters."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def send_back(self, call: Call) -> Answer:
        """Store a copy of a message for its group."""
        broker, group = self._broker, text_field(call.ext, "group")
        if not broker.permission & Permission.WRITE:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.name}] sending message is forbidden",
            )
        if broker.groups.find(group) is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group}: send a heartbeat first",
            )
        queues = broker.groups.number(group, "retryQueueNums")
        if queues <= 0:
            return Answer()
        offset = int_field(call.ext, "offset")
        record = broker.store.record_at(offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        broker.put(self._copy(call, group, read_parked(record), queues))
        return Answer()

    def _copy(self, call: Call, group: str, parked: Parked, queues: int) -> Draft:
        broker, draft, properties = self._broker, parked.draft, parked.properties
        properties.setdefault("RETRY_TOPIC", draft.topic)
        properties.setdefault("ORIGIN_MESSAGE_ID", broker.message_id(parked.log_offset))
        properties["WAIT"] = "false"
        level = int_field(call.ext, "delayLevel")
        if level < 0 or draft.reconsume_times >= self._limit(call, group):
            draft.topic, draft.queue_id = DEAD_LETTER_PREFIX + group, 0
            properties["DELAY"] = "0"
        else:
            draft.topic, draft.queue_id = RETRY_PREFIX + group, broker.random.randrange(queues)
            properties["DELAY"] = str(level or 3 + draft.reconsume_times)
        if broker.topics.get(draft.topic) is None:
            broker.topics.make_parked(draft.topic, 1 if draft.queue_id == 0 else queues)
            broker.topics_changed()
        draft.reconsume_times += 1
        for name in (
            "REAL_TOPIC",
            "REAL_QID",
            "TIMER_DELAY_SEC",
            "TIMER_DELAY_MS",
            "TIMER_DELIVER_MS",
        ):
            properties.pop(name, None)
        return broker.schedule.park(draft, properties, _finish)

    def _limit(self, call: Call, group: str) -> int:
        if call.command.version >= _RETRIES_FROM and call.ext.get("maxReconsumeTimes"):
            return int_field(call.ext, "maxReconsumeTimes")
        return self._broker.groups.number(group, "retryMaxTimes")


def _finish(draft: Draft, properties: dict[str, str]) -> Draft:
    draft.properties = rewritten_bytes(properties)
    return draft
