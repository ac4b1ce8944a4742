"""Topics, as operators see them: make, change, delete, list, and how full they are."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.embedded.topics import SYSTEM_TOPICS, TopicConfig, name_problem
from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.headers import int_field, text_field
from rocketwire.wire.lenient_json import Pairs, dumps

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

#: Seconds that the maker of a topic waits for the name servers at most.
_PATIENCE = 3.0
_QUEUE_LIMIT = 65536


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    handler = TopicHandler(broker)
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: handler.put,
        RequestCode.DELETE_TOPIC_IN_BROKER: handler.delete,
        RequestCode.GET_TOPIC_CONFIG: handler.get,
        RequestCode.GET_ALL_TOPIC_CONFIG: handler.all,
        RequestCode.GET_TOPIC_STATS_INFO: handler.stats,
        RequestCode.GET_SYSTEM_TOPICS_FROM_BROKER: handler.system,
    }


def parse_attributes(text: str | None, old: dict[str, str]) -> dict[str, str]:
    """Changes to a topic's attributes: ``+name=value`` sets one, ``-name`` removes one."""
    found = dict(old)
    for item in (text or "").split(","):
        change = item.strip()
        if not change:
            continue
        name, mark, value = change[1:].partition("=")
        if change[0] == "+" and mark and name:
            found[name] = value
        elif change[0] == "-" and name:
            found.pop(name, None)
        else:
            raise RemoteProtocolError(f"attribute {change[:80]!r}: write '+name=value' or '-name'")
    return found


class TopicHandler:
    """Administers topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def put(self, call: Call) -> None:
        """Make or change a topic; answered when the name servers know."""
        ext, broker = call.ext, self._broker
        name = text_field(ext, "topic")
        problem = name_problem(name)
        if problem is None and broker.topics.is_system(name):
            problem = f"The topic[{name}] is conflict with system topic."
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        old = broker.topics.get(name)
        broker.topics.put(
            TopicConfig(
                name,
                _queues(ext, "readQueueNums"),
                _queues(ext, "writeQueueNums"),
                int_field(ext, "perm"),
                ext.get("topicFilterType") or "SINGLE_TAG",
                int_field(ext, "topicSysFlag", 0),
                ext.get("order") == "true",
                parse_attributes(ext.get("attributes"), old.attributes if old else {}),
            )
        )
        broker.spawn(self._answer_when_known(call))

    async def _answer_when_known(self, call: Call) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._broker.register_now()
        call.answer(Answer())

    def delete(self, call: Call) -> Answer:
        """Forget a topic and its messages."""
        name, broker = text_field(call.ext, "topic"), self._broker
        if broker.topics.is_system(name):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
            )
        broker.delete_topic(name)
        return Answer()

    def get(self, call: Call) -> Answer:
        """One topic's configuration."""
        name = text_field(call.ext, "topic")
        found = self._broker.topics.get(name)
        if found is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        return Answer(body=(dumps(found.as_json()),))

    def all(self, call: Call) -> Answer:
        """Every topic's configuration."""
        topics = self._broker.topics
        body = {
            "dataVersion": topics.version.as_json(),
            "topicConfigTable": topics.as_json(self._broker.permission),
        }
        return Answer(body=(dumps(body),))

    def system(self, call: Call) -> Answer:
        """The names that operators can't use."""
        names = sorted({*SYSTEM_TOPICS, self._broker.name, self._broker.options.cluster})
        return Answer(body=(dumps({"topicList": names}),))

    def stats(self, call: Call) -> Answer:
        """The ends of every queue of a topic; keys are objects, for any client."""
        name, broker = text_field(call.ext, "topic"), self._broker
        config = broker.topics.get(name)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        table = Pairs()
        for queue_id in range(max(config.read_queues, config.write_queues)):
            key = {"brokerName": broker.name, "queueId": queue_id, "topic": name}
            table.append((key, self._queue_stats(name, queue_id)))
        return Answer(body=(dumps({"offsetTable": table, "topicPutTps": 0.0}, standard=False),))

    def _queue_stats(self, topic: str, queue_id: int) -> dict[str, int]:
        store = self._broker.store
        queue = store.queues.get(topic, queue_id)
        if queue is None:
            return {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
        last = queue.unit(queue.maximum - 1)
        return {
            "lastUpdateTimestamp": store.store_ms_at(last[0]) if last is not None else 0,
            "maxOffset": queue.maximum,
            "minOffset": queue.minimum,
        }


def _queues(ext: dict[str, str], name: str) -> int:
    count = int_field(ext, name)
    if not 1 <= count <= _QUEUE_LIMIT:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, f"{name} is {count}: give 1 to {_QUEUE_LIMIT}"
        )
    return count
