"""Settings of the delivery telemetry: where its files go, and how large they may get."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketwire.errors import ConfigError

_KEY_FORMS: Final = ("plain", "hashed", "off")


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """One JSON line per attempt, in files of one folder.

    Args:
        folder: is made when it is missing. Several producers and processes may share it: each
            file belongs to one of them.
        rotate_bytes: from this size on a new file is begun.
        files: how many of its own files a producer keeps; the oldest is deleted.
        sharding_key: ``"plain"``, ``"hashed"`` (equal keys stay recognisable; no secret, since
            guessed keys can be compared) or ``"off"``.
        max_queue: records that wait for the disk; more are dropped and counted.
    """

    folder: str
    rotate_bytes: int = 64 * 1024 * 1024
    files: int = 16
    sharding_key: str = "plain"
    max_queue: int = 32_768

    def __post_init__(self) -> None:
        folder: object = self.folder  # whatever the caller really gave
        if not isinstance(folder, (str, os.PathLike)) or not str(folder):
            raise ConfigError(f"telemetry folder is {folder!r}: give the path of a folder")
        object.__setattr__(self, "folder", str(folder))
        for name, least in (("rotate_bytes", 4096), ("files", 1), ("max_queue", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"telemetry {name} is {value!r}: a whole number from {least} on")
        if self.sharding_key not in _KEY_FORMS:
            raise ConfigError(
                f"telemetry sharding_key is {self.sharding_key!r}: one of {', '.join(_KEY_FORMS)}"
            )


def as_telemetry(value: object) -> TelemetryConfig | None:
    """Settings from a folder, from a mapping, or from a JSON object as text.

    Raises:
        ConfigError: something is wrong with them.
    """
    if value is None or value == "" or isinstance(value, TelemetryConfig):
        return value if isinstance(value, TelemetryConfig) else None
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ConfigError(f"telemetry {value!r} is no JSON object: {error}") from None
    if isinstance(value, Mapping):
        try:
            return TelemetryConfig(**value)
        except TypeError as error:
            raise ConfigError(f"telemetry: {error}; see TelemetryConfig") from None
    if isinstance(value, (str, os.PathLike)):
        return TelemetryConfig(str(value))
    raise ConfigError(f"telemetry is {value!r}: give a folder, or a TelemetryConfig")
