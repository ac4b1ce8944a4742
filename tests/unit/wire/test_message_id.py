"""Unique ids and offset ids."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from tests.wire_tools import UniqueId, decode_message_id, utc_month

from rocketwire.errors import LocalProtocolError, RemoteProtocolError
from rocketwire.wire.message_id import (
    MessageIdMaker,
    OffsetId,
    RecallHandle,
    decode_offset_message_id,
    decode_recall_handle,
    encode_recall_handle,
    host_bytes,
    host_text,
    local_month,
)

IP = bytes((10, 0, 0, 1))


def ms(*parts):
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)


class Clock:
    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


NOVEMBER = ms(2023, 11, 14)


def maker(now=NOVEMBER, **options):
    clock = Clock(now)
    return clock, MessageIdMaker(IP, 0x12345, 0x0A0B0C0D, clock, month=utc_month, **options)


def test_the_layout():
    clock, ids = maker(ms(2023, 11, 1) + 0x1234)
    assert ids.next() == "0A000001" + "2345" + "0A0B0C0D" + "00001234" + "0000"
    assert ids.next().endswith("00001234" + "0001")
    assert ids.prefix == "0A00000123450A0B0C0D"


def test_an_ipv6_address_makes_a_longer_id():
    ids = MessageIdMaker(bytes(15) + b"\x01", 1, -1, Clock(ms(2024, 1, 1)), month=utc_month)
    text = ids.next()
    assert len(text) == 56
    assert decode_message_id(text) == UniqueId("::1", 1, -1, 0, 0)


def test_an_id_can_be_taken_apart():
    clock, ids = maker(ms(2023, 11, 2), counter_start=0xFFFF)
    assert decode_message_id(ids.next()) == UniqueId(
        "10.0.0.1", 0x2345, 0x0A0B0C0D, 86_400_000, 0xFFFF
    )
    assert decode_message_id(ids.next()).counter == 0


def test_time_counts_from_the_start_of_each_month():
    clock, ids = maker(ms(2023, 12, 31, 23, 59, 59))
    assert decode_message_id(ids.next()).month_ms == 31 * 86_400_000 - 1000
    clock.now = ms(2024, 1, 1)
    assert decode_message_id(ids.next()).month_ms == 0
    clock.now = ms(2024, 2, 29, 12)
    assert decode_message_id(ids.next()).month_ms == int(28.5 * 86_400_000)


def test_a_clock_set_back_a_little_over_the_first_counts_as_the_first():
    clock, ids = maker(ms(2024, 1, 1, 0, 0, 1))
    ids.next()
    clock.now = ms(2024, 1, 1) - 5000
    assert decode_message_id(ids.next()).month_ms == 0
    clock.now = ms(2024, 1, 1, 0, 0, 2)
    assert decode_message_id(ids.next()).month_ms == 2000


def test_a_clock_set_back_far_is_believed():
    clock, ids = maker(ms(2024, 1, 1, 0, 0, 1))
    ids.next()
    clock.now = ms(2023, 12, 1) + 7
    assert decode_message_id(ids.next()).month_ms == 7


def test_the_month_in_local_time_contains_the_moment_and_begins_on_the_first():
    now = ms(2024, 3, 31, 12)
    start, end = local_month(now)
    assert start <= now < end
    for edge in (start, end):
        local = datetime.fromtimestamp(edge / 1000).astimezone()
        assert (local.day, local.hour, local.minute) == (1, 0, 0)


def test_many_ids_differ_and_continue_the_count():
    clock, ids = maker()
    many = ids.next_many(1000)
    assert len(set(many)) == 1000
    assert decode_message_id(many[-1]).counter == 999
    assert decode_message_id(ids.next()).counter == 1000
    assert ids.next_many(0) == []


def test_a_block_of_ids_is_what_single_ids_would_have_been():
    _, ids = maker()
    _, same = maker()
    block = ids.block(300)
    assert list(block.texts()) == [same.next() for _ in range(300)]
    assert block.text(299) == list(block.texts())[-1]
    assert ids.next() == same.next()


def test_a_block_goes_on_after_the_counter_comes_round():
    clock, _ = maker()
    ids = MessageIdMaker(IP, 1, 1, lambda: clock.now, 0x1FFFE, month=utc_month)
    counters = [decode_message_id(text).counter for text in ids.block(4).texts()]
    assert counters == [0xFFFE, 0xFFFF, 0, 1]


def test_a_block_has_no_gap_when_others_take_numbers_meanwhile():
    _, ids = maker()

    def disturbed():
        yield from (5, 7)
        yield from (9, 10)

    ids.numbers = disturbed()
    assert [decode_message_id(text).counter for text in ids.block(2).texts()] == [9, 10]


def test_the_clock_is_read_again_before_the_counter_comes_round():
    clock, _ = maker()

    def ticking():
        clock.now += 1
        return clock.now

    ids = MessageIdMaker(IP, 1, 1, ticking, month=utc_month)
    assert len(set(ids.next_many(200_000))) == 200_000


def test_threads_never_get_the_same_id():
    _, ids = maker()
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: [ids.next() for _ in range(2000)], range(8)))
    assert len({text for part in parts for text in part}) == 16_000


def test_an_address_of_another_length_is_refused():
    with pytest.raises(LocalProtocolError, match="5 bytes"):
        MessageIdMaker(b"12345", 1, 1, Clock(0))


def test_an_offset_id_is_the_published_vector():
    text = "0A00000200002A9F0000000000000400"
    assert decode_offset_message_id(text) == OffsetId("10.0.0.2", 10911, 1024)
    assert decode_offset_message_id(text.lower()) == OffsetId("10.0.0.2", 10911, 1024)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0A",
        "0A00000200002A9F00000000000004",
        "0A00000200002A9F000000000000040G",
        "0A 00 00 02 00 00 2A 9F 00 00 00 00 00 00 04 00",
        "0A00000200002A9F0000000000000400" * 2,
        "é" * 32,
        "x" * 1_000_000,
    ],
)
def test_what_is_no_id_is_refused(text):
    with pytest.raises(RemoteProtocolError, match="32 or 56 hexadecimal digits") as info:
        decode_offset_message_id(text)
    assert len(str(info.value)) < 250
    with pytest.raises(LocalProtocolError):
        decode_offset_message_id(text, error=LocalProtocolError)


@pytest.mark.parametrize(
    "text", ["0A000002FFFFFFFF0000000000000400", "0A00000200002A9FFFFFFFFFFFFFFFFF"]
)
def test_impossible_places_are_refused(text):
    with pytest.raises(RemoteProtocolError, match="can't be"):
        decode_offset_message_id(text)


@pytest.mark.parametrize("text", ["0.0.0.0", "255.1.2.3", "::1", "2001:db8::ff"])
def test_addresses_are_the_same_after_a_round_trip(text):
    assert host_text(host_bytes(text)) == text


def test_names_are_not_addresses():
    with pytest.raises(LocalProtocolError, match="resolved"):
        host_bytes("localhost")


def test_a_recall_handle_is_the_published_vector():
    handle = RecallHandle("T", "broker-a", 1700000001000, "7F0000010001")
    text = "djEgVCBicm9rZXItYSAxNzAwMDAwMDAxMDAwIDdGMDAwMDAxMDAwMQ=="
    assert encode_recall_handle(handle) == text
    assert decode_recall_handle(text) == handle


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "é",
        "djEgVCBicm9rZXItYSAxNzAwMDAwMDAxMDAwIDdGMDAwMDAxMDAwMQ",
        encode_recall_handle(RecallHandle("T", "", 1, "M")),
        encode_recall_handle(RecallHandle("T", "b", -1, "M")),
        encode_recall_handle(RecallHandle("T", "b c", 1, "M")),
        "djIgVCBiIDEgTQ==",
        "_w==",
    ],
)
def test_what_is_no_recall_handle_is_refused(text):
    with pytest.raises(RemoteProtocolError, match="recall handle"):
        decode_recall_handle(text)
    with pytest.raises(LocalProtocolError):
        decode_recall_handle(text, error=LocalProtocolError)
