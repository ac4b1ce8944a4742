"""The state of one membership in a consumer group, shared by the operations that keep it up.

What is decided from it lies elsewhere: ``rebalance`` shares queues, ``pull_loop`` fills them,
``workload`` empties them, ``group_offsets`` remembers how far, ``queue_locks`` keeps order across
members. The shell says how an operation is run beside the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.effects import Event, Op
from rocketwire.core.group.allocation import allocation_named
from rocketwire.core.group.pauses import Pauses
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.group.stats import ConsumerCounters
from rocketwire.core.group.trace import ConsumeTracer
from rocketwire.core.group.workload import Workload
from rocketwire.core.instance import Instance
from rocketwire.core.naming import RETRY_PREFIX, with_namespace
from rocketwire.core.reading.pull import ALL, TagFilter
from rocketwire.core.wake_up import WakeUp
from rocketwire.errors import PermissionDeniedError
from rocketwire.hooks import HookSet
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.headers import ConsumerData, Subscription

log = logging.getLogger("rocketwire.consumer")

#: Runs an operation beside all others.
Start: TypeAlias = Callable[[Op[None]], object]


#: Calls the handler with a message, and with what came of it a function, on the membership's thread.
CallHandler: TypeAlias = Callable[[StoredMessage, Callable[[object], None]], None]


class LocalOffsets(Protocol):
    """Where a broadcasting member keeps how far it has come."""

    def get(self, queue: MessageQueue) -> int | None:
        """The offset to go on at, if any was kept."""

    def knows(self, topic: str) -> bool:
        """Whether an offset of any queue of a topic was kept."""

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Keep these, and those that were kept before of other queues."""


def _not_started(_: Op[None]) -> None:
    raise RuntimeError("no shell runs this group's operations yet")


class Group:
    """One member of one group: its subscriptions and the queues that are its own.

    Args:
        instance: the client instance.
        config: the consumer's settings.
        workload: what handlers take their messages from.
        hooks: what is told.
        local: where offsets are kept when broadcasting.
        pauses: what the program has paused.
    """

    def __init__(
        self,
        instance: Instance,
        config: ConsumerConfig,
        workload: Workload,
        hooks: HookSet,
        local: LocalOffsets | None = None,
        pauses: Pauses | None = None,
    ) -> None:
        self.instance = instance
        self.config = config
        self.workload = workload
        self.hooks = hooks
        self.local = local
        self.pauses = pauses or Pauses()
        self.name = config.group
        self.wire_name = with_namespace(config.group, config.namespace)
        self.retry_topic = RETRY_PREFIX + config.group
        self.allocate = allocation_named(config.allocation)
        self.counters = ConsumerCounters()
        self.tracer = ConsumeTracer(instance, config) if config.trace else None
        self.subscriptions: dict[str, TagFilter] = {}
        self.version = 0
        #: Our queues, and those that are on their way out.
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        self.releasing: dict[MessageQueue, ProcessQueue] = {}
        self.rebalance_wake_up = self.make_wake_up()
        self.heartbeat_wake_up = self.make_wake_up()
        self.commit_wake_up = self.make_wake_up()
        self.lock_wake_up = self.make_wake_up()
        #: Topics and brokers to which an offset was written, or (not set yet) is being.
        self.first_writes: dict[tuple[str, str], Event] = {}
        #: When an address was last found unreachable.
        self.failed_at: dict[str, float] = {}
        #: Brokers that do not take us for a member, by address, and what they said.
        self.denied: dict[str, PermissionDeniedError] = {}
        #: Versions of RocketMQ by address, as answers to heartbeats tell them.
        self.versions: dict[str, int] = {}
        #: Brokers of which it was said that they have no timed messages.
        self.without_timers: set[str] = set()
        #: Set by the shell: for control traffic, and for pulls, which have connections of their own.
        self.start: Start = _not_started
        self.start_pulling: Start = _not_started
        #: Has a message handled beside the ordinary order; None while no handler runs.
        self.call_handler: CallHandler | None = None
        self.is_leaving = False

    def make_wake_up(self) -> WakeUp:
        """A wake-up with a lock of this process."""
        return WakeUp(self.instance.surroundings.make_lock())

    def subscribe(self, subscriptions: Mapping[str, TagFilter]) -> None:
        """What is wanted from now on; the retry topic is added by itself."""
        wanted = dict(subscriptions)
        if not self.config.broadcast:
            wanted[self.retry_topic] = ALL
        self.subscriptions = wanted
        self.version = max(self.version + 1, int(self.instance.wall() * 1000))
        self.apply_pauses()
        self.heartbeat_wake_up.wake()
        self.rebalance_wake_up.wake()

    def apply_pauses(self) -> None:
        """Hold back what is paused, and nothing else."""
        for held in list(self.queues.values()):
            self.apply_pause(held)

    def apply_pause(self, held: ProcessQueue) -> None:
        """Hold a queue back, if it is paused.

        Messages of several topics come through the retry topic: those of paused ones wait apart.
        """
        topics = self.pauses.topics
        if held.queue.topic == self.retry_topic:
            is_paused = bool(topics) and topics >= self.subscriptions.keys() - {self.retry_topic}
            self.workload.hold_back(held, topics, is_paused=is_paused)
        else:
            is_paused = self.pauses.hold(held.queue)
            self.workload.hold_back(held, frozenset(), is_paused=is_paused)

    def wire_topic(self, topic: str) -> str:
        """The name by which servers know a topic."""
        return with_namespace(topic, self.config.namespace)

    def on_wire(self, queue: MessageQueue) -> MessageQueue:
        """A queue as servers and Java members name it."""
        return queue._replace(topic=self.wire_topic(queue.topic))

    def data(self) -> ConsumerData:
        """What heartbeats tell of this group."""
        config = self.config
        from_where = {
            "earliest": "CONSUME_FROM_FIRST_OFFSET",
            "latest": "CONSUME_FROM_LAST_OFFSET",
        }.get(str(config.start), "CONSUME_FROM_TIMESTAMP")
        return ConsumerData(
            self.wire_name,
            [
                Subscription(self.wire_topic(topic), tags.expression, self.version, tags.kind)
                for topic, tags in sorted(self.subscriptions.items())
            ],
            message_model="BROADCASTING" if config.broadcast else "CLUSTERING",
            from_where=from_where,
        )

    def every_queue(self) -> list[ProcessQueue]:
        """Our queues and those that are still being given back."""
        return [*self.queues.values(), *self.releasing.values()]

    def floors(self, queues: Iterable[ProcessQueue]) -> dict[MessageQueue, int]:
        """How far queues are handled, without a gap."""
        return self.workload.floors(queues)

    @property
    def needs_locks(self) -> bool:
        """Whether queues are locked on the broker."""
        return self.config.ordered and not self.config.broadcast
