"""The end of a transaction, as a request that is quickly made.

Every transaction has one, and but for five fields it is the same for all of a topic on a broker.
Encoding it field by field would cost a tenth of the whole transaction.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rocketwire.wire.binary_header import encode_ext
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.encoded_request import EncodedRequest
from rocketwire.wire.headers import end_transaction

#: Topics on brokers whose constant fields are kept.
_MOST_KEPT: Final = 1000
#: The fields that change, each with four bytes for its size: numbers are short, ids are what a broker makes them.
_FORM: Final = (
    b"%b"
    b"\x00\x14tranStateTableOffset\x00\x00\x00%c%b"
    b"\x00\x0fcommitLogOffset\x00\x00\x00%c%b"
    b"\x00\x10commitOrRollback\x00\x00\x00%c%b"
    b"\x00\x05msgId%b%b"
    b"\x00\x0dtransactionId%b%b"
)
_CHANGING: Final = frozenset(
    {"tranStateTableOffset", "commitLogOffset", "commitOrRollback", "msgId", "transactionId"}
)


class TransactionEnd(EncodedRequest):
    """END_TRANSACTION, by the producer that began it.

    Args:
        group: the producer group, as servers know it.
        topic: of the message, as servers know it.
        broker: that has the half message.
        queue_offset: where it lies there.
        commit_log_offset: the same, in the commit log.
        decision: one of ``SystemFlag.TRANSACTION_*``.
        message_id: its unique id.
        transaction_id: of the transaction.
    """

    __slots__ = ()

    code = int(RequestCode.END_TRANSACTION)

    def __init__(
        self,
        group: str,
        topic: str,
        broker: str,
        queue_offset: int,
        commit_log_offset: int,
        decision: int,
        message_id: str,
        transaction_id: str,
    ) -> None:
        at, log = b"%d" % queue_offset, b"%d" % commit_log_offset
        word = b"%d" % decision
        unique, own = message_id.encode(), transaction_id.encode()
        # What EncodedRequest.__init__ does, without its call.
        self._ext = _FORM % (
            _constant(group, topic, broker), len(at), at, len(log), log, len(word), word,
            len(unique).to_bytes(4, "big"), unique, len(own).to_bytes(4, "big"), own,
        )  # fmt: skip


@lru_cache(_MOST_KEPT)
def _constant(group: str, topic: str, broker: str) -> bytes:
    """The fields that are the same for all transactions of a topic on a broker."""
    fields = end_transaction(
        group=group,
        topic=topic,
        queue_offset=0,
        commit_log_offset=0,
        decision=0,
        message_id="",
        broker=broker,
    )
    return encode_ext({name: value for name, value in fields.items() if name not in _CHANGING})
