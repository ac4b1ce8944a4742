"""The end of a transaction: a producer commits a prepared message or rolls it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.embedded.parked import Parked
from rocketwire.wire.codes import RequestCode, ResponseCode, SystemFlag
from rocketwire.wire.headers import int_field, text_field

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    return {RequestCode.END_TRANSACTION: EndTransactionHandler(broker).end}


class EndTransactionHandler:
    """Carries out producers' decisions."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def end(self, call: Call) -> Answer | None:
        """Commit or roll back; "unknown" changes nothing and, as with Apache, gets no answer."""
        decision = int_field(call.ext, "commitOrRollback")
        if decision not in {SystemFlag.TRANSACTION_COMMIT, SystemFlag.TRANSACTION_ROLLBACK}:
            return None
        transactions = self._broker.transactions
        parked = transactions.find(int_field(call.ext, "commitLogOffset"))
        if parked is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        self._check(call, parked)
        if decision == SystemFlag.TRANSACTION_COMMIT:
            transactions.commit(parked)
        else:
            transactions.decide(parked.queue_offset)
        return Answer()

    def _check(self, call: Call, parked: Parked) -> None:
        if self._too_late(call, parked):
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                "the time for a decision is over: wait until the broker asks",
            )
        if parked.properties.get("PGROUP") != text_field(call.ext, "producerGroup"):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if parked.queue_offset != int_field(call.ext, "tranStateTableOffset"):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")

    def _too_late(self, call: Call, parked: Parked) -> bool:
        """Only messages with a time of their own can be decided too late."""
        if call.ext.get("fromTransactionCheck") == "true":
            return False
        if not parked.properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS"):
            return False
        transactions = self._broker.transactions
        return transactions.age_ms(parked) > transactions.immunity_ms(parked)
