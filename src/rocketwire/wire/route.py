"""Where a topic lives: what a name server says, and the queues that follow from it.

Which queues exist and in which order is decided here, exactly as Java decides it, because a
sharding key must lead to the same queue from any language. Which of them to use is decided by
``core/faults/selection.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import Permission
from rocketwire.wire.lenient_json import dumps, loads, shown

MASTER_ID: Final = 0
#: Java takes any number; a name server that is not one could name two thousand million queues.
MAX_QUEUES_PER_BROKER: Final = 65536
MAX_QUEUES: Final = 1 << 20
#: The route of twenty thousand brokers; a client may read it on its event loop.
MAX_ROUTE_SIZE: Final = 4 * 1024 * 1024

_LOGICAL: Final = "__syslo__"
_GLOBAL_SCOPE: Final = "__global__"
#: The owner of a logical queue that no broker claims.
NO_OWNER: Final = "__syslo__none__"


class QueueData(NamedTuple):
    """How many queues of the topic one broker has, and what may be done with them."""

    broker: str
    read_queues: int
    write_queues: int
    permission: int
    system_flag: int = 0


class BrokerData(NamedTuple):
    """The addresses of one broker's replicas by id; 0 is the master."""

    cluster: str
    broker: str
    addresses: dict[int, str]
    zone: str | None = None
    acting_master: bool = False

    @property
    def master(self) -> str | None:
        """The master's address, if there is a master."""
        return self.addresses.get(MASTER_ID)

    def __hash__(self) -> int:
        return hash((self.cluster, self.broker, frozenset(self.addresses.items())))


class QueueMapping(NamedTuple):
    """What one broker owns of a static topic: logical queue ids to its own."""

    topic: str
    scope: str
    total_queues: int
    broker: str
    epoch: int
    current: dict[int, int]

    def __hash__(self) -> int:
        return hash((self.topic, self.scope, self.broker, self.epoch))


@dataclass(frozen=True, slots=True, eq=False)
class TopicRoute:
    """All that a name server knows of a topic. Equal to another whatever the order within."""

    queues: tuple[QueueData, ...]
    brokers: tuple[BrokerData, ...]
    order_conf: str | None = None
    mappings: dict[str, QueueMapping] = field(default_factory=dict)

    def _state(self) -> tuple[object, ...]:
        # Counted, not sorted: a sort key must name every field to be sure of the order.
        return (Counter(self.queues), Counter(self.brokers), self.order_conf, self.mappings)

    def __eq__(self, other: object) -> bool:
        if type(other) is not TopicRoute:
            return NotImplemented
        return self._state() == other._state()

    def __hash__(self) -> int:
        return hash((frozenset(self.queues), frozenset(self.brokers), self.order_conf))

    def broker(self, name: str) -> BrokerData | None:
        """The first entry for a broker, which is the one that Java uses."""
        return next((data for data in self.brokers if data.broker == name), None)


def java_order(text: str) -> bytes:
    """A sort key that orders text as Java does: by UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def publish_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """The queues that take messages, in Java's order.

    An ordered-topic configuration names them itself; a static topic has logical queues; otherwise
    they are those of every broker that may be written to and has a master.

    Raises:
        RemoteProtocolError: the configuration makes no sense, or there are absurdly many queues.
    """
    if route.order_conf:
        return _bounded(topic, _ordered_queues(topic, route.order_conf))
    if route.order_conf is None and route.mappings:
        return tuple(static_owners(topic, route))
    # Of several entries for one broker the first counts, so it is written last here.
    masters = {data.broker: data.master for data in reversed(route.brokers)}
    return _bounded(
        topic,
        [
            (data.broker, data.write_queues)
            for data in sorted(route.queues, key=lambda data: java_order(data.broker))
            if data.permission & Permission.WRITE and masters.get(data.broker)
        ],
    )


def subscribe_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """The queues that can be read, in Java's order; they need no master."""
    if route.mappings:
        return tuple(static_owners(topic, route))
    return _bounded(
        topic,
        [
            (data.broker, data.read_queues)
            for data in sorted(route.queues, key=lambda data: java_order(data.broker))
            if data.permission & Permission.READ
        ],
    )


def _bounded(topic: str, counts: list[tuple[str, int]]) -> tuple[MessageQueue, ...]:
    _check_total(topic, sum(number for _, number in counts))
    return tuple(
        MessageQueue(topic, broker, index) for broker, number in counts for index in range(number)
    )


def _check_total(topic: str, total: int) -> None:
    if total > MAX_QUEUES:
        raise RemoteProtocolError(
            f"the route of {topic!r} has {total} queues, at most {MAX_QUEUES} are believed"
        )


def _ordered_queues(topic: str, text: str) -> list[tuple[str, int]]:
    counts = []
    for item in filter(None, text.split(";")):
        broker, _, number = item.rpartition(":")
        sound = number.isdecimal() and len(number) < 10 and int(number) <= MAX_QUEUES_PER_BROKER
        if not broker or not sound:
            raise RemoteProtocolError(
                f"the ordered-topic configuration of {topic!r} has {item[:80]!r} in it: "
                "broker:queues;broker:queues is expected"
            )
        counts.append((broker, int(number)))
    return counts


def static_owners(topic: str, route: TopicRoute) -> dict[MessageQueue, str]:
    """The logical queues of a static topic in order, and the broker that owns each now.

    Of several claims to a queue the one with the highest epoch holds. A queue without any owner
    belongs to :data:`NO_OWNER`.
    """
    claims: dict[MessageQueue, tuple[int, str]] = {}
    totals: dict[str, tuple[int, int]] = {}
    for broker, mapping in route.mappings.items():
        logical = _logical_broker(mapping.scope)
        totals[logical] = max(totals.get(logical, (-1, 0)), (mapping.epoch, mapping.total_queues))
        for index in mapping.current:
            queue = MessageQueue(topic, logical, index)
            if queue not in claims or claims[queue][0] <= mapping.epoch:
                claims[queue] = (mapping.epoch, broker)
    _check_total(topic, sum(total for _, total in totals.values()))
    for logical, (_, total) in totals.items():
        for index in range(total):
            claims.setdefault(MessageQueue(topic, logical, index), (-1, NO_OWNER))
    ordered = sorted(claims, key=lambda queue: (queue.id, java_order(queue.broker)))
    return {queue: claims[queue][1] for queue in ordered}


def _logical_broker(scope: str) -> str:
    return _LOGICAL + (scope[2:] if scope == _GLOBAL_SCOPE else scope)


def decode_route(body: bytes | memoryview) -> TopicRoute:
    """The route in a name server's answer, in JSON of either dialect.

    Raises:
        RemoteProtocolError: it is not a route; the text names the field.
    """
    data = _object(loads(body, limit=MAX_ROUTE_SIZE), "the route")
    order_conf = data.get("orderTopicConf")
    mappings = _object(data.get("topicQueueMappingByBroker") or {}, "topicQueueMappingByBroker")
    return TopicRoute(
        tuple(_queue_data(item) for item in _array(data, "queueDatas")),
        tuple(_broker_data(item) for item in _array(data, "brokerDatas")),
        None if order_conf is None else _text(data, "orderTopicConf"),
        {_checked(name, "broker"): _mapping(item) for name, item in mappings.items()},
    )


def _queue_data(item: Any) -> QueueData:
    data = _object(item, "queueDatas")
    # Before 4.3 the name was misspelt.
    flag = "topicSysFlag" if "topicSysFlag" in data else "topicSynFlag"
    return QueueData(
        _text(data, "brokerName"),
        _number(data, "readQueueNums", MAX_QUEUES_PER_BROKER),
        _number(data, "writeQueueNums", MAX_QUEUES_PER_BROKER),
        _number(data, "perm", 0xFFFF),
        _number(data, flag, 2**31 - 1) if flag in data else 0,
    )


def _broker_data(item: Any) -> BrokerData:
    data = _object(item, "brokerDatas")
    addresses = _object(data.get("brokerAddrs") or {}, "brokerAddrs")
    return BrokerData(
        _text(data, "cluster") if data.get("cluster") is not None else "",
        _text(data, "brokerName"),
        {_id(name): _checked(address, "brokerAddrs") for name, address in addresses.items()},
        None if data.get("zoneName") is None else _text(data, "zoneName"),
        data.get("enableActingMaster") is True,
    )


def _mapping(item: Any) -> QueueMapping:
    data = _object(item, "topicQueueMappingByBroker")
    current = _object(data.get("currIdMap") or {}, "currIdMap")
    return QueueMapping(
        _text(data, "topic") if data.get("topic") is not None else "",
        _text(data, "scope") if data.get("scope") is not None else _GLOBAL_SCOPE,
        _number(data, "totalQueues", MAX_QUEUES_PER_BROKER),
        _text(data, "bname"),
        _number(data, "epoch", 2**63 - 1),
        {
            _id(name, MAX_QUEUES_PER_BROKER): _number(current, name, MAX_QUEUES_PER_BROKER)
            for name in current
        },
    )


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"{name} of a route is not a JSON object")
    return value


def _array(data: Mapping[str, Any], name: str) -> list[Any]:
    value = data.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise RemoteProtocolError(f"{name} of a route is not a JSON array")
    return value


def _text(data: Mapping[str, Any], name: str) -> str:
    return _checked(data.get(name), name)


def _checked(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise RemoteProtocolError(f"{name} of a route is missing or not text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RemoteProtocolError(f"{name} of a route has half a character in it") from None
    return value


def _number(data: Mapping[str, Any], name: str, limit: int) -> int:
    value = data.get(name)
    if type(value) is not int or not 0 <= value <= limit:
        raise RemoteProtocolError(f"{name} of a route is {shown(value)}: 0 to {limit} expected")
    return value


def _id(text: str, limit: int = 2**63 - 1) -> int:
    # At most 19 digits fit into the int64 that a broker id is.
    if not (text.isascii() and text.isdecimal() and len(text) <= 19) or int(text) > limit:
        raise RemoteProtocolError(f"key {text[:40]!r} in a route is not a number up to {limit}")
    return int(text)


def encode_route(route: TopicRoute, *, standard: bool) -> bytes:
    """The route as a name server writes it.

    Args:
        route: what to write.
        standard: true for a request of version 401 or higher, or one that asks for standard JSON;
            others expect broker ids as bare keys, and Go's client expects no blank anywhere.
    """
    data: dict[str, Any] = {
        "brokerDatas": [_broker_json(item) for item in route.brokers],
        "filterServerTable": {},
    }
    if route.order_conf is not None:
        data["orderTopicConf"] = route.order_conf
    data["queueDatas"] = [
        {
            "brokerName": item.broker,
            "perm": item.permission,
            "readQueueNums": item.read_queues,
            "topicSysFlag": item.system_flag,
            "writeQueueNums": item.write_queues,
        }
        for item in route.queues
    ]
    if route.mappings:
        data["topicQueueMappingByBroker"] = {
            name: _mapping_json(item) for name, item in route.mappings.items()
        }
    return dumps(data, standard=standard)


def _broker_json(item: BrokerData) -> dict[str, Any]:
    data: dict[str, Any] = {
        "brokerAddrs": item.addresses,
        "brokerName": item.broker,
        "cluster": item.cluster,
        "enableActingMaster": item.acting_master,
    }
    if item.zone is not None:
        data["zoneName"] = item.zone
    return data


def _mapping_json(item: QueueMapping) -> dict[str, Any]:
    return {
        "bname": item.broker,
        "currIdMap": item.current,
        "dirty": False,
        "epoch": item.epoch,
        "scope": item.scope,
        "topic": item.topic,
        "totalQueues": item.total_queues,
    }


class ClusterInfo(NamedTuple):
    """All brokers that a name server knows, and which cluster has which."""

    brokers: dict[str, BrokerData]
    clusters: dict[str, tuple[str, ...]]


def decode_cluster_info(body: bytes | memoryview) -> ClusterInfo:
    """A name server's answer to a question for its clusters.

    Raises:
        RemoteProtocolError: it is something else.
    """
    data = _object(loads(body), "cluster info")
    brokers = _object(data.get("brokerAddrTable") or {}, "brokerAddrTable")
    clusters = _object(data.get("clusterAddrTable") or {}, "clusterAddrTable")
    return ClusterInfo(
        {_checked(name, "brokerAddrTable"): _broker_data(item) for name, item in brokers.items()},
        {
            _checked(name, "clusterAddrTable"): tuple(
                _checked(item, "clusterAddrTable") for item in _array(clusters, name)
            )
            for name in clusters
        },
    )


def encode_cluster_info(info: ClusterInfo) -> bytes:
    """The answer as every name server writes it: never in standard JSON."""
    return dumps(
        {
            "brokerAddrTable": {name: _broker_json(item) for name, item in info.brokers.items()},
            "clusterAddrTable": {name: list(names) for name, names in info.clusters.items()},
        },
        standard=False,
    )
