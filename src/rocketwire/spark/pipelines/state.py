"""What a publishing job has done so far, in a folder, so that a restart repeats nothing.

``job.json`` says what is published and from which input; ``parts.jsonl`` gets a line for each part
whose rows were all acknowledged. Both are plain text, to be looked at when in doubt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.small_files import local_path, place_text

_VERSION: Final = 1


class PublishState:
    """The record of one job; without a folder it is kept in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._parts: dict[str, dict[str, Any]] = {}
        self._job: dict[str, Any] = {}

    @classmethod
    def open(
        cls, folder: str | Path | None, job: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> PublishState:
        """Begin a record, or go on with one.

        Args:
            folder: where it is kept.
            job: what is done with the input: the same settings must give the same rows again.
            inputs: name, size and time of change of each input file.

        Raises:
            ConfigError: the folder records another job, or the input has changed.
        """
        state = cls(None if folder is None else _on_this_machine(folder))
        wanted = {"version": _VERSION, "job": dict(job), "inputs": dict(inputs)}
        if state._folder is None:
            state._job = wanted
            return state
        state._folder.mkdir(parents=True, exist_ok=True)
        found = state._read_job()
        if found is None:
            state._job = wanted
            state._write_job()
            return state
        _compare(state._folder, found, wanted)
        state._job = found
        state._parts = {part["part"]: part for part in state._read_parts()}
        return state

    @property
    def parts(self) -> Mapping[str, dict[str, Any]]:
        """What was acknowledged, by part."""
        return self._parts

    @property
    def is_complete(self) -> bool:
        """Whether an earlier run came to the end."""
        return self._job.get("complete") is True

    def remember(self, name: str, value: Any) -> Any:
        """Keep a value for all runs of the job: the first one given stays."""
        if name not in self._job:
            self._job[name] = value
            self._write_job()
        return self._job[name]

    def acknowledge(self, parts: Iterable[dict[str, Any]]) -> None:
        """Record parts whose rows were all acknowledged; known ones are left alone."""
        fresh = [part for part in parts if part["part"] not in self._parts]
        self._parts.update({part["part"]: part for part in fresh})
        if self._folder is None or not fresh:
            return
        with (self._folder / "parts.jsonl").open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(part) + "\n" for part in fresh))
            file.flush()
            os.fsync(file.fileno())

    def _read_job(self) -> dict[str, Any] | None:
        assert self._folder is not None
        path = self._folder / "job.json"
        if not path.exists():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("version") != _VERSION:
            raise ConfigError(f"state: {path} is not a record of this release; use a new folder")
        return found

    def _read_parts(self) -> list[dict[str, Any]]:
        assert self._folder is not None
        path = self._folder / "parts.jsonl"
        if not path.exists():
            return []
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            # A line cut short by a crash: its part is done again. It goes, or the next line would be
            # written behind it and be lost with it.
            with path.open("r+b") as file:
                file.truncate(len(whole))
                os.fsync(file.fileno())
        return [part for line in whole.splitlines() if (part := _part(line)) is not None]

    def _write_job(self) -> None:
        if self._folder is None:
            return
        draft = self._folder / "job.json.draft"
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps(self._job, indent=1, sort_keys=True))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._folder / "job.json")


def _on_this_machine(folder: str | Path) -> Path:
    place = local_path(folder)
    if place is None:
        raise ConfigError(
            f"state: {place_text(folder)} is not on this machine; lines are added to it, which object "
            "stores can't: name a local folder"
        )
    return place


def _part(line: bytes) -> dict[str, Any] | None:
    """A part from its line; None when a disk damaged it, and the part is done again."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("part"), str) else None


def _compare(folder: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name, value in wanted["job"].items():
        if found["job"].get(name) != value:
            raise ConfigError(
                f"state: {folder} records a job with {name} {found['job'].get(name)!r}, not "
                f"{value!r}; use the same settings, or a new folder"
            )
    before, now = found["inputs"], wanted["inputs"]
    changed = sorted(
        name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
    )
    if changed:
        what = "is new" if changed[0] not in before else "is gone"
        if changed[0] in before and changed[0] in now:
            what = "has changed"
        raise ConfigError(
            f"state: the input has changed since the job began: {changed[0]} {what} "
            f"({len(changed)} in all); restore it, or publish what is new with a new folder"
        )
