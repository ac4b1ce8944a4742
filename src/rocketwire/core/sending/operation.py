"""All attempts of a send, as one operation for both shells, for single messages and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketwire.core.effects import Invoke, Oneway, Op, wait
from rocketwire.core.faults.entries import NEVER
from rocketwire.core.lookup import locate_topic, refresh_topic
from rocketwire.core.reading.arguments import check_readable_topic
from rocketwire.core.routes import TopicEntry
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.history import SendHistory
from rocketwire.core.sending.order import PATIENCE, not_sent_after, not_sent_in_midst
from rocketwire.core.sending.results import result_later
from rocketwire.core.sending.retry import failure, is_retryable, should_retry_status
from rocketwire.errors import (
    BrokerError,
    ClientClosedError,
    ConnectFailedError,
    ConnectionLostError,
    LocalProtocolError,
    Outcome,
    ProtocolError,
    RocketMQError,
    RouteError,
    SendFailedError,
    ServiceNotAvailableError,
    TransportError,
    UnknownTopicError,
)
from rocketwire.message import MessageQueue, SendResult
from rocketwire.wire.codes import STORED, RequestCode, ResponseCode, error_for
from rocketwire.wire.command import Reply
from rocketwire.wire.headers import decode_send_reply
from rocketwire.wire.send_request import born_field

if TYPE_CHECKING:
    from rocketwire.core.sending.sender import Sender

_SUCCESS: Final = ResponseCode.SUCCESS
#: A route that was asked for this recently is not asked for again by a retry.
_FRESH: Final = 1.0
#: After these a broker's master may be at another address: gone, or a slave now.
_MOVED: Final = (
    ConnectFailedError,
    ConnectionLostError,
    RouteError,
    ServiceNotAvailableError,
    UnknownTopicError,
)
_new = object.__new__


def send_operation(sender: Sender, attempt: SendAttempt) -> Op[SendResult]:
    """Carry a send out from where its first attempt stands.

    Raises:
        SendFailedError: with the outcome and all attempts.
    """
    history = attempt.history
    if history is None:
        history = attempt.history = SendHistory(attempt.began)
    if not (attempt.key_slots or sender.hooks.after_send):
        return (yield from _attempts(sender, attempt, history))
    error: Exception | None = None
    given_up: SendFailedError | None = None
    result: SendResult | None = None
    try:
        if attempt.target is None:
            yield from _wait_for_keys(sender, attempt, history)
        result = yield from _attempts(sender, attempt, history)
    except Exception as failed:
        error = failed
        raise
    except GeneratorExit:
        given_up = _given_up(sender, history)
        if given_up.outcome is not Outcome.NOT_SENT:
            error = given_up  # it may still arrive, after those that were accepted behind it
        raise
    finally:
        for slot in attempt.key_slots:
            sender.order.leave(slot, error)
        history.tell(attempt, sender.instance.clock(), result, error or given_up)
    return result


def _given_up(sender: Sender, history: SendHistory) -> SendFailedError:
    """What is told of a send that its caller gave up: the worst over its attempts."""
    if not history.attempts:
        return SendFailedError("not sent: cancelled before it was tried")
    elapsed = sender.instance.clock() - history.began
    return failure(history.attempts, elapsed, deadline_passed=False)


def _wait_for_keys(sender: Sender, attempt: SendAttempt, history: SendHistory) -> Op[None]:
    """Wait until it is the turn of every sharding key. Sets when the send's time begins.

    A message that was accepted before (submit) has its time from its turn on: however many are
    before it, none runs out of time because of their number.
    """
    clock = sender.instance.clock
    for slot in attempt.key_slots:
        if not slot.ready.is_set:
            patience = PATIENCE if slot.is_accepted else attempt.timeout
            if not (yield from wait(slot.ready, history.began + patience)):
                if clock() < history.began + patience:
                    raise not_sent_in_midst()
                cause = TimeoutError("an earlier message of its sharding key is under way")
                elapsed = clock() - history.began
                raise failure((), elapsed, deadline_passed=True, cause=cause)
            if slot.is_accepted:
                history.began = clock()
        if slot.failed_before is not None:
            raise not_sent_after(slot.failed_before)


def _attempts(  # noqa: C901 - what follows what, in one place
    sender: Sender, attempt: SendAttempt, history: SendHistory
) -> Op[SendResult]:
    """All attempts of a send whose turn has come. One generator: each further one costs 0.5 µs."""
    clock, chooser = sender.instance.clock, sender.chooser
    deadline = history.began + attempt.timeout
    tries = chooser.tries[attempt.mode, attempt.is_pinned]
    failed: list[str] = []
    cause: RocketMQError | None = None
    route = attempt.route
    if attempt.target is None or route is None:
        route = yield from _locate(sender, attempt, history, deadline)
    while True:
        tries -= 1
        if attempt.target is None:
            attempt.began = now = clock()
            if now >= deadline:  # its turn, or its route, came too late
                break
            cause = _aim(sender, attempt, route, failed, tries, deadline)
            if cause is not None or clock() >= deadline:  # the selector may have taken all the time
                sender.start_over(attempt)
                break
        history.last = attempt
        target = attempt.where
        try:
            reply: Reply = yield Invoke(target.address, attempt, attempt.deadline, attempt)
        except (TransportError, ProtocolError, ClientClosedError) as error:
            _broke(sender, attempt, history, error)
        except GeneratorExit:
            sender.instance.faults.cancelled(attempt)
            history.cancelled(attempt, clock())
            raise
        else:
            history.reply = reply
            result = _answered(sender, attempt, history, reply)
            if result is not None:
                if (
                    not tries
                    or reply.code == _SUCCESS
                    or not _should_better(sender, history, result)
                ):
                    return _finish(sender, attempt, history, result)
                history.keep(attempt, result, clock() - attempt.began)
        failed.append(target.broker)
        if not tries or clock() >= deadline or not _may_go_on(history):
            break
        sender.counters.retried(history.error)
        if isinstance(history.error, (ConnectFailedError, UnknownTopicError)):
            route = yield from _refresh(sender, route, deadline)
        attempt = _next(attempt, history)
    if history.kept is not None:
        return _finish(sender, attempt, history, history.kept)
    raise history.give_up(attempt, clock(), cause)


def _next(before: SendAttempt, history: SendHistory) -> SendAttempt:
    """The attempt after one that failed: the same content, and no target yet."""
    attempt = _new(SendAttempt)
    attempt.sender = before.sender
    attempt.mode = before.mode
    attempt.message = before.message
    attempt.batch = before.batch
    attempt.body = before.body
    attempt.properties = before.properties
    attempt.system_flag = before.system_flag
    attempt.flag = before.flag
    attempt.place = before.place
    attempt.timeout = before.timeout
    attempt.born = before.born
    attempt.history = history
    attempt.key_slots = ()
    attempt.target = attempt.route = None
    attempt.written_at = NEVER
    attempt.allowance = 0.0
    return attempt


def _aim(
    sender: Sender,
    attempt: SendAttempt,
    route: TopicEntry,
    failed: list[str],
    tries_left: int,
    deadline: float,
) -> RocketMQError | None:
    """Choose where an attempt goes, and how long it may take.

    Returns:
        The error that ends the send, if there is no queue for it.

    Raises:
        RocketMQError: a selector's fault, and nothing was sent.
    """
    now = attempt.began
    try:
        sender.chooser.aim(attempt, route, now, failed)
    except RocketMQError as error:
        if not (failed or isinstance(error, RouteError)):
            raise
        _look_again(sender, error)
        return error
    history = attempt.history
    if history is not None and history.is_unrepeatable:
        attempt.deadline = deadline  # giving up early would save no time for another one
    else:
        attempt.deadline = sender.chooser.limit(attempt, route, now, deadline, tries_left)
    attempt.born = born_field(int(sender.instance.wall() * 1000))
    return None


def _locate(
    sender: Sender, attempt: SendAttempt, history: SendHistory, deadline: float
) -> Op[TopicEntry]:
    topic = sender.wire_topic(attempt.message.topic)
    route = sender.instance.routes.get(topic)
    if route is not None and sender.is_fresh(route, sender.instance.clock()):
        return route
    try:
        return (yield from locate_topic(sender.instance, topic, deadline, *sender.defaults))
    except RouteError as error:
        raise history.give_up(attempt, sender.instance.clock(), error) from error


def _refresh(sender: Sender, route: TopicEntry, deadline: float) -> Op[TopicEntry]:
    """Ask for the route again before a retry: the broker may have moved.

    Where the name server does not answer, or knows no queue, the old route serves.
    """
    instance = sender.instance
    now = instance.clock()
    if now - route.fetched_at < _FRESH:
        known = instance.routes.get(route.topic)  # others may have asked meanwhile
        return known if known is not None and known.queues else route
    limit = now + min(sender.config.request_timeout, (deadline - now) / 2)
    try:
        fresh = yield from refresh_topic(
            instance,
            route.topic,
            limit,
            default_topic=sender.defaults[0] if route.is_fallback else None,
            default_queues=sender.defaults[1],
        )
    except RocketMQError:  # also that the client was shut down: the next attempt raises it again
        return route
    return fresh if fresh is not None and fresh.queues else route


def _answered(
    sender: Sender, attempt: SendAttempt, history: SendHistory, reply: Reply
) -> SendResult | None:
    """Learn from an answer; the result if the message is stored."""
    now, faults, target = reply.arrived, sender.instance.faults, attempt.where
    try:
        if reply.code in STORED:
            faults.answered(attempt, now)
            if reply.layout is None or not reply.layout.has_place:
                decode_send_reply(reply.ext)  # an answer that makes no sense is an error now
            result = result_later(attempt, reply)
            sender.counters.of(target.broker).answered(now - attempt.began)
            history.stored(attempt, now, result)
            return result
        faults.replied(attempt, now, reply.code)
        asked = RequestCode.SEND_MESSAGE_V2
        raise error_for(reply.code, reply.remark, target.broker, asked=asked)
    except (BrokerError, ProtocolError) as error:
        _look_again(sender, error)
        history.failed(attempt, now, error)
        return None


def _look_again(sender: Sender, error: RocketMQError) -> None:
    """Have routes asked for at once if a master may have moved, also where no try is left.

    Sends that stay on one queue have no second try, and would fail until the next look at the routes.
    """
    if isinstance(error, _MOVED):
        sender.instance.route_wake_up.wake()


def _broke(
    sender: Sender, attempt: SendAttempt, history: SendHistory, error: RocketMQError
) -> None:
    now = sender.instance.clock()
    if isinstance(error, (LocalProtocolError, ClientClosedError)):  # not the broker's fault
        sender.instance.faults.cancelled(attempt)
    else:
        sender.instance.faults.broke(attempt, now, error)
    _look_again(sender, error)
    history.failed(attempt, now, error)


def _finish(
    sender: Sender, attempt: SendAttempt, history: SendHistory, result: SendResult
) -> SendResult:
    sender.counters.add(1, len(attempt.body), attempt.count)
    return history.finish(attempt, result)


def _should_better(sender: Sender, history: SendHistory, result: SendResult) -> bool:
    if history.is_unrepeatable:
        return False
    when_not_stored = sender.config.retry_another_broker_when_not_stored
    return should_retry_status(result.status, retry_when_not_stored=when_not_stored)


def _may_go_on(history: SendHistory) -> bool:
    """Whether another attempt makes sense; without an error a stored one is to be bettered."""
    error = history.error
    if history.is_unrepeatable and history.attempts[-1].outcome is Outcome.MAYBE_STORED:
        return False
    return error is None or is_retryable(error)


# -- oneway ------------------------------------------------------------------------------------


def send_oneway(sender: Sender, attempt: SendAttempt) -> Op[None]:
    """Write a message that gets no answer, once.

    Raises:
        SendFailedError: it could not even be written.
    """
    history = attempt.history
    if history is None:
        history = attempt.history = SendHistory(attempt.began)
    error: Exception | None = None
    given_up: SendFailedError | None = None
    try:
        if attempt.target is None:
            yield from _wait_for_keys(sender, attempt, history)
        yield from _write_oneway(sender, attempt, history)
    except Exception as failed:
        error = failed
        raise
    except GeneratorExit:
        given_up = _given_up(sender, history)
        if given_up.outcome is not Outcome.NOT_SENT:
            error = given_up
        raise
    finally:
        for slot in attempt.key_slots:
            sender.order.leave(slot, error)
        history.tell(attempt, sender.instance.clock(), None, error or given_up)


def _write_oneway(sender: Sender, attempt: SendAttempt, history: SendHistory) -> Op[None]:
    clock = sender.instance.clock
    deadline = history.began + attempt.timeout
    if attempt.target is None:
        route = yield from _locate(sender, attempt, history, deadline)
        attempt.began = clock()
        if attempt.began >= deadline:
            raise history.give_up(attempt, clock())
        error = _aim(sender, attempt, route, [], 0, deadline)
        if error is not None:
            raise history.give_up(attempt, clock(), error) from error
    history.last = attempt
    try:
        yield Oneway(attempt.where.address, attempt, attempt.deadline, attempt)
    except (TransportError, ProtocolError, ClientClosedError) as broken:
        _broke(sender, attempt, history, broken)
        raise history.give_up(attempt, clock()) from broken
    except GeneratorExit:
        sender.instance.faults.cancelled(attempt)
        history.cancelled(attempt, clock())
        raise
    now = clock()
    sender.instance.faults.settled(attempt, now)
    sender.counters.oneway += 1
    history.written(attempt, now)


def publish_queues(sender: Sender, topic: str, deadline: float) -> Op[tuple[MessageQueue, ...]]:
    """The queues of a topic that can be written to, in Java's order.

    Raises:
        InvalidMessageError: that is no topic.
    """
    check_readable_topic(topic)
    name = sender.wire_topic(topic)
    return (yield from locate_topic(sender.instance, name, deadline, *sender.defaults)).listed
