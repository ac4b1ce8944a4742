from __future__ import annotations

import copy
import enum
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest

from rocketwire import InvalidMessageError, Message, MessageQueue, SendResult, SendStatus
from rocketwire.errors import Attempt, SendFailedError
from rocketwire.wire.send_properties import encode_fields, encode_ordinary


def test_text_becomes_utf_8() -> None:
    assert Message("T", "grün").body == "grün".encode()


@pytest.mark.parametrize("body", [bytearray(b"ab"), memoryview(b"ab")])
def test_other_buffers_become_bytes(body: object) -> None:
    message = Message("T", body)  # type: ignore[arg-type]
    assert message.body == b"ab"
    assert type(message.body) is bytes


@pytest.mark.parametrize("body", [None, 5, ["x"]])
def test_a_body_that_is_neither_is_refused(body: object) -> None:
    with pytest.raises(InvalidMessageError, match="body is a"):
        Message("T", body)  # type: ignore[arg-type]


def test_keys_are_joined_by_blanks() -> None:
    assert Message("T", b"x", keys=("a", "b")).keys == "a b"
    assert Message("T", b"x", keys="a b").keys == "a b"
    assert Message("T", b"x", keys=[]).keys is None


class Colour(str, enum.Enum):  # noqa: UP042 - as many programs have it
    """Equal to its value; a format writes another text."""

    RED = "red"


def test_text_of_a_class_of_its_own_counts_by_its_characters() -> None:
    """As members of an enum, and what numpy calls ``str_``."""
    red = Colour.RED
    message = Message(
        red, b"x", tags=red, keys=red, sharding_key=red, properties={red: red, "other": "o"}
    )
    found = [message.topic, message.tags, message.keys, message.sharding_key]
    assert found == ["red"] * 4
    assert {type(text) for text in found} == {str}
    assert encode_ordinary(message) == encode_fields(message)
    assert encode_fields(message) == (
        b"TAGS\x01red\x02KEYS\x01red\x02__SHARDINGKEY\x01red\x02red\x01red\x02other\x01o\x02"
    )
    delayed = Message("T", b"x", properties={red: "plain"}, delay_level=3)
    assert encode_fields(delayed) == b"DELAY\x013\x02red\x01plain\x02"


@pytest.mark.parametrize("keys", [["a b"], [1], 5])
def test_keys_that_can_t_be_joined_are_refused(keys: object) -> None:
    with pytest.raises(InvalidMessageError, match="keys"):
        Message("T", b"x", keys=keys)  # type: ignore[arg-type]


def test_a_moment_needs_a_time_zone() -> None:
    with pytest.raises(InvalidMessageError, match="time zone"):
        Message("T", b"x", deliver_at=datetime(2026, 1, 1))
    moment = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    expected = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert Message("T", b"x", deliver_at=moment).deliver_at == expected
    assert Message("T", b"x", deliver_at=5).deliver_at == 5.0
    with pytest.raises(InvalidMessageError, match="deliver_at"):
        Message("T", b"x", deliver_at="tomorrow")  # type: ignore[arg-type]


def test_a_message_never_changes() -> None:
    properties = {"a": "1"}
    message = Message("T", b"x", properties=properties)
    properties["a"] = "2"
    assert message.properties["a"] == "1"
    with pytest.raises(AttributeError, match="immutable"):
        message.topic = "U"
    with pytest.raises(AttributeError, match="immutable"):
        del message.topic
    with pytest.raises(TypeError):
        message.properties["a"] = "2"  # type: ignore[index]


def test_messages_are_equal_by_value_and_survive_pickling() -> None:
    message = Message("T", b"x", tags="t", keys="k", properties={"a": "1"}, sharding_key="s")
    same = Message("T", b"x", tags="t", keys="k", properties={"a": "1"}, sharding_key="s")
    assert message == same
    assert hash(message) == hash(same)
    assert message != message.replace(tags="u")
    assert pickle.loads(pickle.dumps(message)) == message
    assert message != "x"


def test_every_field_is_what_was_given_and_survives_pickling() -> None:
    for extra in (
        {},
        {"tags": "t"},
        {"keys": "k"},
        {"properties": {"a": "1"}},
        {"sharding_key": "s"},
        {"delay_level": 1},
        {"deliver_at": 5.0},
        {"flag": 1},
        {"wait_store_ok": False},
    ):
        message = Message("T", b"x", **extra)  # type: ignore[arg-type]
        for name, value in extra.items():
            assert getattr(message, name) == value
        assert pickle.loads(pickle.dumps(message)) == message
        assert (message == Message("T", b"x")) is not bool(extra)


def test_a_sharding_key_may_be_a_number() -> None:
    assert Message("T", b"x", sharding_key=42).sharding_key == "42"


def test_an_option_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"^Message\(\) got an unexpected keyword argument 'tag'"):
        Message("T", b"x", tag="t")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Message("T", b"x", "t")  # type: ignore[call-arg]


def test_replace_makes_a_copy_with_changes() -> None:
    message = Message("T", b"x", keys="k")
    assert message.replace(body="y", keys=None) == Message("T", b"y")


def test_the_repr_shows_no_body() -> None:
    text = repr(Message("T", b"secret", tags="t"))
    assert "secret" not in text
    assert text == "Message('T', 6 bytes, tags='t')"


def test_queues_sort_as_java_sorts_them() -> None:
    queues = [MessageQueue("T", "b", 0), MessageQueue("T", "a", 10), MessageQueue("T", "a", 2)]
    assert sorted(queues) == [queues[2], queues[1], queues[0]]


class _Order(Message):
    number: int = 0


def test_a_derived_message_may_have_more_than_the_slots_of_a_message() -> None:
    order = _Order("T", b"x", keys="k")
    assert type(order) is _Order
    assert (order.topic, order.body, order.keys) == ("T", b"x", "k")
    with pytest.raises(AttributeError, match="immutable"):
        order.number = 1


def _fields(**changes: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "status": SendStatus.OK,
        "message_id": "A",
        "offset_message_id": "B",
        "queue": MessageQueue("T", "broker-a", 1),
        "offset": 7,
    }
    return fields | changes


def test_a_result_is_read_when_a_field_is_first_asked_for_and_only_then() -> None:
    calls: list[int] = []

    def read() -> dict[str, object]:
        calls.append(1)
        return _fields(offset=9)

    result = SendResult.read_by(read)
    assert not calls
    assert (result.offset, result.status, result.region) == (9, SendStatus.OK, "DefaultRegion")
    assert result.attempts == ()
    assert calls == [1]


def test_a_result_that_is_read_late_equals_one_that_was_made_at_once() -> None:
    late, made = SendResult.read_by(_fields), SendResult(**_fields())  # type: ignore[arg-type]
    assert late == made
    assert hash(late) == hash(made)
    assert repr(late) == repr(made)
    assert repr(made).startswith("SendResult(status=<SendStatus.OK: 'SEND_OK'>, message_id='A'")
    assert pickle.loads(pickle.dumps(SendResult.read_by(_fields))) == made
    assert copy.copy(SendResult.read_by(_fields)) == made
    assert made != made.replace(offset=8)
    assert made != "made"


def test_a_result_that_an_older_version_pickled_is_read() -> None:
    """All of it were values of ``rocketwire.message`` then."""
    pickled = (
        b"crocketwire.message\n_make_result\n((dVstatus\ncrocketwire.message\nSendStatus\n"
        b"(VFLUSH_DISK_TIMEOUT\ntRsVmessage_id\nVA\nsVoffset_message_id\nVB\nsVqueue\n"
        b"ccopy_reg\n_reconstructor\n(crocketwire.message\nMessageQueue\nc__builtin__\ntuple\n"
        b"(Vt\nVb\nI1\nttRsVoffset\nI7\nsVtransaction_id\nNsVregion\nVDefaultRegion\n"
        b"sVmessage_ids\n(tsVoffset_message_ids\n(tsVattempts\n(tsVmaybe_duplicate\nI00\n"
        b"sVrecall_handle\nVh\nstR."
    )
    queue = MessageQueue("t", "b", 1)
    assert pickle.loads(pickled) == SendResult(
        SendStatus.FLUSH_DISK_TIMEOUT, "A", "B", queue, 7, recall_handle="h"
    )


def test_a_result_never_changes() -> None:
    result = SendResult.read_by(_fields)
    with pytest.raises(AttributeError, match="immutable"):
        result.offset = 1
    with pytest.raises(AttributeError):
        _ = result.colour  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = SendResult.__new__(SendResult).offset


def test_threads_that_read_a_result_at_once_see_the_same() -> None:
    inside = threading.Barrier(2)

    def read() -> dict[str, object]:
        inside.wait(10)
        return _fields()

    result = SendResult.read_by(read)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: result.offset, range(2))) == [7, 7]


def test_results_that_are_read_by_number_are_read_once_each_when_asked_for() -> None:
    read: list[int] = []

    def fields(number: int) -> dict[str, object]:
        read.append(number)
        return {**_fields(), "offset": number}

    results = SendResult.read_each(fields, 3)
    assert read == []
    assert [results[2].offset, results[0].offset, results[2].offset] == [2, 0, 2]
    assert read == [2, 0]
    assert pickle.loads(pickle.dumps(results[1])).offset == 1
    assert SendResult.read_each(fields, 0) == []


def test_threads_that_read_a_numbered_result_at_once_see_the_same() -> None:
    inside = threading.Barrier(2)

    def read(number: int) -> dict[str, object]:
        inside.wait(10)
        return {**_fields(), "offset": number}

    result = SendResult.read_each(read, 5)[4]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: result.offset, range(2))) == [4, 4]


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), -1.0, 1.9e12])
def test_a_moment_that_can_be_none_is_refused(moment: float) -> None:
    with pytest.raises(InvalidMessageError, match=r"deliver_at is .*seconds since 1970"):
        Message("T", b"x", deliver_at=moment)


@pytest.mark.parametrize("properties", ["ab", [1], 5])
def test_properties_that_are_no_mapping_are_refused_by_name(properties: object) -> None:
    with pytest.raises(InvalidMessageError, match="properties is a"):
        Message("T", b"x", properties=properties)  # type: ignore[arg-type]


def test_a_body_that_utf_8_can_t_carry_is_refused_by_name() -> None:
    with pytest.raises(InvalidMessageError, match="body has a lone surrogate at 1"):
        Message("T", "a\ud800")


def test_a_result_takes_its_fields_in_order_and_a_status_has_java_s_name() -> None:
    queue = MessageQueue("T", "broker-a", 3)
    result = SendResult(SendStatus.SEND_OK, "id", "offset-id", queue, 7)
    assert (result.status, result.queue, result.offset) == (SendStatus.OK, queue, 7)
    assert [str(status) for status in SendStatus] == [
        "SEND_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE",
    ]  # fmt: skip


def test_attempt_count_counts_every_try_of_a_success_and_of_a_failure() -> None:
    queue = MessageQueue("t", "a", 0)
    tries = tuple(Attempt(queue, 0.1, None, None) for _ in range(2))
    assert SendResult(SendStatus.OK, "m", "o", queue, 0).attempt_count == 1
    assert SendResult(SendStatus.OK, "m", "o", queue, 0, attempts=tries).attempt_count == 3
    assert SendFailedError("x", attempts=tries).attempt_count == 2


def test_every_field_of_a_result_is_what_it_was_given_for_that_name() -> None:
    names = list(SendResult.__init__.__annotations__)
    names.remove("return")
    given = {name: object() for name in names}
    result = SendResult(**given)  # type: ignore[arg-type]
    assert {name: getattr(result, name) for name in names} == given
    assert names == list(SendResult.__annotations__)
