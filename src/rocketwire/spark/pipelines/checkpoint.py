"""A stream's checkpoint, and what may not change as long as it is used."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.spark.offsets import StreamOffset
from rocketwire.spark.pipelines.small_files import (
    LocalFiles,
    SmallFiles,
    local_path,
    place_text,
    small_files,
)
from rocketwire.spark.spark_api import HAS_LIMITS, is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOTE: Final = "rocketwire.json"
_STREAM_DIGITS: Final = 8


def default_checkpoint(kind: str, *names: str) -> Path:
    """Where a pipeline keeps its progress unless told otherwise: beside the work, by its names."""
    safe = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", name) for name in names)
    return Path.cwd() / "rocketwire-checkpoints" / f"{kind}-{safe}"


@dataclass(frozen=True)
class Checkpoint:
    """The folder of a stream's progress, which Spark writes, with a note of ours.

    Args:
        folder: as Spark gets it.
        files: how it is looked into; None for a client of Spark Connect, which can't see it.
    """

    folder: str
    files: SmallFiles | None

    @property
    def is_surely_missing(self) -> bool:
        """Whether there is no such checkpoint; False where that can't be told."""
        return self.files is not None and not self.files.has(self.folder)

    def claim(self, settings: Mapping[str, Any], *, force: bool = False) -> None:
        """Note what it is used for; refuse another use.

        Args:
            settings: what must stay the same.
            force: go on with changed settings all the same.

        Raises:
            ConfigError: it was used with other settings.
        """
        if self.files is None:
            return
        self.check(settings, force=force)
        self.files.write(self._path(_NOTE), json.dumps(dict(settings), indent=1))

    def check(self, settings: Mapping[str, Any], *, force: bool = False) -> None:
        """Refuse another use than the one that it has been noted for.

        Raises:
            ConfigError: it was used with other settings.
        """
        found = self.note() or {}
        for name, value in json.loads(json.dumps(dict(settings))).items():
            # What an earlier release did not note may be anything.
            if name in found and found[name] != value and not force:
                raise ConfigError(
                    f"checkpoint {self.folder}: its stream had {name} {found.get(name)!r}, not "
                    f"{value!r}; use another checkpoint, or force it if the messages read so far "
                    "may stay read"
                )

    def note(self) -> dict[str, Any] | None:
        """What it was claimed for; None where there is none, or it can't be looked into."""
        found = self._json(_NOTE)
        return found if isinstance(found, dict) else None

    def stream(self) -> str:
        """What names the files of this stream, over restarts.

        Another checkpoint in its place has another name, so that it does not overwrite those files.
        """
        note = self.note() or {}
        if isinstance(note.get("stream"), str):
            return str(note["stream"])
        metadata = self._json("metadata")
        if isinstance(metadata, dict):
            return stream_digits(metadata["id"])
        return stream_digits(uuid.uuid4().hex)

    def last_offsets(self) -> dict[str, Any] | None:
        """The offset that the last *committed* batch ended at, from Spark's own files.

        None when no batch was committed, or when the checkpoint can't be looked into.
        """
        if self.files is None:
            return None
        for batch in self._batches("commits"):
            text = self.files.read(self._path(f"offsets/{batch}"))
            if text is not None:
                found = json.loads(text.splitlines()[2])
                return found if isinstance(found, dict) else None
        return None

    def begins(self, *, earliest: bool) -> dict[MessageQueue, int]:
        """Where each queue was begun, as far as Spark's files still tell.

        Args:
            earliest: whether the first batch began with the first messages. A Spark before 4.2
                does not note where that was, only where they are.
        """
        found: dict[MessageQueue, int] = {}
        for batch in reversed(self._batches("commits")):
            logged = None if self.files is None else self.files.read(self._path(f"offsets/{batch}"))
            if logged is None:
                continue
            end = StreamOffset.from_json(json.loads(logged.splitlines()[2]))
            begun = end.firsts if earliest and batch == 0 else {}
            found = {**begun, **end.begins, **found}
        return found

    @property
    def has_open_batch(self) -> bool:
        """Whether a batch was planned and not committed: the next run begins with it."""
        return self._batches("offsets")[:1] > self._batches("commits")[:1]

    def _batches(self, log: str) -> list[int]:
        """The numbers in one of Spark's logs, the last one first."""
        names = [] if self.files is None else self.files.names(self._path(log))
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def _json(self, name: str) -> Any:
        text = None if self.files is None else self.files.read(self._path(name))
        return None if text is None else json.loads(text)

    def _path(self, name: str) -> str:
        return f"{self.folder.rstrip('/')}/{name}"


def open_checkpoint(spark: SparkSession, folder: str | Path) -> Checkpoint:
    """A checkpoint, which need not be there yet.

    Raises:
        ConfigError: its file system can't be reached.
    """
    place = place_text(folder)
    is_unseen = is_remote(spark) and local_path(place) is None
    return Checkpoint(place, None if is_unseen else small_files(spark, place))


def local_checkpoint(folder: str | Path) -> Checkpoint | None:
    """A checkpoint on this machine; None for one elsewhere, which only a session can look into."""
    place = place_text(folder)
    return None if local_path(place) is None else Checkpoint(place, LocalFiles())


def rounds(checkpoint: Checkpoint, *, follow: bool) -> Iterator[None]:
    """How often a run starts its query.

    Spark before 4.2 ends a query with the trigger ``availableNow`` right after a batch that a crash
    left open, whatever came since: the end that stood at the start is read by a second one.
    """
    began_open = not (follow or HAS_LIMITS) and checkpoint.has_open_batch
    yield
    # Still open, it was stopped before its end.
    if began_open and not checkpoint.has_open_batch:
        yield


def stream_digits(query: str) -> str:
    """The part of a query's id that names files."""
    return query.replace("-", "")[:_STREAM_DIGITS]
