"""Where an attempt goes, and how long it may take.

Puts a send, a route and the fault table's opinion together. Which queues are allowed is
``selection``'s answer, whether there is another attempt ``retry``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from rocketwire.config import AUTO, ProducerConfig
from rocketwire.core.faults.positions import Positions
from rocketwire.core.faults.selection import Selector, TopicQueues, best_queue
from rocketwire.core.instance import Instance
from rocketwire.core.routes import TopicEntry
from rocketwire.core.sending.attempt import Place, SendAttempt
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.retry import attempt_deadline, default_attempt_timeout, tries_allowed
from rocketwire.core.sending.target import ReadyTarget, SendTarget, TopicPlan, target_for
from rocketwire.errors import InvalidMessageError, NoWritableQueueError
from rocketwire.message import MessageQueue

#: How many timeouts of callers a plan remembers the first limits of.
_MOST_LIMITS: Final = 100


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
        self._faults = instance.faults
        self._config = config
        # Java knows no cap of ours, so its presets have one only where the user sets it.
        is_java = instance.config.fault.mode in {"java4", "java5"}
        self._cap = None if is_java and config.attempt_timeout == AUTO else config.attempt_timeout
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

    def queues_of(self, route: TopicEntry) -> TopicQueues:
        """The queues of a topic with what the fault table thinks of them."""
        queues = route.derived.get("queues")
        if queues is None:
            topic = route.queues[0].topic
            queues = TopicQueues(topic, route.queues, self._faults, route.listed)
            route.derived["queues"] = queues
        return cast("TopicQueues", queues)

    def plan(self, route: TopicEntry, mode: SendMode, now: float) -> TopicPlan:
        """What holds for every message of a topic under the default strategy."""
        queues = self.queues_of(route)
        choice = queues.choice(now)
        plan = TopicPlan(route, queues, choice.version)
        plan.another_usable = len(route.brokers) > 1 and len(choice.trusted) > 1
        if choice.candidates == choice.trusted and not route.owners:
            plan.in_turn = tuple(
                ReadyTarget(target, self._faults.entry_of(target.broker))
                for queue in choice.in_turn
                for target in [self.target_of(route, queue, is_batch=False)]
            )
        return plan

    def aim(
        self, attempt: SendAttempt, route: TopicEntry, now: float, failed: Sequence[str]
    ) -> None:
        """Choose where an attempt goes, and enter it into the fault table.

        Args:
            attempt: not written yet.
            route: of its topic.
            now: when it begins.
            failed: the brokers of the attempts before it.

        Raises:
            NoWritableQueueError: the queue's broker has no master that is known.
            ConfigError: the selector failed.
        """
        queue = self._queue(attempt, route, now, failed)
        target = self.target_of(route, queue, is_batch=attempt.batch is not None)
        self._faults.enter(attempt, target.broker)
        attempt.target = target
        attempt.route = route

    def _queue(
        self, attempt: SendAttempt, route: TopicEntry, now: float, failed: Sequence[str]
    ) -> MessageQueue:
        place = attempt.place
        if place is not None and place.queue is not None:
            return place.queue
        queues = self.queues_of(route)
        if place is None or place.selector is best_queue:
            return queues.best(self._positions, now, failed)
        queue = self._select(attempt, place, queues, now, failed)
        if place.is_pinned:
            place.queue = queue
        return queue

    def _select(
        self,
        attempt: SendAttempt,
        place: Place,
        queues: TopicQueues,
        now: float,
        failed: Sequence[str],
    ) -> MessageQueue:
        selector, argument = cast("Selector", place.selector), place.argument
        positions = self._positions
        queue = queues.select(selector, attempt.message, argument, positions, now, failed)
        keys = () if attempt.batch is None else attempt.batch.sharding_keys
        if len(keys) > 1 and argument is None:
            for message in attempt.messages:
                if message.sharding_key is None:
                    continue
                other = queues.select(selector, message, None, positions, now, failed)
                if other != queue:
                    raise InvalidMessageError(
                        f"the batch has sharding keys of different queues "
                        f"({keys[0]!r} and {message.sharding_key!r}): "
                        "use send_many, which splits by queue"
                    )
        return queue

    def target_of(self, route: TopicEntry, queue: MessageQueue, *, is_batch: bool) -> SendTarget:
        """Where requests for a queue go.

        Raises:
            NoWritableQueueError: the queue's broker has no master that is known.
        """
        key = (queue, is_batch, self._group)
        target = route.derived.get(key)
        if target is None:
            target = route.derived[key] = target_for(
                self._instance,
                self._group,
                route,
                queue,
                is_batch=is_batch,
                defaults=self._defaults,
            )
        return cast("SendTarget", target)

    def targets_by_hash(self, route: TopicEntry) -> Sequence[SendTarget]:
        """Where single messages go for each queue that keys are spread over, in the route's order.

        Empty if some queue's broker has no master that is known.
        """
        key = ("by hash", self._group)
        targets = route.derived.get(key)
        if targets is None:
            listed = self.queues_of(route).listed
            try:
                targets = tuple([self.target_of(route, q, is_batch=False) for q in listed])
            except NoWritableQueueError:
                targets = ()
            route.derived[key] = targets
        return cast("Sequence[SendTarget]", targets)

    def limit(
        self,
        attempt: SendAttempt,
        route: TopicEntry,
        now: float,
        deadline: float,
        tries_left: int,
    ) -> float:
        """Until when an attempt may wait, if there may be others after it."""
        if not tries_left or attempt.is_pinned or len(route.brokers) == 1:
            return deadline
        another = self.queues_of(route).another_usable(attempt.where.queue.broker, now)
        cap = self._cap_of(attempt.mode, attempt.timeout)
        return attempt_deadline(now, deadline, cap, tries_left=tries_left, another_usable=another)

    def first_limit(self, plan: TopicPlan, mode: SendMode, timeout: float) -> float:
        """How many seconds a first attempt may take that is aimed by a plan; remembered there."""
        left, cap = self.tries[mode, False] - 1, self._cap_of(mode, timeout)
        found = attempt_deadline(
            0.0, timeout, cap, tries_left=left, another_usable=plan.another_usable
        )
        if len(plan.first_limits) >= _MOST_LIMITS:  # callers with times of their own
            plan.first_limits.clear()
        plan.first_limits[timeout] = found
        return found

    def _cap_of(self, mode: SendMode, timeout: float) -> float | None:
        """Seconds that an attempt may take where another may follow; None: no cap."""
        cap = self._cap
        return default_attempt_timeout(timeout, self.tries[mode, False]) if cap == AUTO else cap
