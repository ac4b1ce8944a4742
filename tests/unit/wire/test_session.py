from __future__ import annotations

from rocketwire.wire.command import (
    JSON,
    ONEWAY,
    RESPONSE,
    Command,
    decode_command,
    encode_command,
)
from rocketwire.wire.session import Session


def answer(opaque: int, code: int = 0) -> bytes:
    return encode_command(Command(code, {"k": "v"}, opaque=opaque, flag=RESPONSE))


def test_answers_find_their_waiters_in_any_order() -> None:
    session: Session[str] = Session()
    one, _ = session.issue(Command(10), "one")
    two, _ = session.issue(Command(10), "two")
    _, answers, asked = session.receive(answer(two) + answer(one))
    assert [waiter for waiter, _ in answers] == ["two", "one"]
    assert asked == []
    assert session.pending == {}
    assert session.unanswered == 0


def test_bytes_without_an_answer_are_counted() -> None:
    session: Session[str] = Session()
    opaque, head = session.issue(Command(10, body=b"x" * 100), "one")
    assert session.unanswered == len(head) + 100
    assert session.abandon(opaque) == "one"
    assert session.unanswered == 0
    assert session.abandon(opaque) is None


def test_a_late_answer_is_dropped_and_counted() -> None:
    session: Session[str] = Session()
    opaque, _ = session.issue(Command(10), "one")
    session.abandon(opaque)
    assert session.receive(answer(opaque)) == ([], [], [])
    assert session.late == 1


def test_requests_of_the_peer_are_surfaced() -> None:
    session: Session[str] = Session()
    request = Command(40, {"consumerGroup": "g"}, opaque=3, flag=ONEWAY)
    _, answers, asked = session.receive(encode_command(request))
    assert answers == []
    assert asked == [request]


def test_a_lost_connection_names_everybody_who_waits() -> None:
    session: Session[str] = Session()
    session.issue(Command(10), "one")
    session.issue(Command(10), "two")
    assert sorted(session.lose()) == ["one", "two"]
    assert session.lose() == []


def test_oneway_requests_are_marked_and_nobody_waits() -> None:
    session: Session[str] = Session()
    head = session.issue_oneway(Command(10))
    assert decode_command(head[4:]).is_oneway
    assert session.pending == {}


def test_numbers_start_again_before_they_overflow() -> None:
    session: Session[str] = Session()
    session.opaque = 0x7FFFFFFE
    assert [session.issue(Command(10), "x")[0] for _ in range(3)] == [0x7FFFFFFF, 1, 2]


def stored(opaque: int) -> bytes:
    ext = {"msgId": "0A" * 16, "queueId": "1", "queueOffset": "5"}
    reply = Command(0, ext, opaque=opaque, flag=RESPONSE, language=0, version=477, header=JSON)
    return encode_command(reply)


def test_frames_that_say_stored_go_as_they_are_to_those_who_take_them_so() -> None:
    session: Session[str] = Session()
    first, _ = session.issue(Command(10), "first")
    session.receive(stored(first))  # from then on it is known how they look
    one, two = session.next_opaque(), session.next_opaque()
    session.pending[one] = ("one", 100, True)
    session.pending[two] = ("two", 100, False)
    session.unanswered = 200
    frames, answers, asked = session.receive(stored(two) + stored(one) + stored(99))
    assert frames == [("one", stored(one)[4:])]
    assert [(waiter, reply.opaque) for waiter, reply in answers] == [("two", two)]
    assert asked == []
    assert (session.pending, session.unanswered, session.late) == ({}, 0, 1)


def test_a_refusal_goes_as_a_reply_to_those_who_take_frames() -> None:
    session: Session[str] = Session()
    opaque = session.next_opaque()
    session.pending[opaque] = ("one", 100, True)
    frames, answers, _ = session.receive(answer(opaque, code=14))
    assert frames == []
    assert [(waiter, reply.code) for waiter, reply in answers] == [("one", 14)]
