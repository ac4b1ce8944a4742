"""JSON bodies that operators' requests and their answers carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rocketwire.errors import RemoteProtocolError
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
