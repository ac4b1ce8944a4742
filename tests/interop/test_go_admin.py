"""The admin calls of the Go client."""

import time
from typing import Any

import pytest
from tests.real.frames import ask, read_route
from tests.real.running import unique

pytestmark = pytest.mark.without("java-5.3.3", "java-4.9.7")


def test_topics_are_made_listed_and_removed(meeting: Any):
    topic = unique("go-admin")
    for address in meeting.target.addresses.values():
        meeting.call("admin.create_topic", topic=topic, broker_address=address, queues=3)
    # A broker answers before it has told its name server.
    deadline = time.monotonic() + 30
    while len(read_route(ask(meeting.target.name_server, 105, {"topic": topic}))) < 2:
        assert time.monotonic() < deadline, "the topic is not known on both brokers"
        time.sleep(0.1)
    assert topic in meeting.call("admin.topics")
    queues = meeting.call("admin.queues", topic=topic)
    found = sorted((each["broker"], each["queue"]) for each in queues)
    assert found == [(name, number) for name in ("broker-a", "broker-b") for number in range(3)]
    for address in meeting.target.addresses.values():
        meeting.call("admin.delete_topic", topic=topic, broker_address=address)
    assert ask(meeting.target.name_server, 105, {"topic": topic}).code == 17
