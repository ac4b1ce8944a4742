from __future__ import annotations

import pytest

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.command import (
    JSON,
    ONEWAY,
    RESPONSE,
    Command,
    decode_command,
    encode_command,
)
from rocketwire.wire.session import Session


class Waiter:
    """As much of one as a session needs."""

    size = 0
    answer = b""

    def __init__(self, name: str, *, takes_frame: bool = False) -> None:
        self.name = name
        self.takes_frame = takes_frame


def answer(opaque: int, code: int = 0) -> bytes:
    return encode_command(Command(code, {"k": "v"}, opaque=opaque, flag=RESPONSE))


def test_answers_find_their_waiters_in_any_order() -> None:
    session: Session[Waiter] = Session()
    one, _ = session.issue(Command(10), Waiter("one"))
    two, _ = session.issue(Command(10), Waiter("two"))
    _, answers, asked = session.receive(answer(two) + answer(one))
    assert [waiter.name for waiter, _ in answers] == ["two", "one"]
    assert asked == []
    assert session.pending == {}
    assert session.unanswered == 0


def test_bytes_without_an_answer_are_counted() -> None:
    session: Session[Waiter] = Session()
    one = Waiter("one")
    opaque, head = session.issue(Command(10, body=b"x" * 100), one)
    assert session.unanswered == len(head) + 100
    assert session.abandon(opaque) is one
    assert session.unanswered == 0
    assert session.abandon(opaque) is None


def test_a_late_answer_is_dropped_and_counted() -> None:
    session: Session[Waiter] = Session()
    opaque, _ = session.issue(Command(10), Waiter("one"))
    session.abandon(opaque)
    assert session.receive(answer(opaque)) == ([], [], [])
    assert session.late == 1


def test_requests_of_the_peer_are_surfaced() -> None:
    session: Session[Waiter] = Session()
    request = Command(40, {"consumerGroup": "g"}, opaque=3, flag=ONEWAY)
    _, answers, asked = session.receive(encode_command(request))
    assert answers == []
    assert asked == [request]


def test_a_lost_connection_names_everybody_who_waits() -> None:
    session: Session[Waiter] = Session()
    session.issue(Command(10), Waiter("one"))
    session.issue(Command(10), Waiter("two"))
    assert [waiter.name for waiter in session.lose()] == ["one", "two"]
    assert session.lose() == []


def test_oneway_requests_are_marked_and_nobody_waits() -> None:
    session: Session[Waiter] = Session()
    head = session.issue_oneway(Command(10))
    assert decode_command(head[4:]).is_oneway
    assert session.pending == {}


def test_numbers_start_again_before_they_overflow() -> None:
    session: Session[Waiter] = Session()
    session.opaque = 0x7FFFFFFE
    assert [session.issue(Command(10), Waiter("x"))[0] for _ in range(3)] == [0x7FFFFFFF, 1, 2]


def stored(opaque: int) -> bytes:
    ext = {"msgId": "0A" * 16, "queueId": "1", "queueOffset": "5"}
    reply = Command(0, ext, opaque=opaque, flag=RESPONSE, language=0, version=477, header=JSON)
    return encode_command(reply)


def test_frames_that_say_stored_go_as_they_are_to_those_who_take_them_so() -> None:
    session: Session[Waiter] = Session()
    first, _ = session.issue(Command(10), Waiter("first"))
    session.receive(stored(first))  # from then on it is known how they look
    one, _ = session.issue(Command(10), Waiter("one", takes_frame=True))
    two, _ = session.issue(Command(10), Waiter("two"))
    taken, answers, asked = session.receive(stored(two) + stored(one) + stored(99))
    assert [(waiter.name, waiter.answer) for waiter in taken] == [("one", stored(one)[4:])]
    assert [(waiter.name, reply.opaque) for waiter, reply in answers] == [("two", two)]
    assert asked == []
    assert (session.pending, session.unanswered, session.late) == ({}, 0, 1)


def test_a_refusal_goes_as_a_reply_to_those_who_take_frames() -> None:
    session: Session[Waiter] = Session()
    opaque, _ = session.issue(Command(10), Waiter("one", takes_frame=True))
    taken, answers, _ = session.receive(answer(opaque, code=14))
    assert taken == []
    assert [(waiter.name, reply.code) for waiter, reply in answers] == [("one", 14)]


def test_the_first_answer_teaches_how_those_behind_it_in_the_same_bytes_look() -> None:
    session: Session[Waiter] = Session()
    waiters = [Waiter(str(number), takes_frame=True) for number in (1, 2, 3)]
    numbers = [session.issue(Command(10), waiter)[0] for waiter in waiters]
    taken, answers, _ = session.receive(b"".join(stored(number) for number in numbers))
    assert [waiter.name for waiter, _ in answers] == ["1"]  # read in full, for want of a pattern
    assert [waiter.name for waiter in taken] == ["2", "3"]


def test_a_malformed_frame_leaves_everybody_waiting_for_the_loss_to_be_told() -> None:
    session: Session[Waiter] = Session()
    first, _ = session.issue(Command(10), Waiter("first"))
    session.receive(stored(first))
    number, _ = session.issue(Command(10), Waiter("one", takes_frame=True))
    with pytest.raises(RemoteProtocolError):
        session.receive(stored(number) + b"\0\0\0\x08" + b"\0\0\0\x04nope")
    assert [waiter.name for waiter in session.lose()] == ["one"]
