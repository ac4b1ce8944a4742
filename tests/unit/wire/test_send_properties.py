"""The quick way to encode properties never says yes to what the checks refuse, nor writes otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketwire.core.sending.validate import check_message
from rocketwire.errors import InvalidMessageError
from rocketwire.message import Message
from rocketwire.wire import send_properties
from rocketwire.wire.properties import RESERVED
from rocketwire.wire.send_properties import encode_fields, encode_ordinary

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
