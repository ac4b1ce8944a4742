"""What consumer groups have consumed, and how groups are configured; both kept on disk.

``config/consumerOffset.json`` and ``config/subscriptionGroup.json`` have Apache's shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rocketwire.embedded.json_file import DataVersion, JsonFile

_DEFAULT_GROUP: Final[dict[str, Any]] = {
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


class OffsetTable:
    """Offsets by topic, group and queue. ``save`` is called on a timer, as in Apache."""

    def __init__(self, path: Path) -> None:
        self._file = JsonFile(path)
        data = self._file.load()
        stored = data if isinstance(data, dict) else {}
        self._version = DataVersion(stored.get("dataVersion"))
        self._table: dict[tuple[str, str], dict[int, int]] = {}
        self.dirty = False
        #: Where members must go on, whatever they ask for, until their next pull.
        self._resets: dict[tuple[str, str, int], int] = {}
        table = stored.get("offsetTable")
        for name, queues in table.items() if isinstance(table, dict) else ():
            topic, mark, group = str(name).partition("@")
            if mark and isinstance(queues, dict):
                self._table[topic, group] = {
                    int(queue): offset
                    for queue, offset in queues.items()
                    if str(queue).isdigit() and type(offset) is int
                }

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next offset to consume; None when the group never said."""
        return self._table.get((topic, group), {}).get(queue_id)

    def put(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A group has come so far."""
        self._table.setdefault((topic, group), {})[queue_id] = offset
        self.dirty = True

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """An operator moves a group; what members say they have consumed is void until they know."""
        self.put(group, topic, queue_id, offset)
        self._resets[group, topic, queue_id] = offset

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset waits for the next pull."""
        return (group, topic, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that the next pull is sent to, once."""
        return self._resets.pop((group, topic, queue_id), None) if self._resets else None

    def topics_of(self, group: str) -> list[str]:
        """Topics that a group has consumed from."""
        return [topic for topic, name in self._table if name == group]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have consumed from a topic."""
        return [group for name, group in self._table if name == topic]

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Offsets of one group and topic by queue."""
        return dict(self._table.get((topic, group), {}))

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group is deleted."""
        for key in list(self._table):
            if key[0] == topic or key[1] == group:
                del self._table[key]
                self.dirty = True
        for reset in list(self._resets):
            if reset[1] == topic or reset[0] == group:
                del self._resets[reset]

    def as_json(self) -> dict[str, Any]:
        """As Apache writes it."""
        table = {
            f"{topic}@{group}": {str(queue): offset for queue, offset in queues.items()}
            for (topic, group), queues in self._table.items()
        }
        return {"dataVersion": self._version.as_json(), "offsetTable": table}

    def save(self) -> None:
        """Write the file if anything has changed."""
        if self.dirty:
            self._version.bump()
            self._file.save(self.as_json())
            self.dirty = False


class GroupTable:
    """Configuration of consumer groups; unknown ones get Apache's defaults."""

    def __init__(self, path: Path) -> None:
        self._file = JsonFile(path)
        self._unsaved = False
        data = self._file.load()
        stored = data if isinstance(data, dict) else {}
        self.version = DataVersion(stored.get("dataVersion"))
        table = stored.get("subscriptionGroupTable")
        self._groups: dict[str, dict[str, Any]] = {
            str(name): _DEFAULT_GROUP | value
            for name, value in (table.items() if isinstance(table, dict) else ())
            if isinstance(value, dict)
        }

    def get(self, name: str) -> dict[str, Any]:
        """A group's configuration, made when it is new."""
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = _DEFAULT_GROUP | {"groupName": name}
            self._changed()
        return found

    def find(self, name: str) -> dict[str, Any] | None:
        """A group's configuration, if it is known."""
        return self._groups.get(name)

    def put(self, name: str, config: dict[str, Any]) -> None:
        """Change a group."""
        self._groups[name] = _DEFAULT_GROUP | config | {"groupName": name}
        self._changed()

    def delete(self, name: str) -> None:
        """Forget a group."""
        if self._groups.pop(name, None) is not None:
            self._changed()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._groups))

    def number(self, name: str, key: str) -> int:
        """One number of a group's configuration."""
        value = self.get(name).get(key)
        return value if type(value) is int else int(_DEFAULT_GROUP[key])

    def as_json(self) -> dict[str, Any]:
        """As Apache writes it."""
        return {
            "dataVersion": self.version.as_json(),
            "subscriptionGroupTable": self._groups,
        }

    def _changed(self) -> None:
        self.version.bump()
        self._unsaved = not self._file.try_save(self.as_json())

    def save_pending(self) -> None:
        """Write the file if the last try has failed, because the disk was full."""
        if self._unsaved:
            self._unsaved = not self._file.try_save(self.as_json())
