"""Values of settings as they come: numbers, or text from a variable, a file or a command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import inf
from typing import Final

from rocketwire.errors import ConfigError

MIB: Final = 1024 * 1024
#: Thirty years: what is longer is a mistake, and no system call takes it.
MAX_SECONDS: Final = 1e9


def flag(value: object) -> bool:
    """True or false, in any of the usual words."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in {"true", "1", "yes", "on"}:
        return True
    if text in {"false", "0", "no", "off"}:
        return False
    raise ConfigError(f"{value!r} is neither true nor false")


def flag_of(name: str, value: object) -> bool:
    """As `flag`, for a part of a setting, which the error names."""
    try:
        return flag(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


_UNITS: Final = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES: Final = {"": 1, "b": 1, "k": 1024, "kb": 1024, "kib": 1024, "m": MIB, "mb": MIB, "mib": MIB}


def seconds(value: object) -> float:
    """A span of time: a number of seconds, or text such as ``500ms``, ``3s``, ``15m``."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not abs(value) <= MAX_SECONDS:  # also what is no number at all
            raise ConfigError(f"{value!r} is no span of time: give seconds, at most 1e9")
        return float(value)
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*)\s*", str(value))
    if found is None or found[2].lower() not in _UNITS:
        raise ConfigError(f"{value!r} is no span of time: give seconds, or e.g. 500ms, 3s, 15m")
    number = float(found[1]) * _UNITS[found[2].lower()]
    if number > MAX_SECONDS:
        raise ConfigError(f"{str(value)[:40]!r} is no span of time: give at most 1e9 seconds")
    return number


def limit(value: object) -> float | None:
    """How long to wait: a span of time; None and infinity are no limit."""
    return None if value is None or value == inf else seconds(value)


def size(value: object) -> int:
    """A number of bytes, or text such as ``4 MiB``."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = re.fullmatch(r"\s*([0-9]+)\s*([a-zA-Z]*)\s*", str(value))
    if found is None or found[2].lower() not in _SIZES:
        raise ConfigError(f"{value!r} is no size: give bytes, or e.g. 64k, 4MiB")
    return int(found[1]) * _SIZES[found[2].lower()]


def whole(value: object) -> int:
    """A whole number."""
    if isinstance(value, bool):
        raise ConfigError(f"{value!r} is no number")
    try:
        return int(str(value))
    except ValueError:
        raise ConfigError(f"{value!r} is no whole number") from None


def text_or_none(value: object) -> str | None:
    """Text; none where it is empty."""
    return None if value is None or value == "" else str(value)


def name_servers(value: object) -> tuple[str, ...]:
    """Addresses from ``host:port;host:port`` (or commas) or from a list."""
    text = value if isinstance(value, str) else ";".join(_texts(value))
    parts = [part for part in re.split(r"[;,\s]+", text) if part]
    addresses = dict.fromkeys(part.removeprefix("http://").rstrip("/") for part in parts)
    for address in addresses:
        check_address(address, "name_servers")
    return tuple(addresses)


def _texts(value: object) -> list[str]:
    if not isinstance(value, Iterable):
        raise ConfigError(f"name_servers is {value!r}: give 'host:port;host:port' or a list")
    items = list(value)
    for item in items:
        if not isinstance(item, str):
            raise ConfigError(f"name_servers contains {item!r}: every address is text")
    return items


def check_address(address: str, what: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[v6]:port``."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if (
        not colon
        or not host
        or not port.isascii()
        or not port.isdigit()
        or not 0 < int(port) < 65536
    ):
        raise ConfigError(
            f"{what} contains {address!r}: an address is host:port, e.g. 127.0.0.1:9876 or [::1]:9876"
        )
    return host, int(port)
