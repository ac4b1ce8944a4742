"""Keys are hashed as Java hashes them, and properties are read as RocketMQ reads them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketwire.embedded.store.index import key_hash
from rocketwire.embedded.store.index_follower import IndexFollower, _value
from rocketwire.embedded.store.layout import tags_code
from rocketwire.wire.java_hash import java_string_hash
from rocketwire.wire.properties import decode_properties_bytes


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=300))
def test_a_key_has_the_same_hash_whichever_way_it_is_computed(topic: str, key: str) -> None:
    follower = IndexFollower.__new__(IndexFollower)
    follower._topics = {}
    data = key.encode(errors="replace")
    text = data.decode(errors="replace")
    plain = topic.encode(errors="replace")
    expected = key_hash(plain.decode(errors="replace"), text)
    assert follower._hash(plain, data) == expected
    assert 0 <= expected <= 0x7FFFFFFF


def test_the_one_hash_that_has_no_positive_counterpart() -> None:
    # "polygenelubricants" hashes to the least int32.
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert key_hash("", "") == abs(java_string_hash("#"))


names = st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS", "XKEYS", "user", "ORIGIN_UNIQ_KEY"])
values = st.text(st.characters(blacklist_characters="\x01\x02", codec="utf-8"), min_size=1)


@given(st.lists(st.tuples(names, values), max_size=6), st.booleans())
def test_a_property_is_found_where_the_codec_finds_it(pairs, last: bool) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs) + "\x02" * last
    data = text.encode()
    decoded = decode_properties_bytes(data)
    for name in ("KEYS", "UNIQ_KEY"):
        found = _value(data, name.encode() + b"\x01")
        assert (found.decode() if found is not None else None) == decoded.get(name)
    tag = decoded.get("TAGS")
    assert tags_code(data) == (java_string_hash(tag) if tag is not None else 0)
