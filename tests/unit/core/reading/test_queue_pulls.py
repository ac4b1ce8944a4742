"""Pulls from a template are those that the client makes; answers are read as it reads them."""

import pytest
from tests.wire_tools import reply_from

from rocketwire.config import Credentials, ReaderConfig
from rocketwire.core.instance import Instance
from rocketwire.core.reading.pull import ALL, pull_request, tag_filter
from rocketwire.core.reading.queue_pulls import QueuePulls
from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.system.surroundings import surroundings
from rocketwire.wire.command import BINARY, JSON, RESPONSE, Command, decode_command
from rocketwire.wire.framing import FrameBuffer
from rocketwire.wire.pull_request import next_offset_of

QUEUE = MessageQueue("orders", "broker-a", 3)
SETTINGS = [
    {},
    {"header": "json"},
    {"namespace": "space"},
    {"namespace_v2": "space"},
    {"credentials": Credentials("ak", "sk")},
]


def instance(**settings):
    config = ReaderConfig(name_servers=("127.0.0.1:9876",), **settings)
    return Instance(config, "client", surroundings())


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("tags", [ALL, tag_filter("a || b")])
@pytest.mark.parametrize(("offset", "count"), [(0, 1), (123456789012345678, 1024)])
def test_a_template_makes_the_same_request_as_the_client(settings, tags, offset, count):
    own = instance(**settings)
    made = QueuePulls(own, QUEUE, "group", tags).request(offset, count).head(77)
    plain = pull_request(own, QUEUE, offset, group="group", max_messages=count, tags=tags)
    assert decode_command(made[4:]) == decode_command(plain.head(77)[4:])


def test_requests_in_a_row_are_whole_frames_with_numbers_of_their_own():
    template = QueuePulls(instance(), QUEUE, "group", ALL)
    frames = [template.request(number * 32, 32).head(number) for number in range(5)]
    seen = [decode_command(frame) for frame in FrameBuffer().feed(b"".join(frames))]
    assert [command.opaque for command in seen] == list(range(5))
    assert [command.ext["queueOffset"] for command in seen] == ["0", "32", "64", "96", "128"]


def answer(header, **fields):
    ext = {"minOffset": "0", "maxOffset": "900", **fields}
    command = Command(0, ext, b"nextBeginOffset 5", header=header, flag=RESPONSE, opaque=4)
    return reply_from(command)


@pytest.mark.parametrize("header", [JSON, BINARY])
def test_where_to_go_on_is_read_from_either_header(header):
    assert next_offset_of(answer(header, nextBeginOffset="132")) == (132, 0)
    shifted = answer(header, nextBeginOffset="132", offsetDelta="1000")
    assert next_offset_of(shifted) == (132, 1000)


@pytest.mark.parametrize("header", [JSON, BINARY])
@pytest.mark.parametrize("fields", [{}, {"nextBeginOffset": "soon"}])
def test_an_answer_that_does_not_say_is_refused(header, fields):
    with pytest.raises(RemoteProtocolError, match="nextBeginOffset"):
        next_offset_of(answer(header, **fields))
