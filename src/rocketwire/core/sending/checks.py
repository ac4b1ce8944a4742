"""Questions of brokers about transactions that were left open, and the answers to them."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, Protocol

from rocketwire.core.effects import Op, invoke
from rocketwire.core.instance import Instance
from rocketwire.core.naming import without_namespace
from rocketwire.errors import RemoteProtocolError, RocketMQError
from rocketwire.log_fields import about
from rocketwire.message import TransactionState
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.broker_requests import decode_transaction_check
from rocketwire.wire.codes import RequestCode, ResponseCode, SystemFlag, error_for
from rocketwire.wire.command import Command
from rocketwire.wire.headers import end_transaction
from rocketwire.wire.lazy_message import broker_property, messages_in
from rocketwire.wire.properties import Property

_log = logging.getLogger("rocketwire.producer")

DECISIONS = {
    TransactionState.COMMITTED: SystemFlag.TRANSACTION_COMMIT,
    TransactionState.ROLLED_BACK: SystemFlag.TRANSACTION_ROLLBACK,
}


class Check(NamedTuple):
    """One question: what became of this half message?"""

    address: str
    broker: str
    #: The producer group that is asked, and the topic, as servers know them.
    group: str
    topic: str
    message: StoredMessage
    queue_offset: int
    commit_log_offset: int
    transaction_id: str

    @property
    def key(self) -> str:
        """The half message that it is about; its offset changes each time a broker asks."""
        return self.transaction_id


class CheckRunner(Protocol):
    """Where questions are handed in. It must not wait."""

    def post(self, check: Check) -> None:
        """Have it answered, some time and somewhere else."""

    def decided(self, key: str) -> None:
        """A broker has confirmed a decision: its next questions were asked before."""

    def undecided(self, key: str) -> None:
        """A broker has not confirmed a decision: its next question is to be answered."""

    def close(self) -> None:
        """Take no more."""


def read_check(instance: Instance, address: str, command: Command) -> Check:
    """A question as it came from a broker.

    Raises:
        RemoteProtocolError: it can't be read.
    """
    fields = decode_transaction_check(command.ext)
    broker = fields.broker or broker_at(instance, address)
    found = messages_in(bytes(command.body), broker=broker)
    if len(found) != 1:
        raise RemoteProtocolError(f"a check of a transaction has {len(found)} messages: 1 expected")
    (message,) = found
    topic = message.topic
    shown = without_namespace(topic, instance.config.namespace)
    if shown != topic:
        message = message.replace(topic=shown, queue=message.queue._replace(topic=shown))
    return Check(
        address,
        broker,
        broker_property(found[0], Property.PGROUP) or "",
        topic,
        message,
        fields.queue_offset,
        fields.commit_log_offset,
        fields.transaction_id or message.message_id,
    )


def broker_at(instance: Instance, address: str) -> str:
    """The name of a broker that does not tell it, as those of 4.x."""
    known = instance.routes.masters().items()
    return next((name for name, its in known if its == address), address)


def verdict(answer: object, check: Check) -> TransactionState:
    """What a checker's answer means; what it does not mean is logged, and unknown."""
    if isinstance(answer, bool):
        return TransactionState.COMMITTED if answer else TransactionState.ROLLED_BACK
    if answer is None or answer is TransactionState.OPEN:
        return TransactionState.UNKNOWN
    if isinstance(answer, TransactionState):
        return answer
    _log.error(
        "the checker returned %r for transaction %s: return a TransactionState, a bool or None; "
        "it counts as unknown",
        answer,
        check.transaction_id,
        extra=about(check.message, group=check.group),
    )
    return TransactionState.UNKNOWN


def note_decided(instance: Instance, group: str, key: str) -> None:
    """A broker has confirmed a decision on a half message of a group."""
    runner = instance.check_runners.get(group)
    if runner is not None:
        runner.decided(key)


def answer_check(instance: Instance, check: Check, state: TransactionState) -> Op[None]:
    """Tell a broker what became of a transaction. Failures are logged: it will ask again."""
    decision = DECISIONS.get(state)
    if decision is None:  # a broker would not even answer
        return
    request = instance.request(
        RequestCode.END_TRANSACTION,
        end_transaction(
            group=check.group,
            topic=check.topic,
            queue_offset=check.queue_offset,
            commit_log_offset=check.commit_log_offset,
            decision=decision,
            message_id=check.message.message_id,
            transaction_id=check.transaction_id,
            from_check=True,
            broker=check.broker,
        ),
    )
    deadline = instance.clock() + instance.config.request_timeout
    problem: Any = None
    try:
        reply = yield from invoke(check.address, request, deadline)
    except RocketMQError as error:
        problem = error
    else:
        if reply.code == ResponseCode.SUCCESS:
            note_decided(instance, check.group, check.key)
        else:
            asked = RequestCode.END_TRANSACTION
            problem = error_for(reply.code, reply.remark, check.broker, asked=asked)
    if problem is not None:
        runner = instance.check_runners.get(check.group)
        if runner is not None:
            runner.undecided(check.key)
        _log.warning(
            "%s has not confirmed the answer %s to its check of transaction %s (%s); it asks again",
            check.broker,
            state.name,
            check.transaction_id,
            problem,
            extra=about(check.message, group=check.group),
        )
