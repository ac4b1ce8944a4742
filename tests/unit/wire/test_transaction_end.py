"""The end of a transaction is the same request, however it is encoded."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import Command, decode_command
from rocketwire.wire.headers import end_transaction
from rocketwire.wire.transaction_end import TransactionEnd

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)
OFFSET = st.integers(0, 2**63 - 1)


@example("g", "t", "b", 1, 2, 8, "1" * 70_000, "2" * 70_000)  # a broker's word has any length
@given(TEXT, TEXT, TEXT, OFFSET, OFFSET, st.sampled_from([0, 8, 12]), TEXT, TEXT)
def test_it_has_the_fields_of_one_that_is_encoded_field_by_field(
    group, topic, broker, queue_offset, log_offset, decision, message_id, transaction_id
):
    quick = TransactionEnd(
        group, topic, broker, queue_offset, log_offset, decision, message_id, transaction_id
    )
    fields = end_transaction(
        group=group,
        topic=topic,
        queue_offset=queue_offset,
        commit_log_offset=log_offset,
        decision=decision,
        message_id=message_id,
        transaction_id=transaction_id,
        broker=broker,
    )
    slow = Command(RequestCode.END_TRANSACTION, fields)
    assert decode_command(quick.head(7)[4:]) == decode_command(slow.head(7)[4:])
    assert quick.code == slow.code
    assert len(quick.head(7)) == int.from_bytes(quick.head(7)[:4], "big") + 4
