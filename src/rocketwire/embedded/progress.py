"""Whether a consumer group has anything left to do.

Members commit every few seconds only. So they are asked how far they are, as operators' tools ask
them; where a member is gone, what it committed counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from rocketwire.embedded.topics import DEAD_LETTER_PREFIX
from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import JSON, Command
from rocketwire.wire.lenient_json import MAX_SIZE, loads, pairs

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker
    from rocketwire.embedded.consumers import ConsumerGroup, Member

#: Seconds between two looks, and for which a member may think about its answer.
_LOOK: Final = 0.02
_PATIENCE: Final = 2.0

Work = Callable[[Sequence["Broker"]], Awaitable[list[str]]]


def wait_idle(run: Callable[[Work], Any], group: str, timeout: float) -> None:
    """Wait until a group is idle on all brokers.

    Args:
        run: calls a coroutine function with the brokers, where they live.
        group: its name.
        timeout: seconds.

    Raises:
        TimeoutError: it is not.
    """
    deadline = time.monotonic() + timeout
    while behind := run(lambda brokers: _behind(brokers, group)):
        if time.monotonic() >= deadline:
            what = "; ".join(sorted(behind)[:8])
            raise TimeoutError(f"group {group!r} is not idle after {timeout:g} s: {what}")
        time.sleep(_LOOK)


async def _behind(brokers: Sequence[Broker], group: str) -> list[str]:
    """What a group has not handled yet, in words; empty when it is idle."""
    running = [broker for broker in brokers if broker.running]
    topics = {topic for broker in running for topic in _topics(broker, group)}
    if not topics:
        return ["it has no member and has committed nothing: start a consumer of this group"]
    found: list[str] = []
    for broker in running:
        found += await _behind_on(broker, group, sorted(topics))
    return found


def _topics(broker: Broker, group: str) -> set[str]:
    """What it reads, or has read. Its place in its own dead letters is where they were purged."""
    live = broker.clients.consumers.get(group)
    read = set(broker.offsets.topics_of(group)) - {DEAD_LETTER_PREFIX + group}
    return {*read, *(live.subscriptions if live is not None else ())}


async def _behind_on(broker: Broker, group: str, topics: Sequence[str]) -> list[str]:
    live = broker.clients.consumers.get(group)
    if live is not None and live.message_model == "BROADCASTING":
        return ["its members are broadcasting, and only they know how far they are"]
    found = []
    for topic in topics:
        waiting = _waiting(broker, group, topic)
        if waiting and live is not None:
            told = await _ask(live, group, topic)
            waiting = {
                queue_id: (offset, end)
                for queue_id, (offset, end) in waiting.items()
                if told.get((broker.name, queue_id), -1) < end
            }
        found += [
            f"{broker.name} {topic}[{queue_id}] at {offset} of {end}"
            for queue_id, (offset, end) in waiting.items()
        ]
    return found


def _waiting(broker: Broker, group: str, topic: str) -> dict[int, tuple[int | None, int]]:
    """Queues with more in them than was committed: offset and end by queue."""
    config = broker.topics.get(topic)
    found: dict[int, tuple[int | None, int]] = {}
    for queue_id in range(config.read_queues if config is not None else 0):
        queue = broker.store.queues.get(topic, queue_id)
        committed = broker.offsets.get(group, topic, queue_id)
        if queue is not None and queue.maximum > max(committed or 0, queue.minimum):
            found[queue_id] = committed, queue.maximum
    return found


async def _ask(live: ConsumerGroup, group: str, topic: str) -> dict[tuple[str, int], int]:
    """How far the members say that they are, by broker and queue."""
    replies = await asyncio.gather(
        *(_ask_one(member, group, topic) for member in live.members.values())
    )
    return {queue: offset for reply in replies for queue, offset in reply.items()}


async def _ask_one(member: Member, group: str, topic: str) -> dict[tuple[str, int], int]:
    command = Command(
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"group": group, "topic": topic}, header=JSON
    )
    future = member.connection.invoke(command)
    try:
        async with asyncio.timeout(_PATIENCE):
            reply = await future
    except TimeoutError:
        member.connection.forget(command.opaque)
        return {}
    except asyncio.CancelledError:
        if future.cancelled():
            # The connection was lost, and the member with it.
            return {}
        raise
    return _offsets(reply.body) if reply.code == ResponseCode.SUCCESS else {}


def _offsets(body: bytes | memoryview) -> dict[tuple[str, int], int]:
    try:
        data = loads(body, tolerant_limit=MAX_SIZE)
        table = pairs(data.get("messageQueueTable") or {}) if isinstance(data, dict) else []
    except RemoteProtocolError:
        return {}
    return {
        (str(queue.get("brokerName")), int(queue["queueId"])): offset
        for queue, offset in table
        if isinstance(queue, dict) and type(queue.get("queueId")) is int and type(offset) is int
    }
