"""The queues of a topic, and whether brokers are missing that the topic is known to have.

A broker that died leaves the route, and a read that believed the route would return less in silence.
Within one client it is known which brokers a topic had minutes ago; the topic's order configuration
names them, too; and the user can say which there are, which beats both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import refresh_topic
from rocketwire.core.naming import with_namespace
from rocketwire.core.reading.pull import read_queues
from rocketwire.errors import ConfigError, MissingQueuesError
from rocketwire.message import MessageQueue
from rocketwire.wire.route import publish_queues

#: Names of brokers, or how many there are.
Expected: TypeAlias = Sequence[str] | int

#: Seconds after which a broker that was not seen again is forgotten.
KEPT_FOR: Final = 600.0
_ALL_QUEUES: Final = -1


def check_expected(expected: Expected | None) -> tuple[str, ...] | int | None:
    """What the user gave, in one form.

    Raises:
        ConfigError: it is neither names nor a count.
    """
    if expected is None or (type(expected) is int and expected > 0):
        return expected
    # Whatever the types say, this is what a user wrote.
    given: object = expected.split(",") if isinstance(expected, str) else expected
    if isinstance(given, Sequence) and given and all(isinstance(n, str) and n for n in given):
        return tuple(str(name).strip() for name in given)
    raise ConfigError(
        f"expected_brokers is {expected!r}: give the names of the topic's brokers, or how many"
    )


def complete_queues(
    instance: Instance, topic: str, deadline: float, expected: tuple[str, ...] | int | None
) -> Op[tuple[MessageQueue, ...]]:
    """The queues of a topic that can be read, if none that is known is missing.

    Raises:
        TopicNotFoundError: no name server knows the topic.
        MissingQueuesError: a broker that the topic is known to have is in no route.
    """
    queues = yield from read_queues(instance, topic, deadline)
    if _missing(instance, topic, queues, expected):
        # It may be back, and the route only old.
        yield from refresh_topic(
            instance, with_namespace(topic, instance.config.namespace), deadline
        )
        queues = yield from read_queues(instance, topic, deadline)
    _remember(instance, topic, queues)
    if missing := _missing(instance, topic, queues, expected):
        names = ", ".join(sorted(missing))
        raise MissingQueuesError(
            f"topic {topic}: brokers are missing, and a read would return less: {names}. Bring them "
            "back; or say which brokers the topic has with expected_brokers",
            tuple(MessageQueue(topic, name, _ALL_QUEUES) for name in sorted(missing)),
        )
    return queues


def _missing(
    instance: Instance,
    topic: str,
    queues: Sequence[MessageQueue],
    expected: tuple[str, ...] | int | None,
) -> set[str]:
    here = {queue.broker for queue in queues}
    if isinstance(expected, tuple):
        return set(expected) - here
    known = _known(instance, topic) - here
    if expected is None:
        return known
    short = expected - len(here)
    if short <= 0:
        return set()
    return known or {f"{short} of {expected} whose names are not known"}


def _known(instance: Instance, topic: str) -> set[str]:
    """Brokers that the topic had lately, or that its order configuration names."""
    name = with_namespace(topic, instance.config.namespace)
    oldest = instance.clock() - KEPT_FOR
    seen = instance.seen_brokers.get(name, {})
    found = {broker for broker, moment in seen.items() if moment >= oldest}
    entry = instance.routes.get(name)
    if entry is not None and entry.route.order_conf:
        found |= {queue.broker for queue in publish_queues(topic, entry.route)}
    return found


def _remember(instance: Instance, topic: str, queues: Sequence[MessageQueue]) -> None:
    name, now = with_namespace(topic, instance.config.namespace), instance.clock()
    seen = instance.seen_brokers.get(name, {})
    # Replaced as a whole: threads of one client may read at the same time.
    instance.seen_brokers[name] = seen | {queue.broker: now for queue in queues}
