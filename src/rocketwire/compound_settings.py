"""Settings that are several values together: keys, encryption, batches, maps of addresses.

Here are the values, and what may be given for each; the tables of settings are in ``config``, which has
these names, too.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from rocketwire.errors import ConfigError
from rocketwire.setting_values import MIB, check_address, flag

AddressMap: TypeAlias = Mapping[str, str] | Callable[[str], str]
_MAP_EXAMPLE: Final = '{"172.17.0.2:10911": "127.0.0.1:10911"}'
_S = TypeVar("_S", "AutoBatch", "Tls")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Keys of an access-controlled cluster. They appear in no repr, log or error."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise ConfigError("credentials need both access_key and secret_key")


#: Keys, or a function that returns the keys to use now (for those that rotate).
CredentialsSource: TypeAlias = Credentials | Callable[[], Credentials]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How connections are encrypted. The server's name is verified unless ``verify`` is False."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    server_name: str | None = None

    def __post_init__(self) -> None:
        if self.key_file and not self.cert_file:
            raise ConfigError("tls: key_file without cert_file; give both for mutual TLS")


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoBatch:
    """Send messages that were submitted one by one in batches.

    A batch leaves when it has ``size`` bytes or ``messages`` messages, when nothing of its kind is
    under way (so a lone message is not delayed), or after ``linger`` seconds. It is safe to leave
    on. Leave it off where each message must be answered for on its own: a batch is stored, retried
    and refused as a whole, all of it goes to one queue, and its bodies are not compressed.
    """

    linger: float = 0.005
    size: int = 128 * 1024
    messages: int = 1000

    def __post_init__(self) -> None:
        if not 0 <= self.linger <= 30:
            raise ConfigError(f"auto_batch linger is {self.linger}: 0 to 30 seconds")
        if not 1 <= self.size <= 4 * MIB:
            raise ConfigError(f"auto_batch size is {self.size}: 1 byte to 4 MiB")
        if self.messages < 1:
            raise ConfigError(f"auto_batch messages is {self.messages}: at least 1")


def as_address_map(value: object) -> AddressMap | None:
    """A mapping or its JSON, whose addresses are checked; a function as it is."""
    if value is None or callable(value):
        return value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ConfigError(
                f"{value!r} is no JSON object of addresses; write e.g. {_MAP_EXAMPLE}"
            ) from None
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{value!r} is neither a mapping of addresses nor a function; give e.g. {_MAP_EXAMPLE}"
        )
    found = {str(k): str(v) for k, v in value.items()}
    for address in (*found, *found.values()):
        check_address(address, f"a map like {_MAP_EXAMPLE} is needed; this one")
    return found


def as_credentials(value: object) -> CredentialsSource | None:
    """Keys or a function; text has options of its own for each part."""
    if value is None or isinstance(value, Credentials) or callable(value):
        return value
    raise ConfigError("give a Credentials, or a function that returns one")


def as_tls(value: object) -> Tls | None:
    """Also a mapping of its fields, or a flag: True for a verified server and no keys of one's own."""
    if value is None or isinstance(value, Tls):
        return value
    if isinstance(value, Mapping):
        return _filled(Tls, value)
    return Tls() if flag(value) else None


def _filled(kind: type[_S], values: Mapping[str, Any]) -> _S:
    names = [spec.name for spec in dataclasses.fields(kind)]
    for name in values:
        if name not in names:
            raise ConfigError(f"{name!r} is none of {', '.join(names)}")
    return kind(**values)


def as_auto_batch(value: object) -> AutoBatch | None:
    """Also a mapping of its fields, or a flag."""
    if value is None or isinstance(value, AutoBatch):
        return value
    if isinstance(value, Mapping):
        return _filled(AutoBatch, value)
    return AutoBatch() if flag(value) else None
