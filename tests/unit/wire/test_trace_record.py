"""Trace records. Their exact bytes are in test_java_vectors."""

import pytest
from tests.wire_tools import encode_trace

from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.trace_record import (
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    decode_trace,
    encode_trace_record,
)

PUB = PubRecord(start_ms=1, region="r", group="g", topic="T", message_id="M", offset_message_id="O")
ALL = [
    PUB,
    PUB._replace(client_host="10.0.0.1", success=False),
    SubBeforeRecord(time_ms=2, region=None, group="g", request_id="R", message_id="M"),
    SubAfterRecord(request_id="R", message_id="M", cost_ms=3, success=False, time_ms=4, group="g"),
    SubAfterRecord(request_id="R", message_id="M", cost_ms=3, success=True, context_code=2),
    EndTransactionRecord(time_ms=5, region="r", group="g", topic="T", message_id="M"),
    RecallRecord(time_ms=6, region="r", group="g", topic="T", message_id=None, success=False),
]


@pytest.mark.parametrize("record", ALL)
def test_a_record_is_the_same_after_a_round_trip(record):
    assert decode_trace(encode_trace([record])) == [record]


def test_records_follow_one_another():
    assert decode_trace(encode_trace(ALL)) == ALL
    assert decode_trace(b"") == []


@pytest.mark.parametrize(
    ("record", "count"),
    [(ALL[0], 14), (ALL[1], 15), (ALL[2], 8), (ALL[3], 9), (ALL[4], 7), (ALL[5], 13), (ALL[6], 7)],
)
def test_each_kind_has_its_number_of_fields(record, count):
    text = encode_trace_record(record)
    assert text.endswith("\x02")
    assert len(text[:-1].split("\x01")) == count


def test_nothing_is_written_as_null_as_java_does():
    text = encode_trace_record(PUB._replace(tags=None, keys=None))
    assert text.split("\x01")[6:8] == ["null", "null"]


def test_separators_in_text_do_not_break_a_record():
    record = PUB._replace(keys="a\x01b\x02c")
    assert decode_trace(encode_trace([record])) == [PUB._replace(keys="a b c")]


def test_half_a_character_does_not_stop_a_trace():
    (record,) = decode_trace(encode_trace([PUB._replace(keys="\ud800")]))
    assert record.keys == "?"


def test_a_publish_record_of_13_fields_has_no_offset_id():
    fields = encode_trace_record(PUB)[:-1].split("\x01")
    del fields[12]
    assert decode_trace(("\x01".join(fields) + "\x02").encode()) == [
        PUB._replace(offset_message_id=None)
    ]


def test_a_publish_record_of_16_fields_is_read():
    text = encode_trace_record(ALL[1])[:-1] + "\x01more\x02"
    assert decode_trace(text.encode()) == [ALL[1]]


def test_the_last_separator_may_be_missing():
    assert decode_trace(encode_trace(ALL)[:-1]) == ALL


def test_unknown_kinds_are_passed_over():
    assert decode_trace(b"Future\x011\x02" + encode_trace([PUB])) == [PUB]


@pytest.mark.parametrize("kind", ["Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall"])
def test_too_few_fields_are_refused(kind):
    with pytest.raises(RemoteProtocolError, match=f"{kind} has 2 fields"):
        decode_trace(f"{kind}\x01123\x02".encode())


@pytest.mark.parametrize("text", ["", "x", "1.5", "1_0", " 1", "9" * 5000, "--1"])
def test_garbled_numbers_are_refused_by_field(text):
    fields = encode_trace_record(PUB).split("\x01")
    fields[9] = text
    with pytest.raises(RemoteProtocolError, match="field 10 of a trace record Pub"):
        decode_trace("\x01".join(fields).encode())
