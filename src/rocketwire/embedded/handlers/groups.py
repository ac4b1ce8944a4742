"""Consumer groups, as operators see them: configuration, progress, resets, who is connected."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.embedded.consumers import Member
from rocketwire.embedded.handlers.clients import body_of
from rocketwire.embedded.topics import TopicConfig
from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.headers import int_field, text_field
from rocketwire.wire.json_header import language_name
from rocketwire.wire.lenient_json import Pairs, dumps
from rocketwire.wire.message_id import decode_offset_message_id

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

_PATIENCE: Final = 10.0


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    handler = GroupHandler(broker)
    return {
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP: handler.put,
        RequestCode.GET_ALL_SUBSCRIPTION_GROUP_CONFIG: handler.all,
        RequestCode.GET_SUBSCRIPTION_GROUP_CONFIG: handler.get,
        RequestCode.DELETE_SUBSCRIPTION_GROUP: handler.delete,
        RequestCode.GET_CONSUME_STATS: handler.stats,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: handler.consumers,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: handler.producers,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: handler.groups_of_topic,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: handler.reset,
        RequestCode.CLONE_GROUP_OFFSET: handler.clone,
        RequestCode.GET_ALL_CONSUMER_OFFSET: handler.all_offsets,
        RequestCode.GET_CONSUMER_RUNNING_INFO: handler.ask_client,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: handler.consume_directly,
    }


class GroupHandler:
    """Administers groups."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # Configuration

    def put(self, call: Call) -> Answer:
        """Make or change a group."""
        config = body_of(call)
        name = config.get("groupName")
        if not isinstance(name, str) or not name:
            raise RemoteProtocolError("field 'groupName' is missing: name the group")
        self._broker.groups.put(name, config)
        return Answer()

    def all(self, call: Call) -> Answer:
        """Every group's configuration."""
        return Answer(body=(dumps(self._broker.groups.as_json()),))

    def get(self, call: Call) -> Answer:
        """One group's configuration."""
        name = text_field(call.ext, "group")
        found = self._broker.groups.find(name)
        if found is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}"
            )
        return Answer(body=(dumps(found),))

    def delete(self, call: Call) -> Answer:
        """Forget a group; with ``cleanOffset``, also what it has consumed."""
        name = text_field(call.ext, "groupName")
        self._broker.groups.delete(name)
        if call.ext.get("cleanOffset") == "true":
            self._broker.offsets.forget(group=name)
            self._broker.pops.forget(group=name)
        return Answer()

    # Who is there

    def consumers(self, call: Call) -> Answer:
        """Members and subscriptions of a group that is online."""
        name = text_field(call.ext, "consumerGroup")
        group = self._broker.clients.consumers.get(name)
        if group is None or not group.members:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        body = {
            "connectionSet": [_connection(member) for member in group.members.values()],
            "consumeFromWhere": group.consume_from,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {t: entry.raw for t, entry in group.subscriptions.items()},
        }
        return Answer(body=(dumps(body),))

    def producers(self, call: Call) -> Answer:
        """Members of a producer group that is online."""
        name = text_field(call.ext, "producerGroup")
        members = self._broker.clients.producers.get(name)
        if not members:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = {"connectionSet": [_connection(member) for member in members.values()]}
        return Answer(body=(dumps(body),))

    def groups_of_topic(self, call: Call) -> Answer:
        """The groups that consume from a topic, or have done so."""
        topic = text_field(call.ext, "topic")
        live = [g.name for g in self._broker.clients.consumers.values() if topic in g.subscriptions]
        names = sorted({*live, *self._broker.offsets.groups_of(topic)})
        return Answer(body=(dumps({"groupList": names}),))

    def ask_client(self, call: Call) -> None:
        """Pass an operator's question on to a consumer, and its answer back."""
        name, client_id = text_field(call.ext, "consumerGroup"), text_field(call.ext, "clientId")
        group = self._broker.clients.consumers.get(name)
        members = group.members.values() if group is not None else ()
        member = next((m for m in members if m.client_id == client_id), None)
        if member is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{name}> <{client_id}> not online"
            )
        self._broker.spawn(self._pass_on(call, member))

    def consume_directly(self, call: Call) -> None:
        """Have a consumer handle one stored message now, as an operator wants it."""
        message_id = text_field(call.ext, "msgId")
        record = self._broker.store.record_at(decode_offset_message_id(message_id).offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"there is no message {message_id}")
        call.command.body = bytes(record)
        call.command.ext["brokerName"] = self._broker.name
        self.ask_client(call)

    async def _pass_on(self, call: Call, member: Member) -> None:
        old = call.command
        command = Command(old.code, dict(old.ext), old.body, header=old.header)
        future = member.connection.invoke(command)
        try:
            async with asyncio.timeout(_PATIENCE):
                reply = await future
        except (TimeoutError, asyncio.CancelledError):
            member.connection.forget(command.opaque)
            call.answer(
                Answer(
                    ResponseCode.CONSUME_MESSAGE_TIMEOUT,
                    remark=f"consumer <{member.client_id}> Timeout",
                )
            )
            return
        call.answer(Answer(reply.code, reply.ext, (reply.body,), reply.remark))

    # Progress

    def stats(self, call: Call) -> Answer:
        """How far a group has come in each queue; keys are objects, for any client."""
        broker, group = self._broker, text_field(call.ext, "consumerGroup")
        topics = [call.ext["topic"]] if call.ext.get("topic") else self._topics_of(group)
        table = Pairs()
        for name in topics:
            config = broker.topics.get(name)
            if config is not None:
                table.extend(self._topic_stats(group, config))
        body = {"consumeTps": 0.0, "offsetTable": table}
        return Answer(body=(dumps(body, standard=False),))

    def _topics_of(self, group: str) -> list[str]:
        live = self._broker.clients.consumers.get(group)
        subscribed = list(live.subscriptions) if live is not None else []
        return sorted({*self._broker.offsets.topics_of(group), *subscribed})

    def _topic_stats(self, group: str, config: TopicConfig) -> Pairs:
        broker, table = self._broker, Pairs()
        for queue_id in range(config.read_queues):
            queue = broker.store.queues.get(config.name, queue_id)
            consumed = broker.offsets.get(group, config.name, queue_id) or 0
            last = queue.unit(consumed - 1) if queue is not None and consumed else None
            stored = broker.store.store_ms_at(last[0]) if last is not None else 0
            table.append(
                (
                    {"brokerName": broker.name, "queueId": queue_id, "topic": config.name},
                    {
                        "brokerOffset": queue.maximum if queue is not None else 0,
                        "consumerOffset": consumed,
                        "lastTimestamp": max(stored, 0),
                        "pullOffset": consumed,
                    },
                )
            )
        return table

    def all_offsets(self, call: Call) -> Answer:
        """What all groups have consumed."""
        return Answer(body=(dumps(self._broker.offsets.as_json()),))

    def reset(self, call: Call) -> Answer:
        """Move a group to a time. Its members learn of it with their next pull."""
        ext, broker = call.ext, self._broker
        topic, group = text_field(ext, "topic"), text_field(ext, "group")
        config = broker.topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if broker.groups.find(group) is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        table = Pairs()
        only = int_field(ext, "queueId", -1)
        for queue_id in range(config.read_queues) if only < 0 else (only,):
            offset = self._target(ext, topic, queue_id)
            broker.offsets.reset(group, topic, queue_id, offset)
            key = {"brokerName": broker.name, "queueId": queue_id, "topic": topic}
            table.append((key, offset))
        return Answer(body=(dumps({"offsetTable": table}, standard=False),))

    def clone(self, call: Call) -> Answer:
        """Put a group where another is. Apache copies nothing without a topic, and says no word."""
        ext, offsets = call.ext, self._broker.offsets
        source, target = text_field(ext, "srcGroup"), text_field(ext, "destGroup")
        topic = text_field(ext, "topic")
        for queue_id, offset in offsets.queues(source, topic).items():
            offsets.put(target, topic, queue_id, offset)
        return Answer()

    def _target(self, ext: dict[str, str], topic: str, queue_id: int) -> int:
        store = self._broker.store
        queue = store.queues.get(topic, queue_id)
        low, high = (queue.minimum, queue.maximum) if queue is not None else (0, 0)
        offset = int_field(ext, "offset", -1)
        if offset >= 0 and int_field(ext, "queueId", -1) >= 0:
            if not low <= offset <= high + 1:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {offset} not in consume queue range [{low}-{high}]",
                )
            return offset
        moment = int_field(ext, "timestamp")
        return high if moment < 0 else store.offset_by_time(topic, queue_id, moment)


def _connection(member: Member) -> dict[str, Any]:
    return {
        "clientAddr": member.connection.peer,
        "clientId": member.client_id,
        "language": language_name(member.language),
        "version": member.version,
    }
