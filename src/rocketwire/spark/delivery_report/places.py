"""Where telemetry is read from, and where a page and its tables go."""

from __future__ import annotations

import os
from datetime import datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rocketwire.errors import ConfigError
from rocketwire.spark.delivery_report.records import FILE_ENDINGS
from rocketwire.spark.delivery_report.table_folder import local_path

Place = str | os.PathLike[str]


def found_place(text: str, argument: str) -> Path | None:
    """A local place, looked at: Spark would only say that nothing is there, much later."""
    path = local_path(text)
    if path is None:
        return None
    if not path.exists():
        raise ConfigError(f"{argument} {text!r}: there is no such folder here")
    if path.is_dir() and not any(p.name.endswith(FILE_ENDINGS) for p in path.rglob("*.jsonl*")):
        raise ConfigError(
            f"{argument} {text!r} has no telemetry files (*.jsonl) in it: "
            "producers write them with telemetry=FOLDER"
        )
    return path.absolute()


def page_path(out: Place) -> Path:
    """Where a page goes; refuses a folder, and one that can't be written to, before any work."""
    path = Path(out)
    if not path.name or path.is_dir():
        raise ConfigError(f"out {os.fspath(out)!r} is a folder: give a file, like report.html")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out {os.fspath(out)!r} can't be written: {error.strerror}") from None
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"out {os.fspath(out)!r}: {path.parent} can't be written to")
    return path


def table_folder(tables: Place | None, page: Path) -> str:
    """Where tables go; beside the page unless it is said."""
    if tables is not None:
        text = os.fspath(tables)
        local = local_path(text)
        return text if local is None else str(local.absolute())
    return str(page.with_name(f"{page.stem}-tables").absolute())


def time_zone_of(name: str | None) -> tzinfo | None:
    """The time zone of a name; this machine's without one."""
    if name is None:
        return datetime.now().astimezone().tzinfo
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ConfigError(
            f"time_zone {name!r} is unknown: give a name like Europe/Berlin"
        ) from None
