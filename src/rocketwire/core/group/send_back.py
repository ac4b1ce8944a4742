"""What becomes of a message whose handler failed.

Concurrent: it goes back to the broker, which hands it out again from the group's retry topic after
a while that grows with each try. After the last try we store it among the dead letters, with the
error in a property. Where the broker can't take it, it is kept and tried again here.

Ordered: its queue rests for a moment, and then the same message comes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from rocketwire.core.effects import Op, sleep
from rocketwire.core.group.membership import Group, log
from rocketwire.core.group.returning import RETURNED, bury, check_reason, give_back, why_of
from rocketwire.core.group.workload import Work
from rocketwire.errors import ConfigError, RocketMQError
from rocketwire.hooks import QueueEvent, RetryEvent, call_hooks
from rocketwire.log_fields import about
from rocketwire.message import MessageQueue
from rocketwire.setting_values import limit
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.lazy_message import forget_bodies, grown_by, tried_again

#: When a message comes again whose handler hung.
_HUNG_PAUSE: Final = 10.0
#: How long a message rests that could not be sent back.
_LOCAL_PAUSE: Final = 5.0
#: Ordered queues rest at least and at most so long, as in Java.
_SHORTEST, _LONGEST = 0.01, 30.0
#: Bytes that bodies may have grown by while messages whose handlers failed wait to be seen to.
_LITTLE: Final = 1024 * 1024
#: Tries after which a message that holds up an ordered queue is reported.
_MANY: Final = 16


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """Returned by a handler that wants the message again.

    Args:
        after: seconds (or text such as ``"5s"``) until then; brokers know steps (1, 5, 10, 30 s, 1 to 10 min, 20, 30 min,
            1, 2 h) and the nearest that is not shorter is taken: ``Retry(after=2)`` comes after 5 s,
            unless ``exact_retries`` is set. None: longer with each try, from 10 s on. An ordered
            queue rests for that long, at most 30 s.
    """

    after: float | None = None

    def __init__(self, after: float | str | None = None) -> None:
        try:
            pause = limit(after)
        except ConfigError as error:
            raise ConfigError(f"Retry after is {after!r}: {error}") from None
        if pause is not None and pause < 0:
            raise ConfigError(f"Retry after is {after!r}: seconds, zero or more, or None")
        object.__setattr__(self, "after", pause)


def bury_work(group: Group, work: Work, reason: str) -> Op[None]:
    """Messages were given up by ``dead_letter(reason)``: move them away for good.

    Those that could not be moved are handed out again, in an ordered group before all others.
    """
    group.counters.failed += len(work.messages)
    yield from _or_again(group, work, _bury_all(group, work, check_reason(reason)))


def _bury_all(group: Group, work: Work, reason: str) -> Op[None]:
    left = []
    for message in work.messages:
        if work.epoch != work.process_queue.epoch:
            break
        if (yield from _try_to_bury(group, message, reason)):
            group.workload.settle(work, message)
            _tell(group, message, None, None, dead=reason)
        else:
            left.append(message)
    if group.config.ordered:
        yield from _rest(group, work, [tried_again(message) for message in left], _LOCAL_PAUSE)
    else:
        yield from _again_here(group, work, left, Retry(_LOCAL_PAUSE), None)


def return_work(group: Group, work: Work, retry: Retry, error: Exception | None) -> Op[None]:
    """A handler failed, or asked for its messages again: see to them."""
    group.counters.failed += len(work.messages)
    _let_go(work.messages, error)
    yield from _or_again(group, work, _return(group, work, retry, error))


def _let_go(messages: Sequence[StoredMessage], error: Exception | None) -> None:
    """Forget what a handler has made of large messages: many may wait to be seen to.

    An error holds it, too, by the frames of its traceback, which is in the log.
    """
    if grown_by(messages) <= _LITTLE:
        return
    forget_bodies(messages)
    told: set[int] = set()
    line: list[BaseException | None] = [error]
    while line:
        cause = line.pop()
        if cause is None or id(cause) in told:
            continue
        told.add(id(cause))
        # Not by an assignment: an error that is a frozen dataclass refuses that.
        BaseException.with_traceback(cause, None)
        line += (cause.__cause__, cause.__context__)
        if isinstance(cause, BaseExceptionGroup):
            line += cause.exceptions


def _or_again(group: Group, work: Work, operation: Op[None]) -> Op[None]:
    """See to messages; if that fails in an unforeseen way, hand them out again.

    Else they would be in nobody's hand for ever, and their queue with them.
    """
    try:
        yield from operation
    except Exception:  # noqa: BLE001 - it is logged
        log.exception(
            "%s: messages are handed out again",
            work.process_queue.queue,
            extra=about(group=group.name),
        )
        group.workload.hand_out_again(work)


def _return(group: Group, work: Work, retry: Retry, error: Exception | None) -> Op[None]:
    if group.config.ordered:
        yield from _again_in_order(group, work, retry, error)
    elif group.config.broadcast:
        yield from _again_here(group, work, work.messages, retry, error)
    else:
        left = yield from _send_all_back(group, work, retry.after, error)
        yield from _again_here(group, work, left, Retry(_LOCAL_PAUSE), error)


def _send_all_back(
    group: Group, work: Work, after: float | None, error: Exception | None
) -> Op[list[StoredMessage]]:
    """Send the messages of a piece of work back; returns those that could not be."""
    left = []
    for message in work.messages:
        if work.epoch != work.process_queue.epoch:
            return []
        try:
            pause = yield from give_back(group, message, after, error)
        except RocketMQError as failure:
            log.warning(
                "%s could not be sent back: %s",
                message.message_id,
                failure,
                extra=about(message, group=group.name),
            )
            left.append(message)
            continue
        group.workload.settle(work, message)
        if pause == inf:
            _tell(group, message, None, error, dead=_last_words(error))
        else:
            _tell(group, message, pause, error)
    return left


def _last_words(error: Exception | None) -> str:
    return "its handler asked for it again each time" if error is None else str(error)


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
                _tell(group, message, None, error, dead=_last_words(error))
            else:
                again.append(tried_again(message))
                _tell(group, message, pause, error, is_here=True)
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
        is_over = _is_worn_out(group, message)
        why = RETURNED if error is None else why_of(error)
        if is_over and (yield from _try_to_bury(group, message, why)):
            group.workload.settle(work, message)
            _tell(group, message, None, error, dead=_last_words(error))
        else:
            again.append(tried_again(message))
            _tell(group, message, pause, error, is_here=True)
            _warn_of_poison(group, message, error)
    yield from _rest(group, work, again, pause)


def _rest(group: Group, work: Work, again: Sequence[StoredMessage], pause: float) -> Op[None]:
    """Let an ordered queue rest, and hand out the same messages again."""
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
            extra=about(message, group=group.name),
        )


def _is_worn_out(group: Group, message: StoredMessage) -> bool:
    limit = group.config.max_attempts
    return limit is not None and message.reconsume_times + 1 >= limit


def _try_to_bury(group: Group, message: StoredMessage, why: str) -> Op[bool]:
    """Move a message to the dead letters; False if that failed."""
    if group.config.broadcast:
        return True
    try:
        yield from bury(group, message, why)
    except RocketMQError as failure:
        log.warning(
            "%s could not be moved to the dead letters: %s",
            message.message_id,
            failure,
            extra=about(message, group=group.name),
        )
        return False
    return True


def _tell(
    group: Group,
    message: StoredMessage,
    after: float | None,
    error: Exception | None,
    *,
    dead: str | None = None,
    is_here: bool = False,
) -> None:
    """Count, log and tell hooks what became of a message; ``dead`` is why it was given up."""
    counters, hooks = group.counters, group.hooks
    if dead is not None:
        counters.dead_lettered += 1
        log.error(
            "%s of %s was given up after %d tries: %s",
            message.message_id,
            message.topic,
            message.reconsume_times + 1,
            dead,
            extra=about(message, group=group.name),
        )
    elif is_here:
        counters.retried_here += 1
    else:
        counters.retried += 1
    wanted = hooks.retried if dead is None else hooks.dead_lettered
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
    log.error("%s: %s", queue, why, extra=about(messages[0], group=group.name))
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
    left = yield from _send_all_back(group, work, _HUNG_PAUSE, error)
    yield from _again_here(group, work, left, Retry(_LOCAL_PAUSE), error)
