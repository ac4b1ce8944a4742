"""What a consumer shows of itself: its queues, its numbers, how far it is behind."""

from __future__ import annotations

from rocketwire.core.effects import Op
from rocketwire.core.group.membership import Group
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.group.stats import ConsumerStats, QueueState
from rocketwire.core.reading.pull import max_offset
from rocketwire.message import MessageQueue


def assignment(group: Group) -> tuple[MessageQueue, ...]:
    """Our queues, without those of the retry topic."""
    return tuple(sorted(q for q in list(group.queues) if q.topic != group.retry_topic))


def stats(group: Group) -> ConsumerStats:
    """Counters, and each queue as it stands."""
    workload = group.workload
    every = group.every_queue()
    positions = group.floors(every)
    return group.counters.snapshot(
        group=group.name,
        handled=workload.handled,
        held=workload.held,
        held_bytes=workload.held_bytes,
        in_hand=workload.in_hand,
        trace_dropped=0 if group.tracer is None else group.tracer.dropped,
        queues=tuple(
            sorted(
                (_state(group, held, positions[held.queue]) for held in every),
                key=lambda state: state.queue,
            )
        ),
    )


def _state(group: Group, held: ProcessQueue, position: int) -> QueueState:
    return QueueState(
        queue=held.queue,
        handled=position,
        committed=held.committed,
        end=max(held.end, position),
        held=held.held,
        held_bytes=held.held_bytes,
        in_hand=held.in_hand,
        state=_word(group, held),
    )


def _word(group: Group, held: ProcessQueue) -> str:
    now = group.instance.clock()
    if held.is_dropped:
        return "leaving"
    if group.needs_locks and now >= held.locked_until:
        return "unlocked"
    if now < held.resume_at:
        return "resting"
    return "paused" if held.is_paused or held.is_full else "running"


def lag(group: Group, deadline: float) -> Op[dict[MessageQueue, int]]:
    """How many offsets of each of our queues are not handled yet, as brokers know now.

    Raises:
        TransportError: a broker could not be reached.
    """
    found: dict[MessageQueue, int] = {}
    for queue, held in sorted(group.queues.items()):
        end = yield from max_offset(group.instance, queue, deadline)
        found[queue] = max(0, end - group.floors((held,))[queue])
    return found
