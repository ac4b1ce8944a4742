"""Signatures by which a broker knows who asks.

The signature covers the values of all ext fields in the order of their names, and the body. So a
request is signed last, when nothing will be added any more.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Final, Protocol

from rocketwire.errors import LocalProtocolError

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - the name of a field
SIGNATURE: Final = "Signature"


class Keys(Protocol):
    """Who we are: what ``config.Credentials`` holds."""

    @property
    def access_key(self) -> str:
        """The name."""

    @property
    def secret_key(self) -> str:
        """What signatures are made with; it never travels."""

    @property
    def security_token(self) -> str | None:
        """A temporary token that travels along, if the server wants one."""


def sign(ext: Mapping[str, str], body: bytes | memoryview, keys: Keys) -> dict[str, str]:
    """A signed copy of ext fields.

    Fields without a value are dropped: in a binary header Java takes them for absent, and would
    then come to another signature.
    """
    signed = {name: value for name, value in ext.items() if value and name != SIGNATURE}
    signed[ACCESS_KEY] = keys.access_key
    if keys.security_token:
        signed[SECURITY_TOKEN] = keys.security_token
    try:
        content = "".join([signed[name] for name in sorted(signed, key=_java_order)]).encode()
    except UnicodeEncodeError:
        raise LocalProtocolError(
            "a header field has half a character in it, which can't be signed: remove it"
        ) from None
    signed[SIGNATURE] = signature(content + body, keys.secret_key)
    return signed


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def signature(content: bytes, secret_key: str) -> str:
    """HMAC-SHA1 in Base64, over content that is already in order."""
    import hmac  # here, because it loads OpenSSL, which clients without credentials never need

    return b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()
