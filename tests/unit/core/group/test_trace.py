"""Traces of consuming say what Java's say."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.group.group_world import GroupWorld
from tests.unit.wire.test_lazy_message import pulled, receive_all, record

from rocketwire.core.group.trace import SUCCESS, ConsumeTracer
from rocketwire.core.sending.validate import check_message
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.lazy_message import tried_again
from rocketwire.wire.stored_message import encode_record
from rocketwire.wire.trace_record import SubBeforeRecord, decode_trace


def a_tracer() -> ConsumeTracer:
    tracer = GroupWorld().member(trace="traces").group.tracer
    assert tracer is not None
    return tracer


def messages(*properties: dict[str, str], tags: str = "*") -> list[StoredMessage]:
    records = [record(n, properties=each) for n, each in enumerate(properties)]
    return list(receive_all(pulled(*records), tags=tags).messages)


def traced(tracer: ConsumeTracer) -> list[Any]:
    return [line for message, _ in tracer._pack() for line in decode_trace(message.body)]


def test_the_region_is_the_one_that_the_broker_noted():
    for tags in ("*", "A"):
        tracer = a_tracer()
        given = messages({"MSG_REGION": "north"}, {}, tags=tags)
        tracer.end(tracer.begin(given), SUCCESS)
        before = [line for line in traced(tracer) if isinstance(line, SubBeforeRecord)]
        assert [line.region for line in before] == ["north", "DefaultRegion"]


def test_the_region_is_known_when_a_message_is_tried_again():
    tracer = a_tracer()
    again = [tried_again(m) for m in messages({"MSG_REGION": "north"})]
    tracer.begin(again)
    (line,) = traced(tracer)
    assert (line.region, line.retry_times) == ("north", 1)


def test_a_message_that_wants_no_trace_has_none():
    tracer = a_tracer()
    assert tracer.begin(messages({"TRACE_ON": "false"})) is None
    handling = tracer.begin(messages({"TRACE_ON": "false"}, {"TRACE_ON": "true"}))
    tracer.end(handling, SUCCESS)
    assert [line.message_id for line in traced(tracer)] == ["id-1", "id-1"]


ODD = ["a\x01b", "\x02", "\x01\x02 \x01", "a  b", "\ufffd", "k" * 9000]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["KEYS", "UNIQ_KEY"])
def test_what_a_stranger_wrote_costs_no_other_message_its_trace(odd: str, name: str):
    """A key with a separator in it: all that was to be traced along with it was refused."""
    tracer = a_tracer()
    properties = f"{name}\x01{odd}\x02".encode()
    strange = encode_record(topic="T", body=b"x", properties=properties, queue_offset=1)
    given = list(receive_all(pulled(record(0), strange, record(2))).messages)
    for message in given:
        tracer.end(tracer.begin([message]), SUCCESS)
    sent = [message for message, _ in tracer._pack()]
    for message in sent:
        check_message(message, 4 * 1024 * 1024)
    lines = [line for message in sent for line in decode_trace(message.body)]
    assert len(lines) == 6
    assert {"id-0", "id-2"} <= {line.message_id for line in lines}
    assert {"id-0", "id-2", "k"} <= {word for m in sent for word in m.keys.split(" ")}
