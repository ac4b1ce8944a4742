"""Copies of messages whose sends end in odd ways."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.world import World

from rocketwire.core.admin.copies import CopyOutcome, MarkedCopy, deliver
from rocketwire.core.effects import InvokeAll
from rocketwire.errors import ConnectFailedError, ConnectionLostError, RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import RESPONSE, Command, Reply, encode_command
from rocketwire.wire.message_copy import MessageCopy

COPY = MarkedCopy("MARK", "1", "0A" * 16, MessageCopy(b"x", 0, 0, 0, {}), MessageQueue("T", "a", 0))


def unreadable() -> Reply:
    """It says "stored", and not where."""
    place = {"msgId": "0A", "queueId": "0", "queueOffset": "1"}
    frame = bytearray(encode_command(Command(0, place, flag=RESPONSE))[4:])
    at = frame.index(b"msgId")
    frame[at - 2 : at] = b"\x7f\xff"  # the length of the field's name
    return Reply(bytes(frame))


def lives(world: World, answer: Any) -> tuple[CopyOutcome, int]:
    """What becomes of a copy whose send gets this answer, and how often brokers were asked for it."""
    not_found = Reply(encode_command(Command(ResponseCode.QUERY_NOT_FOUND, flag=RESPONSE))[4:])
    operation = deliver(world.instance, [COPY], {"a": "10.0.0.1:10911"}, group="g", since=0.0)
    looks, given = 0, None
    try:
        while True:
            effect = operation.send(given)
            if type(effect) is not InvokeAll:
                given = None
                continue
            is_look = effect.invokes[0].request.code == RequestCode.QUERY_MESSAGE
            looks += is_look
            given = [not_found if is_look else answer]
    except StopIteration as end:
        return end.value[0], looks


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (ConnectFailedError("refused"), "failed"),
        (ConnectionLostError("lost", written=True), "in doubt"),
        (RemoteProtocolError("garbage"), "in doubt"),
        (unreadable(), "in doubt"),
    ],
    ids=["refused", "lost", "garbage", "unreadable"],
)
def test_a_copy_that_may_be_stored_is_looked_for_and_not_called_failed(answer, status) -> None:
    outcome, looks = lives(World(1), answer)
    assert outcome.status == status
    assert (looks > 1) == (status == "in doubt")
