"""What servers answer operators, in the words of Apache's servers, and what is no answer at all."""

from __future__ import annotations

import pytest

from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire import access_bodies, admin_bodies

STATS = (
    b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:'
    b'{"brokerOffset":5,"consumerOffset":3,"lastTimestamp":7,"pullOffset":3}}}'
)


def test_progress_has_objects_as_keys():
    found = admin_bodies.decode_consume_stats(STATS)
    assert found == {MessageQueue("t", "broker-a", 0): (3, 5, 7)}


def test_settings_are_lines_and_survive_the_way():
    text = b"# a comment\nbrokerName=broker-a\n\nmessageDelayLevel=1s 5s\nkey=a=b\n"
    assert admin_bodies.decode_settings(text) == {
        "brokerName": "broker-a",
        "messageDelayLevel": "1s 5s",
        "key": "a=b",
    }


def test_secrets_are_left_where_they_are():
    body = b'[{"password":"s3cret","userStatus":"disable","userType":"Super","username":"u"}]'
    assert access_bodies.decode_users(body) == (("u", True, False),)
    plain = (
        b'{"plainAccessConfigs":[{"accessKey":"k","secretKey":"s3cret","topicPerms":["t=PUB"]}]}'
    )
    (account,) = access_bodies.decode_plain_accounts(plain)
    assert "s3cret" not in repr(account)
    assert account.topics == {"t": "PUB"}


def test_nobody_is_an_empty_body():
    assert access_bodies.decode_users(b"") == ()
    assert access_bodies.decode_policies(b"") == ()


@pytest.mark.parametrize("body", [b"[1]", b'"x"', b"{", b"\xff", b"7"])
def test_what_is_no_answer_is_said_to_be_none(body: bytes):
    for decode in (
        admin_bodies.decode_topic_settings,
        admin_bodies.decode_all_topic_settings,
        admin_bodies.decode_consume_stats,
        admin_bodies.decode_connections,
        admin_bodies.decode_group_names,
        admin_bodies.decode_running_queues,
        admin_bodies.decode_runtime,
        access_bodies.decode_users,
        access_bodies.decode_policies,
        access_bodies.decode_plain_accounts,
    ):
        with pytest.raises(RemoteProtocolError):
            decode(body)
