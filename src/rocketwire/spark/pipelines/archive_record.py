"""What an archive remembers of its topics beside the dataset: every queue that it ever read.

The checkpoint may be lost, and a broker that is away is in no route; this record still has it. A
broker that was taken away for good is put on the list of forgotten ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.spark.offsets import by_broker
from rocketwire.spark.pipelines.archive_files import open_folder


@dataclass(slots=True)
class ArchiveRecord:
    """The record of one archive."""

    path: str
    queues: set[MessageQueue] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    #: Queues that the last run could not read.
    missing: set[MessageQueue] = field(default_factory=set)

    @classmethod
    def load(cls, folder: str | Path) -> ArchiveRecord:
        """The record of the archive in a folder; an empty one if there is none.

        Raises:
            ConfigError: it can't be read.
        """
        system, root = open_folder(folder)
        path = place_beside(root, "queues.json")
        try:
            with system.open_input_stream(path) as file:
                found = json.loads(file.read())
            return cls(
                path,
                _flat(found["queues"]),
                {str(name) for name in found["forgotten"]},
                _flat(found["missing"]),
            )
        except FileNotFoundError:
            return cls(path)
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

    def save(self, folder: str | Path) -> None:
        """Write the record in one step."""
        system, _ = open_folder(folder)
        content = {
            "queues": by_broker(self.queues),
            "forgotten": sorted(self.forgotten),
            "missing": by_broker(self.missing),
        }
        draft = f"{self.path}.draft"
        system.create_dir(self.path.rpartition("/")[0], recursive=True)
        with system.open_output_stream(draft) as file:
            file.write(json.dumps(content, indent=1).encode())
        system.move(draft, self.path)


def place_beside(folder: str, what: str) -> str:
    """The path of a file beside an archive, under a name that no engine takes for data."""
    head, slash, name = folder.rstrip("/").rpartition("/")
    return f"{head}{slash}.{name}.{what}"


def _flat(nested: Mapping[str, Any]) -> set[MessageQueue]:
    return {
        MessageQueue(topic, broker, int(number))
        for topic, brokers in nested.items()
        for broker, numbers in brokers.items()
        for number in numbers
    }
