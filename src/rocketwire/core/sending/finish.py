"""The end of sends whose attempt was stored, and of those that get no answer."""

from __future__ import annotations

from collections.abc import Sequence

from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.history import SendHistory
from rocketwire.core.sending.results import result_later
from rocketwire.core.sending.stats import Counters
from rocketwire.message import SendResult


def stored(attempt: SendAttempt, answer: bytes, now: float) -> SendResult:
    """A broker has said at ``now`` that it stored an attempt; ``answer`` is the frame.

    Not for senders whose hooks want to hear of it (``Sender.tells``): those need the answer read, so
    they go on with the operation.
    """
    sender, batch = attempt.sender, attempt.batch
    sender.faults.answered(attempt, now)
    messages = 1 if batch is None else len(batch.messages)
    sender.counters.stored(attempt.entry.name, now - attempt.began, len(attempt.body), messages)
    if attempt.history is not None:
        attempt.history.last = attempt
    if attempt.key_slots:
        leave_order(attempt)
    return result_later(attempt, answer)


def stored_all(attempts: Sequence[SendAttempt], now: float) -> None:
    """As ``stored`` for several attempts of one client instance, without making their results.

    The fault table and the statistics learn it in one go, which saves a third of what an answer
    costs.

    Raises:
        BaseException: a hook of the fault table ends the program; what follows it here is done all the same.
    """
    try:
        attempts[0].sender.instance.faults.answered_all(attempts, now)
    finally:
        start, count = 0, len(attempts)
        while start < count:
            sender, entry, end = attempts[start].sender, attempts[start].entry, start + 1
            while end < count and attempts[end].entry is entry and attempts[end].sender is sender:
                end += 1
            _count_stored(sender.counters, entry.name, attempts[start:end], now)
            start = end
        for attempt in attempts:
            if attempt.history is not None:
                attempt.history.last = attempt
            if attempt.key_slots:
                leave_order(attempt)
            attempt.release()


def _count_stored(
    counters: Counters, broker: str, attempts: Sequence[SendAttempt], now: float
) -> None:
    """Let the statistics know of answers that one broker gave to one sender."""
    counters.of(broker).answered_all([now - attempt.began for attempt in attempts])
    messages = len(attempts)
    if any([attempt.batch is not None for attempt in attempts]):  # noqa: C419  half the time
        messages = sum([attempt.count for attempt in attempts])
    counters.add(len(attempts), sum([len(attempt.body) for attempt in attempts]), messages)


def leave_order(attempt: SendAttempt) -> None:
    """Let the next sends of its sharding keys go; harmless where that was done before."""
    for slot in attempt.key_slots:
        attempt.sender.order.leave(slot)


def interrupted(attempt: SendAttempt) -> None:
    """Release what a send holds that ended by an error, or was interrupted at any moment.

    That is its entry in the fault table and its key slots. A second call is harmless.
    """
    if attempt.target is not None:
        attempt.sender.instance.faults.cancelled(attempt)
    leave_order(attempt)


def written_oneway(attempt: SendAttempt, now: float) -> None:
    """An attempt that gets no answer was written at ``now``.

    Under most policies the fault table learns nothing from that; it knows of the attempt only if
    writing it took time.
    """
    sender = attempt.sender
    faults, entry = sender.instance.faults, attempt.entry
    if attempt.is_written or faults.heeds_oneway or entry.trial_attempt is attempt:
        faults.settled(attempt, now)
    sender.counters.oneway += 1
    history = attempt.history
    if history is not None or sender.tells:
        history = history or SendHistory(attempt.began)
        history.last = attempt
        history.written(attempt, now)
        leave_order(attempt)
        history.tell(attempt, now, None, None)
    elif attempt.key_slots:
        leave_order(attempt)
