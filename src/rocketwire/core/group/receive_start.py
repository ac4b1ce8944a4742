"""Where a group of simple consumers begins, and which brokers are left alone for a while.

One broker that can't be reached must not keep a member from the others: it is seen to later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.naming import with_namespace
from rocketwire.core.reading.pull import ask_queue, fetch, max_offset, offset_for_time, read_queues
from rocketwire.core.reading.sql_check import check_sql
from rocketwire.errors import (
    BrokerError,
    RocketMQError,
    ServiceNotAvailableError,
    SystemBusyError,
    TransportError,
)
from rocketwire.message import MessageQueue
from rocketwire.wire import headers
from rocketwire.wire.client_bodies import Subscription
from rocketwire.wire.codes import RequestCode, ResponseCode

#: Seconds for which a broker that could not be reached is left alone, first and at most.
_FIRST_REST: Final = 1.0
_LONGEST_REST: Final = 30.0
#: What says of a broker, and not of what was asked, that it can't answer now.
UNWELL: Final = (TransportError, ServiceNotAvailableError, SystemBusyError)


class ReceivePlace(NamedTuple):
    """A broker, and a topic of it, of which messages are received."""

    topic: str
    broker: str


@dataclass(slots=True)
class _Rest:
    """A broker that could not be reached."""

    until: float
    length: float


class Rests:
    """The brokers that could not be reached, each left alone for longer with every failure."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._rests: dict[str, _Rest] = {}

    def begin(self, broker: str) -> None:
        """One could not be reached."""
        known = self._rests.get(broker)
        length = _FIRST_REST if known is None else min(known.length * 2, _LONGEST_REST)
        self._rests[broker] = _Rest(self._instance.clock() + length, length)
        self._instance.route_wake_up.wake()

    def end(self, broker: str) -> None:
        """One has answered."""
        self._rests.pop(broker, None)

    def awake(self, places: Sequence[ReceivePlace]) -> list[ReceivePlace]:
        """Those that are not left alone just now."""
        now = self._instance.clock()
        return [
            p for p in places if p.broker not in self._rests or self._rests[p.broker].until <= now
        ]


class Beginnings:
    """Sets where a new group begins in each topic, on every broker that the topic has at first.

    A broker that comes into the route later is none of these: its queues begin at their first
    message, because it may have had some before it was seen.

    Args:
        instance: the client instance.
        group: the consumer group, as users know it.
        start: where a new group begins: ``earliest``, ``latest``, or a moment.
        rests: the brokers that are left alone.
    """

    def __init__(self, instance: Instance, group: str, start: str | float, rests: Rests) -> None:
        self._instance = instance
        self._group = group
        self._start = start
        self._rests = rests
        #: The brokers of each topic on which it is not set yet.
        self._unset: dict[str, set[str]] = {}
        #: When each topic was first looked at.
        self._since: dict[str, float] = {}
        #: Where it could not be set at first.
        self._late: set[ReceivePlace] = set()

    def forget(self, topic: str) -> None:
        """A caller wants something else of a topic: look at it again."""
        self._unset.pop(topic, None)

    def is_over(self, topic: str) -> bool:
        """Whether nothing is left to do for a topic."""
        return self._unset.get(topic) == set()

    def is_set(self, place: ReceivePlace) -> bool:
        """Whether messages may be asked for there."""
        return place.broker not in self._unset.get(place.topic, ())

    def prepare(self, subscription: Subscription) -> Op[None]:
        """Check what is wanted of a topic, and set where the group begins there.

        Raises:
            TopicNotFoundError: the topic is unknown.
            ConfigError: a broker can't read the expression.
            RocketMQError: no broker of the topic can be reached.
        """
        instance, topic = self._instance, subscription.topic
        deadline = instance.clock() + instance.config.request_timeout
        queues = yield from read_queues(instance, topic, deadline)
        brokers = {queue.broker for queue in queues}
        if topic not in self._unset:
            if subscription.kind != "TAG":
                yield from check_sql(instance, self._group, subscription, deadline)
            self._since.setdefault(topic, instance.wall())
            self._unset[topic] = set() if self._start == "earliest" else brokers.copy()
        unset = self._unset[topic]
        unset &= brokers
        places = [ReceivePlace(topic, broker) for broker in sorted(unset)]
        failures: list[RocketMQError] = []
        for place in self._rests.awake(places) or (places if unset == brokers else ()):
            try:
                yield from self._begin_at(place, queues)
            except UNWELL as error:
                failures.append(error)
                self._late.add(place)
                self._rests.begin(place.broker)
            else:
                unset.discard(place.broker)
        if unset == brokers and failures:
            raise failures[0]

    def _begin_at(self, place: ReceivePlace, queues: Sequence[MessageQueue]) -> Op[None]:
        start = self._start
        if start == "latest" and place in self._late:
            # What it has stored since the first try must not be skipped.
            start = self._since[place.topic]
        for queue in queues:
            if queue.broker == place.broker:
                yield from self._begin(queue, start)

    def _begin(self, queue: MessageQueue, start: str | float) -> Op[None]:
        """Set where a group begins that has no offset; brokers would begin anywhere."""
        instance = self._instance
        deadline = instance.clock() + instance.config.request_timeout
        # Asked first: what comes in between must not be skipped.
        if isinstance(start, str):
            begin = yield from max_offset(instance, queue, deadline)
        else:
            begin = yield from offset_for_time(instance, queue, start, self._group, deadline)
        if (yield from self._has_offset(queue, deadline)):
            return
        # A pull makes the group known; brokers take no offset of one that they don't know.
        yield from fetch(
            instance, queue, begin, group=self._group, max_messages=1, deadline=deadline
        )
        # Another member may begin at the same time: what it has set must stand.
        if not (yield from self._has_offset(queue, deadline)):
            topic, group = self._wired(queue.topic), self._wired(self._group)
            fields = headers.update_consumer_offset(
                group, topic, queue.id, begin, broker=queue.broker
            )
            code = RequestCode.UPDATE_CONSUMER_OFFSET
            yield from ask_queue(instance, queue, code, fields, deadline)

    def _has_offset(self, queue: MessageQueue, deadline: float) -> Op[bool]:
        topic, group = self._wired(queue.topic), self._wired(self._group)
        fields = headers.query_consumer_offset(
            group, topic, queue.id, zero_if_not_found=False, broker=queue.broker
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        try:
            yield from ask_queue(self._instance, queue, code, fields, deadline)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return False
            raise
        return True

    def _wired(self, name: str) -> str:
        return with_namespace(name, self._instance.config.namespace)
