"""What becomes of a message whose handler failed.

Concurrent: it goes back to the broker, which hands it out again from the group's retry topic after
a while that grows with each try, and moves it to the dead letters after the last one. Where the
broker can't take it, it is kept and tried again here.

Ordered: its queue rests for a moment, and then the same message comes again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketwire.core.effects import Op, invoke, sleep
from rocketwire.core.group.membership import Group, log
from rocketwire.core.group.workload import Work
from rocketwire.errors import ConfigError, ConnectFailedError, RocketMQError
from rocketwire.hooks import QueueEvent, RetryEvent, call_hooks
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage
from rocketwire.wire import headers
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for
from rocketwire.wire.lazy_message import tried_again

#: Seconds of the delay levels 1 to 18, as brokers have them unless they are configured otherwise.
DELAYS: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip

#: The broker chooses: the third level first, then one more with each try.
GROWING: Final = 0
DEAD: Final = -1
_HUNG_LEVEL: Final = 3
#: How long a message rests that could not be sent back.
_LOCAL_PAUSE: Final = 5.0
#: Ordered queues rest at least and at most so long, as in Java.
_SHORTEST, _LONGEST = 0.01, 30.0
#: Tries after which a message that holds up an ordered queue is reported.
_MANY: Final = 16


@dataclass(frozen=True, slots=True)
class Retry:
    """Returned by a handler that wants the message again.

    Args:
        after: seconds until then; brokers know steps (1, 5, 10, 30 s, 1 to 10 min, 20, 30 min,
            1, 2 h) and the next longer one is taken. None: longer with each try, from 10 s on.
            An ordered queue rests for that long, at most 30 s.
    """

    after: float | None = None

    def __post_init__(self) -> None:
        if self.after is not None and not self.after >= 0:
            raise ConfigError(f"Retry after is {self.after!r}: seconds, zero or more, or None")


def delay_level(after: float | None) -> int:
    """The level whose delay is the shortest that is long enough."""
    if after is None:
        return GROWING
    return min(bisect_left(DELAYS, after) + 1, len(DELAYS))


def send_back(group: Group, message: StoredMessage, level: int) -> Op[None]:
    """Give a message back to the broker that has it.

    Raises:
        TransportError: it could not be reached.
        BrokerError: it refused.
    """
    instance = group.instance
    broker = message.queue.broker
    address = instance.routes.masters().get(broker)
    if address is None:
        instance.route_wake_up.wake()
        raise ConnectFailedError(f"broker {broker} has no master to send a message back to")
    fields = headers.send_message_back(
        group=group.wire_name,
        offset=message.commit_log_offset,
        delay_level=level,
        origin_message_id=message.offset_message_id,
        origin_topic=group.wire_topic(message.topic),
        max_reconsume_times=group.config.max_retries,
        broker=broker,
    )
    request = instance.request(RequestCode.CONSUMER_SEND_MESSAGE_BACK, fields)
    deadline = instance.clock() + max(5.0, instance.config.request_timeout)
    reply = yield from invoke(address, request, deadline)
    if reply.code != ResponseCode.SUCCESS:
        raise error_for(reply.code, reply.remark, broker)


def return_work(group: Group, work: Work, retry: Retry, error: Exception | None) -> Op[None]:
    """A handler failed, or asked for its messages again: see to them."""
    group.counters.failed += len(work.messages)
    yield from _or_again(group, work, _return(group, work, retry, error))


def _or_again(group: Group, work: Work, operation: Op[None]) -> Op[None]:
    """See to messages; if that fails in an unforeseen way, hand them out again.

    Else they would be in nobody's hand for ever, and their queue with them.
    """
    try:
        yield from operation
    except Exception:  # noqa: BLE001 - it is logged
        log.exception("%s: messages are handed out again", work.process_queue.queue)
        group.workload.hand_out_again(work)


def _return(group: Group, work: Work, retry: Retry, error: Exception | None) -> Op[None]:
    if group.config.ordered:
        yield from _again_in_order(group, work, retry, error)
    elif group.config.broadcast:
        yield from _again_here(group, work, work.messages, retry, error)
    else:
        level = delay_level(retry.after)
        left = yield from _send_all_back(group, work, level, retry.after, error)
        yield from _again_here(group, work, left, Retry(_LOCAL_PAUSE), error)


def _send_all_back(
    group: Group, work: Work, level: int, after: float | None, error: Exception | None
) -> Op[list[StoredMessage]]:
    """Send the messages of a piece of work back; returns those that could not be."""
    left = []
    for message in work.messages:
        if work.epoch != work.process_queue.epoch:
            return []
        try:
            yield from send_back(group, message, level)
        except RocketMQError as failure:
            log.warning("%s could not be sent back: %s", message.message_id, failure)
            left.append(message)
            continue
        group.workload.settle(work, message)
        is_dead = level == DEAD or message.reconsume_times >= group.config.max_retries
        _tell(group, message, after, error, is_dead=is_dead)
    return left


def _again_here(
    group: Group,
    work: Work,
    messages: Sequence[StoredMessage],
    retry: Retry,
    error: Exception | None,
) -> Op[None]:
    """Try messages again without the broker, after a pause; not counted as retried by it."""
    if messages:
        pause = _LOCAL_PAUSE if retry.after is None else retry.after
        again = []
        for message in messages:
            if group.config.broadcast and message.reconsume_times >= group.config.max_retries:
                # Nobody keeps dead letters of a broadcast: every member would have its own.
                group.workload.settle(work, message)
                _tell(group, message, None, error, is_dead=True)
            else:
                again.append(tried_again(message))
                _tell(group, message, pause, error, is_dead=False, is_here=True)
        # Nobody has them in hand while they rest: giving the queue back need not wait.
        group.workload.close(work)
        yield from sleep(group.instance.clock() + pause)
        group.workload.put_back(work, again)
        group.workload.look_again(work.process_queue)
    group.workload.close(work)


def _again_in_order(group: Group, work: Work, retry: Retry, error: Exception | None) -> Op[None]:
    """Let the queue rest, and hand out the same messages again; the worn-out ones go away."""
    pause = group.config.retry_pause if retry.after is None else retry.after
    pause = min(max(pause, _SHORTEST), _LONGEST)
    again = []
    for message in work.messages:
        if _is_worn_out(group, message) and (yield from _bury(group, message)):
            group.workload.settle(work, message)
            _tell(group, message, None, error, is_dead=True)
        else:
            again.append(tried_again(message))
            _tell(group, message, pause, error, is_dead=False, is_here=True)
            _warn_of_poison(group, message, error)
    resume_at = group.instance.clock() + pause if again else 0.0
    group.workload.put_back(work, again, resume_at)
    group.workload.close(work)
    if again:
        yield from sleep(resume_at)
        group.workload.resume(work.process_queue, resume_at)


def _warn_of_poison(group: Group, message: StoredMessage, error: Exception | None) -> None:
    """Say loudly that one message holds up its queue, after 16 tries and each time they double.

    There is no end to it unless ``max_attempts`` is set: giving a message up by itself would break
    the order that the group asked for.
    """
    tries = message.reconsume_times + 1
    if group.config.max_attempts is None and tries >= _MANY and not tries & (tries - 1):
        log.error(
            "%s: message %s at offset %d has failed %d times and holds up its queue: nothing behind "
            "it is handled until its handler succeeds; max_attempts=%d would have moved it to "
            "%%DLQ%%%s (the last error: %s)",
            message.queue,
            message.message_id,
            message.offset,
            tries,
            _MANY,
            group.name,
            error if error is not None else "its handler asked for it again",
        )


def _is_worn_out(group: Group, message: StoredMessage) -> bool:
    limit = group.config.max_attempts
    return limit is not None and message.reconsume_times + 1 >= limit


def _bury(group: Group, message: StoredMessage) -> Op[bool]:
    """Move a message to the dead letters; False if that failed."""
    if group.config.broadcast:
        return True
    try:
        yield from send_back(group, message, DEAD)
    except RocketMQError as failure:
        log.warning("%s could not be moved to the dead letters: %s", message.message_id, failure)
        return False
    return True


def _tell(
    group: Group,
    message: StoredMessage,
    after: float | None,
    error: Exception | None,
    *,
    is_dead: bool,
    is_here: bool = False,
) -> None:
    counters, hooks = group.counters, group.hooks
    if is_dead:
        counters.dead_lettered += 1
        log.error(
            "%s of %s was given up after %d tries: %s",
            message.message_id,
            message.topic,
            message.reconsume_times + 1,
            error if error is not None else "its handler asked for it again each time",
        )
    elif is_here:
        counters.retried_here += 1
    else:
        counters.retried += 1
    wanted = hooks.dead_lettered if is_dead else hooks.retried
    if wanted:
        attempt = message.reconsume_times + 1
        at = group.instance.wall()
        call_hooks(wanted, RetryEvent(at, group.name, message, attempt, after, error))


def keep_watch(group: Group) -> Op[None]:
    """Look for handlers that hang, for ever."""
    clock, limit = group.instance.clock, group.config.handler_timeout
    told: set[Work] = set()
    while True:
        yield from sleep(clock() + min(limit / 4, 60.0))
        overdue = group.workload.overdue(clock() - limit)
        told &= overdue.keys()
        for work, messages in overdue.items():
            if work not in told:
                told.add(work)
                _report(group, work.process_queue.queue, messages, limit)
                if not group.config.ordered and (taken := group.workload.abandon(work, messages)):
                    group.start(_or_again(group, taken, _take_away(group, taken)))


def _report(
    group: Group, queue: MessageQueue, messages: Sequence[StoredMessage], limit: float
) -> None:
    why = f"a handler has been at {messages[0].message_id} for over {limit:.0f} s"
    log.error("%s: %s", queue, why)
    group.counters.overdue += len(messages)
    if group.hooks.handler_overdue:
        event = QueueEvent(group.instance.wall(), group.name, queue, why)
        call_hooks(group.hooks.handler_overdue, event)


def _take_away(group: Group, work: Work) -> Op[None]:
    """Send back what a hung handler has; what it does with it later counts no more."""
    error = TimeoutError("the handler did not end in time")
    if group.config.broadcast:
        yield from _again_here(group, work, work.messages, Retry(), error)
        return
    left = yield from _send_all_back(group, work, _HUNG_LEVEL, None, error)
    yield from _again_here(group, work, left, Retry(_LOCAL_PAUSE), error)
