"""JSON bodies that a client exchanges with brokers: heartbeats, locks, lists of members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.java_hash import java_string_hash
from rocketwire.wire.lenient_json import dumps, loads, pairs, shown

ALL_TAGS: Final = "*"


class Subscription(NamedTuple):
    """What a consumer wants of a topic.

    Args:
        topic: the topic.
        expression: tags joined by ``||``, ``*`` for all, or an SQL expression.
        version: grows with each change; the ms of the change will do.
        kind: TAG or SQL92.
    """

    topic: str
    expression: str = ALL_TAGS
    version: int = 0
    kind: str = "TAG"

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that are wanted; none when all are."""
        if self.kind != "TAG" or self.expression in {"", ALL_TAGS}:
            return ()
        found = (tag.strip() for tag in self.expression.split("||"))
        return tuple(dict.fromkeys(tag for tag in found if tag))

    def as_json(self) -> dict[str, Any]:
        """The form it has in a heartbeat."""
        return {
            "classFilterMode": False,
            "codeSet": sorted({java_string_hash(tag) for tag in self.tags}),
            "expressionType": self.kind,
            "subString": self.expression or ALL_TAGS,
            "subVersion": self.version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }


class ConsumerData(NamedTuple):
    """One consumer group of a client, as its heartbeat tells."""

    group: str
    subscriptions: Sequence[Subscription] = ()
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    from_where: str = "CONSUME_FROM_LAST_OFFSET"
    unit_mode: bool = False

    def as_json(self) -> dict[str, Any]:
        """The form it has in a heartbeat."""
        return {
            "consumeFromWhere": self.from_where,
            "consumeType": self.consume_type,
            "groupName": self.group,
            "messageModel": self.message_model,
            "subscriptionDataSet": [item.as_json() for item in self.subscriptions],
            "unitMode": self.unit_mode,
        }


def heartbeat_body(
    client_id: str, producer_groups: Iterable[str], consumers: Iterable[ConsumerData] = ()
) -> bytes:
    """HEART_BEAT: who this client is, for which groups it sends, and what it consumes."""
    return dumps(
        {
            "clientID": client_id,
            "consumerDataSet": [item.as_json() for item in consumers],
            "heartbeatFingerprint": 0,
            "producerDataSet": [{"groupName": group} for group in producer_groups],
            "withoutSub": False,
        },
        standard=False,
    )


def lock_body(client_id: str, group: str, queues: Iterable[MessageQueue]) -> bytes:
    """LOCK_BATCH_QUEUES and UNLOCK_BATCH_QUEUES."""
    return dumps(
        {
            "clientId": client_id,
            "consumerGroup": group,
            "mqSet": [queue_json(queue) for queue in queues],
            "onlyThisBroker": False,
        },
        standard=False,
    )


def queue_json(queue: MessageQueue) -> dict[str, Any]:
    """A queue as Java writes it."""
    return {"brokerName": queue.broker, "queueId": queue.id, "topic": queue.topic}


def decode_queue(value: Any) -> MessageQueue:
    """A queue in JSON.

    Raises:
        RemoteProtocolError: it is something else.
    """
    if isinstance(value, dict):
        topic, broker, number = value.get("topic"), value.get("brokerName"), value.get("queueId")
        if isinstance(topic, str) and isinstance(broker, str) and type(number) is int:
            return MessageQueue(topic, broker, number)
    raise RemoteProtocolError(f"expected a queue, found {shown(value)}")


def decode_lock_reply(body: bytes | memoryview) -> frozenset[MessageQueue]:
    """The queues that the broker locked for us.

    Raises:
        RemoteProtocolError: the body is something else.
    """
    return frozenset(decode_queue(item) for item in _list(body, "lockOKMQSet"))


def decode_consumer_list(body: bytes | memoryview) -> tuple[str, ...]:
    """The client ids of a group's members.

    Raises:
        RemoteProtocolError: the body is something else.
    """
    return _texts(_list(body, "consumerIdList"), "consumerIdList")


def decode_topic_list(body: bytes | memoryview) -> tuple[str, ...]:
    """The topics that a name server knows.

    Raises:
        RemoteProtocolError: the body is something else.
    """
    return _texts(_list(body, "topicList"), "topicList")


class QueueStats(NamedTuple):
    """What a broker tells of a queue: its offsets, and when it was written to last."""

    min_offset: int
    max_offset: int
    updated_ms: int


def decode_topic_stats(body: bytes | memoryview) -> dict[MessageQueue, QueueStats]:
    """The answer to GET_TOPIC_STATS_INFO, whose keys are objects.

    Raises:
        RemoteProtocolError: the body is something else.
    """
    table = pairs(_object(body).get("offsetTable") or {})
    return {decode_queue(queue): _stats(value) for queue, value in table}


def _stats(value: Any) -> QueueStats:
    names = ("minOffset", "maxOffset", "lastUpdateTimestamp")
    numbers = [value.get(name) for name in names] if isinstance(value, dict) else [None]
    if not all(type(number) is int for number in numbers):
        raise RemoteProtocolError(f"expected the offsets of a queue, found {shown(value)}")
    return QueueStats(*numbers)


def decode_cleanup_policy(body: bytes | memoryview) -> str | None:
    """How a topic's old messages go, of the reply to GET_TOPIC_CONFIG; None if it does not say."""
    found = _object(body)
    attributes = found.get("attributes")
    policy = attributes.get("cleanup.policy") if isinstance(attributes, dict) else None
    return policy if isinstance(policy, str) else None


def _object(body: bytes | memoryview) -> dict[str, Any]:
    value = loads(body)
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"expected a JSON object, found {shown(value)}")
    return value


def _list(body: bytes | memoryview, name: str) -> list[Any]:
    value = _object(body).get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise RemoteProtocolError(f"{name!r} is not a list")
    return value


def _texts(values: list[Any], name: str) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise RemoteProtocolError(f"{name!r} holds something that is not text")
    return tuple(values)
