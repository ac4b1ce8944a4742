"""Heartbeats and what follows from them: who is in a group, and who holds which queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.embedded.consumers import Member, SubscriptionEntry, sql_filter, tag_codes
from rocketwire.embedded.sql_filter import ExpressionError, SqlFilter
from rocketwire.embedded.topics import RETRY_PREFIX
from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.headers import text_field
from rocketwire.wire.lenient_json import dumps, loads

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    handler = ClientHandler(broker)
    return {
        RequestCode.HEART_BEAT: handler.heartbeat,
        RequestCode.UNREGISTER_CLIENT: handler.unregister,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: handler.members,
        RequestCode.CHECK_CLIENT_CONFIG: handler.check_config,
        RequestCode.LOCK_BATCH_QUEUES: handler.lock,
        RequestCode.UNLOCK_BATCH_QUEUES: handler.unlock,
    }


def body_of(call: Call) -> dict[str, Any]:
    """A request's body, which must be a JSON object.

    Raises:
        RemoteProtocolError: it is something else.
    """
    data = loads(call.command.body)
    if not isinstance(data, dict):
        raise RemoteProtocolError("the body is not a JSON object: send one")
    return data


def _texts(data: dict[str, Any], name: str) -> list[Any]:
    value = data.get(name) or []
    if not isinstance(value, list):
        raise RemoteProtocolError(f"field {name!r} is not a list: send one")
    return value


class ClientHandler:
    """Keeps the tables of live clients."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def heartbeat(self, call: Call) -> Answer:
        """A client is alive, with these groups and subscriptions."""
        data = body_of(call)
        client_id = data.get("clientID")
        if not isinstance(client_id, str) or not client_id:
            raise RemoteProtocolError("field 'clientID' is missing: send the client's id")
        for item in _texts(data, "producerDataSet"):
            group = item.get("groupName") if isinstance(item, dict) else None
            if isinstance(group, str) and group:
                self._broker.clients.add_producer(group, self._member(call, client_id))
        changed = False
        for item in _texts(data, "consumerDataSet"):
            if isinstance(item, dict):
                changed |= self._add_consumer(call, client_id, item)
        return Answer(
            ext={
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true" if changed else "false",
            }
        )

    def _member(self, call: Call, client_id: str) -> Member:
        command = call.command
        return Member(
            client_id, call.connection, command.language, command.version, self._broker.loop.time()
        )

    def _add_consumer(self, call: Call, client_id: str, item: dict[str, Any]) -> bool:
        broker = self._broker
        name = item.get("groupName")
        if not isinstance(name, str) or not name:
            raise RemoteProtocolError("field 'groupName' is missing: name the consumer group")
        broker.groups.get(name)
        retry = RETRY_PREFIX + name
        if broker.topics.get(retry) is None:
            broker.topics.make_parked(retry, broker.groups.number(name, "retryQueueNums"))
            broker.topics_changed()
        group = broker.clients.group(name)
        group.consume_type = str(item.get("consumeType") or group.consume_type)
        group.message_model = str(item.get("messageModel") or group.message_model)
        group.consume_from = str(item.get("consumeFromWhere") or group.consume_from)
        entries = [_subscription(s) for s in _texts(item, "subscriptionDataSet")]
        if not entries and item.get("subscriptionDataSet") is None:
            # A short heartbeat of a client that has not changed anything.
            entries = list(group.subscriptions.values())
        return broker.clients.add_consumer(group, self._member(call, client_id), entries)

    def unregister(self, call: Call) -> Answer:
        """A client says goodbye."""
        client_id = text_field(call.ext, "clientID")
        if group := call.ext.get("producerGroup"):
            self._broker.clients.remove_producer(group, client_id)
        if group := call.ext.get("consumerGroup"):
            self._broker.clients.remove_consumer(group, client_id)
        return Answer()

    def members(self, call: Call) -> Answer:
        """The client ids of a group."""
        name = text_field(call.ext, "consumerGroup")
        group = self._broker.clients.consumers.get(name)
        if group is None or not group.members:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return Answer(body=(dumps({"consumerIdList": group.client_ids}),))

    def check_config(self, call: Call) -> Answer:
        """Whether a subscription makes sense."""
        data = body_of(call).get("subscriptionData")
        kind = (data.get("expressionType") or "TAG") if isinstance(data, dict) else "TAG"
        if kind != "TAG" and isinstance(data, dict):
            if not self._broker.options.property_filter:
                raise no_filter(kind)
            try:
                sql_filter(str(data.get("subString") or ""), str(kind))
            except ExpressionError as error:
                raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        return Answer()

    # Locks

    def lock(self, call: Call) -> Answer:
        """Take or renew locks; the answer names those that the client has now."""
        group, client_id, queues = _lock_body(call)
        broker = self._broker
        now = broker.loop.time()
        taken = [
            _queue_json(topic, name, queue_id)
            for topic, name, queue_id in queues
            if broker.locks.lock(group, client_id, (topic, queue_id), now)
        ]
        return Answer(body=(dumps({"lockOKMQSet": taken}),))

    def unlock(self, call: Call) -> Answer:
        """Give locks back."""
        group, client_id, queues = _lock_body(call)
        for topic, _, queue_id in queues:
            self._broker.locks.unlock(group, client_id, (topic, queue_id))
        return Answer()


def no_filter(expression_type: str) -> Refusal:
    """What a broker says that has filters switched off, in Apache's words."""
    return Refusal(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {expression_type}",
    )


def _filter(expression: str, kind: str) -> SqlFilter | None:
    """As with Apache, a wrong expression is no failure of the heartbeat: pulls are refused."""
    try:
        return sql_filter(expression, kind)
    except ExpressionError:
        return None


def _subscription(item: Any) -> SubscriptionEntry:
    if not isinstance(item, dict) or not isinstance(item.get("topic"), str):
        raise RemoteProtocolError("a subscription has no 'topic': send one")
    expression = str(item.get("subString") or "*")
    kind = str(item.get("expressionType") or "TAG")
    version = item.get("subVersion")
    return SubscriptionEntry(
        item["topic"],
        expression,
        kind,
        version if type(version) is int else 0,
        tag_codes(expression) if kind == "TAG" else None,
        _filter(expression, kind) if kind != "TAG" else None,
        item,
    )


def _lock_body(call: Call) -> tuple[str, str, list[tuple[str, str, int]]]:
    data = body_of(call)
    group, client_id = data.get("consumerGroup"), data.get("clientId")
    if not isinstance(group, str) or not isinstance(client_id, str):
        raise RemoteProtocolError("field 'consumerGroup' or 'clientId' is missing: send both")
    queues = []
    for item in _texts(data, "mqSet"):
        if not isinstance(item, dict) or type(item.get("queueId")) is not int:
            raise RemoteProtocolError("field 'mqSet' holds something that is no queue")
        queues.append((str(item.get("topic")), str(item.get("brokerName")), item["queueId"]))
    return group, client_id, queues


def _queue_json(topic: str, broker: str, queue_id: int) -> dict[str, Any]:
    return {"brokerName": broker, "queueId": queue_id, "topic": topic}
