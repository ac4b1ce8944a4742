"""The quick way to encode properties never says yes to what the checks refuse, nor writes otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketwire.core.sending.validate import check_message
from rocketwire.errors import InvalidMessageError
from rocketwire.message import Message
from rocketwire.wire import send_properties
from rocketwire.wire.properties import RESERVED
from rocketwire.wire.send_properties import encode_alike, encode_fields, encode_ordinary

odd = st.sampled_from(
    ["", " ", "a b", "%", "%s", "100%", "\x01", "\x02", "é", "\ud800", "\u200b", "\t"]
)
words = st.one_of(st.text(max_size=5), odd)
names = st.one_of(words, st.sampled_from(sorted(RESERVED)), st.sampled_from(["region", "price"]))


def refused(message: Message) -> bool:
    try:
        check_message(message, 4_000_000)
    except InvalidMessageError:
        return True
    return False


@settings(max_examples=400, deadline=None)
@given(
    tags=st.none() | words,
    keys=st.none() | words,
    key=st.none() | words,
    properties=st.dictionaries(names, words, max_size=4),
)
def test_what_is_encoded_at_once_passes_the_checks_and_is_the_same(
    tags: str | None, keys: str | None, key: str | None, properties: dict[str, str]
) -> None:
    try:
        message = Message("T", b"x", tags=tags, keys=keys, sharding_key=key, properties=properties)
    except InvalidMessageError:
        return
    found = encode_ordinary(message)
    if found is not None:
        assert not refused(message)
        assert found == encode_fields(message)


@pytest.mark.parametrize(
    "properties",
    [
        {"region": "eu", "price": "12"},
        {"100%": "of %s", "a b": "c d"},
        {"é": "ü", "名": "值"},
    ],
)
def test_ordinary_properties_take_the_quick_way(properties: dict[str, str]) -> None:
    message = Message("T", b"x", tags="pay", keys="o-1", properties=properties)
    assert encode_ordinary(message) == encode_fields(message)


@pytest.mark.parametrize(
    "properties",
    [
        {"": "x"},
        {"a": ""},
        {" a": "x"},
        {"KEYS": "x"},
        {"a": "x\x02"},
        {"a\x01": "x"},
        {"a": "\ud800"},
    ],
)
def test_what_needs_a_closer_look_does_not(properties: dict[str, str]) -> None:
    assert encode_ordinary(Message("T", b"x", properties=properties)) is None


def test_what_is_no_text_needs_a_closer_look() -> None:
    wrong: Any = {"a": 5}
    message = Message("T", b"x", properties={"a": "5"})
    object.__setattr__(message, "raw_properties", wrong)
    assert encode_ordinary(message) is None
    object.__setattr__(message, "raw_properties", {5: "a"})
    assert encode_ordinary(message) is None


def test_names_without_end_take_no_memory_without_end() -> None:
    for number in range(2 * send_properties._MOST_FORMATS):
        message = Message("T", b"x", properties={f"name-{number}": "x"})
        assert encode_ordinary(message) == encode_fields(message)
    assert len(send_properties._formats) <= send_properties._MOST_FORMATS


class Truthy(dict[str, str]):
    """Says that it holds something."""

    def __bool__(self) -> bool:
        return True


def test_a_mapping_that_is_empty_whatever_it_says_is_no_property() -> None:
    message = Message("T", b"x", tags="pay", properties=Truthy())
    assert encode_ordinary(message) is None
    assert encode_alike([message, message]) is None
    assert encode_fields(message) == b"TAGS\x01pay\x02"


def rows(*properties: Mapping[str, str], **fields: Any) -> list[Message]:
    return [Message("T", b"x", **fields, properties=own) for own in properties]


class Colour(str, Enum):  # noqa: UP042 - which is written otherwise
    RED = "red"


@settings(max_examples=100, deadline=None)
@given(
    names=st.lists(names, min_size=1, max_size=3, unique=True),
    fields=st.sampled_from([(), ("tags",), ("tags", "keys"), ("tags", "keys", "sharding_key")]),
    data=st.data(),
)
def test_messages_alike_are_encoded_as_each_would_be(
    names: list[str], fields: tuple[str, ...], data: st.DataObject
) -> None:
    ordinary = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=4)
    value = data.draw(st.sampled_from([ordinary, words]))
    messages = [
        Message(
            "T",
            b"x",
            **{field: data.draw(value) for field in fields},  # type: ignore[arg-type]
            properties={name: data.draw(value) for name in names},
        )
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    found = encode_alike(messages)
    if found is not None:
        assert not any(map(refused, messages))
        assert found == [encode_fields(message) for message in messages]


@pytest.mark.parametrize(
    "messages",
    [
        rows({"region": "eu", "price": "12"}, {"region": "us", "price": "100 %"}),
        rows({"100%": "of %s"}, {"100%": "\N{SNOWMAN}"}, tags="é"),
        rows({"a b": "c d"}, tags="pay", keys="o-1", sharding_key="u-1"),
        rows({Colour.RED: "plain"}, {Colour.RED: Colour.RED}),
    ],
)
def test_ordinary_messages_alike_take_the_quick_way(messages: list[Message]) -> None:
    assert encode_alike(messages) == [encode_fields(message) for message in messages]


@pytest.mark.parametrize(
    "messages",
    [
        rows({"a": "1"}, {"b": "1"}),
        rows({"a": "1", "b": "2"}, {"b": "2", "a": "1"}),
        rows({"a": "1"}, {}),
        rows({"a": "1"}) + rows({"a": "1"}, tags="pay"),
        rows({"a": "1"}) + rows({"a": "1"}, flag=1),
        rows({"a": "1"}, {"a": "\x00"}),
        rows({"a": "1"}, {"a": "1\x02b\x012"}),
        rows({"a": "1"}, {"a": " "}),
        rows({"a": "1"}, {"a": "\u3000"}),
        rows({"a": "1"}, {"a": "\ud800"}),
        rows({"a": "1"}, tags=""),
        rows({"KEYS": "1"}),
    ],
)
def test_messages_that_are_not_alike_or_not_ordinary_do_not(messages: list[Message]) -> None:
    assert encode_alike(messages) is None


@pytest.mark.parametrize("wrong", [{"a": 5}, {5: "a"}, None, "a"])
def test_messages_alike_with_what_is_no_text_do_not(wrong: Any) -> None:
    messages = rows({"a": "1"}, {"a": "2"})
    object.__setattr__(messages[1], "raw_properties", wrong)
    assert encode_alike(messages) is None


def test_messages_alike_with_a_tag_that_is_no_text_do_not() -> None:
    messages = rows({"a": "1"})
    object.__setattr__(messages[0], "tags", 5)
    assert encode_alike(messages) is None
