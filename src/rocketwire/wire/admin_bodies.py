"""JSON bodies that operators' requests and their answers carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.client_bodies import decode_queue
from rocketwire.wire.lenient_json import MAX_SIZE, loads, pairs, shown

MESSAGE_TYPE: Final = "message.type"


class TopicSettings(NamedTuple):
    """A topic as one broker keeps it."""

    name: str
    read_queues: int
    write_queues: int
    permission: int
    system_flag: int
    order: bool
    attributes: Mapping[str, str]


def decode_topic_settings(body: bytes | memoryview) -> TopicSettings:
    """The answer to GET_TOPIC_CONFIG.

    Raises:
        RemoteProtocolError: it is something else.
    """
    return _topic(json_object(body))


def decode_all_topic_settings(body: bytes | memoryview) -> dict[str, TopicSettings]:
    """The answer to GET_ALL_TOPIC_CONFIG.

    Raises:
        RemoteProtocolError: it is something else.
    """
    table = json_object(body).get("topicConfigTable") or {}
    return {str(name): _topic(value) for name, value in pairs(table)}


def _topic(data: Any) -> TopicSettings:
    if not isinstance(data, dict):
        raise RemoteProtocolError(f"expected the settings of a topic, found {shown(data)}")
    attributes = data.get("attributes")
    return TopicSettings(
        text(data, "topicName"),
        number(data, "readQueueNums"),
        number(data, "writeQueueNums"),
        number(data, "perm"),
        number(data, "topicSysFlag", 0),
        data.get("order") is True,
        {str(k): str(v) for k, v in pairs(attributes or {})},
    )


def json_object(body: bytes | memoryview) -> dict[str, Any]:
    """A body that must be a JSON object; operators may wait for a large one in odd JSON.

    Raises:
        RemoteProtocolError: it is something else.
    """
    value = loads(body, tolerant_limit=MAX_SIZE)
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"expected a JSON object, found {shown(value)}")
    return value


def text(data: Mapping[str, Any], name: str) -> str:
    """A field that must be text.

    Raises:
        RemoteProtocolError: it is missing or something else.
    """
    value = data.get(name)
    if not isinstance(value, str):
        raise RemoteProtocolError(f"field {name!r} is {shown(value)}: text expected")
    return value


def number(data: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A field that must be a whole number, unless it has a default.

    Raises:
        RemoteProtocolError: it is missing or something else.
    """
    value = data.get(name, default)
    if type(value) is not int:
        raise RemoteProtocolError(f"field {name!r} is {shown(value)}: a whole number expected")
    return value


def decode_runtime(body: bytes | memoryview) -> dict[str, str]:
    """The answer to GET_BROKER_RUNTIME_INFO: figures by Java's names, as text.

    Raises:
        RemoteProtocolError: it is something else.
    """
    table = json_object(body).get("table") or {}
    return {str(name): str(value) for name, value in pairs(table)}


def decode_group_names(body: bytes | memoryview) -> tuple[str, ...]:
    """The groups in the answer to GET_ALL_SUBSCRIPTION_GROUP_CONFIG.

    Raises:
        RemoteProtocolError: it is something else.
    """
    table = json_object(body).get("subscriptionGroupTable") or {}
    return tuple(str(name) for name, _ in pairs(table))


class ConnectedClient(NamedTuple):
    """A client as a broker sees it."""

    client_id: str
    address: str
    language: str
    version: int


class Connections(NamedTuple):
    """The clients of a group, and what they subscribe to: expressions by topic."""

    clients: tuple[ConnectedClient, ...]
    subscriptions: Mapping[str, str]


def decode_connections(body: bytes | memoryview) -> Connections:
    """The answer to GET_CONSUMER_CONNECTION_LIST and GET_PRODUCER_CONNECTION_LIST.

    Raises:
        RemoteProtocolError: it is something else.
    """
    data = json_object(body)
    listed = data.get("connectionSet") or []
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise RemoteProtocolError("'connectionSet' is no list of connections")
    clients = tuple(
        ConnectedClient(
            text(item, "clientId"),
            str(item.get("clientAddr") or ""),
            str(item.get("language") or ""),
            number(item, "version", 0),
        )
        for item in listed
    )
    table = pairs(data.get("subscriptionTable") or {})
    wanted = {
        str(topic): str(item.get("subString") or "*") if isinstance(item, dict) else "*"
        for topic, item in table
    }
    return Connections(clients, wanted)


class Progress(NamedTuple):
    """How far a group is in a queue."""

    consumed: int
    end: int
    consumed_ms: int


def decode_consume_stats(body: bytes | memoryview) -> dict[MessageQueue, Progress]:
    """The answer to GET_CONSUME_STATS, whose keys are objects.

    Raises:
        RemoteProtocolError: it is something else.
    """
    table = json_object(body).get("offsetTable") or {}
    return {decode_queue(queue): _progress(value) for queue, value in pairs(table)}


def _progress(value: Any) -> Progress:
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"expected the progress of a queue, found {shown(value)}")
    return Progress(
        number(value, "consumerOffset"),
        number(value, "brokerOffset"),
        number(value, "lastTimestamp", 0),
    )


def decode_running_queues(body: bytes | memoryview) -> tuple[MessageQueue, ...]:
    """The queues that a consumer has, in its answer to GET_CONSUMER_RUNNING_INFO.

    Raises:
        RemoteProtocolError: it is something else.
    """
    return tuple(decode_queue(key) for key, _ in pairs(json_object(body).get("mqTable") or {}))


def decode_settings(body: bytes | memoryview) -> dict[str, str]:
    """Settings by name, as servers write their configuration: one ``name=value`` a line."""
    found: dict[str, str] = {}
    for line in str(body, "utf-8", "replace").splitlines():
        name, mark, value = line.partition("=")
        if mark and name.strip() and not name.startswith("#"):
            found[name.strip()] = value.strip()
    return found


def encode_settings(settings: Mapping[str, str]) -> bytes:
    r"""The body of UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG.

    Java reads it as a properties file, where a backslash and some marks mean something else.

    >>> encode_settings({"brokerPermission": "4", "storePath": "C:\\x"}).decode().splitlines()
    ['brokerPermission=4', 'storePath=C:\\\\x']
    """
    lines = [f"{name}={value}" for name, value in settings.items()]
    return "".join(line.replace("\\", "\\\\") + "\n" for line in lines).encode()
