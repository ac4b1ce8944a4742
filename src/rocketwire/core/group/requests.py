"""What brokers, and operators through them, ask of a member of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketwire.core.group.direct import handle_directly
from rocketwire.core.group.membership import Group, log
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.group.pull_loop import go_on_at
from rocketwire.core.later_answer import LaterAnswer
from rocketwire.core.naming import without_namespace
from rocketwire.log_fields import about
from rocketwire.message import MessageQueue
from rocketwire.wire.broker_requests import decode_group_changed, decode_reset_offsets
from rocketwire.wire.client_bodies import queue_json
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.lenient_json import Pairs, dumps


def answer(group: Group, command: Command) -> Command | LaterAnswer | None:
    """The answer to a broker's request, or None where it wants none."""
    handler = _HANDLERS.get(command.code)
    if handler is None:
        remark = f"request type {command.code} not supported"
        return Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
    return handler(group, command)


def _group_changed(group: Group, command: Command) -> None:
    """A member came or went: share the queues anew, at once."""
    if decode_group_changed(command.ext) == group.wire_name:
        log.debug("%s: the group has changed", group.name, extra=about(group=group.name))
        group.rebalance_wake_up.wake()


def _reset_offsets(group: Group, command: Command) -> None:
    """An operator moved the group: go on from the new offsets."""
    reset = decode_reset_offsets(command.ext, command.body)
    if reset.group != group.wire_name:
        return
    for wire_queue, offset in reset.offsets.items():
        queue = _displayed(group, wire_queue)
        held = group.queues.get(queue)
        if held is not None:
            log.warning(
                "%s: an operator moved the group to offset %d",
                queue,
                offset,
                extra=about(group=group.name, offset=offset),
            )
            go_on_at(group, held, offset)


def _status(group: Group, command: Command) -> Command:
    """How far we are in each queue of a topic."""
    topic = command.ext.get("topic")
    own = [h for h in group.queues.values() if topic in {None, group.wire_topic(h.queue.topic)}]
    table = Pairs()
    for queue, offset in group.floors(own).items():
        table.append((queue_json(group.on_wire(queue)), offset))
    body = dumps({"consumerTable": {}, "messageQueueTable": table}, standard=False)
    return Command(ResponseCode.SUCCESS, body=body)


def _running_info(group: Group, command: Command) -> Command:
    """What an operator's tools show of a member."""
    if command.ext.get("consumerGroup") not in {None, group.wire_name}:
        remark = f"this client is no member of {command.ext['consumerGroup']}"
        return Command(ResponseCode.SYSTEM_ERROR, remark=remark)
    queues, positions = Pairs(), group.floors(group.queues.values())
    for held in list(group.queues.values()):
        info = _queue_info(group, held, positions[held.queue])
        queues.append((queue_json(group.on_wire(held.queue)), info))
    data = group.data()
    body: dict[str, Any] = {
        "mqTable": queues,
        "properties": {
            "PROP_CLIENT_VERSION": "rocketwire",
            "PROP_CONSUMEORDERLY": "true" if group.config.ordered else "false",
            "PROP_CONSUME_TYPE": data.consume_type,
            "PROP_CONSUMER_START_TIMESTAMP": str(group.version),
            "PROP_NAMESERVER_ADDR": ";".join(group.instance.name_servers),
            "PROP_THREADPOOL_CORE_SIZE": str(group.config.workers),
            "consumerGroup": data.group,
            "messageModel": data.message_model,
        },
        "statusTable": {},
        "subscriptionSet": [item.as_json() for item in data.subscriptions],
        "userConsumerInfo": {},
    }
    return Command(ResponseCode.SUCCESS, body=dumps(body, standard=False))


def _queue_info(group: Group, held: ProcessQueue, position: int) -> dict[str, Any]:
    now, wall_ms = group.instance.clock(), int(group.instance.wall() * 1000)
    is_locked = group.needs_locks and held.locked_until > now
    return {
        "cachedMsgCount": held.held,
        "cachedMsgMaxOffset": held.next_offset - 1,
        "cachedMsgMinOffset": position,
        "cachedMsgSizeInMiB": held.held_bytes // (1024 * 1024),
        "commitOffset": position,
        "droped": held.is_dropped,
        "lastConsumeTimestamp": wall_ms,
        "lastLockTimestamp": wall_ms if is_locked else 0,
        "lastPullTimestamp": wall_ms,
        "locked": is_locked,
        "transactionMsgCount": 0,
        "tryUnlockTimes": 0,
    }


def _displayed(group: Group, queue: MessageQueue) -> MessageQueue:
    return queue._replace(topic=without_namespace(queue.topic, group.config.namespace))


_HANDLERS: dict[int, Callable[[Group, Command], Command | LaterAnswer | None]] = {
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: _group_changed,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _reset_offsets,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _status,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: handle_directly,
}
