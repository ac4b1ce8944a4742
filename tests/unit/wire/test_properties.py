"""Properties text: what is written, and how forgiving reading is."""

import pytest

from rocketwire.wire.properties import (
    RESERVED,
    SYSTEM,
    Property,
    decode_properties,
    decode_properties_bytes,
    is_user_property,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a\x011", {"a": "1"}),
        ("a\x011\x02", {"a": "1"}),
        ("a\x011\x02b\x012", {"a": "1", "b": "2"}),
        ("\x02\x02a\x011\x02\x02", {"a": "1"}),
        ("a\x01\x02b\x012\x02", {"b": "2"}),
        ("\x011\x02b\x012\x02", {"b": "2"}),
        ("nothing\x02b\x012\x02", {"b": "2"}),
        ("a\x011\x02a\x012\x02", {"a": "2"}),
        ("a\x011\x012\x02", {"a": "1\x012"}),
    ],
)
def test_reading_follows_javas_rules(text, expected):
    assert decode_properties(text) == expected


def test_bytes_that_are_not_utf8_do_not_stop_a_reader():
    assert decode_properties_bytes(b"a\x01\xff\x02b\x01\xe4\xb8\xad\x02") == {
        "a": "\ufffd",
        "b": "中",
    }


def test_reserved_names_are_those_that_java_refuses_and_our_own():
    assert {"KEYS", "TAGS", "WAIT", "DELAY", "UNIQ_KEY", "1ST_POP_TIME", "__CRC32#"} <= RESERVED
    assert not RESERVED & {"__SHARDINGKEY", "__transactionId__", "INNER_NUM", "TRACE_CONTEXT"}
    ours = {name for name in RESERVED if name.startswith("ROCKETWIRE_")}
    assert ours == {Property.ERROR, Property.DEAD_LETTER, Property.REPLAYED}
    assert len(RESERVED - ours) == 51
    assert RESERVED < SYSTEM


def test_system_names_are_not_the_users():
    assert Property.SHARDING_KEY in SYSTEM
    assert not is_user_property("CLUSTER")
    assert not is_user_property("__RMQ.TRANSIENT.x")
    assert is_user_property("colour")
