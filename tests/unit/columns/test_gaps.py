"""Offsets that have no messages, and answers that are cut: nothing is skipped in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.unit.sync.peer import Peer, PeerConnection
from tests.wire_tools import encode_batch

from rocketwire import Reader
from rocketwire.columns import DataLossError, read_table
from rocketwire.columns.client_parts import parts_of
from rocketwire.columns.decode import RecordDecoder
from rocketwire.columns.fetch import FetchPolicy, QueueSpan, fetch_spans
from rocketwire.columns.schema import select_columns
from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import RESPONSE, Command, encode_command
from rocketwire.wire.stored_message import encode_record

END = 40
QUEUE = MessageQueue("T", "b", 0)


class Always(dict):
    """Cuts every answer within its first record."""

    def pop(self, _: int, default: int) -> int:
        return 10**6


class Broker:
    """A name server and broker of one queue, some of whose messages lack."""

    def __init__(self) -> None:
        self.gone: set[int] = set()
        self.policy = "DELETE"
        #: What is answered where an answer has no message at all.
        self.jump = ResponseCode.PULL_RETRY_IMMEDIATELY
        #: How many bytes are cut from the end of an answer, by its first offset; once each.
        self.cuts: dict[int, int] = {}
        #: Where a batch of three lies in one record.
        self.batches: set[int] = set()
        self.pulls: list[int] = []
        self.peer = Peer(self._serve)

    def _serve(self, connection: PeerConnection) -> None:
        while True:
            request = connection.next()
            code, ext, body = self._answer(request)
            reply = Command(code, ext, body, opaque=request.opaque, flag=RESPONSE)
            connection.send(encode_command(reply))

    def _answer(self, request: Command) -> tuple[int, dict[str, str], bytes]:
        code = request.code
        if code == RequestCode.GET_ROUTE_BY_TOPIC:
            return 0, {}, self._route()
        if code == RequestCode.GET_MAX_OFFSET:
            return 0, {"offset": str(END)}, b""
        if code == RequestCode.GET_MIN_OFFSET:
            return 0, {"offset": "0"}, b""
        if code == RequestCode.GET_TOPIC_CONFIG:
            body = {"topicName": "T", "attributes": {"cleanup.policy": self.policy}}
            return 0, {}, json.dumps(body).encode()
        assert code == RequestCode.PULL_MESSAGE, code
        return self._pull(int(request.ext["queueOffset"]), int(request.ext["maxMsgNums"]))

    def _pull(self, offset: int, count: int) -> tuple[int, dict[str, str], bytes]:
        self.pulls.append(offset)
        end = min(offset + min(count, 8), END)
        while end in self.gone and set(range(offset, end)) <= self.gone:
            end += 1
        there = [n for n in range(offset, end) if n not in self.gone]
        ext = {"nextBeginOffset": str(end), "minOffset": "0", "maxOffset": str(END)}
        if not there:
            empty = offset < end
            return self.jump if empty else ResponseCode.PULL_NOT_FOUND, ext, b""
        body = b"".join(self._record(n) for n in there)
        return 0, ext, body[: max(50, len(body) - self.cuts.pop(offset, 0))]

    def _record(self, offset: int) -> bytes:
        for first in self.batches & {offset, offset - 1, offset - 2}:
            if offset > first:
                return b""
            inner = encode_batch([(b"x" * n, b"TAGS\x01x\x02", 0) for n in range(first, first + 3)])
            return encode_record(topic="T", body=inner, queue_offset=first, system_flag=0xC0)
        return encode_record(
            topic="T", body=b"x" * offset, queue_offset=offset, properties=b"TAGS\x01x\x02"
        )

    def _route(self) -> bytes:
        queue = {"brokerName": "b", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
                 "topicSysFlag": 0}  # fmt: skip
        broker = {"cluster": "c", "brokerName": "b", "brokerAddrs": {"0": self.peer.address}}
        route = {"queueDatas": [queue], "brokerDatas": [broker], "filterServerTable": {}}
        return json.dumps(route).encode()


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.peer.close()


@pytest.fixture
def reader(broker: Broker) -> Iterator[Reader]:
    with Reader(broker.peer.address, background=False) as made:
        yield made


def offsets(reader: Reader) -> list[int]:
    return read_table(reader, "T", columns=["queueOffset"]).column(0).to_pylist()


def test_everything_is_read_where_nothing_lacks(broker, reader):
    assert offsets(reader) == list(range(END))
    assert [m.offset for m in reader.read("T")] == list(range(END))


@pytest.mark.parametrize("size", [1, 50, 100])
def test_an_answer_that_is_cut_is_asked_for_again_from_its_cut_on(broker, reader, size):
    broker.cuts = {0: size, 16: size, 32: size}
    assert offsets(reader) == list(range(END))
    broker.cuts = {0: size, 16: size, 32: size}
    assert [m.offset for m in reader.read("T")] == list(range(END))


@pytest.mark.parametrize("columns", [["queueOffset"], ["queueOffset", "body"]], ids=str)
def test_a_batch_before_a_cut_is_read_once_and_whole(broker, reader, columns):
    broker.batches = {12}
    broker.cuts = {8: 20}
    found = read_table(reader, "T", columns=columns).to_pylist()
    assert [row["queueOffset"] for row in found] == list(range(END))
    if "body" in columns:
        assert [len(row["body"]) for row in found] == list(range(END))
    broker.cuts = {8: 20}
    assert [(m.offset, len(m.body)) for m in reader.read("T")] == [(n, n) for n in range(END)]


def test_a_filtered_answer_that_is_cut_is_asked_for_again_too(broker, reader):
    broker.cuts, broker.gone = {0: 30, 16: 30}, {3, 17}
    table = read_table(reader, "T", columns=["queueOffset"], tags="x")
    assert table.column(0).to_pylist() == [n for n in range(END) if n not in broker.gone]


def test_answers_that_are_cut_for_ever_are_an_error(broker, reader):
    broker.cuts = Always()
    with pytest.raises(RemoteProtocolError, match="end within their first record"):
        offsets(reader)


def test_a_first_record_that_is_cut_is_asked_for_again(broker, reader):
    broker.cuts = {0: 8 * 100 + sum(range(8)) - 90}
    assert offsets(reader) == list(range(END))
    broker.cuts = {0: 8 * 100 + sum(range(8)) - 90}
    assert [m.offset for m in reader.read("T")] == list(range(END))


GONE = {"within an answer": {10, 11}, "a whole answer": set(range(8, 24)), "the last": {END - 1}}


@pytest.mark.parametrize("jump", [ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY])
@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
def test_offsets_without_messages_are_loss(broker, reader, gone, jump):
    broker.gone, broker.jump = gone, jump
    with pytest.raises(DataLossError, match=r"topic T, broker b, queue 0: \d+ of the offsets"):
        offsets(reader)


@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
def test_a_policy_that_bears_loss_gets_the_rest(broker, reader, gone, caplog):
    broker.gone = gone
    policy = FetchPolicy(fail_on_data_loss=False)
    bodies = fetch_spans(parts_of(reader), [QueueSpan(QUEUE, 0, END)], policy)
    decoder = RecordDecoder(select_columns(["queueOffset"]))
    found = [n for batch in decoder.decode(bodies) for n in batch.column(0).to_pylist()]
    assert found == [n for n in range(END) if n not in gone]
    assert "going on without them" in caplog.text


@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
def test_a_compacted_topic_lacks_offsets_by_its_nature(broker, reader, gone):
    broker.gone, broker.policy = gone, "COMPACTION"
    assert offsets(reader) == [n for n in range(END) if n not in gone]


@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
def test_a_filter_explains_what_lacks(broker, reader, gone):
    broker.gone = gone
    table = read_table(reader, "T", columns=["queueOffset"], tags="other")
    assert table.num_rows == 0


@pytest.mark.parametrize("jump", [ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY])
@pytest.mark.parametrize("gone", GONE.values(), ids=GONE)
def test_a_reader_says_so(broker, reader, gone, caplog, jump):
    broker.gone, broker.jump = gone, jump
    assert [m.offset for m in reader.read("T")] == [n for n in range(END) if n not in gone]
    assert "the others are gone" in caplog.text
