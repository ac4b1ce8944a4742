"""The front door of sending: every send begins with ``Sender.start``.

A send is: find the route, choose a queue, try, learn from what came of it, and either return, try
elsewhere, or fail with everything that is known. ``start`` does as much of it as needs no waiting,
and answers the first attempt. ``finish`` ends sends whose attempt was stored, everything else is in
``operation``; the single decisions are made in ``choosing``, ``selection``,
``faults``, ``retry`` and ``order``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rocketwire.config import ProducerConfig
from rocketwire.core.effects import Op
from rocketwire.core.faults.entries import NEVER
from rocketwire.core.faults.positions import Positions
from rocketwire.core.faults.selection import (
    Selector,
    best_queue,
    hash_queue,
    pins,
    resolve_selector,
)
from rocketwire.core.instance import Instance
from rocketwire.core.naming import with_namespace
from rocketwire.core.routes import TopicEntry
from rocketwire.core.sending.attempt import Batch, MessageIds, Place, SendAttempt
from rocketwire.core.sending.choosing import Chooser
from rocketwire.core.sending.encode import Collected, Encoder
from rocketwire.core.sending.history import SendHistory
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.operation import send_oneway, send_operation
from rocketwire.core.sending.order import KeyOrder, KeySlot
from rocketwire.core.sending.retry import may_succeed_later
from rocketwire.core.sending.stats import Counters
from rocketwire.core.sending.target import TopicPlan
from rocketwire.core.sending.validate import (
    as_batch,
    check_batch,
    check_message,
    check_queue,
    check_timeout,
)
from rocketwire.errors import InvalidMessageError, NoWritableQueueError
from rocketwire.hooks import HookSet, call_hooks
from rocketwire.message import Message, MessageQueue, SendResult
from rocketwire.wire.java_hash import hash_index
from rocketwire.wire.send_request import born_field

_new = object.__new__
#: Topics are few; a producer with more than these plans anew now and then.
_MOST_PLANS: Final = 1000


class Sender:
    """Begins and ends the sends of one producer.

    Args:
        instance: what is shared with others of the same client id.
        config: the producer's settings.
        positions: where round robin stands, in this thread or producer.
        hooks: what is told of every message; the hooks of the settings by default.
    """

    def __init__(
        self,
        instance: Instance,
        config: ProducerConfig,
        positions: Positions,
        hooks: HookSet | None = None,
    ) -> None:
        self.instance = instance
        self.hooks = HookSet(config.hooks) if hooks is None else hooks
        self.config = config
        self.positions = positions
        self.counters = Counters(config.group)
        self.order = KeyOrder(instance.surroundings.make_lock())
        self.group = with_namespace(config.group, config.namespace)
        self.defaults = (config.default_topic, config.default_topic_queues)
        self._fresh_until = instance.fresh_until
        self.default_selector = resolve_selector(
            config.selector, instance.surroundings.named_selector
        )
        self.default_pins = pins(self.default_selector)
        self.chooser = Chooser(instance, config, positions, self.group)
        self.queues_of = self.chooser.queues_of
        is_watched = bool(self.hooks.before_send or self.hooks.after_send)
        self.encoder = Encoder(
            config, instance.ids, instance.clock, instance.wall, keeps_messages=is_watched
        )
        #: Whether hooks want to hear how attempts or sends end.
        self._announces = bool(self.hooks.before_send)
        self.tells = bool(self.hooks.after_send or self.hooks.after_attempt)
        self._clock = instance.clock
        self.faults = instance.faults
        self._watch = instance.faults.watch
        self._routes = instance.routes
        self._route = instance.routes.get
        self._plans: tuple[dict[str, TopicPlan], ...] = ({}, {}, {})
        #: Seconds for a send whose caller says nothing of it.
        self.timeout = config.send_timeout
        #: Whether the default strategy is ours; another one sees each message.
        self._is_usual = self.default_selector is best_queue

    # -- the beginning of a send ------------------------------------------------------------

    def start(
        self,
        message: Message | Sequence[Message],
        mode: SendMode,
        # Not by keyword only: Python looks those up by name, for 0.2 µs a send.
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | str | None = None,
        is_accepted: bool = False,  # noqa: FBT001, FBT002
    ) -> SendAttempt:
        """Check and encode a message or a batch, and decide where it goes, if that can be told.

        Args:
            message: one, or several of one topic.
            mode: how the caller waits.
            queue: the only queue that it may go to.
            selector: chooses the queue instead of the default strategy.
            argument: given to the selector.
            timeout: seconds over all attempts; ``send_timeout`` by default.
            is_accepted: whether the caller of the producer does not wait: a message behind it in
                the order of its key fails with it.

        Raises:
            InvalidMessageError: something is wrong with the messages or where they should go.
            ConfigError: the timeout or the selector can't be used.
        """
        attempt = _new(SendAttempt)
        attempt.sender = self
        attempt.mode = mode
        attempt.timeout = self.timeout if timeout is None else self.check_timeout(timeout)
        attempt.history = attempt.target = attempt.route = None
        attempt.key_slots = ()
        attempt.written_at = NEVER
        attempt.allowance = 0.0
        attempt.began = now = self._clock()
        if type(message) is Message or isinstance(message, Message):
            self.encoder.single(attempt, message, now)
            is_keyed = message.sharding_key is not None
        else:
            self.encoder.batch(attempt, as_batch(message))
            is_keyed = bool(attempt.sharding_keys)
        if is_keyed or queue is not None or selector is not None or not self._is_usual:
            attempt.place = self._place(attempt, queue, selector, argument)
        elif argument is None:
            attempt.place = None
        else:
            raise _unused(argument)
        if self._announces:
            self.announce(attempt.messages)
        if is_keyed:
            self._enter_order(attempt, is_accepted=is_accepted)
        else:
            self._begin(attempt, now)
        return attempt

    def start_here(
        self,
        message: Message | Sequence[Message],
        mode: SendMode,
        *,
        timeout: float | str | None = None,
    ) -> SendAttempt:
        """As ``start``, from inside an operation, which can't wait for a thread that compresses."""
        encoder = self.encoder
        asked, encoder.may_compress = encoder.may_compress, None
        try:
            return self.start(message, mode, timeout=timeout)
        finally:
            encoder.may_compress = asked

    def checked(self, message: Message | Sequence[Message]) -> Sequence[Message]:
        """The messages that a caller gave, if they can be one request.

        Raises:
            InvalidMessageError: something is wrong with them.
        """
        max_size = self.config.max_message_size
        if isinstance(message, Message):
            check_message(message, max_size)
            return (message,)
        messages = as_batch(message)
        if self.encoder.ordinary_fields(messages) is None:  # a third of the time of a closer look
            check_batch(messages, max_size)
        return messages

    def measured(self, message: Message | Sequence[Message]) -> tuple[int, int]:
        """How many messages a caller gave, and the bytes of their bodies.

        Those of a list are checked by ``start`` alone: twice would double what they cost.
        """
        is_list = type(message) is list and set(map(type, message)) == {Message}
        messages: Any = message if is_list else self.checked(message)
        return len(messages), sum([len(one.body) for one in messages])

    def announce(self, messages: Sequence[Message]) -> None:
        """Tell the hooks of messages that are about to be sent."""
        if self._announces:
            for message in messages:
                call_hooks(self.hooks.before_send, message)

    def _place(
        self,
        attempt: SendAttempt,
        queue: MessageQueue | None,
        selector: Selector | str | None,
        argument: Any,
    ) -> Place:
        """Where a send goes whose caller says something about it."""
        if queue is None and selector is None and attempt.sharding_keys:
            return Place(None, hash_queue, argument, is_pinned=True)
        if queue is not None:
            if selector is not None:
                raise InvalidMessageError("queue and selector exclude one another: give one")
            queue = check_queue(queue, attempt.message.topic)
            return Place(queue, None, argument, is_pinned=True)
        if selector is not None:
            chosen = resolve_selector(selector, self.instance.surroundings.named_selector)
        else:
            chosen = self.default_selector
        is_pinned = bool(attempt.sharding_keys) or pins(chosen)
        return Place(None, chosen, argument, is_pinned=is_pinned)

    def start_joined(
        self,
        content: Collected,
        timeout: float,
        queue: MessageQueue | None,
        slots: tuple[KeySlot, ...] | None = None,
    ) -> SendAttempt:
        """The first attempt of messages that were collected, and checked.

        Args:
            content: made of them by the encoder.
            timeout: seconds over all attempts.
            queue: the only queue that they may go to.
            slots: where they stand in the order of their keys, if they have taken that already.
        """
        attempt = self._blank(timeout, queue)
        self.encoder.carry(attempt, content)
        if slots:
            attempt.key_slots = slots
            self._begin(attempt, attempt.began)
        elif attempt.sharding_keys:
            self._enter_order(attempt, is_accepted=False)
        else:
            self._begin(attempt, attempt.began)
        return attempt

    def start_encoded(
        self,
        topic_stand_in: Message,
        body: bytes,
        *,
        ids: MessageIds,
        rows: int | None,
        properties: bytes,
        system_flag: int = 0,
        timeout: float,
        queue: MessageQueue | None,
    ) -> SendAttempt:
        """The first attempt of what columns have encoded: one row, or a batch of ``rows``.

        Args:
            topic_stand_in: a message of the topic, which hooks see in place of each row; its
                flag is the row's.
            body: the body of the request.
            ids: of the rows, or of the first.
            rows: how many are in a batch; None for a single one.
            properties: of the request.
            system_flag: of a single row.
            timeout: seconds for the send.
            queue: the only queue that it may go to.
        """
        attempt = self._blank(timeout, queue, SendMode.BLOCKING)
        attempt.message = topic_stand_in
        attempt.batch = None if rows is None else Batch((topic_stand_in,) * rows, ids)
        attempt.body = body
        attempt.properties = properties
        attempt.system_flag = system_flag
        attempt.flag = topic_stand_in.flag if rows is None else 0
        attempt.born = born_field(int(self.instance.wall() * 1000))
        self._begin(attempt, attempt.began)
        return attempt

    def _blank(
        self, timeout: float, queue: MessageQueue | None, mode: SendMode = SendMode.ASYNC
    ) -> SendAttempt:
        attempt = _new(SendAttempt)
        attempt.sender = self
        attempt.mode = mode
        attempt.timeout = timeout
        attempt.history = attempt.target = attempt.route = None
        attempt.key_slots = ()
        attempt.written_at = NEVER
        attempt.allowance = 0.0
        attempt.began = self._clock()
        if queue is not None:
            attempt.place = Place(queue, None, None, is_pinned=True)
        elif self._is_usual:
            attempt.place = None
        else:
            attempt.place = Place(None, self.default_selector, None, is_pinned=self.default_pins)
        return attempt

    def check_timeout(self, timeout: float | str | None) -> float:
        """Seconds for a send, the setting where none are given.

        Raises:
            ConfigError: there is no time at all.
        """
        return self.timeout if timeout is None else check_timeout(timeout)

    def wire_topic(self, topic: str) -> str:
        """The name by which servers know a topic."""
        return with_namespace(topic, self.config.namespace)

    def _enter_order(self, attempt: SendAttempt, *, is_accepted: bool) -> None:
        """Take the slots of the sharding keys, and begin if it is the turn of all of them."""
        topic = self.wire_topic(attempt.message.topic)
        thread = None if attempt.mode is SendMode.ASYNC else self.instance.surroundings.thread()
        keys = [(topic, key) for key in attempt.sharding_keys]
        attempt.key_slots = self.order.enter(keys, is_accepted=is_accepted, thread=thread)
        try:
            for slot in attempt.key_slots:
                if not slot.ready.is_set:
                    return
            self._begin(attempt, attempt.began)
        except BaseException as error:
            for slot in attempt.key_slots:
                self.order.leave(slot)
            told = error if isinstance(error, Exception) else None
            SendHistory(attempt.began).tell(attempt, self._clock(), None, told)
            raise

    # -- the first attempt ------------------------------------------------------------------

    def _begin(self, attempt: SendAttempt, now: float) -> None:
        """Choose a target, if the route is fresh and no foreign code has to be asked."""
        place = attempt.place
        if place is not None:
            route = self._route(self.wire_topic(attempt.message.topic))
            if route is None or not place.is_ours or not self.is_fresh(route, now):
                return
            if place.selector is hash_queue and place.argument is None and attempt.batch is None:
                self._aim_by_key(attempt, place, route, now)
            else:
                self._aim(attempt, route, now)
            return
        plan, watch = self._plans[attempt.mode].get(attempt.message.topic), self._watch
        # Five comparisons instead of a method of the plan: nearly every send finds that all of it still
        # holds, and they take as long together as calling one would.
        if (
            plan is None
            or plan.version != watch.version
            or now >= watch.at
            or now > plan.fresh_until
            or plan.routes_version != self._routes.version
        ):
            plan = self._renew(attempt, now)
            if plan is None:
                return
        in_turn = plan.in_turn
        if not in_turn or attempt.batch is not None:
            self._aim(attempt, plan.route, now)
            return
        ready = in_turn[self.positions.next(plan.topic) % len(in_turn)]
        attempt.target = ready.target
        attempt.entry = entry = ready.entry
        attempt.epoch = entry.epoch
        attempt.route = plan.route
        limit = plan.first_limits.get(attempt.timeout)
        if limit is None:
            limit = self.chooser.first_limit(plan, attempt.mode, attempt.timeout)
        attempt.deadline = now + limit

    def _aim_by_key(
        self, attempt: SendAttempt, place: Place, route: TopicEntry, now: float
    ) -> None:
        """What ``_aim`` does for one message that goes where its sharding key leads.

        Without a list of queues for a selector, which is most of what choosing costs.
        """
        targets, key = self.chooser.targets_by_hash(route), attempt.message.sharding_key
        if not targets or key is None:
            self._aim(attempt, route, now)
            return
        target = targets[hash_index(key, len(targets))]
        self.instance.faults.enter(attempt, target.broker)
        place.queue = target.queue
        attempt.target = target
        attempt.route = route
        attempt.deadline = now + attempt.timeout  # it has no other queue to go to

    def _aim(self, attempt: SendAttempt, route: TopicEntry, now: float) -> None:
        chooser = self.chooser
        try:
            chooser.aim(attempt, route, now, ())
        except NoWritableQueueError:  # the operation says so
            return
        tries_left = chooser.tries[attempt.mode, attempt.is_pinned] - 1
        attempt.deadline = chooser.limit(attempt, route, now, now + attempt.timeout, tries_left)

    def _renew(self, attempt: SendAttempt, now: float) -> TopicPlan | None:
        """The plan of a topic as things are now; None if its route must be asked for first."""
        mode, topic, version = attempt.mode, attempt.message.topic, self._routes.version
        route = self._route(self.wire_topic(topic))
        if route is None or not self.is_fresh(route, now):
            return None
        queues = self.queues_of(route)
        choice = queues.choice(now)
        plans = self._plans[mode]
        plan = plans.get(topic)
        if plan is None or plan.route is not route or plan.version != choice.version:
            plan = self.chooser.plan(route, mode, now)
            if len(plans) > _MOST_PLANS:
                plans.clear()
            plans[topic] = plan
        plan.routes_version = version
        plan.fresh_until = self._fresh_until(route)
        return plan

    def is_fresh(self, route: TopicEntry, now: float) -> bool:
        """Whether a route may be used without being asked for again."""
        return bool(route.queues) and now <= self._fresh_until(route)

    def is_current(self, attempt: SendAttempt) -> bool:
        """Whether the broker of an attempt that is not written yet may still be chosen."""
        target, place = attempt.target, attempt.place
        if target is None or (place is not None and place.is_pinned):
            return True
        # By the route of now: its broker may have left it, or be somewhere else.
        route = self._route(self.wire_topic(attempt.message.topic))
        if route is None or target.address != route.address_of(target.queue):
            return False
        if attempt.entry.trial_attempt is attempt:  # a broker on trial may be chosen once
            return True
        candidates = self.queues_of(route).choice(self._clock()).candidates
        return not candidates or target.broker in candidates  # the least bad one, if all are left

    def start_over(self, attempt: SendAttempt) -> None:
        """Forget where an attempt was to go that was not written yet."""
        if attempt.target is not None:
            self.instance.faults.cancelled(attempt)
            attempt.target = None

    # -- operations -------------------------------------------------------------------------

    #: Whether a caller that has more time than a send should make one that failed again.
    may_succeed_later = staticmethod(may_succeed_later)

    def operation(self, attempt: SendAttempt) -> Op[SendResult]:
        """The rest of a send; its first effect is the attempt, if that has a target.

        Raises:
            SendFailedError: with the outcome and all attempts.
        """
        return send_operation(self, attempt)

    def oneway(self, attempt: SendAttempt) -> Op[None]:
        """Write an attempt that gets no answer.

        Raises:
            SendFailedError: it could not even be written.
        """
        return send_oneway(self, attempt)

    def send(
        self,
        message: Message | Sequence[Message],
        mode: SendMode = SendMode.ASYNC,
        *,
        timeout: float | None = None,
    ) -> Op[SendResult]:
        """Send a message from inside another operation."""
        return (yield from self.operation(self.start_here(message, mode, timeout=timeout)))


def _unused(argument: object) -> InvalidMessageError:
    return InvalidMessageError(
        f"argument is {argument!r} without a selector that looks at it: give selector= as well "
        "(hash_queue puts equal arguments on one queue), or sharding_key= to the message"
    )
