"""Who consumes how: groups whose members leave the sharing to the broker, and receive.

Java's push consumers ask a broker for their queues when they are told not to share them by
themselves, and whether to pull or to receive. Only receiving is done here: every member gets every
broker. A group that pulls is told that this is unknown, and its members share the queues themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.embedded.handlers.clients import body_of
from rocketwire.errors import RemoteProtocolError, RocketMQError
from rocketwire.wire.codes import Permission, RequestCode, ResponseCode
from rocketwire.wire.command import JSON, Command
from rocketwire.wire.lenient_json import dumps
from rocketwire.wire.pop import ANY_QUEUE
from rocketwire.wire.route import decode_route

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    handler = AssignmentHandler(broker)
    return {
        RequestCode.QUERY_ASSIGNMENT: handler.query,
        RequestCode.SET_MESSAGE_REQUEST_MODE: handler.set_mode,
    }


def _names(call: Call) -> tuple[str, str]:
    data = body_of(call)
    topic, group = data.get("topic"), data.get("consumerGroup")
    if not isinstance(topic, str) or not isinstance(group, str):
        raise RemoteProtocolError("field 'topic' or 'consumerGroup' is missing: send both")
    return topic, group


class AssignmentHandler:
    """Remembers which groups receive, for as long as the broker runs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._receiving: set[tuple[str, str]] = set()

    def set_mode(self, call: Call) -> Answer:
        """Say whether a group pulls or receives."""
        key = _names(call)
        if body_of(call).get("mode") == "POP":
            self._receiving.add(key)
        else:
            self._receiving.discard(key)
        return Answer()

    def query(self, call: Call) -> None:
        """What a member of a group gets: all brokers of the topic."""
        topic, group = _names(call)
        if (topic, group) not in self._receiving:
            raise Refusal(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"group {group} pulls from {topic}: its members share the queues themselves",
            )
        self._broker.spawn(self._answer(call, topic))

    async def _answer(self, call: Call, topic: str) -> None:
        command = Command(RequestCode.GET_ROUTE_BY_TOPIC, {"topic": topic}, header=JSON)
        try:
            reply = await self._broker.ask_name_server(command)
            if reply.code != ResponseCode.SUCCESS:
                call.answer(Answer(reply.code, remark=reply.remark))
                return
            route = decode_route(reply.body)
        except (OSError, TimeoutError, RocketMQError) as error:
            call.answer(Answer(ResponseCode.SYSTEM_ERROR, remark=f"no route: {error}"))
            return
        found = [
            {
                "messageQueue": {"topic": topic, "brokerName": queues.broker, "queueId": ANY_QUEUE},
                "mode": "POP",
            }
            for queues in route.queues
            if queues.permission & Permission.READ
        ]
        call.answer(Answer(body=(dumps({"messageQueueAssignments": found}),)))
