"""Which queues a topic has, whatever is registered now, and which of them can't be read.

The route forgets a broker that died, and a read that believed the route would return less in
silence. What a topic has is known from elsewhere: from what the user says, the checkpoint, a
pipeline's record, the topic's order configuration, all name servers, and what was seen lately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rocketwire.errors import MissingQueuesError
from rocketwire.message import MessageQueue
from rocketwire.spark.client import Bounds
from rocketwire.spark.local_record import LocalRecord
from rocketwire.spark.options import ReadOptions
from rocketwire.spark.topic_view import TopicView

#: The queue id that stands for all queues of a broker, where their number is not known.
ALL_QUEUES: Final = -1
#: The name of a broker of which only its number in the count is known.
NAMELESS: Final = "?"

#: Queues that can't be read, each with the reason.
Missing = dict[MessageQueue, str]

DELETED: Final = "the topic was deleted"


class Completeness:
    """Finds what is missing.

    Args:
        options: of the read.
        record: what was seen lately; None to go without.
    """

    def __init__(self, options: ReadOptions, record: LocalRecord | None = None) -> None:
        self._options = options
        self._record = record

    def topics(self) -> frozenset[str]:
        """Topics that the pattern of a read chooses by what any record has, whatever is there now.

        A topic whose brokers are all away is on no name server's list.
        """
        options = self._options
        if options.choice.pattern is None:
            return frozenset()
        found = set(options.expected or ()) | {queue.topic for queue in options.known}
        if self._record is not None:
            found |= self._record.topics()
        return frozenset(topic for topic in found if topic and options.choice.matches(topic))

    def expects(self, topic: str) -> bool:
        """Whether the user names this one among those of a pattern, so that it must be there."""
        return self._options.choice.pattern is not None and topic in (self._options.expected or ())

    def missing(
        self,
        views: Mapping[str, TopicView | None],
        bounds: Bounds,
        known: Iterable[MessageQueue] = (),
    ) -> Missing:
        """Queues that the topics have and that can't be read now.

        Args:
            views: what name servers say of each topic; None where none of them knows it.
            bounds: what brokers answered.
            known: queues that the checkpoint names.
        """
        found: Missing = {queue: str(error) for queue, error in bounds.silent.items()}
        if not self._options.choice.queues:  # single queues were chosen: there are no others
            for topic, view in views.items():
                recorded = self._recorded(topic, view, bounds, known)
                found |= self._of_topic(topic, bounds, found, recorded)
        return dict(sorted(found.items()))

    def _recorded(
        self, topic: str, view: TopicView | None, bounds: Bounds, known: Iterable[MessageQueue]
    ) -> Missing:
        """Queues of a topic that any record has."""
        gone = "it is in the checkpoint, and its broker left the route"
        if view is None:
            return {queue: DELETED for queue in known if queue.topic == topic}
        found: Missing = {}
        if self._record is not None:
            ends = {queue: end for queue, end in bounds.end.items() if queue.topic == topic}
            lately = self._record.update(topic, view, ends)
            found |= dict.fromkeys(
                lately, "it was there minutes ago, and its broker left the route"
            )
        for broker, count in view.ordered.items():
            if broker not in view.brokers:
                why = "the topic's order configuration names its broker, which left the route"
                found |= {MessageQueue(topic, broker, number): why for number in range(count)}
        recorded = [queue for queue in self._options.known if queue.topic == topic]
        found |= dict.fromkeys(recorded, "it is on record, and its broker left the route")
        found |= {queue: gone for queue in known if queue.topic == topic}
        return found

    def _of_topic(
        self, topic: str, bounds: Bounds, silent: Mapping[MessageQueue, str], recorded: Missing
    ) -> Missing:
        present = {queue.broker for queue in bounds.end if queue.topic == topic}
        found = {
            queue: why
            for queue, why in recorded.items()
            if queue not in bounds.end
            and queue not in silent
            and queue.broker not in self._options.forgotten
            # A queue less on a broker that is there was taken away on purpose.
            and (queue.broker not in present or why == DELETED)
        }
        expected = self._options.expected or {}
        wanted = expected.get(topic, expected.get(""))
        if wanted is None:
            return found
        absent = {queue.broker for queue in silent if queue.topic == topic}
        if isinstance(wanted, int):
            return _by_count(topic, wanted, present | absent, found)
        return _by_names(topic, wanted, present | absent, found)


def _by_names(topic: str, wanted: tuple[str, ...], there: set[str], recorded: Missing) -> Missing:
    """The brokers that should be there; what any record says of others does not count."""
    found = {queue: why for queue, why in recorded.items() if queue.broker in wanted}
    for name in wanted:
        if name not in there and all(queue.broker != name for queue in found):
            found[MessageQueue(topic, name, ALL_QUEUES)] = "expectedBrokers names its broker"
    return found


def _by_count(topic: str, wanted: int, there: set[str], recorded: Missing) -> Missing:
    if len(there) >= wanted:
        return {}
    found = dict(recorded)
    have = len(there | {queue.broker for queue in recorded})
    for number in range(max(0, wanted - have)):
        why = f"expectedBrokers is {wanted}, and only {len(there)} are there"
        found[MessageQueue(topic, NAMELESS, ALL_QUEUES - number)] = why
    return found


def describe_missing(missing: Mapping[MessageQueue, str]) -> str:
    """Which queues can't be read, and why, in one line."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for queue, why in missing.items():
        groups.setdefault((queue.topic, queue.broker, why), []).append(queue.id)
    return "; ".join(
        f"topic {topic}, {_place(broker, ids)}: {why}"
        for (topic, broker, why), ids in sorted(groups.items())
    )


def _place(broker: str, ids: list[int]) -> str:
    if broker == NAMELESS:
        return f"{len(ids)} more broker{'s' if len(ids) > 1 else ''}"
    if ALL_QUEUES in ids:
        return f"broker {broker}, all queues"
    numbers = ", ".join(map(str, sorted(ids)))
    return f"broker {broker}, queue{'s' if len(ids) > 1 else ''} {numbers}"


def missing_error(missing: Mapping[MessageQueue, str], waited: float) -> MissingQueuesError:
    """The error that ends a read which would return less."""
    return MissingQueuesError(
        f"queues can't be read, after {waited:.0f} s: {describe_missing(missing)}. Bring the brokers "
        "back; or, if they were taken away for good, name those that are left in expectedBrokers; "
        "or set failOnDataLoss to false to go on without them",
        queues=tuple(missing),
    )
