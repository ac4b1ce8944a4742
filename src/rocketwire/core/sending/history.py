"""The story of one send: every attempt, what it taught, and what is told in the end."""

from __future__ import annotations

from typing import Final

from rocketwire.core.durations import span
from rocketwire.core.sending.attempt import SendAttempt, as_texts
from rocketwire.core.sending.retry import failure, outcome_of, worst_outcome
from rocketwire.errors import Attempt, Outcome, RemoteProtocolError, RocketMQError, SendFailedError
from rocketwire.hooks import AttemptEvent, SendEvent, call_hooks
from rocketwire.message import SendResult
from rocketwire.wire.command import Reply
from rocketwire.wire.properties import Property

_MODES: Final = ("blocking", "async", "oneway")


class SendHistory:
    """Collects the attempts of one send and reports each to statistics and hooks.

    Most sends have none, because the first attempt is stored and no hook looks at it.
    """

    __slots__ = (
        "attempts",
        "began",
        "error",
        "is_unrepeatable",
        "kept",
        "last",
        "reply",
    )

    def __init__(self, began: float) -> None:
        #: When the time of the send began.
        self.began = began
        self.attempts: list[Attempt] = []
        #: What the last attempt failed with.
        self.error: RocketMQError | None = None
        #: A result that was stored less safely than asked for, in case nothing better comes.
        self.kept: SendResult | None = None
        #: Whether it must not be sent again once it may be stored.
        self.is_unrepeatable = False
        #: The last attempt that was begun, and the last answer.
        self.last: SendAttempt | None = None
        self.reply: Reply | None = None

    @property
    def outcome(self) -> Outcome:
        """What became of the message over all attempts so far."""
        return worst_outcome(self.attempts)

    def failed(self, attempt: SendAttempt, now: float, error: RocketMQError) -> None:
        """An attempt failed."""
        self.error = error
        outcome = outcome_of(error, written=attempt.is_written)
        latency = now - attempt.began
        self.attempts.append(Attempt(attempt.where.queue, latency, error, outcome))
        attempt.sender.counters.broke(attempt.where.broker)
        self._report(attempt, latency, outcome.value, None, str(error))

    def stored(self, attempt: SendAttempt, now: float, result: SendResult) -> None:
        """An attempt was stored."""
        self.error = None
        if attempt.sender.hooks.after_attempt:
            latency = now - attempt.began
            self._report(attempt, latency, "stored", result.offset, None, count=1)

    def cancelled(self, attempt: SendAttempt, now: float) -> None:
        """The caller gave the send up during an attempt."""
        outcome = outcome_of(GeneratorExit(), written=attempt.is_written)
        elapsed = now - attempt.began
        error = RocketMQError("cancelled")
        self.attempts.append(Attempt(attempt.where.queue, elapsed, error, outcome))
        self._report(attempt, elapsed, outcome.value, None, "cancelled")

    def written(self, attempt: SendAttempt, now: float) -> None:
        """A oneway message was handed over."""
        self._report(attempt, now - attempt.began, "oneway", None, None, count=1)

    def keep(self, attempt: SendAttempt, result: SendResult, latency: float) -> None:
        """Remember a result that is to be bettered on another broker."""
        self.kept = self.kept or result
        self.attempts.append(Attempt(attempt.where.queue, latency, None, Outcome.MAYBE_STORED))

    def finish(self, attempt: SendAttempt, result: SendResult) -> SendResult:
        """The result with its story."""
        if not self.attempts:
            return result
        attempts = tuple(self.attempts)
        duplicate = any(a.outcome is Outcome.MAYBE_STORED for a in attempts)
        attempt.sender.counters.maybe_duplicates += duplicate
        return result.replace(attempts=attempts, maybe_duplicate=duplicate)

    def give_up(
        self, attempt: SendAttempt, now: float, cause: Exception | None = None
    ) -> SendFailedError:
        """The error as the user gets it."""
        attempt.sender.counters.failed += 1
        is_late = now >= self.began + attempt.timeout
        note = self._who_is_down(attempt, now)
        return failure(
            self.attempts, now - self.began, deadline_passed=is_late, cause=cause, note=note
        )

    def _who_is_down(self, attempt: SendAttempt, now: float) -> str:
        """Which brokers of the topic can't be reached and since when, if that is all of them."""
        faults = attempt.sender.instance.faults
        brokers = {tried.broker for tried in self.attempts}
        last = self.last
        if last is not None and last.route is not None:
            brokers.update(last.route.brokers)
        down = {broker: faults.unreached_for(broker, now) for broker in sorted(brokers)}
        told = [f"{name} for {span(since)}" for name, since in down.items() if since is not None]
        if not told or len(told) < len(down):
            return ""
        return f"; no broker of topic {attempt.message.topic} can be reached: {', '.join(told)}"

    def tell(
        self,
        attempt: SendAttempt,
        now: float,
        result: SendResult | None,
        error: Exception | None,
    ) -> None:
        """Tell the hooks how the send ended."""
        sender, last, reply = attempt.sender, self.last, self.reply
        if not sender.hooks.after_send:
            return
        elapsed = now - self.began
        event = SendEvent(
            attempt.messages,
            result,
            error,
            elapsed,
            sender.instance.wall() - elapsed,
            as_texts(attempt.ids),
            len(attempt.body),
            None if last is None else last.where.address,
            _is_traced(reply),
        )
        call_hooks(sender.hooks.after_send, event)

    def _report(
        self,
        attempt: SendAttempt,
        latency: float,
        outcome: str,
        offset: int | None,
        error: str | None,
        *,
        count: int = 0,
    ) -> None:
        sender, target = attempt.sender, attempt.where
        hooks, instance = sender.hooks.after_attempt, sender.instance
        if not hooks:
            return
        at = instance.wall()
        event = AttemptEvent(
            at,
            instance.client_id,
            attempt.message.topic,
            target.broker,
            target.queue.id,
            offset,
            as_texts(attempt.ids)[0],
            attempt.message.sharding_key,
            len(attempt.body),
            latency,
            outcome,
            error,
            len(self.attempts) + count,
            attempt.count,
            instance.faults.state_of(target.broker),
            _MODES[attempt.mode],
            attempt.is_pinned,
            at - (attempt.began + latency - self.began),
            attempt.timeout,
        )
        call_hooks(hooks, event)


def _is_traced(reply: Reply | None) -> bool:
    """Whether the broker wants traces; one whose answer makes no sense has not said that it does not."""
    try:
        return reply is None or reply.ext.get(Property.TRACE_ON) != "false"
    except RemoteProtocolError:  # that is known, and must not take the place of the send's own end
        return True
