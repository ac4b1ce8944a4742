"""The story of one send: every attempt, what it taught, and what is told in the end."""

from __future__ import annotations

from functools import partial
from typing import Any

from rocketwire.core.encode import MessageIds, Outgoing, as_texts
from rocketwire.core.fault_entries import NEVER
from rocketwire.core.faults import Flight
from rocketwire.core.instance import Instance
from rocketwire.core.retry import failure, outcome_of
from rocketwire.core.stats import Counters
from rocketwire.core.targets import SendTarget
from rocketwire.errors import Attempt, Outcome, RocketMQError, SendFailedError
from rocketwire.hooks import AttemptEvent, HookSet, call_hooks
from rocketwire.message import MessageQueue, SendResult, SendStatus
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import Reply
from rocketwire.wire.headers import decode_send_reply

_STATUS = {
    ResponseCode.SUCCESS: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


def read_result(reply: Reply, outgoing: Outgoing, target: SendTarget) -> SendResult:
    """What a broker's answer says about where the message is; read when somebody asks.

    Raises:
        RemoteProtocolError: it does not say.
    """
    layout = reply.layout
    if layout is None or not layout.has_place:
        decode_send_reply(reply.ext)  # an answer that makes no sense is an error now, not later
    # The message itself is not kept alive by its result.
    return SendResult.read_by(
        partial(result_fields, reply, outgoing.ids, target.queue, is_batch=outgoing.is_batch)
    )


def result_fields(
    reply: Reply, ids: MessageIds, queue: MessageQueue, *, is_batch: bool
) -> dict[str, Any]:
    """The fields of a result, as arguments of its constructor.

    Raises:
        RemoteProtocolError: the answer does not tell them.
    """
    place = decode_send_reply(reply.ext)
    if place.queue_id != queue.id:
        queue = MessageQueue(queue.topic, queue.broker, place.queue_id)
    stored_as, message_ids = place.offset_message_id, as_texts(ids)
    return {
        "status": _STATUS[reply.code],
        "message_id": place.batch_id or ",".join(message_ids),
        "offset_message_id": stored_as,
        "queue": queue,
        "offset": place.queue_offset,
        "transaction_id": place.transaction_id,
        "region": place.region,
        "message_ids": message_ids,
        "offset_message_ids": tuple(stored_as.split(",")) if is_batch else (stored_as,),
    }


def share(result: SendResult, place: int) -> SendResult:
    """The result of one message of a batch; read when somebody asks."""
    return SendResult.read_by(partial(_share, result, place))


def _share(result: SendResult, place: int) -> dict[str, Any]:
    ids, offset_ids = result.message_ids, result.offset_message_ids
    offset_id = offset_ids[place] if place < len(offset_ids) else result.offset_message_id
    return {
        "status": result.status,
        "message_id": ids[place],
        "offset_message_id": offset_id,
        "queue": result.queue,
        "offset": result.offset + place,
        "transaction_id": result.transaction_id,
        "region": result.region,
        "message_ids": (ids[place],),
        "offset_message_ids": (offset_id,),
        "attempts": result.attempts,
        "maybe_duplicate": result.maybe_duplicate,
    }


class AttemptLog:
    """Collects the attempts of one send and reports each to statistics and hooks."""

    __slots__ = ("_counters", "_hooks", "_instance", "_outgoing", "attempts", "error", "kept")

    def __init__(
        self, instance: Instance, counters: Counters, outgoing: Outgoing, hooks: HookSet
    ) -> None:
        self._instance = instance
        self._counters = counters
        self._hooks = hooks
        self._outgoing = outgoing
        self.attempts: list[Attempt] = []
        #: What the last attempt failed with.
        self.error: RocketMQError | None = None
        #: A result that was stored less safely than asked for, in case nothing better comes.
        self.kept: SendResult | None = None

    def failed(
        self, target: SendTarget, began: float, now: float, error: RocketMQError, flight: Flight
    ) -> None:
        """An attempt failed."""
        self.error = error
        outcome = outcome_of(error, written=flight.written_at != NEVER)
        self.attempts.append(Attempt(target.queue, now - began, error, outcome))
        self._counters.broke(target.broker)
        if self._hooks.after_attempt:
            count = len(self.attempts)
            self._report(count, target, now - began, outcome.value, None, str(error))

    def stored(self, target: SendTarget, began: float, now: float, result: SendResult) -> None:
        """An attempt was stored."""
        self.error = None
        if self._hooks.after_attempt:
            count = len(self.attempts) + 1
            self._report(count, target, now - began, "stored", result.offset, None)

    def cancelled(self, target: SendTarget, began: float, flight: Flight) -> SendFailedError | None:
        """The send was given up by its caller during an attempt; what is told in the end.

        None where nobody is told: there are no hooks, and nobody stands behind it in line.
        """
        hooks = self._hooks
        if not (hooks.after_attempt or hooks.after_send or self._outgoing.sharding_keys):
            return None
        outcome = outcome_of(GeneratorExit(), written=flight.written_at != NEVER)
        elapsed = self._instance.clock() - began
        error = RocketMQError("cancelled")
        self.attempts.append(Attempt(target.queue, elapsed, error, outcome))
        if self._hooks.after_attempt:
            self._report(len(self.attempts), target, elapsed, outcome.value, None, "cancelled")
        return failure(self.attempts, elapsed, deadline_passed=False)

    def written(self, target: SendTarget, began: float, now: float) -> None:
        """A oneway message was handed over."""
        if self._hooks.after_attempt:
            self._report(1, target, now - began, "oneway", None, None)

    def keep(self, result: SendResult, latency: float) -> None:
        """Remember a result that is to be bettered on another broker."""
        self.kept = self.kept or result
        self.attempts.append(Attempt(result.queue, latency, None, Outcome.MAYBE_STORED))

    def finish(self, result: SendResult) -> SendResult:
        """The result with its story."""
        if not self.attempts:
            return result
        attempts = tuple(self.attempts)
        duplicate = any(a.outcome is Outcome.MAYBE_STORED for a in attempts)
        self._counters.maybe_duplicates += duplicate
        return result.replace(attempts=attempts, maybe_duplicate=duplicate)

    def give_up(self, began: float, deadline: float, cause: Exception | None) -> SendFailedError:
        """The error as the user gets it."""
        self._counters.failed += 1
        now = self._instance.clock()
        return failure(self.attempts, now - began, deadline_passed=now >= deadline, cause=cause)

    def _report(
        self,
        number: int,
        target: SendTarget,
        latency: float,
        outcome: str,
        offset: int | None,
        error: str | None,
    ) -> None:
        outgoing, instance = self._outgoing, self._instance
        messages = outgoing.messages
        event = AttemptEvent(
            instance.wall(),
            instance.client_id,
            messages[0].topic,
            target.broker,
            target.queue.id,
            offset,
            outgoing.message_ids[0],
            messages[0].sharding_key,
            len(outgoing.body),
            latency,
            outcome,
            error,
            number,
            len(messages),
            instance.faults.state_of(target.broker),
        )
        call_hooks(self._hooks.after_attempt, event)
