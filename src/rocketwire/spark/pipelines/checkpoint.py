"""A stream's checkpoint, and what may not change as long as it is used."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rocketwire.errors import ConfigError

_NOTE: Final = "rocketwire.json"
_STREAM_DIGITS: Final = 8


def default_checkpoint(kind: str, *names: str) -> Path:
    """Where a pipeline keeps its progress unless told otherwise: beside the work, by its names."""
    safe = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", name) for name in names)
    return Path.cwd() / "rocketwire-checkpoints" / f"{kind}-{safe}"


def local_path(folder: str | Path) -> Path | None:
    """A folder on this machine; None if it is on another file system, and can't be looked into."""
    text = str(folder)
    if "://" in text and not text.startswith("file://"):
        return None
    return Path(text.removeprefix("file://"))


def is_surely_missing(folder: str | Path) -> bool:
    """Whether there is no such checkpoint; False where that can't be told."""
    path = local_path(folder)
    return path is not None and not path.exists()


def claim_checkpoint(folder: str | Path, settings: Mapping[str, Any], *, force: bool) -> None:
    """Note what a checkpoint is used for; refuse another use of it.

    Args:
        folder: the checkpoint. One on a remote file system is not checked.
        settings: what must stay the same.
        force: go on with changed settings all the same.

    Raises:
        ConfigError: it was used with other settings.
    """
    place = local_path(folder)
    if place is None:
        return
    path = place / _NOTE
    wanted = json.loads(json.dumps(dict(settings)))
    if path.exists() and not force:
        found = json.loads(path.read_text(encoding="utf-8"))
        for name, value in wanted.items():
            # What an earlier release did not note may be anything.
            if name in found and found[name] != value:
                raise ConfigError(
                    f"checkpoint {folder}: its stream had {name} {found.get(name)!r}, not {value!r}; "
                    "use another checkpoint, or force it if the messages read so far may stay read"
                )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(wanted, indent=1), encoding="utf-8")


def checkpoint_note(folder: str | Path) -> dict[str, Any] | None:
    """What a checkpoint was claimed for; None where there is none, or it can't be looked into."""
    place = local_path(folder)
    if place is None or not (place / _NOTE).exists():
        return None
    found = json.loads((place / _NOTE).read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else None


def stream_digits(query: str) -> str:
    """The part of a query's id that names files."""
    return query.replace("-", "")[:_STREAM_DIGITS]


def stream_of(folder: str | Path) -> str:
    """What names the files of a checkpoint's stream, over restarts.

    Another checkpoint in its place has another name, so that it does not overwrite those files.
    """
    note = checkpoint_note(folder) or {}
    if isinstance(note.get("stream"), str):
        return str(note["stream"])
    place = local_path(folder)
    metadata = None if place is None else place / "metadata"
    if metadata is not None and metadata.exists():
        return stream_digits(json.loads(metadata.read_text(encoding="utf-8"))["id"])
    return stream_digits(uuid.uuid4().hex)


def last_offsets(folder: str | Path) -> dict[str, Any] | None:
    """The offset that the last *committed* batch of a stream ended at, from Spark's own files.

    None when no batch was committed, or when the checkpoint is not on a local file system.
    """
    root = local_path(folder)
    if root is None:
        return None
    batches = sorted(
        (int(p.name) for p in (root / "commits").glob("*") if p.name.isdecimal()), reverse=True
    )
    for batch in batches:
        path = root / "offsets" / str(batch)
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            found = json.loads(lines[2])
            return found if isinstance(found, dict) else None
    return None
