"""The topics of one broker: what they are, which names are allowed, how new ones come about.

Kept in ``config/topics.json`` in Apache's shape. Whether a name server knows of a change is the
business of ``registration``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rocketwire.embedded.json_file import DataVersion, JsonFile
from rocketwire.embedded.store.layout import SCHEDULE_TOPIC
from rocketwire.wire.codes import Permission

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
DEFAULT_TOPIC: Final = "TBW102"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

#: Nobody may send to these.
FORBIDDEN_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
#: Nobody may create or delete these.
SYSTEM_TOPICS: Final = FORBIDDEN_TOPICS | {
    DEFAULT_TOPIC,
    "BenchmarkTest",
    TRACE_TOPIC,
    "CHECKPOINT_TOPIC",
}

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_READ_WRITE: Final = Permission.READ | Permission.WRITE


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic on one broker."""

    name: str
    read_queues: int = 16
    write_queues: int = 16
    permission: int = _READ_WRITE
    filter_type: str = "SINGLE_TAG"
    system_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    def as_json(self, broker_permission: int = _READ_WRITE) -> dict[str, Any]:
        """As Apache writes it; a broker that may not be written to says so for every topic."""
        permission = self.permission
        if broker_permission & _READ_WRITE != _READ_WRITE:
            permission &= broker_permission
        return {
            "attributes": dict(self.attributes),
            "order": self.order,
            "perm": permission,
            "readQueueNums": self.read_queues,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.system_flag,
            "writeQueueNums": self.write_queues,
        }

    @classmethod
    def from_json(cls, name: str, data: Any) -> TopicConfig:
        """Read what Apache or we wrote; odd values become the defaults."""
        values = data if isinstance(data, dict) else {}

        def number(key: str, default: int) -> int:
            value = values.get(key, default)
            return value if type(value) is int else default

        attributes = values.get("attributes")
        return cls(
            name,
            number("readQueueNums", 16),
            number("writeQueueNums", 16),
            number("perm", _READ_WRITE),
            str(values.get("topicFilterType", "SINGLE_TAG")),
            number("topicSysFlag", 0),
            values.get("order") is True,
            {str(k): str(v) for k, v in attributes.items()} if isinstance(attributes, dict) else {},
        )


def name_problem(topic: str) -> str | None:
    """What is wrong with a topic's name; None when nothing is."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _NAME.fullmatch(topic):
        return (
            f"The specified topic {topic[:80]!r} contains illegal characters, allowing only "
            "letters, digits, '%', '|', '_' and '-'"
        )
    parked = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    limit = 255 if parked else 127
    if len(topic) > limit:
        return f"The specified topic is longer than topic max length {limit}."
    return None


class TopicTable:
    """All topics of a broker.

    Args:
        path: the JSON file.
        broker: the broker's name, which is a topic, too.
        cluster: likewise.
        default_queues: of the topic from which new ones are made.
        auto_create: whether sends make unknown topics.
    """

    def __init__(
        self, path: Path, *, broker: str, cluster: str, default_queues: int, auto_create: bool
    ) -> None:
        self._file = JsonFile(path)
        self._unsaved = False
        data = self._file.load()
        stored = data if isinstance(data, dict) else {}
        self.version = DataVersion(stored.get("dataVersion"))
        table = stored.get("topicConfigTable")
        self._topics = {
            str(name): TopicConfig.from_json(str(name), value)
            for name, value in (table.items() if isinstance(table, dict) else ())
        }
        self._system = SYSTEM_TOPICS | {broker, cluster, f"{cluster}_REPLY_TOPIC"}
        self._add_built_in(broker, cluster, default_queues, auto_create=auto_create)

    def _add_built_in(
        self, broker: str, cluster: str, default_queues: int, *, auto_create: bool
    ) -> None:
        inherit = _READ_WRITE | Permission.INHERIT
        if auto_create:
            self._built_in(DEFAULT_TOPIC, default_queues, inherit)
        else:
            self._topics.pop(DEFAULT_TOPIC, None)
        self._built_in("SELF_TEST_TOPIC", 1)
        self._built_in("BenchmarkTest", 1024)
        self._built_in(cluster, 16, inherit)
        self._built_in(broker, 1, inherit)
        self._built_in("OFFSET_MOVED_EVENT", 1)
        self._built_in(SCHEDULE_TOPIC, 18)
        self._built_in(f"{cluster}_REPLY_TOPIC", 1)
        self._built_in(HALF_TOPIC, 1)
        self._built_in(OP_HALF_TOPIC, 1)
        self._built_in(TRACE_TOPIC, 1)

    def _built_in(self, name: str, queues: int, permission: int = _READ_WRITE) -> None:
        self._topics[name] = TopicConfig(name, queues, queues, permission)

    def get(self, name: str) -> TopicConfig | None:
        """A topic, if there is one of that name."""
        return self._topics.get(name)

    def is_system(self, name: str) -> bool:
        """Whether operators may neither make nor delete it."""
        return name in self._system or name.startswith("rmq_sys_")

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(tuple(self._topics.values()))

    def put(self, config: TopicConfig) -> None:
        """Make or change a topic."""
        if self._topics.get(config.name) != config:
            self._topics[config.name] = config
            self._changed()

    def delete(self, name: str) -> bool:
        """Forget a topic; tells whether there was one."""
        found = self._topics.pop(name, None)
        if found is not None:
            self._changed()
        return found is not None

    def touch(self) -> None:
        """Say that everything has changed, e.g. what the broker allows."""
        self.version.bump()

    def _changed(self) -> None:
        self.version.bump()
        self.save()

    def make_from_default(self, name: str, default: str, wanted: int) -> TopicConfig | None:
        """The topic that a send to an unknown name makes; None when it may not."""
        template = self._topics.get(default)
        if template is None or not template.permission & Permission.INHERIT:
            return None
        queues = max(min(wanted, template.write_queues), 0)
        config = TopicConfig(
            name,
            queues,
            queues,
            template.permission & ~Permission.INHERIT,
            template.filter_type,
            template.system_flag,
        )
        self.put(config)
        return config

    def make_parked(self, name: str, queues: int = 1) -> TopicConfig:
        """A retry or dead-letter topic, made where it is needed."""
        found = self._topics.get(name)
        if found is not None:
            return found
        config = TopicConfig(name, queues, queues)
        self.put(config)
        return config

    def as_json(self, broker_permission: int) -> dict[str, dict[str, Any]]:
        """What a name server is told."""
        return {c.name: c.as_json(broker_permission) for c in self._topics.values()}

    def save(self) -> None:
        """Write the file; when the disk is full, ``save_pending`` does it later."""
        self._unsaved = not self._file.try_save(
            {
                "dataVersion": self.version.as_json(),
                "topicConfigTable": self.as_json(_READ_WRITE),
            }
        )

    def save_pending(self) -> None:
        """Write the file if the last try has failed."""
        if self._unsaved:
            self.save()
