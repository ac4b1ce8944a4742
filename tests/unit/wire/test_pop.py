"""Receipts and acknowledgements, against what Java's own classes write."""

from __future__ import annotations

import json

import pytest

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire import pop
from rocketwire.wire.pop import Receipt

#: Written by ``ExtraInfoUtil.buildExtraInfo`` of Apache RocketMQ 5.3.3.
RECEIPTS = {
    "40 1700000000123 60000 3 0 broker-a 2 42": (
        Receipt(40, 1700000000123, 60000, 3, "0", "broker-a", 2, 42),
        "orders",
    ),
    "7 1700000000123 60000 0 1 broker-a 0 9": (
        Receipt(7, 1700000000123, 60000, 0, "1", "broker-a", 0, 9),
        "%RETRY%billing_orders",
    ),
    "7 1700000000123 60000 0 2 broker-a 0 9": (
        Receipt(7, 1700000000123, 60000, 0, "2", "broker-a", 0, 9),
        "%RETRY%billing+orders",
    ),
}
#: Written by ``BatchAckMessageRequestBody.encode`` of the same.
BATCH = (
    '{"acks":[{"b":"BQAC","c":"billing","it":60000,"pt":1700000000123,"q":2,"r":"0","rq":3,"so":40,'
    '"t":"orders"}],"brokerName":"broker-a"}'
)


@pytest.mark.parametrize("text", list(RECEIPTS))
def test_a_receipt_is_javas(text: str) -> None:
    receipt, real = RECEIPTS[text]
    assert receipt.encode() == text
    assert pop.decode_receipt(text) == receipt
    assert receipt.topic("orders", "billing") == real
    assert pop.topic_mark(real) == receipt.mark


@pytest.mark.parametrize(
    "text",
    ["", "1 2 3", "a b c d e f g h", "1 2 3 4 0 broker 5 x", "9" * 5000 + " 2 3 4 0 broker 5 6"],
)
def test_what_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="receipt"):
        pop.decode_receipt(text)


def test_acknowledgements_of_one_delivery_are_one_line_of_javas() -> None:
    first = next(iter(RECEIPTS.values()))[0]
    receipts = [(first._replace(offset=40 + bit), "orders") for bit in (0, 2, 17)]
    body = pop.batch_ack_body(receipts, "broker-a", "billing")
    assert json.loads(body) == json.loads(BATCH)
    found = pop.decode_batch_ack(json.loads(BATCH))
    assert found == [("billing", receipt, topic) for receipt, topic in receipts]


def test_other_deliveries_are_lines_of_their_own() -> None:
    first = next(iter(RECEIPTS.values()))[0]
    receipts = [
        (first, "orders"),
        (first._replace(queue_id=1), "orders"),
        (first._replace(pop_ms=5), "orders"),
        (first, "other"),
        (first._replace(mark="1"), "orders"),
    ]
    body = json.loads(pop.batch_ack_body(receipts, "broker-a", "billing"))
    assert len(body["acks"]) == 5
    decoded = {(receipt, topic) for _, receipt, topic in pop.decode_batch_ack(body)}
    assert decoded == set(receipts)


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"acks": [5]},
        {"acks": [{"c": "g"}]},
        {"acks": [{"so": 1, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": "%"}]},
        {"acks": [{"so": 1, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": None}]},
    ],
)
def test_what_is_no_batch_is_refused(body: object) -> None:
    with pytest.raises(RemoteProtocolError):
        pop.decode_batch_ack(body)


def test_a_reply_gives_each_message_its_receipt() -> None:
    ext = {
        "popTime": "1700000000123", "invisibleTime": "60000", "reviveQid": "3", "restNum": "0",
        "startOffsetInfo": "0 2 40;1 0 7;broken",
    }  # fmt: skip
    reply = pop.decode_pop_reply(ext)
    texts = [
        reply.receipt("orders", "broker-a", 2, 42).encode(),
        reply.receipt("%RETRY%billing_orders", "broker-a", 0, 9).encode(),
    ]
    assert texts == [
        "40 1700000000123 60000 3 0 broker-a 2 42",
        "7 1700000000123 60000 3 1 broker-a 0 9",
    ]
    # Of a queue that the reply does not name, the message itself is the start.
    assert reply.receipt("orders", "b", 1, 5).start == 5


def test_where_two_topics_have_a_message_at_one_place_the_one_that_comes_again_is_the_retried() -> (
    None
):
    ext = {
        "popTime": "1", "invisibleTime": "2", "reviveQid": "3",
        "startOffsetInfo": "0 0 4;1 0 5", "msgOffsetInfo": "0 0 5,6;1 0 5;1 9 broken;0 " + "9" * 5000 + " 1",
    }  # fmt: skip
    reply = pop.decode_pop_reply(ext)
    assert reply.receipt("orders", "b", 0, 5).mark == "0"
    assert reply.receipt("orders", "b", 0, 5, is_retried=True).mark == "1"
    assert reply.receipt("orders", "b", 0, 6, is_retried=True).mark == "0"


def test_a_changed_receipt_begins_at_its_message() -> None:
    receipt = pop.decode_receipt("40 1700000000123 60000 3 0 broker-a 2 42")
    ext = {"popTime": "1700000005000", "invisibleTime": "30000", "reviveQid": "3"}
    changed = pop.decode_change_reply(ext, receipt)
    assert changed.encode() == "42 1700000005000 30000 3 0 broker-a 2 42"
