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
from rocketwire.wire.reply_layout import says_stored
from rocketwire.wire.session import Session, SharedSession


class Waiter:
    """As much of one as a session needs."""

    opaque = 0
    size = 0
    answer = b""

    def __init__(self, name: str, *, takes_frame: bool = False) -> None:
        self.name = name
        self.takes_frame = takes_frame


def issue(session: SharedSession[Waiter], request: Command, waiter: Waiter) -> tuple[int, bytes]:
    head = session.issue_for(waiter, request)
    return waiter.opaque, head


def answer(opaque: int, code: int = 0) -> bytes:
    return encode_command(Command(code, {"k": "v"}, opaque=opaque, flag=RESPONSE))


def test_answers_find_their_waiters_in_any_order() -> None:
    session: SharedSession[Waiter] = SharedSession()
    one, _ = issue(session, Command(10), Waiter("one"))
    two, _ = issue(session, Command(10), Waiter("two"))
    _, answers, asked = session.receive(answer(two) + answer(one))
    assert [waiter.name for waiter, _ in answers] == ["two", "one"]
    assert asked == []
    assert session.pending == {}
    assert session.unanswered == 0


def test_bytes_without_an_answer_are_counted() -> None:
    session: SharedSession[Waiter] = SharedSession()
    one = Waiter("one")
    opaque, head = issue(session, Command(10, body=b"x" * 100), one)
    assert session.unanswered == len(head) + 100
    assert session.abandon(opaque) is one
    assert session.unanswered == 0
    assert session.abandon(opaque) is None


def test_a_late_answer_is_dropped_and_counted() -> None:
    session: SharedSession[Waiter] = SharedSession()
    opaque, _ = issue(session, Command(10), Waiter("one"))
    session.abandon(opaque)
    assert session.receive(answer(opaque)) == ([], [], [])
    assert session.late == 1


def test_requests_of_the_peer_are_surfaced() -> None:
    session: SharedSession[Waiter] = SharedSession()
    request = Command(40, {"consumerGroup": "g"}, opaque=3, flag=ONEWAY)
    _, answers, asked = session.receive(encode_command(request))
    assert answers == []
    assert asked == [request]


def test_a_lost_connection_names_everybody_who_waits() -> None:
    session: SharedSession[Waiter] = SharedSession()
    issue(session, Command(10), Waiter("one"))
    issue(session, Command(10), Waiter("two"))
    assert [waiter.name for waiter in session.lose()] == ["one", "two"]
    assert session.lose() == []


def test_oneway_requests_are_marked_and_nobody_waits() -> None:
    session: SharedSession[Waiter] = SharedSession()
    head = session.issue_oneway(Command(10))
    assert decode_command(head[4:]).is_oneway
    assert session.pending == {}


def test_numbers_start_again_before_they_overflow() -> None:
    session: SharedSession[Waiter] = SharedSession()
    session.opaque = 0x7FFFFFFE
    assert [issue(session, Command(10), Waiter("x"))[0] for _ in range(3)] == [0x7FFFFFFF, 1, 2]


def stored(opaque: int) -> bytes:
    ext = {"msgId": "0A" * 16, "queueId": "1", "queueOffset": "5"}
    reply = Command(0, ext, opaque=opaque, flag=RESPONSE, language=0, version=477, header=JSON)
    return encode_command(reply)


def test_frames_that_say_stored_go_as_they_are_to_those_who_take_them_so() -> None:
    session: SharedSession[Waiter] = SharedSession()
    first, _ = issue(session, Command(10), Waiter("first"))
    session.receive(stored(first))  # from then on it is known how they look
    one, _ = issue(session, Command(10), Waiter("one", takes_frame=True))
    two, _ = issue(session, Command(10), Waiter("two"))
    taken, answers, asked = session.receive(stored(two) + stored(one) + stored(99))
    assert [(waiter.name, waiter.answer) for waiter in taken] == [("one", stored(one)[4:])]
    assert [(waiter.name, reply.opaque) for waiter, reply in answers] == [("two", two)]
    assert asked == []
    assert (session.pending, session.unanswered, session.late) == ({}, 0, 1)


def test_a_refusal_goes_as_a_reply_to_those_who_take_frames() -> None:
    session: SharedSession[Waiter] = SharedSession()
    opaque, _ = issue(session, Command(10), Waiter("one", takes_frame=True))
    taken, answers, _ = session.receive(answer(opaque, code=14))
    assert taken == []
    assert [(waiter.name, reply.code) for waiter, reply in answers] == [("one", 14)]


def test_the_first_answer_teaches_how_those_behind_it_in_the_same_bytes_look() -> None:
    session: SharedSession[Waiter] = SharedSession()
    waiters = [Waiter(str(number), takes_frame=True) for number in (1, 2, 3)]
    numbers = [issue(session, Command(10), waiter)[0] for waiter in waiters]
    taken, answers, _ = session.receive(b"".join(stored(number) for number in numbers))
    assert [waiter.name for waiter, _ in answers] == ["1"]  # read in full, for want of a pattern
    assert [waiter.name for waiter in taken] == ["2", "3"]


def test_a_malformed_frame_leaves_everybody_waiting_for_the_loss_to_be_told() -> None:
    session: SharedSession[Waiter] = SharedSession()
    first, _ = issue(session, Command(10), Waiter("first"))
    session.receive(stored(first))
    number, _ = issue(session, Command(10), Waiter("one", takes_frame=True))
    with pytest.raises(RemoteProtocolError):
        session.receive(stored(number) + b"\0\0\0\x08" + b"\0\0\0\x04nope")
    assert [waiter.name for waiter in session.lose()] == ["one"]


# -- a caller that reads its answers itself --------------------------------------------------------


def test_an_answer_is_found_behind_late_ones_and_requests_of_the_peer() -> None:
    session = Session()
    given_up, _ = session.issue(Command(10))
    opaque, head = session.issue(Command(10))
    assert decode_command(head[4:]).opaque == opaque
    asked = encode_command(Command(40, opaque=opaque, flag=ONEWAY))
    session.feed(answer(given_up) + asked + answer(opaque, code=14))
    found = session.find(opaque)
    assert found is not None
    assert not isinstance(found, bytes)
    assert (found.opaque, found.code) == (opaque, 14)
    assert session.frames == []


def test_an_answer_that_has_not_come_is_not_found() -> None:
    session = Session()
    opaque, _ = session.issue(Command(10))
    whole = answer(opaque)
    session.feed(whole[:9])
    assert session.buffer.held
    assert session.find(opaque) is None
    session.feed(whole[9:])
    assert not session.buffer.held
    assert session.find(opaque) is not None


def test_answers_are_given_in_turn_without_what_the_peer_asks() -> None:
    session = Session()
    session.feed(answer(7) + encode_command(Command(40, opaque=3, flag=ONEWAY)) + answer(5))
    replies = [session.next_reply(), session.next_reply(), session.next_reply()]
    assert [reply and reply.opaque for reply in replies] == [7, 5, None]


def test_the_very_answer_that_is_expected_is_known_by_its_ending() -> None:
    session = Session()
    first, _ = session.issue(Command(10))
    assert session.expect(first) is None
    session.feed(stored(first))
    session.find(first)  # from then on it is known how they look
    opaque, _ = session.issue(Command(10))
    expected = session.expect(opaque)
    assert expected is not None
    assert says_stored(stored(opaque), expected)
    for other in (stored(opaque + 1), stored(opaque) * 2, stored(opaque)[:-1], answer(opaque)):
        assert not says_stored(other, expected)
    session.feed(stored(opaque)[:5])
    assert session.expect(opaque) is None, "the rest of another frame comes first"


def test_a_frame_that_says_stored_is_found_as_it_is() -> None:
    session = Session()
    first, _ = session.issue(Command(10))
    session.feed(stored(first))
    session.find(first)
    opaque, _ = session.issue(Command(10))
    session.feed(stored(opaque))
    assert session.find(opaque) == stored(opaque)[4:]


def test_numbers_in_a_row_start_again_before_they_overflow() -> None:
    session = Session()
    session.opaque = 0x7FFFFFFD
    assert session.number(2) == 0x7FFFFFFE
    assert session.number(3) == 1
    assert session.number() == 4
