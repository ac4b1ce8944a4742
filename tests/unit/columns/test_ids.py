"""Message ids made by the column have Java's layout and never repeat."""

import time
from datetime import UTC, datetime

import numpy as np
import pytest

from rocketwire.columns.ids import MessageIdColumn, hex_matrix
from rocketwire.wire.message_id import MessageIdMaker

NOON = int(datetime(2026, 11, 15, 12, 0).astimezone().timestamp() * 1000)


def ids_of(matrix):
    return [bytes(row).decode() for row in matrix]


def test_the_layout_is_address_process_salt_time_and_counter():
    column = MessageIdColumn(b"\x0a\x00\x00\x01", 0x12345, salt=0xCAFEBABE, clock_ms=lambda: NOON)
    since = NOON - int(datetime(2026, 11, 1).astimezone().timestamp() * 1000)
    first, second = ids_of(column.make(2))
    assert first == "0A000001" + "2345" + "CAFEBABE" + f"{since:08X}" + "0000"
    assert second == first[:-4] + "0001"


def test_ids_stand_between_the_bytes_asked_for():
    column = MessageIdColumn(b"\x0a\x00\x00\x01", 1, salt=2, clock_ms=lambda: NOON)
    (text,) = ids_of(column.make(1, before=b"<", after=b">"))
    assert text.startswith("<0A0000010001")
    assert text.endswith("0000>")
    assert len(text) == 34


def test_more_ids_than_a_millisecond_has_take_the_next_ones():
    column = MessageIdColumn(b"\x7f\x00\x00\x01", 1, clock_ms=lambda: NOON)
    made = ids_of(column.make(70_000)) + ids_of(column.make(70_000))
    assert len(set(made)) == 140_000
    assert made == sorted(made)


def test_a_clock_that_goes_back_repeats_no_id():
    times = iter([NOON, NOON - 5000])
    column = MessageIdColumn(b"\x7f\x00\x00\x01", 1, clock_ms=lambda: next(times))
    assert len(set(ids_of(column.make(10)) + ids_of(column.make(10)))) == 20


def test_a_new_month_counts_from_its_own_start():
    first_of_december = int(datetime(2026, 12, 1, 0, 0, 1).astimezone().timestamp() * 1000)
    column = MessageIdColumn(b"\x7f\x00\x00\x01", 1, salt=0, clock_ms=lambda: first_of_december)
    assert ids_of(column.make(1))[0][20:28] == f"{1000:08X}"


def test_a_clock_set_back_over_the_first_stays_in_the_new_month():
    """Ids of a month ago began with the same digits, so those of the old month must not come again."""
    first = int(datetime(2026, 12, 1).astimezone().timestamp() * 1000)
    times = iter([first + 1, first - 5000, first + 2])
    column = MessageIdColumn(b"\x7f\x00\x00\x01", 1, salt=0, clock_ms=lambda: next(times))
    made = [ids_of(column.make(1))[0] for _ in range(3)]
    assert [text[20:] for text in made] == ["000000010000", "000000010001", "000000020000"]


@pytest.fixture
def zone(monkeypatch):
    """Sets the machine's time zone."""

    def be_in(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield be_in
    monkeypatch.undo()
    time.tzset()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone can't be set")
@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("Asia/Shanghai", datetime(2017, 9, 30, 16, tzinfo=UTC)),
        # The clock goes forward within the month.
        ("Australia/Sydney", datetime(2017, 9, 30, 14, tzinfo=UTC)),
        # It goes forward at midnight of the 1st, which is no time of that day: java.util.Calendar
        # has the month begin with its first hour, that is at 1506830400000.
        ("America/Asuncion", datetime(2017, 10, 1, 4, tzinfo=UTC)),
    ],
)
def test_the_month_of_an_id_begins_when_it_does_for_every_other_id(zone, name, start):
    zone(name)
    now = int(datetime(2017, 10, 15, 15, tzinfo=UTC).timestamp() * 1000)
    column = MessageIdColumn(b"\x0a\x00\x00\x01", 7, salt=9, clock_ms=lambda: now)
    (made,) = ids_of(column.make(1))
    assert int(made[20:28], 16) == now - int(start.timestamp() * 1000)
    assert made == MessageIdMaker(b"\x0a\x00\x00\x01", 7, 9, lambda: now).next()


def test_two_instances_of_one_process_do_not_collide():
    one, other = (MessageIdColumn(b"\x7f\x00\x00\x01", 1, clock_ms=lambda: NOON) for _ in "ab")
    assert set(ids_of(one.make(100))).isdisjoint(ids_of(other.make(100)))


def test_ipv6_addresses_give_longer_ids():
    column = MessageIdColumn(bytes(range(16)), 1, clock_ms=lambda: NOON)
    assert len(ids_of(column.make(1))[0]) == 56


def test_no_ids_at_all():
    assert MessageIdColumn(b"\x7f\x00\x00\x01", 1).make(0).shape[0] == 0


def test_hexadecimal_digits_are_upper_case():
    assert ids_of(hex_matrix(np.array([[0, 171], [255, 16]], dtype=np.uint8))) == ["00AB", "FF10"]
