"""Remembers for some minutes which brokers a topic had, in a small file on the driver.

A broker that died leaves no trace in the route. The next read of the same application, or of one
that runs soon after it, still knows the broker from here. The record is short-lived, and is dropped
when the cluster looks made anew, so that a development cluster which was started again is not
refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rocketwire.message import MessageQueue
from rocketwire.spark.topic_view import TopicView

_log = logging.getLogger("rocketwire.spark")

#: Seconds after which a broker that was not seen again is forgotten.
KEPT_FOR: Final = 600.0
#: Seconds for which a look at the same brokers needs no file.
_FRESH: Final = 5.0


def local_folder() -> str:
    """Where Spark lets its processes write on this machine; the temporary folder without Spark."""
    # Spark names folders that go with the application; what lies above them stays for the next one.
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    found = Path(first)
    if first and found.name.startswith("blockmgr-"):
        found = found.parent
        if found.name.startswith("spark-"):
            found = found.parent
    return str(found) if first else tempfile.gettempdir()


class LocalRecord:
    """The record of one client's topics.

    Args:
        folder: as `local_folder` says.
        servers: the name servers, which tell clusters apart.
        clock: seconds since 1970, the same in all processes.
    """

    def __init__(
        self, folder: str, servers: Sequence[str], clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = Path(folder) / f"rocketwire-brokers-{_user()}"
        self._servers = tuple(sorted(servers))
        self._clock = clock
        self._recent: dict[str, tuple[float, object, frozenset[MessageQueue]]] = {}
        self._listed: tuple[float, frozenset[str]] = (-_FRESH, frozenset())

    def update(
        self, topic: str, view: TopicView, ends: Mapping[MessageQueue, int]
    ) -> frozenset[MessageQueue]:
        """Note what is there now; returns the queues that were there lately.

        Args:
            topic: which.
            view: its brokers now.
            ends: the ends of its queues that answer now.
        """
        now = self._clock()
        present = (dict(view.brokers), frozenset(ends))
        noted_at, before, found = self._recent.get(topic, (-_FRESH, None, frozenset()))
        # A stream asks ten times a second; the file need not be written as often.
        if 0 <= now - noted_at < _FRESH and before == present:
            return found
        path = self._path(topic)
        known = self._known(path, view, ends)
        for name, broker in view.brokers.items():
            reached = {q.id: end for q, end in ends.items() if q.broker == name}
            if reached:
                known[name] = {
                    "cluster": broker.cluster,
                    "address": broker.address,
                    "seen": now,
                    "queues": {str(number): end for number, end in sorted(reached.items())},
                }
        _write(path, {"servers": self._servers, "topic": topic, "brokers": known})
        found = frozenset(
            MessageQueue(topic, name, int(number))
            for name, entry in known.items()
            for number in entry["queues"]
        )
        self._recent[topic] = (now, present, found)
        return found

    def topics(self) -> frozenset[str]:
        """The topics that were there lately."""
        now = self._clock()
        read_at, known = self._listed
        if 0 <= now - read_at < _FRESH:
            return known
        found: set[str] = set()
        for path in self._folder.glob("*.json"):
            entry = _content(path)
            is_ours = entry.get("servers") == list(self._servers)
            if is_ours and any(b["seen"] >= now - KEPT_FOR for b in _read(path).values()):
                found.add(str(entry.get("topic")))
        self._listed = (now, frozenset(found))
        return self._listed[1]

    def _path(self, topic: str) -> Path:
        text = "\n".join([*self._servers, topic])
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"

    def _known(
        self, path: Path, view: TopicView, ends: Mapping[MessageQueue, int]
    ) -> dict[str, dict[str, Any]]:
        found = _read(path)
        oldest = self._clock() - KEPT_FOR
        kept = {name: entry for name, entry in found.items() if entry["seen"] >= oldest}
        clusters = {broker.cluster for broker in view.brokers.values()}
        for name, entry in kept.items():
            now = view.brokers.get(name)
            if now is not None and now.address != entry["address"]:
                return {}
            if clusters and entry["cluster"] not in clusters:
                return {}
        # A queue that went back was deleted, or belongs to a cluster that began anew.
        for queue, end in ends.items():
            before = kept.get(queue.broker, {}).get("queues", {}).get(str(queue.id), 0)
            if end < before:
                return {}
        return kept


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else "user"


def _content(path: Path) -> dict[str, Any]:
    try:
        info = path.stat()
        if hasattr(os, "getuid") and info.st_uid != os.getuid():
            return {}  # all users share the temporary folder
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return {
            str(name): {
                "cluster": str(entry["cluster"]),
                "address": str(entry["address"]),
                "seen": float(entry["seen"]),
                "queues": {str(int(number)): int(end) for number, end in entry["queues"].items()},
            }
            for name, entry in _content(path)["brokers"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(path: Path, known: Mapping[str, Any]) -> None:
    """Replace the record; a folder that can't be written to costs only the memory."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=path.parent, suffix=".draft")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(known, file)
        Path(draft).replace(path)
    except OSError as error:
        _log.debug("the brokers seen can't be remembered: %s", error)
