"""Transactions: a message that nobody sees until its producer has decided.

``TransactionSteps`` is one transaction. It has what both shells share: what is sent, what an answer
means, and which steps may follow which. A shell carries the steps out.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Final, cast

from rocketwire.core.durations import span
from rocketwire.core.effects import Invoke, Op, sleep, wait
from rocketwire.core.lookup import locate_topic, proxy_in_the_way
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.checks import DECISIONS, note_decided
from rocketwire.core.sending.finish import interrupted
from rocketwire.core.sending.history import SendHistory
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.results import HalfPlace, half_place
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.target import SendTarget
from rocketwire.core.sending.validate import with_added
from rocketwire.errors import (
    InvalidMessageError,
    Outcome,
    RocketMQError,
    SendFailedError,
    TransactionError,
    TransportError,
    UnsupportedRequestError,
)
from rocketwire.log_fields import about
from rocketwire.message import Message, SendResult, TransactionState
from rocketwire.wire.codes import RequestCode, ResponseCode, SystemFlag, error_for
from rocketwire.wire.command import Reply, Request
from rocketwire.wire.headers import end_transaction
from rocketwire.wire.message_id import log_offset_in
from rocketwire.wire.send_properties import half_fields
from rocketwire.wire.transaction_end import TransactionEnd

_log = logging.getLogger("rocketwire.producer")

#: Tries of a decision that could not be written, and the pause between them.
_TRIES: Final = 3
_PAUSE: Final = 0.1
_COMMIT: Final = int(DECISIONS[TransactionState.COMMITTED])
_ROLLBACK: Final = int(DECISIONS[TransactionState.ROLLED_BACK])
_half_fields = lru_cache(maxsize=1000)(half_fields)
_IN_WORDS: Final = {
    TransactionState.COMMITTED: "commit",
    TransactionState.ROLLED_BACK: "rollback",
}


def check_transactional(message: object) -> Message:
    """The message, if it can be part of a transaction.

    Raises:
        InvalidMessageError: it can't; the text names the reason.
    """
    if not isinstance(message, Message):
        kind = type(message).__name__
        raise InvalidMessageError(
            f"message is a {kind}: a transaction has one Message; batches can't be transactional"
        )
    if message.delay_level:
        raise InvalidMessageError(
            f"delay_level is {message.delay_level}: a transactional message can't be delayed, "
            "because brokers drop the delay at the commit"
        )
    if message.deliver_at is not None:
        raise InvalidMessageError(
            f"deliver_at is {message.deliver_at}: a transactional message can't be timed, "
            "because it would be delivered whatever is decided"
        )
    if message.sharding_key is not None:
        raise InvalidMessageError(
            f"sharding_key is {message.sharding_key!r}: a transactional message can't be ordered, "
            "because it gets its place when it is committed"
        )
    return message


class TransactionSteps:
    """One transaction of a producer.

    Args:
        sender: of the producer.
        message: what is delivered after the commit.
        timeout: seconds for the half message, and as many for the decision.
    """

    def __init__(self, sender: Sender, message: Message, timeout: float | str | None) -> None:
        self._sender = sender
        self._message = check_transactional(message)
        self._timeout = sender.check_timeout(timeout)
        self._attempt: SendAttempt | None = None
        self._result: SendResult | None = None
        self._place: HalfPlace | None = None
        self._target: SendTarget | None = None
        self._state = TransactionState.OPEN
        self._is_left_open = False

    # -- what users see ---------------------------------------------------------------------

    @property
    def result(self) -> SendResult:
        """Where the half message was stored.

        Raises:
            TransactionError: the transaction has not begun.
        """
        if self._result is None:
            raise TransactionError(
                "the transaction has not begun: use it in a with statement", self._state
            )
        return self._result

    @property
    def transaction_id(self) -> str:
        """The id by which the broker, and a checker's message, know the transaction."""
        return self.result.transaction_id or self.result.message_id

    @property
    def state(self) -> TransactionState:
        """``COMMITTED`` and ``ROLLED_BACK`` if a broker has said so; else open or not known."""
        return self._state

    def leave_open(self) -> None:
        """Decide nothing at the end of the block: the broker will ask the checkers of the group."""
        self._is_left_open = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._message!r}, {self._state.name})"

    # -- the half message -------------------------------------------------------------------

    @property
    def _is_direct(self) -> bool:
        """Whether decisions are known to go to brokers, and not to a proxy."""
        return self._sender.instance.presence.is_direct

    def _look_for_proxy(self) -> Op[None]:
        """See to it that a proxy will ask: it takes decisions, and passes on answers to checks only.

        A proxy of 5.3 forgets a group for good that it has not heard of when it tells brokers of its
        groups, every 20 s: then nobody asks, and the message is lost. So it hears of us first.

        Raises:
            UnsupportedRequestError: there is a proxy, and no checker.
            SendFailedError: the proxy answers no heartbeat.
        """
        sender, instance = self._sender, self._sender.instance
        deadline = instance.clock() + self._timeout
        proxy = yield from proxy_in_the_way(instance, deadline)
        if proxy is None:
            return
        if sender.group not in instance.check_runners:
            raise UnsupportedRequestError(
                proxy.code,
                "behind a proxy a transaction is ended by a checker's answer only, so that this one "
                "would be lost, and nothing was sent: give Producer(checker=...)",
                proxy.broker,
                name=proxy.code_name,
            )
        known = instance.presence.want()
        if known.is_set:
            return
        topic = sender.wire_topic(self._message.topic)
        try:
            yield from locate_topic(instance, topic, deadline, *sender.defaults)
        except RocketMQError:  # as the send will tell
            return
        instance.heartbeat_wake_up.wake()
        if not (yield from wait(known, deadline)):
            raise SendFailedError(
                f"not sent: the proxy answered no heartbeat within {span(self._timeout)}, so it would "
                "not ask the checker",
                outcome=Outcome.NOT_SENT,
            )

    def _begin(self, mode: SendMode) -> SendAttempt:
        """The first attempt of the half message.

        Raises:
            InvalidMessageError: something is wrong with it.
        """
        if self._attempt is not None:
            raise TransactionError("a transaction begins once: make a new one", self._state)
        # None where it is the usual time, which is not looked at again.
        limit = None if self._timeout == self._sender.timeout else self._timeout
        attempt = self._attempt = self._sender.start_here(self._message, mode, timeout=limit)
        try:
            self._make_half(attempt)
        except BaseException:  # an interrupt may come at any moment
            interrupted(attempt)
            raise
        return attempt

    def _make_half(self, attempt: SendAttempt) -> None:
        """Turn an attempt into that of a half message."""
        added = _half_fields(self._sender.group)
        attempt.properties = with_added(attempt.properties, added, "those of the transaction")
        attempt.system_flag |= SystemFlag.TRANSACTION_PREPARED
        # One that may be stored is not sent again: the broker would ask for its orphan, too, and a
        # checker that knows the business only would commit both.
        history = attempt.history = SendHistory(attempt.began)
        history.is_unrepeatable = True
        if attempt.target is not None:
            attempt.deadline = attempt.began + attempt.timeout

    def _prepared(self, result: SendResult) -> None:
        """The half message is stored."""
        self._result = result
        self._place = half_place(result)
        history = None if self._attempt is None else self._attempt.history
        assert history is not None
        assert history.last is not None
        self._target = history.last.where

    @property
    def _is_unsafe(self) -> bool:
        """Whether the half message is stored less safely than was asked for."""
        assert self._place is not None
        return not self._place.is_safe

    def _unsafe(self) -> TransactionError:
        """What is raised after such a half message was rolled back."""
        status = self.result.status
        after = {
            TransactionState.ROLLED_BACK: "it was rolled back, and nothing of it is delivered; "
            "begin again",
        }
        return TransactionError(
            f"the half message was stored with {status}, which a crash of its broker may undo: "
            + after.get(self._state, "rolling it back got no answer, the checkers decide"),
            self._state,
            self._result,
        )

    # -- the decision -----------------------------------------------------------------------

    @property
    def _wants_end(self) -> bool:
        """Whether the end of the block decides."""
        return self._state is TransactionState.OPEN and not self._is_left_open

    def _end(self, wanted: TransactionState) -> Op[TransactionState]:
        """Tell the broker a decision, and wait for its word.

        Raises:
            TransactionError: the broker has not confirmed it, or another was made before.
        """
        decision = self._decide_on(wanted)
        return wanted if decision is None else (yield from decision.operation())

    def _decide_on(self, wanted: TransactionState) -> Decision | None:
        """What a shell tells the broker; None if there is nothing to tell, because it is so already.

        Raises:
            TransactionError: another decision was made before, or it can't be told, because the answer
                to the half message makes no sense.
        """
        if self._state is wanted:
            return None
        if self._result is None or self._state is not TransactionState.OPEN:
            result = self.result
            raise TransactionError(self._too_late(wanted), self._state, result)
        # From the first byte on nobody knows, until the answer is there.
        self._state = TransactionState.UNKNOWN
        try:
            return Decision(self, wanted)
        except RocketMQError as error:
            raise self._unconfirmed(wanted, error) from error

    @property
    def _broker(self) -> str:
        assert self._target is not None
        return self._target.broker

    def _too_late(self, wanted: TransactionState) -> str:
        what = _IN_WORDS[wanted]
        if self._state is TransactionState.UNKNOWN:
            return (
                f"the transaction got no answer to an earlier decision, and the checkers decide: "
                f"a {what} now could contradict them"
            )
        return f"the transaction is {self._state.name} already: no {what} can follow"

    def _unconfirmed(self, wanted: TransactionState, cause: RocketMQError) -> TransactionError:
        text = (
            f"the {_IN_WORDS[wanted]} of transaction {self.transaction_id} was not confirmed by "
            f"{self._broker} ({cause}): its state is unknown, and the checkers of the group decide"
        )
        _log.warning(
            "%s", text, extra=about(self._message, group=self._sender.group, broker=self._broker)
        )
        return TransactionError(text, TransactionState.UNKNOWN, self._result)

    def _request(self, wanted: TransactionState) -> Request:
        sender, broker, place = self._sender, self._broker, self._place
        assert place is not None
        topic = sender.wire_topic(self._message.topic)
        # Not by a table: looking an enum up costs as much as writing the request.
        decision = _COMMIT if wanted is TransactionState.COMMITTED else _ROLLBACK
        log_offset = log_offset_in(place.offset_message_id)
        if sender.instance.is_plain:
            return TransactionEnd(
                sender.group,
                topic,
                broker,
                place.offset,
                log_offset,
                decision,
                place.message_id,
                place.transaction_id,
            )
        fields = end_transaction(
            group=sender.group,
            topic=topic,
            queue_offset=place.offset,
            commit_log_offset=log_offset,
            decision=decision,
            message_id=place.message_id,
            transaction_id=place.transaction_id,
            broker=broker,
        )
        return sender.instance.request(RequestCode.END_TRANSACTION, fields)


class Decision:
    """A decision on its way to the broker, as an attempt is of a send.

    A driver writes ``request`` to ``address``. If the answer is a success, the decision is
    ``confirmed``; with anything else the driver goes on with ``operation``, which stands there.
    """

    __slots__ = ("_steps", "_wanted", "deadline", "request")

    def __init__(self, steps: TransactionSteps, wanted: TransactionState) -> None:
        self._steps = steps
        self._wanted = wanted
        sender = steps._sender  # noqa: SLF001 - one thing in two classes
        self.deadline = sender.instance.clock() + steps._timeout  # noqa: SLF001
        self.request = steps._request(wanted)  # noqa: SLF001

    @property
    def address(self) -> str:
        """The master of the half message's broker, as far as is known now."""
        steps = self._steps
        target = steps._target  # noqa: SLF001
        assert target is not None
        routes = steps._sender.instance.routes  # noqa: SLF001
        return routes.master_of(target.broker) or target.address

    def confirmed(self) -> TransactionState:
        """The broker has said so."""
        steps, wanted = self._steps, self._wanted
        sender, place = steps._sender, steps._place  # noqa: SLF001
        assert place is not None
        note_decided(sender.instance, sender.group, place.transaction_id)
        steps._state = wanted  # noqa: SLF001
        return wanted

    def operation(self) -> Op[TransactionState]:
        """Tell the broker, and wait for its word. The first effect is the request.

        Raises:
            TransactionError: the broker has not confirmed it.
        """
        steps, wanted = self._steps, self._wanted
        try:
            reply = yield from self._ask()
        except RocketMQError as error:
            raise steps._unconfirmed(wanted, error) from error  # noqa: SLF001
        if reply.code != ResponseCode.SUCCESS:
            asked = RequestCode.END_TRANSACTION
            refusal = error_for(reply.code, reply.remark, steps._broker, asked=asked)  # noqa: SLF001
            raise steps._unconfirmed(wanted, refusal) from refusal  # noqa: SLF001
        return self.confirmed()

    def _ask(self) -> Op[Reply]:
        """Send the decision; again only where none of it has left.

        A second commit after one that arrived would deliver the message twice.
        """
        instance, deadline = self._steps._sender.instance, self.deadline  # noqa: SLF001
        tries = _TRIES
        while True:
            tries -= 1
            try:
                return cast("Reply", (yield Invoke(self.address, self.request, deadline)))
            except TransportError as error:
                now = instance.clock()
                if error.written or not tries or now + _PAUSE >= deadline:
                    raise
                instance.route_wake_up.wake()
            yield from sleep(now + _PAUSE)
