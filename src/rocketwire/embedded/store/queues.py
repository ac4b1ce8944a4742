"""All consume queues of a store, by topic and queue id."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocketwire.embedded.store.consumequeue import ConsumeQueue
from rocketwire.embedded.store.disk import Disk, OpenFiles
from rocketwire.embedded.store.failures import MessageRefusedError

# A topic is the name of a folder: anything else could leave the store.
_SAFE: Final = re.compile(r"[%|+a-zA-Z0-9_-]{1,255}")


class QueueTable:
    """Makes queues when they are first needed, and finds those that exist."""

    def __init__(self, folder: Path, file_size: int, disk: Disk) -> None:
        self.folder = folder
        self._file_size = file_size
        self._disk = disk
        self._files = OpenFiles(disk)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}

    def load(self) -> None:
        """Open every queue that has a folder."""
        if not self.folder.is_dir():
            return
        for topic in self.folder.iterdir():
            for queue in topic.iterdir() if topic.is_dir() else ():
                if queue.name.isdigit() and _SAFE.fullmatch(topic.name):
                    self._add(topic.name, int(queue.name))

    def _add(self, topic: str, queue_id: int) -> ConsumeQueue:
        folder = self.folder / topic / str(queue_id)
        queue = ConsumeQueue(folder, self._file_size, self._disk, self._files)
        self._queues[topic, queue_id] = queue
        return queue

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue if it has ever held a message."""
        return self._queues.get((topic, queue_id))

    def need(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made when it is missing.

        Raises:
            MessageRefusedError: the name can't be that of a folder, or the id is negative.
        """
        found = self._queues.get((topic, queue_id))
        if found is not None:
            return found
        if not _SAFE.fullmatch(topic) or queue_id < 0:
            raise MessageRefusedError(
                f"topic {topic[:80]!r}, queue {queue_id}: a topic has 1 to 255 letters, digits, "
                "'%', '|', '_' or '-', and a queue is not negative"
            )
        return self._add(topic, queue_id)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    def items(self) -> list[tuple[tuple[str, int], ConsumeQueue]]:
        """Topic, queue id and queue."""
        return list(self._queues.items())

    def delete_topic(self, topic: str) -> None:
        """Remove all queues of a topic with their files."""
        for name, queue_id in [key for key in self._queues if key[0] == topic]:
            self._queues.pop((name, queue_id)).delete()
        if _SAFE.fullmatch(topic):
            shutil.rmtree(self.folder / topic, ignore_errors=True)

    def close(self) -> None:
        """Close the files; what was not written out is lost."""
        self._files.close()
        self._queues.clear()
