"""Consumer groups seen from outside: members, who has which queue, how far they are, resets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rocketwire.cli.admin import Inspector
from rocketwire.cli.failures import CommandFailedError
from rocketwire.errors import RocketMQError
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for
from rocketwire.wire.headers import update_consumer_offset
from rocketwire.wire.lenient_json import MAX_SIZE, loads, pairs

RETRY_PREFIX: Final = "%RETRY%"
_MEMBER_PATIENCE: Final = 3.0


@dataclass(frozen=True, slots=True)
class Member:
    """A client that belongs to a group."""

    client_id: str
    address: str
    language: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group is in one queue; ``owner`` is the client that has it, if it told."""

    queue: MessageQueue
    consumed: int
    end: int
    owner: str = ""

    @property
    def lag(self) -> int:
        """Messages that are not handled yet."""
        return max(0, self.end - self.consumed)


def find_members(admin: Inspector, group: str) -> list[Member]:
    """Who is connected, from all brokers."""
    found: dict[str, Member] = {}
    for address in _masters(admin).values():
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        reply = admin.try_asking(address, code, {"consumerGroup": group})
        if reply.code == ResponseCode.SUCCESS:
            for item in (
                loads(bytes(reply.body), tolerant_limit=MAX_SIZE).get("connectionSet") or ()
            ):
                client = str(item.get("clientId"))
                found[client] = Member(
                    client, str(item.get("clientAddr")), str(item.get("language"))
                )
    return [found[name] for name in sorted(found)]


def find_progress(admin: Inspector, group: str, topic: str | None = None) -> list[Progress]:
    """How far the group is, queue by queue.

    Raises:
        CommandFailedError: no broker knows the group.
    """
    found: list[Progress] = []
    for address in _masters(admin).values():
        fields = {"consumerGroup": group} | ({"topic": topic} if topic else {})
        reply = admin.try_asking(address, RequestCode.GET_CONSUME_STATS, fields)
        if reply.code == ResponseCode.SUCCESS:
            table = loads(bytes(reply.body), tolerant_limit=MAX_SIZE).get("offsetTable") or {}
            found += [_progress(key, value) for key, value in pairs(table)]
    if not found:
        raise CommandFailedError(
            f"no broker knows the group {group}: has a member of it ever run? "
            f"(rocketwire consume TOPIC --group {group})"
        )
    owners = _owners(admin, group)
    return [
        Progress(p.queue, p.consumed, p.end, owners.get(p.queue, ""))
        for p in sorted(found, key=lambda p: p.queue)
    ]


def _progress(key: dict[str, Any], value: dict[str, Any]) -> Progress:
    return Progress(_queue(key), int(value["consumerOffset"]), int(value["brokerOffset"]))


def _queue(key: dict[str, Any]) -> MessageQueue:
    return MessageQueue(str(key["topic"]), str(key["brokerName"]), int(key["queueId"]))


def _owners(admin: Inspector, group: str) -> dict[MessageQueue, str]:
    """Which member has which queue; members are asked through a broker, and may not answer."""
    found: dict[MessageQueue, str] = {}
    address = next(iter(_masters(admin).values()), None)
    for member in find_members(admin, group) if address is not None else ():
        fields = {"consumerGroup": group, "clientId": member.client_id, "jstackEnable": "false"}
        try:
            reply = admin.try_asking(
                str(address),
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                fields,
                timeout=_MEMBER_PATIENCE,
            )
        except RocketMQError:
            continue
        if reply.code == ResponseCode.SUCCESS:
            table = loads(bytes(reply.body), tolerant_limit=MAX_SIZE).get("mqTable") or {}
            found |= {_queue(key): member.client_id for key, _ in pairs(table)}
    return found


def plan_reset(
    admin: Inspector, progress: list[Progress], moment_ms: int | None
) -> dict[Progress, int]:
    """Where each queue would stand; ``moment_ms`` None means the end, 0 the beginning."""
    found: dict[Progress, int] = {}
    for item in progress:
        if moment_ms is None:
            found[item] = admin.max_offset(item.queue)
        elif moment_ms == 0:
            found[item] = admin.min_offset(item.queue)
        else:
            found[item] = admin.offset_for_time(item.queue, moment_ms / 1000)
    return found


def reset(admin: Inspector, group: str, plan: dict[Progress, int], moment_ms: int | None) -> None:
    """Move a group. Its members are told; without any, the offsets are written.

    Raises:
        BrokerError: a broker refused.
    """
    masters = _masters(admin)
    places = {(item.queue.topic, item.queue.broker) for item in plan}
    for topic, broker in sorted(places):
        fields = {
            "topic": topic,
            "group": group,
            "timestamp": str(-1 if moment_ms is None else moment_ms),
            "isForce": "true",
        }
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        reply = admin.try_asking(masters[broker], code, fields)
        if reply.code == ResponseCode.CONSUMER_NOT_ONLINE:
            own = {i: o for i, o in plan.items() if i.queue[:2] == (topic, broker)}
            _write(admin, group, masters[broker], own)
        elif reply.code != ResponseCode.SUCCESS:
            raise error_for(reply.code, reply.remark, broker)


def _write(admin: Inspector, group: str, address: str, plan: dict[Progress, int]) -> None:
    for item, offset in plan.items():
        fields = update_consumer_offset(group, item.queue.topic, item.queue.id, offset)
        admin.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)


def _masters(admin: Inspector) -> dict[str, str]:
    return {
        name: admin.translate(data.master)
        for name, data in sorted(admin.clusters().brokers.items())
        if data.master
    }
