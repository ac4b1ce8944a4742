from __future__ import annotations

import pytest

from rocketwire.core.pull import ALL, read_pull, tag_filter
from rocketwire.errors import BrokerError, InvalidMessageError
from rocketwire.message import MessageQueue
from rocketwire.wire import message_fields
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import RESPONSE, Command, reply_from
from rocketwire.wire.stored_message import encode_record

QUEUE = MessageQueue("T", "broker-a", 2)


def record(offset: int, body: bytes = b"x", tags: str = "", flag: int = 0) -> bytes:
    properties = f"TAGS\x01{tags}\x02".encode() if tags else b""
    return encode_record(
        topic="T",
        body=body,
        properties=properties,
        queue_id=2,
        queue_offset=offset,
        physical_offset=offset * 100,
        system_flag=flag,
        born_ms=1_700_000_000_000,
        born_host="10.0.0.1:5000",
        store_ms=1_700_000_000_100,
        store_host="10.0.0.2:10911",
    )


def answer(code: int, body: bytes = b"", *, following: int = 0, low: int = 0, high: int = 10):
    ext = {"nextBeginOffset": str(following), "minOffset": str(low), "maxOffset": str(high)}
    return reply_from(Command(code, ext, body, remark="why", flag=RESPONSE))


def test_messages_come_with_where_to_go_on() -> None:
    reply = answer(0, record(4, b"a") + record(5, b"b"), following=6)
    fetched = read_pull(reply, QUEUE, 4, ALL)
    assert [(m.body, m.offset) for m in fetched.messages] == [(b"a", 4), (b"b", 5)]
    assert (fetched.next_offset, fetched.min_offset, fetched.max_offset) == (6, 0, 10)
    assert fetched.moved_from is None
    assert fetched.messages[0].queue == QUEUE


def test_messages_before_the_offset_asked_for_are_left_out() -> None:
    reply = answer(0, record(3) + record(4), following=5)
    assert [m.offset for m in read_pull(reply, QUEUE, 4, ALL).messages] == [4]


def test_tags_are_compared_by_text() -> None:
    reply = answer(0, record(0, tags="Aa") + record(1, tags="BB") + record(2), following=3)
    fetched = read_pull(reply, QUEUE, 0, tag_filter("Aa || C"))
    assert [m.tags for m in fetched.messages] == ["Aa"]
    assert fetched.next_offset == 3


def test_nothing_new_stays_where_it_is() -> None:
    fetched = read_pull(answer(ResponseCode.PULL_NOT_FOUND, following=0), QUEUE, 7, ALL)
    assert (fetched.messages, fetched.next_offset) == ((), 7)


def test_filtered_messages_are_skipped() -> None:
    reply = answer(ResponseCode.PULL_RETRY_IMMEDIATELY, following=9)
    assert read_pull(reply, QUEUE, 7, ALL).next_offset == 9


def test_a_moved_offset_is_reported() -> None:
    reply = answer(ResponseCode.PULL_OFFSET_MOVED, following=3, low=3)
    fetched = read_pull(reply, QUEUE, 1, ALL)
    assert (fetched.moved_from, fetched.next_offset) == (1, 3)


def test_a_refusal_is_an_error() -> None:
    with pytest.raises(BrokerError, match="broker-a answered NO_PERMISSION 16: why"):
        read_pull(answer(16), QUEUE, 0, ALL)


def test_a_body_that_can_t_be_decompressed_does_not_stop_the_queue(caplog, monkeypatch) -> None:
    monkeypatch.setattr(message_fields, "_warned", set())
    reply = answer(0, record(0, b"not zlib", flag=0x301) + record(1, b"fine"), following=2)
    fetched = read_pull(reply, QUEUE, 0, ALL)
    assert [m.body for m in fetched.messages] == [b"not zlib", b"fine"]
    assert "offset 0: the body is given as it is stored" in caplog.text
    why, fine = (message.undecodable for message in fetched.messages)
    assert "zlib" in why
    assert fine is None


@pytest.mark.parametrize(
    ("text", "names"),
    [(None, set()), ("*", set()), ("", set()), ("A", {"A"}), (" A || B ", {"A", "B"})],
)
def test_filters_from_text(text, names) -> None:
    assert tag_filter(text).tags == names


def test_a_filter_of_separators_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="tags"):
        tag_filter("||")


@pytest.mark.parametrize(
    ("given", "expression"),
    [
        (None, "*"),
        ("*", "*"),
        (" ", "*"),
        (["*"], "*"),
        ("a", "a"),
        ("a||b", "a || b"),
        (["a", "b"], "a || b"),
        (("a",), "a"),
        ({" a "}, "a"),
    ],
)
def test_tags_are_given_as_text_or_as_a_list(given, expression) -> None:
    found = tag_filter(given)
    assert found.expression == expression
    assert found.tags == (frozenset() if expression == "*" else frozenset(expression.split(" || ")))


@pytest.mark.parametrize("given", ["||", [], [""], ["a", None], [1], ["a || b"], ["a", " "]])
def test_tags_that_are_none_are_refused(given) -> None:
    with pytest.raises(InvalidMessageError, match=r"tags is .*give '\*'"):
        tag_filter(given)
