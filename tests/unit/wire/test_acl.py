"""Signatures of requests."""

from typing import NamedTuple

import pytest

from rocketwire.errors import LocalProtocolError
from rocketwire.wire.acl import sign, signature


class Keys(NamedTuple):
    access_key: str
    secret_key: str
    security_token: str | None = None


def test_the_published_signatures():
    assert signature(b"RocketMQ", "12345678") == "IUc8rrO/0gDch8CjObLQsW2rsiA="
    assert sign({"a": "g", "b": "T", "i": "x"}, b"hello", Keys("ak", "sk")) == {
        "a": "g",
        "b": "T",
        "i": "x",
        "AccessKey": "ak",
        "Signature": "DQOqlhHkVAFLneXSM8t0dGIxM9M=",
    }


def test_the_order_of_fields_makes_no_difference_but_their_names_do():
    keys = Keys("ak", "sk")
    assert (
        sign({"b": "T", "i": "x", "a": "g"}, b"hello", keys)["Signature"]
        == "DQOqlhHkVAFLneXSM8t0dGIxM9M="
    )
    # Capitals come first, so Zeta stands before a.
    assert sign({"a": "1", "Zeta": "2"}, b"", keys)["Signature"] == signature(b"ak21", "sk")


def test_names_are_ordered_by_utf16_code_units():
    signed = sign({"\uff42": "1", "😀": "2"}, b"", Keys("ak", "sk"))
    assert signed["Signature"] == signature(b"ak21", "sk")


def test_a_token_is_sent_and_signed():
    signed = sign({"a": "1"}, b"", Keys("ak", "sk", "token"))
    assert signed["SecurityToken"] == "token"
    assert signed["Signature"] == signature(b"aktoken1", "sk")


def test_empty_fields_are_dropped():
    signed = sign({"a": "", "b": "1"}, b"", Keys("ak", "sk", ""))
    assert set(signed) == {"b", "AccessKey", "Signature"}


def test_an_old_signature_is_replaced_and_not_signed():
    keys = Keys("ak", "sk")
    once = sign({"a": "1"}, b"x", keys)
    assert sign(once, b"x", keys) == once


def test_the_original_is_left_alone_and_views_are_signed():
    ext = {"a": "1"}
    assert sign(ext, memoryview(b"x"), Keys("ak", "sk")) == sign(ext, b"x", Keys("ak", "sk"))
    assert ext == {"a": "1"}


def test_text_is_signed_as_utf8():
    signed = sign({"b": "中"}, b"", Keys("ak", "sé"))
    assert signed["Signature"] == signature("ak中".encode(), "sé")


def test_half_a_character_is_refused():
    with pytest.raises(LocalProtocolError, match="half a character"):
        sign({"b": "\ud800"}, b"", Keys("ak", "sk"))
