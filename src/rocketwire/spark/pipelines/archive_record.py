"""What an archive remembers of its topics beside the dataset: every queue that it ever read.

The checkpoint may be lost, and a broker that is away is in no route; this record still has it. A
broker that was taken away for good is put on the list of forgotten ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.spark.offsets import by_broker, flatten, nest
from rocketwire.spark.pipelines.small_files import SmallFiles, place_beside


@dataclass(slots=True)
class ArchiveRecord:
    """The record of one archive."""

    path: str
    files: SmallFiles
    queues: set[MessageQueue] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    #: Queues that the last run could not read.
    missing: set[MessageQueue] = field(default_factory=set)
    #: Where the archive begins in each queue. Spark forgets it after a hundred batches.
    begins: dict[MessageQueue, int] = field(default_factory=dict)

    @classmethod
    def load(cls, files: SmallFiles, folder: str) -> ArchiveRecord:
        """The record of the archive in a folder; an empty one if there is none.

        Raises:
            ConfigError: it can't be read.
        """
        path = place_beside(folder, "queues.json")
        text = files.read(path)
        if text is None:
            return cls(path, files)
        try:
            found = json.loads(text)
            return cls(
                path,
                files,
                _flat(found["queues"]),
                {str(name) for name in found["forgotten"]},
                _flat(found["missing"]),
                flatten(found.get("begins", {})),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(
                f"{path} is not a record of this release: it says which queues the archive has; "
                "remove it to begin a new one"
            ) from None

    def forget(self, brokers: Iterable[str]) -> None:
        """Some brokers were taken away for good.

        Raises:
            ConfigError: the archive never read from one.
        """
        known = {queue.broker for queue in self.queues | self.missing}
        for name in brokers:
            if name not in known | self.forgotten:
                there = ", ".join(sorted(known)) or "none"
                raise ConfigError(f"forget_brokers: the archive knows no {name!r}; it has {there}")
            self.forgotten.add(name)

    def update(self, seen: Iterable[MessageQueue], missing: Iterable[MessageQueue]) -> None:
        """Note what can be read now. A forgotten broker that is there again is not forgotten."""
        present = set(seen)
        self.queues |= present
        self.missing = set(missing)
        self.forgotten -= {queue.broker for queue in present}

    def begun(self, begins: Mapping[MessageQueue, int]) -> None:
        """Note where queues were begun; what was begun earlier stays the beginning."""
        for queue, offset in begins.items():
            self.begins[queue] = min(offset, self.begins.get(queue, offset))

    def save(self) -> None:
        """Write the record."""
        content = {
            "queues": by_broker(self.queues),
            "forgotten": sorted(self.forgotten),
            "missing": by_broker(self.missing),
            "begins": nest(self.begins),
        }
        self.files.write(self.path, json.dumps(content, indent=1))


def _flat(nested: Mapping[str, Any]) -> set[MessageQueue]:
    return {
        MessageQueue(topic, broker, int(number))
        for topic, brokers in nested.items()
        for broker, numbers in brokers.items()
        for number in numbers
    }
