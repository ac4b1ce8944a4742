"""The store as the broker sees it: append, read, look up, flush, forget.

It is used from one thread. Only ``FlushJob.run`` may run elsewhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocketwire.embedded.store.batch_append import BatchPlace, BatchPlan, plan_batch
from rocketwire.embedded.store.batch_columns import plan_columns
from rocketwire.embedded.store.checkpoint import Checkpoint
from rocketwire.embedded.store.commitlog import CommitLog
from rocketwire.embedded.store.disk import Disk
from rocketwire.embedded.store.failures import MessageRefusedError, StoreError
from rocketwire.embedded.store.fetch import (
    DEFAULT_LIMITS,
    EVERYTHING,
    Fetched,
    FetchLimits,
    Wanted,
    fetch,
)
from rocketwire.embedded.store.fields import HEADS, PHYSICAL, SHORT_TOPIC, SIZE, UNIT
from rocketwire.embedded.store.flush import FlushJob
from rocketwire.embedded.store.folder import StoreFolder
from rocketwire.embedded.store.index import Index
from rocketwire.embedded.store.index_follower import IndexFollower
from rocketwire.embedded.store.layout import (
    SCHEDULE_TOPIC,
    Appended,
    Draft,
    StoreSizes,
    check_record,
    encode_record,
    record_size,
    store_ms_of,
    tags_code,
)
from rocketwire.embedded.store.queues import QueueTable
from rocketwire.embedded.store.recovery import recover
from rocketwire.embedded.store.tail_note import TailNote

#: Messages indexed before a store is closed; the rest is done after the next start.
_LAST_STEP: Final = 20_000


class MessageStore:
    """A store in a folder, open from its making to ``close`` or ``abandon``.

    Args:
        folder: made when it is missing.
        host: the broker's packed ip and port, which goes into every record.
        clock_ms: the time that records bear.
        sizes: of the files, for a new folder.
        disk: writes for it.
        delays_ms: how long each delay level lasts, from level 1.

    Raises:
        StoreLockedError: the folder is open elsewhere.
        StoreError: the folder does not hold a store that can be opened.
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: bytes,
        clock_ms: Callable[[], int],
        sizes: StoreSizes | None = None,
        disk: Disk | None = None,
        delays_ms: tuple[int, ...] = (),
    ) -> None:
        self.host = host
        self.disk = disk if disk is not None else Disk()
        self._clock_ms = clock_ms
        self._delays_ms = delays_ms
        self._newest_ms = 0
        #: The flush that was begun last.
        self._job: FlushJob | None = None
        self.folder = StoreFolder(folder)
        self.folder.open()
        try:
            self._open(folder, sizes if sizes is not None else StoreSizes())
        except BaseException:
            self.folder.close()
            raise

    def _open(self, folder: Path, wanted: StoreSizes) -> None:
        self.sizes = sizes = self.folder.settle_sizes(wanted)
        clean = self.folder.left_clean
        self._checkpoint = Checkpoint.load(self.folder.checkpoint_file)
        self.log = CommitLog(folder / "commitlog", sizes.log_file, self.disk)
        self.queues = QueueTable(folder / "consumequeue", sizes.queue_file, self.disk)
        self.queues.load()
        self._note = TailNote(folder / "config" / "logTail", self.disk)
        self.recovered = recover(
            self.log,
            self.queues,
            self._checkpoint.offset,
            self._delays_ms,
            note=self._note,
            clean=clean,
        )
        self.index = Index(folder / "index", sizes, self.disk)
        self.index.load(None if clean else self._checkpoint.index_ms)
        self.follower = IndexFollower(self.log, self.index)
        self.follower.start()
        self._newest_ms = self._checkpoint.log_ms
        self.folder.mark_running()

    # Appending

    def append(self, draft: Draft) -> Appended:
        """Store one message at the end of its queue.

        Raises:
            MessageRefusedError: it can't be stored as it is.
            StoreFullError: there is no room.
        """
        queue = self.queues.need(draft.topic, draft.queue_id)
        size = record_size(draft, self.host)
        offset = self.log.reserve(size)
        store_ms = self._newest_ms = self._clock_ms()
        queue_offset = queue.maximum
        self._note.look_at(offset + size, draft.properties)
        self.log.append(encode_record(draft, queue_offset, offset, store_ms, self.host))
        queue.append(UNIT.pack(offset, size, self._code(draft, store_ms)))
        return Appended(offset, size, queue_offset, store_ms)

    def _code(self, draft: Draft, store_ms: int) -> int:
        if draft.tags_code is not None:
            return draft.tags_code
        if draft.topic == SCHEDULE_TOPIC and draft.queue_id < len(self._delays_ms):
            return store_ms + self._delays_ms[draft.queue_id]
        return tags_code(draft.properties)

    def append_batch(self, draft: Draft, suffix: bytes) -> tuple[Appended, bytes]:
        """Store a batch at the end of one queue, all of it or nothing.

        Args:
            draft: what the messages share; its body is the encoded batch, its own properties
                are not stored.
            suffix: properties added to each message.

        Returns:
            The first message's place (with the size of all), and the log offset of each,
            packed as eight bytes.
        """
        topic = draft.topic.encode()
        if len(topic) > SHORT_TOPIC:
            raise MessageRefusedError(
                f"the topic of a batch has {len(topic)} bytes: at most {SHORT_TOPIC}"
            )
        queue = self.queues.need(draft.topic, draft.queue_id)
        plan = self._plan(draft, topic, suffix)
        offset = self.log.reserve(plan.total)
        store_ms = self._newest_ms = self._clock_ms()
        place = BatchPlace(
            queue_id=draft.queue_id,
            queue_offset=queue.maximum,
            physical_offset=offset,
            system_flag=draft.system_flag,
            born_ms=draft.born_ms,
            born_host=draft.born_host,
            store_ms=store_ms,
            store_host=self.host,
            reconsume_times=draft.reconsume_times,
        )
        records = plan.encode(place)
        self._look_at_last(memoryview(records.data), offset, records.offsets[-8:])
        self.log.append(records.data)
        queue.append(records.units)
        return Appended(offset, plan.total, place.queue_offset, store_ms), records.offsets

    def _look_at_last(self, data: memoryview, offset: int, last: bytes) -> None:
        """Note the last record of a batch if it needs that."""
        at = int.from_bytes(last, "big")
        head = check_record(data, at - offset, at)
        if head is not None:
            self._note.look_at(at + head.size, head.properties)

    def _plan(self, draft: Draft, topic: bytes, suffix: bytes) -> BatchPlan:
        found = plan_columns(draft.body, topic, suffix, draft.born_host, self.host)
        if found is not None:
            return found
        head = HEADS[len(draft.born_host), len(self.host)].size
        return plan_batch(draft.body, topic, suffix, head)

    # Reading

    def fetch(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        limits: FetchLimits = DEFAULT_LIMITS,
        wanted: Wanted = EVERYTHING,
    ) -> Fetched:
        """Records of a queue from an offset on; see ``fetch.fetch``."""
        return fetch(self.log, self.queues.get(topic, queue_id), offset, limits, wanted)

    def record_at(self, log_offset: int) -> memoryview | None:
        """One record by its place in the log; None when there is none."""
        if log_offset < self.log.start:
            return None
        head = self.log.view(log_offset, PHYSICAL.stop)
        if head is None or int.from_bytes(head[PHYSICAL], "big") != log_offset:
            return None
        return self.log.view(log_offset, int.from_bytes(head[SIZE], "big"))

    def store_ms_at(self, log_offset: int) -> int:
        """When the record at an offset was stored; -1 when there is none."""
        record = self.record_at(log_offset)
        return -1 if record is None else store_ms_of(record)

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, *, upper: bool = False
    ) -> int:
        """The first message at or after a time; with ``upper``, the last one at or before it.

        When all messages are older it is the end (the last one with ``upper``); when all are
        younger, the first (0 with ``upper``).
        """
        queue = self.queues.get(topic, queue_id)
        if queue is None or queue.minimum == queue.maximum:
            return 0
        low, high = queue.minimum, queue.maximum
        while low < high:
            middle = (low + high) // 2
            unit = queue.unit(middle)
            stored = self.store_ms_at(unit[0]) if unit is not None else -1
            if stored < time_ms or (upper and stored == time_ms):
                low = middle + 1
            else:
                high = middle
        if not upper:
            return low
        return low - 1 if low > queue.minimum else 0

    def find(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int, *, unique: bool = False
    ) -> list[memoryview]:
        """Records whose keys (or unique id) may include one, newest first.

        Two keys may share a hash; the caller of the broker compares, as with Apache.
        """
        found: dict[int, memoryview] = {}
        for offset in self.index.find(topic, key, begin_ms, end_ms):
            record = self.record_at(offset)
            if record is not None:
                found.setdefault(offset, record)
            if len(found) >= limit:
                break
        return list(found.values())

    # Flushing

    @property
    def checkpointed(self) -> int:
        """The log offset up to which everything is known to be on the medium."""
        return self._checkpoint.offset if self._checkpoint.offset is not None else -1

    def begin_flush(self, *, queues: bool) -> FlushJob:
        """Prepare to sync the log, and with ``queues`` everything else, and the checkpoint.

        Everything is done in any case when a message would be taken for a torn one otherwise,
        and after a flush that failed.

        Raises:
            StoreError: the disk has no room for what was held back, or does not work.
        """
        failed = self._job is not None and self._job.error is not None
        job = FlushJob(self.disk, self.log.end, again=failed)
        try:
            self._add_log(job)
            if queues or failed or self.checkpointed < self._note.end <= job.log_end:
                self._add_rest(job)
        except OSError as error:
            job.discard()
            raise StoreError(f"the disk does not sync: {error}") from error
        except StoreError:
            job.discard()
            raise
        self._job = job
        return job

    def _add_log(self, job: FlushJob) -> None:
        for file in self.log.unsynced_files():
            start = max(self.log.synced - file.start, 0)
            end = min(max(job.log_end - file.start, start), file.size)
            job.add(file.descriptor, start, end)
        if self.log.files and self.log.files[-1].start >= self.log.synced:
            job.folders.append(self.log.folder)

    def _add_rest(self, job: FlushJob) -> None:
        """The queues, a full index file, and last the checkpoint that vouches for all."""
        for queue in self.queues:
            if queue.dirty:
                queue.write_out()
                job.when_done.append(
                    queue.hand_over(lambda descriptor, end: job.add(descriptor, 0, end))
                )
        filled, index_ms = self.follower.filled, self._checkpoint.index_ms
        if filled is not None:
            filled.sync()
            index_ms = filled.end_ms
            job.when_done.append(lambda: self.follower.forget_filled(filled))
        job.checkpoint = Checkpoint(self._newest_ms, self._newest_ms, index_ms, job.log_end)
        job.checkpoint_path = self.folder.checkpoint_file

    def end_flush(self, job: FlushJob) -> None:
        """Take note of what a job has done.

        Raises:
            StoreError: it failed; nothing more counts as synced than before.
        """
        if job.error is not None:
            raise StoreError(f"the disk does not sync: {job.error}") from job.error
        self.log.mark_synced(job.log_end)
        for settle in job.when_done:
            settle()
        if job.checkpoint is not None:
            self._checkpoint = job.checkpoint

    def flush(self) -> None:
        """Everything to the medium, here and now."""
        job = self.begin_flush(queues=True)
        job.run()
        self.end_flush(job)

    # Forgetting

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's queues. Its records stay in the log until that is deleted."""
        self.queues.delete_topic(topic)
        # Otherwise a crash would read those records again and bring the queues back.
        with contextlib.suppress(StoreError):
            self.flush()

    def retain(
        self,
        *,
        now_ms: int | None = None,
        max_age_ms: int | None = None,
        max_bytes: int | None = None,
    ) -> int:
        """Delete the oldest log files that are too old or too much; returns how many.

        Whole files only, and never the one that is written to.
        """
        deleted = 0
        now_ms = self._clock_ms() if now_ms is None else now_ms
        while len(self.log.files) > 1:
            first = self.log.files[0]
            age = now_ms - int(first.path.stat().st_mtime * 1000)
            old = max_age_ms is not None and age > max_age_ms
            much = max_bytes is not None and self.log.used > max_bytes
            if not (old or much) or first.start + first.size > self.log.synced:
                break
            self.log.drop_first()
            deleted += 1
        if deleted:
            for queue in self.queues:
                queue.trim(self.log.start)
            self.index.trim(self.log.start)
        return deleted

    # Ending

    def close(self) -> None:
        """Flush and close; the next start reads nothing again."""
        if self.follower.behind:
            with contextlib.suppress(StoreError):
                self.follower.step(_LAST_STEP)
        try:
            self.flush()
            self.index.close(sync=True)
            self.folder.mark_clean()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything as a killed process would: what is in memory only is lost."""
        self.index.close(sync=False)
        self.queues.close()
        self.log.close()
        self.folder.close()
