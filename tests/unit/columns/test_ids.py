"""Message ids made by the column have Java's layout and never repeat."""

from datetime import datetime

import numpy as np

from rocketwire.columns.ids import MessageIdColumn, hex_matrix, month_start_ms

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


def test_the_start_of_a_month_is_local_midnight():
    start = datetime.fromtimestamp(month_start_ms(NOON) / 1000)
    assert (start.day, start.hour, start.minute, start.second) == (1, 0, 0, 0)
