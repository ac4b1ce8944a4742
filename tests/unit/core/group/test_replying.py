"""Replies of handlers: which request they answer, what they carry, and which broker passes them on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.group.group_world import GroupWorld, Member
from tests.unit.core.world import address
from tests.wire_tools import reply_from

from rocketwire.core.effects import Invoke
from rocketwire.core.group.replying import replies_in, send_reply
from rocketwire.core.lookup import refresh_topic
from rocketwire.errors import ConnectFailedError
from rocketwire.stored_message import Reply, StoredMessage
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import RESPONSE, Command, decode_command
from rocketwire.wire.lazy_message import messages_in
from rocketwire.wire.properties import decode_properties, rewritten
from rocketwire.wire.stored_message import encode_record

ASKED = {
    "CLUSTER": "c",
    "CORRELATION_ID": "question-1",
    "REPLY_TO_CLIENT": "asker",
    "TTL": "2500",
}


def request(broker: str = "broker-b", **properties: str | None) -> StoredMessage:
    given = {name: value for name, value in (ASKED | properties).items() if value is not None}
    data = encode_record(
        topic="T",
        body=b"what?",
        properties=rewritten(given).encode(),
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
    )
    (message,) = messages_in(data, broker=broker)
    return message


class Post:
    """Sends replies, and answers for brokers as a script says."""

    def __init__(self, brokers: int = 4) -> None:
        self.world = GroupWorld(brokers=brokers)
        self.member: Member = self.world.member()
        self.world.clock.advance(100.0)
        self.group = self.member.group
        self.world.driver.run(refresh_topic(self.group.instance, "T", self.world.clock() + 3.0))
        self.sent: list[tuple[str, Command, float]] = []

    def send(self, reply: Reply, to: StoredMessage, *answers: Any) -> None:
        operation, script = send_reply(self.group, to, reply), iter(answers)
        step: Any = operation.send
        given: Any = None
        while True:
            try:
                effect = step(given)
            except StopIteration:
                return
            assert isinstance(effect, Invoke)
            written = effect.request.head(1) + bytes(effect.request.body)
            self.sent.append((effect.address, decode_command(written[4:]), effect.deadline))
            found = next(script)
            if isinstance(found, Exception):
                step, given = operation.throw, found
            else:
                step = operation.send
                given = reply_from(Command(found, remark="no such client", flag=RESPONSE))

    @property
    def counted(self) -> tuple[int, int]:
        return self.group.counters.replies, self.group.counters.failed_replies


def test_a_reply_carries_what_brings_it_to_the_asker() -> None:
    post = Post()
    post.send(Reply(b"42", properties={"unit": "s"}), request(), ResponseCode.SUCCESS)
    ((where, command, deadline),) = post.sent
    assert where == address("broker-b"), "the broker of the request is asked first"
    assert deadline == post.world.clock() + post.member.config.request_timeout
    assert command.code == RequestCode.SEND_REPLY_MESSAGE_V2
    assert bytes(command.body) == b"42"
    ext = command.ext
    assert (ext["a"], ext["b"], ext["n"]) == ("g", "c_REPLY_TOPIC", "broker-b")
    # As Java's: the default topic and its queues, the first queue, no flags.
    assert [ext[name] for name in "cdefh"] == ["TBW102", "4", "0", "0", "0"]
    assert ext.get("m") in {None, "false"}
    assert ext["g"] == str(round((1_700_000_000.0 + post.world.clock()) * 1000))
    properties = decode_properties(ext["i"])
    assert properties.pop("UNIQ_KEY")
    assert properties == {
        "unit": "s",
        "CORRELATION_ID": "question-1",
        "REPLY_TO_CLIENT": "asker",
        "MSG_TYPE": "reply",
        "TTL": "2500",
    }
    assert post.counted == (1, 0)


def test_a_request_without_a_time_to_live_gets_java_s() -> None:
    post = Post()
    post.send(Reply(b"42"), request(TTL=None), ResponseCode.SUCCESS)
    assert decode_properties(post.sent[0][1].ext["i"])["TTL"] == "3000"


def test_other_brokers_pass_a_reply_on_where_one_can_not() -> None:
    post = Post()
    gone = ConnectFailedError("refused")
    post.send(Reply(b"42"), request(), gone, ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS)
    places = [address(f"broker-{name}") for name in "bac"]
    assert [where for where, _, _ in post.sent] == places
    assert post.counted == (1, 0)


def test_three_brokers_are_tried_and_the_first_failure_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    post = Post()
    refusals = [ResponseCode.SYSTEM_ERROR, ConnectFailedError("away"), ConnectFailedError("away")]
    post.send(Reply(b"42"), request(), *refusals)
    assert len(post.sent) == 3
    assert post.counted == (0, 1)
    assert "(group g, topic T) could not be sent: " in caplog.text
    assert "no such client" in caplog.text


@pytest.mark.parametrize("lacks", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_a_reply_to_what_is_no_request_is_not_sent(
    lacks: str, caplog: pytest.LogCaptureFixture
) -> None:
    post = Post()
    post.send(Reply(b"42"), request(**{lacks: None}))
    assert post.sent == []
    assert post.counted == (0, 1)
    assert "it answers no request" in caplog.text


def test_without_any_broker_a_reply_fails(caplog: pytest.LogCaptureFixture) -> None:
    post = Post()
    post.group.instance.routes.forget("T")
    post.send(Reply(b"42"), request())
    assert "no broker is known to send it to" in caplog.text


def test_the_replies_in_what_a_handler_returns_are_found_with_their_requests() -> None:
    one, two = request(), request()
    plain, aimed = Reply(b"1"), Reply(b"2", to=two)
    assert replies_in(None, one) == []
    assert replies_in(plain, one) == [(one, plain)]
    assert replies_in(plain, [one, two]) == [(one, plain)]
    assert replies_in((plain, None, aimed), [one, two]) == [(one, plain), (two, aimed)]
    assert replies_in([aimed], one) == [(two, aimed)]
