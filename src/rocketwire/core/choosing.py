"""Where an attempt goes, and how long it may take.

Puts a plan, a route and the fault table's opinion together. Which queues are allowed is
``selection``'s answer, whether there is another attempt ``retry``'s.
"""

from __future__ import annotations

from typing import cast

from rocketwire.config import AUTO, ProducerConfig
from rocketwire.core.instance import Instance
from rocketwire.core.plan import Plan
from rocketwire.core.retry import (
    SendMode,
    attempt_deadline,
    default_attempt_timeout,
    tries_allowed,
)
from rocketwire.core.routes import TopicEntry
from rocketwire.core.selection import Counters as Positions
from rocketwire.core.selection import Selector, TopicQueues, best_queue
from rocketwire.core.targets import SendTarget, target_for
from rocketwire.errors import InvalidMessageError
from rocketwire.message import MessageQueue


class Chooser:
    """Chooses for one sender.

    Args:
        instance: its client instance.
        config: its settings.
        positions: where round robin stands, in this thread or producer.
        group: its producer group, as servers know it.
    """

    def __init__(
        self, instance: Instance, config: ProducerConfig, positions: Positions, group: str
    ) -> None:
        self._instance = instance
        self._config = config
        self._positions = positions
        self._group = group
        self._defaults = (config.default_topic, config.default_topic_queues)
        #: How many attempts there may be, by mode and by whether the queue is fixed.
        self.tries = {
            (mode, is_pinned): tries_allowed(
                mode,
                pinned=is_pinned,
                retries=config.retries,
                async_retries=config.async_retries,
                ordered_retries=config.ordered_retries,
            )
            for mode in SendMode
            for is_pinned in (False, True)
        }

    def queues_of(self, entry: TopicEntry) -> TopicQueues:
        """The queues of a topic with what the fault table thinks of them."""
        queues = entry.derived.get("queues")
        if queues is None:
            topic = entry.queues[0].topic
            queues = TopicQueues(topic, entry.queues, self._instance.faults, entry.listed)
            entry.derived["queues"] = queues
        return cast("TopicQueues", queues)

    def target(self, plan: Plan, entry: TopicEntry, now: float, failed: list[str]) -> SendTarget:
        """Where the next attempt of a send goes; ``failed`` are the brokers of those before it.

        Raises:
            NoWritableQueueError: the queue's broker has no master that we know of.
        """
        queue = plan.queue
        if queue is None:
            queues: TopicQueues = entry.derived.get("queues") or self.queues_of(entry)
            if plan.selector is best_queue:
                queue = queues.best(self._positions, now, failed)
            else:
                queue = self._select(plan, queues, now, failed)
                if plan.is_pinned:
                    plan.queue = queue
        return self.target_of(entry, queue, is_batch=plan.outgoing.is_batch)

    def target_of(self, entry: TopicEntry, queue: MessageQueue, *, is_batch: bool) -> SendTarget:
        """Where requests for a queue go.

        Raises:
            NoWritableQueueError: the queue's broker has no master that we know of.
        """
        key = (queue, is_batch, self._group)
        target = entry.derived.get(key)
        if target is None:
            target = entry.derived[key] = target_for(
                self._instance,
                self._group,
                entry,
                queue,
                is_batch=is_batch,
                defaults=self._defaults,
            )
        return cast("SendTarget", target)

    def _select(
        self, plan: Plan, queues: TopicQueues, now: float, failed: list[str]
    ) -> MessageQueue:
        selector = cast("Selector", plan.selector)
        outgoing = plan.outgoing
        queue = queues.select(
            selector, outgoing.message, plan.argument, self._positions, now, failed
        )
        if len(outgoing.sharding_keys) > 1 and plan.argument is None:
            for message in outgoing.messages:
                if message.sharding_key is None:
                    continue
                other = queues.select(selector, message, None, self._positions, now, failed)
                if other != queue:
                    raise InvalidMessageError(
                        f"the batch has sharding keys of different queues "
                        f"({outgoing.sharding_keys[0]!r} and {message.sharding_key!r}): "
                        "use send_many, which splits by queue"
                    )
        return queue

    def first_limit(self, entry: TopicEntry, mode: SendMode, now: float) -> float | None:
        """Seconds for the first of several attempts by the default strategy; None: no limit."""
        tries = self.tries[mode, False]
        usable = self.queues_of(entry).choice(now).usable
        if tries == 1 or len(entry.brokers) == 1 or len(usable) < 2:
            return None
        cap, timeout = self._config.attempt_timeout, self._config.send_timeout
        if cap == AUTO:
            cap = default_attempt_timeout(timeout, tries)
        return None if cap is None else min(cap, timeout)

    def limit(
        self,
        plan: Plan,
        entry: TopicEntry,
        target: SendTarget,
        now: float,
        deadline: float,
        tries_left: int,
    ) -> float:
        """Until when an attempt may wait, if there may be others after it."""
        if plan.is_pinned or len(entry.brokers) == 1:
            return deadline
        if not self.queues_of(entry).another_usable(target.queue.broker, now):
            return deadline
        cap = self._config.attempt_timeout
        if cap == AUTO:
            cap = default_attempt_timeout(plan.timeout, self.tries[plan.mode, False])
        return attempt_deadline(now, deadline, cap, tries_left=tries_left, another_usable=True)
