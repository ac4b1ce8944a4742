"""Signatures by which a broker knows who asks.

The signature covers the values of all ext fields in the order of their names, and the body. So a
request is signed last, when nothing will be added any more.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketwire.errors import ConfigError, LocalProtocolError

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - the name of a field
SIGNATURE: Final = "Signature"


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """Who we are. Neither ``repr`` nor ``str`` shows a secret, so it may be logged.

    Args:
        access_key: the name.
        secret_key: what signatures are made with; it never travels.
        security_token: a temporary token that travels along, if the server wants one.
    """

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ConfigError(f"{name} is empty or not text: give the one of your account")

    def __repr__(self) -> str:
        token = "" if self.security_token is None else ", security_token='***'"
        return f"Credentials(access_key={self.access_key!r}, secret_key='***'{token})"


def sign(
    ext: Mapping[str, str], body: bytes | memoryview, credentials: Credentials
) -> dict[str, str]:
    """A signed copy of ext fields.

    Fields without a value are dropped: in a binary header Java takes them for absent, and would
    then come to another signature.
    """
    signed = {name: value for name, value in ext.items() if value and name != SIGNATURE}
    signed[ACCESS_KEY] = credentials.access_key
    if credentials.security_token:
        signed[SECURITY_TOKEN] = credentials.security_token
    try:
        content = "".join([signed[name] for name in sorted(signed, key=_java_order)]).encode()
    except UnicodeEncodeError:
        raise LocalProtocolError(
            "a header field has half a character in it, which can't be signed: remove it"
        ) from None
    signed[SIGNATURE] = signature(content + body, credentials.secret_key)
    return signed


def _java_order(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def signature(content: bytes, secret_key: str) -> str:
    """HMAC-SHA1 in Base64, over content that is already in order."""
    import hmac  # here, because it loads OpenSSL, which clients without credentials never need

    return b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()
