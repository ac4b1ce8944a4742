"""A small file in which a running producer shows how it is, and how others read it.

It is JSON: ``time`` (seconds since 1970), ``pid``, ``client_id``, ``group``, ``version``,
``health`` (what ``health()`` gives, with moments in seconds since 1970) and ``stats`` (what
``stats()`` gives). It is replaced as a whole, about once a second, and deleted at shutdown. What is
no status file is never replaced: a wrong path must cost nobody a file.

A thread of its own writes it, not the one that sends heartbeats: a file system that hangs must
hold up nothing but this.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rocketwire.core.sending.stats import ProducerStats
from rocketwire.fault_policy import BrokerHealth
from rocketwire.system.lone_thread import LoneThread
from rocketwire.version import __version__

_log = logging.getLogger("rocketwire.status")

_INTERVAL: Final = 1.0
#: A status that was not renewed for this long tells of a process that has ended.
STALE: Final = 10.0

_LARGEST: Final = 64 * 1024 * 1024

Status = dict[str, Any]


def make_status(
    *,
    client_id: str,
    group: str,
    health: Iterable[BrokerHealth],
    stats: ProducerStats,
    now: float,
    wall: float,
) -> Status:
    """What the file says.

    Args:
        client_id: of the producer.
        group: of the producer.
        health: what it thinks of brokers.
        stats: its counters.
        now: the moment on the clock of ``health``.
        wall: the same moment in seconds since 1970.
    """
    return {
        "time": wall,
        "pid": os.getpid(),
        "client_id": client_id,
        "group": group,
        "version": __version__,
        "health": [
            asdict(broker)
            | {
                "since": _as_wall(broker.since, now, wall),
                "until": _as_wall(broker.until, now, wall),
            }
            for broker in health
        ],
        "stats": asdict(stats),
    }


def _as_wall(moment: float | None, now: float, wall: float) -> float | None:
    if moment is None or not math.isfinite(moment):
        return None
    return wall + moment - now


class StatusFile:
    """Keeps a status file fresh.

    Where another living producer uses the path already (a parent or sibling process, say), the
    file is called ``<path>.<pid>``, so that neither hides the other.

    Args:
        path: of the file; its folder is made when it is missing.
        client_id: tells our file from others'.
        look: gives the status, or None when there is nobody left whose status it would be.
    """

    def __init__(self, path: str, client_id: str, look: Callable[[], Status | None]) -> None:
        self._wanted = Path(path)
        self._client_id = client_id
        self._look = look
        self._stop = threading.Event()
        self._thread = LoneThread("rocketwire-status")
        self._has_trouble = False
        self.path: Path | None = None

    def start(self) -> None:
        """Begin; the file appears soon."""
        self._thread.start(self._main)

    def stop(self, limit: float = 1.0) -> None:
        """End, and delete the file; a file system that hangs gets ``limit`` seconds."""
        self._stop.set()
        self._thread.retire()
        self._thread.join(limit)

    def _main(self) -> None:
        while True:
            try:
                status = self._look()
                if status is None:
                    break
                self._write(status)
                self._has_trouble = False
            except Exception as error:  # noqa: BLE001 - a status must not harm what it tells of
                if not self._has_trouble:
                    _log.warning("the status can't be written to %s: %s", self._wanted, error)
                self._has_trouble = True
            if self._stop.wait(_INTERVAL):
                break
        self._remove()

    def _write(self, status: Status) -> None:
        if self.path is None:
            self._wanted.parent.mkdir(parents=True, exist_ok=True)
            self.path = self._free_path()
        if os.path.lexists(self.path) and _read(self.path) is None:
            raise FileExistsError(
                "there is something that is no status file, and it is left alone: "
                "give status another path, or move it away"
            )
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.{id(self):x}")
        try:
            draft.write_text(json.dumps(status), encoding="utf-8")
            draft.replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    def _free_path(self) -> Path:
        path, number = self._wanted, 0
        while (found := _read(path)) is not None and self._is_anothers(found):
            number += 1
            suffix = f".{os.getpid()}" + (f"-{number}" if number > 1 else "")
            path = self._wanted.with_name(self._wanted.name + suffix)
        return path

    def _is_anothers(self, status: Status) -> bool:
        is_ours = (status["pid"], status["client_id"]) == (os.getpid(), self._client_id)
        return not is_ours and is_alive(status)

    def _remove(self) -> None:
        if self.path is None:
            return
        found = _read(self.path)
        if found is not None and not self._is_anothers(found):
            with contextlib.suppress(OSError):
                self.path.unlink()


def read_statuses(path: str | os.PathLike[str]) -> list[Status]:
    """The status at a path, and those of other processes that were given the same path.

    Those whose producer is gone are among them; ``is_alive`` tells. Empty when there is none.
    """
    wanted = Path(path)
    siblings = sorted(p for p in wanted.parent.glob("*") if p.name.startswith(f"{wanted.name}."))
    found = [_read(p) for p in (wanted, *siblings)]
    return [status for status in found if status is not None]


def is_alive(status: Mapping[str, Any], now: float | None = None) -> bool:
    """Whether the producer that wrote a status still runs, as far as can be told."""
    age = (time.time() if now is None else now) - status["time"]
    return abs(age) <= STALE and _is_running(status["pid"])


def _is_running(pid: int) -> bool:
    if os.name != "posix":  # where signal 0 is no question
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it belongs to another user
        return True
    return True


def _read(path: Path) -> Status | None:
    """A status, or None where there is no file, or something else in it."""
    try:
        # Neither a pipe, which would wait for a writer, nor something that fills the memory.
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return None
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    moment, pid, client = content.get("time"), content.get("pid"), content.get("client_id")
    is_status = isinstance(moment, (int, float)) and isinstance(pid, int) and pid > 0
    has_parts = isinstance(content.get("health"), list) and isinstance(content.get("stats"), dict)
    return content if is_status and has_parts and isinstance(client, str) else None
