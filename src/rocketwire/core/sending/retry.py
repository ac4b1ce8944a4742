"""Whether a failed attempt is followed by another, until when, and what is said in the end.

Pure decisions, the same for blocking and asynchronous sends. Which broker a retry goes to is
``selection``'s part; which codes are retryable is one table in ``wire/codes.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rocketwire.core.durations import span
from rocketwire.core.failure_text import what_happened
from rocketwire.core.sending.mode import SendMode
from rocketwire.errors import (
    Attempt,
    BrokerError,
    Outcome,
    PermissionDeniedError,
    RemoteProtocolError,
    RocketMQError,
    SendFailedError,
    SendTimeoutError,
    TopicNotFoundError,
    TransportError,
)
from rocketwire.message import SendStatus
from rocketwire.wire.codes import RETRYABLE


def tries_allowed(
    mode: SendMode, *, pinned: bool, retries: int, async_retries: int, ordered_retries: int
) -> int:
    """How many attempts a send may make in all.

    Args:
        mode: how it waits; a oneway send is never repeated.
        pinned: whether it must stay on one queue: a given queue, a pinning selector, an ordered
            message.
        retries: the setting for blocking sends.
        async_retries: the setting for asynchronous sends.
        ordered_retries: the setting for sends that stay on one queue.
    """
    if mode is SendMode.ONEWAY:
        return 1
    if pinned:
        return 1 + ordered_retries
    return 1 + (retries if mode is SendMode.BLOCKING else async_retries)


def default_attempt_timeout(timeout: float, tries: int) -> float:
    """The cap of an attempt where the user set none: an even share of the time."""
    return timeout / max(1, tries)


def attempt_deadline(
    now: float, deadline: float, cap: float | None, *, tries_left: int, another_usable: bool
) -> float:
    """Until when one attempt may wait.

    The cap holds only where giving up helps: another broker is usable, and a try is left for it
    after this one. Otherwise the attempt has all the time that remains, so that a brown-out of
    the whole cluster does not multiply its load.

    Args:
        now: when the attempt begins.
        deadline: of the whole send.
        cap: seconds for one attempt, None for no cap.
        tries_left: attempts that may follow this one on another broker; 0 when pinned.
        another_usable: whether another broker of the topic is usable and not suspect.
    """
    if cap is None or tries_left <= 0 or not another_usable:
        return deadline
    return min(deadline, now + cap)


def is_retryable(error: Exception, *, also: Collection[int] = ()) -> bool:
    """Whether another attempt may succeed where this one failed.

    Args:
        error: what the attempt ended with.
        also: response codes to retry beside those of the table.
    """
    if isinstance(error, BrokerError):
        return error.code in RETRYABLE or error.code in also
    if isinstance(error, RemoteProtocolError):
        # A broker that answers garbage is not healthy; another one may be.
        return True
    return isinstance(error, RocketMQError) and error.retryable


def may_succeed_later(error: SendFailedError) -> bool:
    """Whether a send that failed with all its attempts may succeed when it is made again after a pause.

    A topic that no name server knows is not worth waiting for; one without a queue to write to is, and
    so is a send that ended before it was tried.
    """
    cause = error.attempts[-1].error if error.attempts else error.__cause__
    if cause is None:
        return True
    if isinstance(cause, TopicNotFoundError):
        return False
    return isinstance(cause, Exception) and is_retryable(cause)


def should_retry_status(status: SendStatus, *, retry_when_not_stored: bool) -> bool:
    """Whether a message that was stored less safely than asked for is sent to another broker."""
    return retry_when_not_stored and status is not SendStatus.OK


def outcome_of(error: BaseException, *, written: bool = False) -> Outcome:
    """What became of the message in one attempt.

    Args:
        error: what the attempt ended with; a cancellation counts, too.
        written: whether any byte of the request may have left, for errors that do not say so.
    """
    if isinstance(error, BrokerError):
        return Outcome.REJECTED
    if isinstance(error, RemoteProtocolError):
        return Outcome.MAYBE_STORED
    if isinstance(error, TransportError):
        written = written or error.written
    return Outcome.MAYBE_STORED if written else Outcome.NOT_SENT


def describe_failure(
    attempts: Sequence[Attempt],
    elapsed: float,
    *,
    cause: BaseException | None = None,
    note: str = "",
) -> str:
    """A failed send in one sentence: its outcome, each attempt in order, how long it all took.

    Args:
        attempts: every attempt, in order.
        elapsed: seconds from the call to now.
        cause: told where there was no attempt at all.
        note: what else is known, to follow attempts.
    """
    if not attempts:
        reason = str(cause) if cause is not None and str(cause) else "there was no time to try"
        return f"{Outcome.NOT_SENT.value}: {reason} (no attempt, {span(elapsed)})"
    told = ", ".join(f"{attempt.broker} {_told(attempt)}" for attempt in attempts)
    count = "1 attempt" if len(attempts) == 1 else f"{len(attempts)} attempts"
    refused = (a.error.remedy for a in attempts if isinstance(a.error, PermissionDeniedError))
    remedy = next((f"; {remedy}" for remedy in refused), "")
    return f"{worst_outcome(attempts).value}: {told} ({count}, {span(elapsed)}){remedy}{note}"


def _told(attempt: Attempt) -> str:
    if attempt.error is None:
        return "stored it less safely than asked for"
    return what_happened(attempt.error, attempt.latency)


def worst_outcome(attempts: Sequence[Attempt]) -> Outcome:
    """What became of a message over all of its attempts."""
    # An attempt without an error was stored, if not as safely as asked for.
    return Outcome.worst([attempt.outcome or Outcome.MAYBE_STORED for attempt in attempts])


def failure(
    attempts: Sequence[Attempt],
    elapsed: float,
    *,
    deadline_passed: bool,
    cause: BaseException | None = None,
    note: str = "",
) -> SendFailedError:
    """The error that ``send`` raises in the end, with its cause chained.

    Args:
        attempts: every attempt, in order.
        elapsed: seconds from the call to now.
        deadline_passed: whether time ran out; the error is then a ``SendTimeoutError``.
        cause: the last error; by default that of the last attempt.
        note: what else is known, to follow the attempts.
    """
    if cause is None and attempts:
        cause = attempts[-1].error
    kind = SendTimeoutError if deadline_passed else SendFailedError
    text = describe_failure(attempts, elapsed, cause=cause, note=note)
    error = kind(text, attempts=attempts, outcome=worst_outcome(attempts))
    error.__cause__ = cause
    return error
