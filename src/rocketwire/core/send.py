"""Sending: one policy for both shells, for single messages and batches, for every mode.

A send is: find the route, choose a queue, try, learn from what came of it, and either return,
try elsewhere, or fail with everything that is known. This module puts those decisions in order;
each is made elsewhere (``lookup``, ``selection``, ``faults``, ``retry``, ``ordering``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rocketwire.config import ProducerConfig
from rocketwire.core.attempts import AttemptLog, read_result
from rocketwire.core.choosing import Chooser
from rocketwire.core.effects import Invoke, Oneway, Op, wait
from rocketwire.core.encode import Encoder, Outgoing
from rocketwire.core.faults import Flight
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import locate_topic, refresh_topic
from rocketwire.core.naming import with_namespace
from rocketwire.core.ordering import PATIENCE, Lines, not_sent_after
from rocketwire.core.plan import Begun, Plan, as_batch, check_queue
from rocketwire.core.retry import (
    SendMode,
    failure,
    is_retryable,
    should_retry_status,
)
from rocketwire.core.routes import TopicEntry
from rocketwire.core.selection import Counters as Positions
from rocketwire.core.selection import (
    Selector,
    hash_queue,
    pins,
    resolve_selector,
)
from rocketwire.core.stats import Counters
from rocketwire.core.targets import SendTarget
from rocketwire.errors import (
    BrokerError,
    ClientClosedError,
    ConfigError,
    ConnectFailedError,
    InvalidMessageError,
    LocalProtocolError,
    Outcome,
    ProtocolError,
    RocketMQError,
    RouteError,
    SendFailedError,
    TransportError,
    UnknownTopicError,
)
from rocketwire.hooks import HookSet, SendEvent, call_hooks
from rocketwire.message import Message, MessageQueue, SendResult
from rocketwire.setting_values import MAX_SECONDS
from rocketwire.wire.codes import STORED, ResponseCode, error_for
from rocketwire.wire.command import Reply
from rocketwire.wire.properties import Property

_SUCCESS: Final = ResponseCode.SUCCESS
#: A route that was asked for this recently is not asked for again by a retry.
_FRESH: Final = 1.0


class Sender:
    """Makes plans and the operations that carry them out.

    Args:
        instance: what is shared with others of the same client id.
        config: the producer's settings.
        positions: where round robin stands, in this thread or producer.
        hooks: who is told of every message; those of the settings by default.
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
        self.counters = Counters()
        self.lines = Lines(instance.surroundings.make_lock())
        is_watched = bool(self.hooks.before_send or self.hooks.after_send)
        self.encoder = Encoder(config, instance.ids, keeps_messages=is_watched)
        self.group = with_namespace(config.group, config.namespace)
        self.positions = positions
        self._clock: Callable[[], float] = instance.clock
        self.defaults = (config.default_topic, config.default_topic_queues)
        #: Seconds after which a route is not used without being asked for again.
        self.stale_after = config.route_refresh * (3.0 if config.background else 1.0)
        self.default_selector = resolve_selector(config.selector)
        self._default_pins = pins(self.default_selector)
        self._wall = instance.wall
        self._faults = instance.faults
        self._routes = instance.routes
        self.chooser = Chooser(instance, config, positions, self.group)
        self.queues_of = self.chooser.queues_of

    # -- planning: everything that can be refused is refused here --------------------------

    def plan(
        self,
        messages: Message | Sequence[Message],
        mode: SendMode,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | None = None,
    ) -> Plan:
        """Check and encode.

        Raises:
            InvalidMessageError: something is wrong with the messages or where they should go.
        """
        timeout = self.check_timeout(timeout)
        if type(messages) is Message or isinstance(messages, Message):
            outgoing = self.encoder.single(messages)
        else:
            outgoing = self.encoder.batch(as_batch(messages))
        if self.hooks.before_send:
            for message in outgoing.messages:
                call_hooks(self.hooks.before_send, message)
        if queue is None and selector is None and not outgoing.sharding_keys:
            chosen, is_pinned = self.default_selector, self._default_pins
            return Plan(outgoing, None, chosen, argument, mode, timeout, is_pinned)
        return self._plan_place(outgoing, queue, selector, argument, mode, timeout)

    def _plan_place(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: Selector | str | None,
        argument: Any,
        mode: SendMode,
        timeout: float,
    ) -> Plan:
        """A send to a place that the caller or the sharding key decides."""
        if queue is not None:
            check_queue(queue, selector, outgoing)
            return Plan(outgoing, queue, None, argument, mode, timeout, is_pinned=True)
        chosen = hash_queue if selector is None else resolve_selector(selector)
        is_pinned = bool(outgoing.sharding_keys) or pins(chosen)
        return Plan(outgoing, None, chosen, argument, mode, timeout, is_pinned)

    def check_timeout(self, timeout: float | None) -> float:
        """Seconds for a send, the setting where none are given.

        Raises:
            InvalidMessageError: there is no time at all.
        """
        if timeout is None:
            return self.config.send_timeout
        given: Any = timeout  # annotations bind nobody
        if not isinstance(given, (int, float)) or not 0 < given <= MAX_SECONDS:
            raise InvalidMessageError(f"timeout is {timeout!r}: seconds, above zero and finite")
        return timeout

    def plan_outgoing(
        self, outgoing: Outgoing, mode: SendMode, timeout: float, queue: MessageQueue | None
    ) -> Plan:
        """A plan for what is checked and encoded: to a queue, or by the default strategy."""
        if queue is not None:
            return Plan(outgoing, queue, None, None, mode, timeout, is_pinned=True)
        chosen, is_pinned = self.default_selector, self._default_pins
        return Plan(outgoing, None, chosen, None, mode, timeout, is_pinned)

    def wire_topic(self, topic: str) -> str:
        """The name by which servers know a topic."""
        return with_namespace(topic, self.config.namespace)

    def line_up(self, plan: Plan, *, is_accepted: bool) -> None:
        """Take the place of an ordered message in the line of its key."""
        if plan.outgoing.sharding_keys and not plan.tickets:
            topic = plan.outgoing.topic
            keys = [(topic, key) for key in plan.outgoing.sharding_keys]
            plan.tickets = self.lines.line_up(keys, is_accepted=is_accepted)

    # -- sending ----------------------------------------------------------------------------

    def send(self, plan: Plan) -> Op[SendResult | None]:
        """Carry out a plan; None for a oneway message.

        Raises:
            SendFailedError: with the outcome and all attempts.
        """
        if plan.outgoing.sharding_keys or self.hooks.after_send:
            return self._send_with_care(plan)
        return self._send(plan, self._clock())

    def _send_with_care(self, plan: Plan) -> Op[SendResult | None]:
        """A send that stands in line for its key, or whose end hooks wait for."""
        began = self._clock()
        self.line_up(plan, is_accepted=False)
        error: Exception | None = None
        given_up: SendFailedError | None = None
        result: SendResult | None = None
        try:
            began = yield from self._wait_in_line(plan, began)
            result = yield from self._send(plan, began)
        except Exception as failed:
            error = failed
            raise
        except GeneratorExit:
            given_up = plan.given_up or SendFailedError("not sent: cancelled before it was tried")
            if given_up.outcome is not Outcome.NOT_SENT:
                error = given_up  # it may still arrive, after those who were accepted behind it
            raise
        finally:
            for ticket in plan.tickets:
                self.lines.leave(ticket, error)
            if self.hooks.after_send:
                self._tell(plan, began, result, error or given_up)
        return result

    def _tell(
        self, plan: Plan, began: float, result: SendResult | None, error: Exception | None
    ) -> None:
        outgoing, elapsed = plan.outgoing, self._clock() - began
        event = SendEvent(
            outgoing.messages,
            result,
            error,
            elapsed,
            self.instance.wall() - elapsed,
            outgoing.message_ids,
            len(outgoing.body),
            plan.address,
            plan.reply is None or plan.reply.ext.get(Property.TRACE_ON) != "false",
        )
        call_hooks(self.hooks.after_send, event)

    def _wait_in_line(self, plan: Plan, began: float) -> Op[float]:
        """Until it is our turn. Returns when the deadline's time begins.

        Who was accepted before (submit) has his time from his turn on: however long the line is,
        nobody in it runs out of time because of its length.
        """
        for ticket in plan.tickets:
            if not ticket.gate.is_open:
                patience = PATIENCE if ticket.is_accepted else plan.timeout
                if not (yield from wait(ticket.gate, began + patience)):
                    cause = TimeoutError("an earlier message of its sharding key is under way")
                    elapsed = self._clock() - began
                    raise failure((), elapsed, deadline_passed=True, cause=cause)
                if ticket.is_accepted:
                    began = self._clock()
            if ticket.failed_before is not None:
                raise not_sent_after(ticket.failed_before)
        return began

    def go_on(self, plan: Plan, began: float, begun: Begun | None) -> Op[SendResult | None]:
        """Carry out a plan of the fast lane, which has begun the first attempt, or nothing yet."""
        if begun is not None:
            plan.address = begun.target.address
        return self._send(plan, began, begun)

    def _send(  # noqa: C901 - what follows what, in one place
        self, plan: Plan, began: float, begun: Begun | None = None
    ) -> Op[SendResult | None]:
        """All attempts of a send. One generator, because each further one costs half a µs."""
        deadline = began + plan.timeout
        entry = self._routes.get(plan.outgoing.topic) if begun is None else begun.entry
        if entry is None or (begun is None and not self._is_fresh(entry, began)):
            entry = yield from self._locate(plan, began, deadline)
        tries = self.chooser.tries[plan.mode, plan.is_pinned]
        failed: list[str] = []
        now = began if begun is not None else self._clock()
        while True:
            tries -= 1
            if begun is None:
                if now >= deadline:  # its turn, or its route, came too late
                    log = self._log(plan)
                    break
                begun = self._begin(plan, entry, now, failed, tries, began, deadline)
            target, flight, request, limit = (
                begun.target, begun.flight, begun.request, begun.limit,
            )  # fmt: skip
            begun = None
            try:
                if plan.mode is SendMode.ONEWAY:
                    yield Oneway(target.address, request, limit, flight)
                    self._written(plan, target, flight, now)
                    return None
                reply: Reply = yield Invoke(target.address, request, limit, flight)
            except (TransportError, ProtocolError, ClientClosedError) as error:
                self._broke(plan, target, flight, now, error)
            except GeneratorExit:
                self._faults.cancelled(flight)
                plan.given_up = self._log(plan).cancelled(target, now, flight)
                raise
            else:
                plan.reply = reply
                result = self._answered(plan, target, flight, now, reply)
                if result is not None:
                    if not tries or reply.code == _SUCCESS or not self._should_better(result):
                        return self._finish(plan, result)
                    self._log(plan).keep(result, self._clock() - now)
            failed.append(target.broker)
            log, now = self._log(plan), self._clock()
            if not tries or now >= deadline or not _may_go_on(log.error):
                break
            self.counters.retries += 1
            if isinstance(log.error, (ConnectFailedError, UnknownTopicError)):
                entry = yield from self._refresh(entry, deadline)
                now = self._clock()
        if log.kept is not None:
            return self._finish(plan, log.kept)
        raise log.give_up(began, deadline, None)

    def _log(self, plan: Plan) -> AttemptLog:
        """The story of a send: most have none, because all went well and nobody listens."""
        log = plan.log
        if log is None:
            log = plan.log = AttemptLog(self.instance, self.counters, plan.outgoing, self.hooks)
        return log

    def _finish(self, plan: Plan, result: SendResult) -> SendResult:
        """The result as the user gets it."""
        counters, outgoing = self.counters, plan.outgoing
        counters.sent += 1
        counters.messages += len(outgoing.messages)
        counters.bytes += len(outgoing.body)
        return result if plan.log is None else plan.log.finish(result)

    def _locate(self, plan: Plan, began: float, deadline: float) -> Op[TopicEntry]:
        topic = plan.outgoing.topic
        try:
            return (yield from locate_topic(self.instance, topic, deadline, *self.defaults))
        except RouteError as error:
            raise self._log(plan).give_up(began, deadline, error) from error

    def _refresh(self, entry: TopicEntry, deadline: float) -> Op[TopicEntry]:
        """Ask for the route again before a retry: the broker may have moved.

        The background is told, too; where the name server does not answer, the old route serves.
        """
        self.instance.route_bell.ring()
        now = self._clock()
        if now - entry.fetched_at < _FRESH:
            return self.instance.routes.get(entry.topic) or entry
        limit = now + min(self.config.request_timeout, (deadline - now) / 2)
        try:
            fresh = yield from refresh_topic(
                self.instance,
                entry.topic,
                limit,
                default_topic=self.defaults[0] if entry.is_fallback else None,
                default_queues=self.defaults[1],
            )
        except (RouteError, BrokerError, ProtocolError):
            return entry
        return fresh if fresh is not None and fresh.queues else entry

    # -- one attempt ------------------------------------------------------------------------

    def _is_fresh(self, entry: TopicEntry, now: float) -> bool:
        return bool(entry.queues) and now - entry.fetched_at <= self.stale_after

    def _begin(
        self,
        plan: Plan,
        entry: TopicEntry,
        now: float,
        failed: list[str],
        tries_left: int,
        began: float,
        deadline: float,
    ) -> Begun:
        """Choose where an attempt goes, and how long it may take."""
        try:
            target = self.chooser.target(plan, entry, now, failed)
        except (RouteError, ConfigError) as error:
            if isinstance(error, ConfigError) and not failed:
                raise  # a selector's fault, and nothing was sent
            raise self._log(plan).give_up(began, deadline, error) from error
        limit = deadline
        if tries_left:
            limit = self.chooser.limit(plan, entry, target, now, deadline, tries_left)
        plan.address = target.address
        flight = self._faults.begin(target.broker, now)
        request = target.request(plan.outgoing, int(self._wall() * 1000))
        return Begun(entry, target, flight, request, limit)

    def _answered(
        self, plan: Plan, target: SendTarget, flight: Flight, began: float, reply: Reply
    ) -> SendResult | None:
        """Learn from an answer; the result if the message is stored."""
        now = reply.arrived
        try:
            if reply.code in STORED:
                self._faults.answered(flight, now)
                result = read_result(reply, plan.outgoing, target)
                self.counters.answered(target.broker, now - began)
                if plan.log is not None or self.hooks.after_attempt:
                    self._log(plan).stored(target, began, now, result)
                return result
            self._faults.replied(flight, now, reply.code)
            raise error_for(reply.code, reply.remark, target.broker)
        except (BrokerError, ProtocolError) as error:
            self._log(plan).failed(target, began, now, error, flight)
            return None

    def _broke(
        self, plan: Plan, target: SendTarget, flight: Flight, began: float, error: RocketMQError
    ) -> None:
        now = self._clock()
        if isinstance(error, (LocalProtocolError, ClientClosedError)):  # not the broker's fault
            self._faults.cancelled(flight)
        else:
            self._faults.broke(flight, now, error)
        self._log(plan).failed(target, began, now, error, flight)

    def _written(self, plan: Plan, target: SendTarget, flight: Flight, began: float) -> None:
        now = self._clock()
        self._faults.settled(flight, now)
        self.counters.oneway += 1
        if self.hooks.after_attempt:
            self._log(plan).written(target, began, now)

    def _should_better(self, result: SendResult) -> bool:
        when_not_stored = self.config.retry_another_broker_when_not_stored
        return should_retry_status(result.status, retry_when_not_stored=when_not_stored)


def _may_go_on(error: RocketMQError | None) -> bool:
    """Whether another attempt makes sense; without an error a stored one is to be bettered."""
    return error is None or is_retryable(error)
