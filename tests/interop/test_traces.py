"""Java's own tool shows the traces that our producer writes."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from tests.real.running import unique

from rocketwire import Message, Producer, SendFailedError
from rocketwire.wire.trace_record import TRACE_TOPIC

pytestmark = pytest.mark.without("go")


def shown(meeting: Any, message_id: str) -> str:
    """What the tool prints of a message's trace, once the broker has indexed it."""
    deadline = time.monotonic() + 30
    printed = ""
    while time.monotonic() < deadline:
        printed = str(
            meeting.client.mqadmin(
                meeting.target.name_server, "queryMsgTraceById", "-i", message_id, "-t", TRACE_TOPIC
            )
        )
        if re.search(r"^Pub\b", printed, re.MULTILINE):
            return printed
        time.sleep(0.1)
    raise AssertionError(f"no trace of {message_id} in:\n{printed}")


def test_a_stored_message_is_shown_as_a_success(meeting: Any) -> None:
    group, topic = unique("group"), meeting.topic()
    with Producer(meeting.target.name_server, group=group, trace=True) as producer:
        result = producer.send(Message(topic, b"traced", tags="t", keys="order-1"))
    line = next(x for x in shown(meeting, result.message_id).splitlines() if x.startswith("Pub"))
    assert group in line
    assert "success" in line
    assert producer.stats().trace_dropped == 0


def test_each_message_of_a_batch_is_found(meeting: Any) -> None:
    group, topic = unique("group"), meeting.topic()
    with Producer(meeting.target.name_server, group=group, trace=True) as producer:
        result = producer.send([Message(topic, b"one"), Message(topic, b"two")])
    for message_id in result.message_ids:
        assert group in shown(meeting, message_id)


def test_a_failed_message_is_shown_as_a_failure(meeting: Any) -> None:
    ids: list[str] = []

    class Ends:
        def after_send(self, event: Any) -> None:
            ids.extend(event.message_ids)

    with Producer(
        meeting.target.name_server,
        group=unique("group"),
        trace=True,
        hooks=(Ends(),),
        default_topic="no-such-default",
    ) as producer:
        producer.publish_queues(TRACE_TOPIC)
        with pytest.raises(SendFailedError):
            producer.send(Message(unique("nowhere"), b"lost"), timeout=5)
    line = next(x for x in shown(meeting, ids[0]).splitlines() if x.startswith("Pub"))
    assert "failed" in line
