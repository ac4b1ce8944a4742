"""Files of an archive: where they lie, how they are named, and how a batch becomes visible.

A task writes under a hidden name that no engine takes for data; when all tasks of a batch are
done, the driver renames its files. Names come from the stream, the batch and the queue ranges, so
that a batch which is repeated after a crash overwrites itself.

All this is for folders that every executor has under the same path; what only Hadoop reaches is
written by Spark itself (`archive_batch`).
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketwire.spark.pipelines.small_files import local_path

#: What Spark escapes in the names of partition folders; other engines read it back.
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}
_ROW_GROUP: Final = 128 * 1024
RESULT_SCHEMA: Final = "result string"


def escape(value: str) -> str:
    """A value as the name of a partition folder, as Hive and Spark write it."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in value)


@dataclass(slots=True)
class _OpenFile:
    """A file that a task is writing."""

    writer: pq.ParquetWriter
    draft: str
    place: str
    rows: int = 0
    #: First and last offset by queue, from which the name is made.
    spans: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def write(self, batch: pa.RecordBatch) -> None:
        self.writer.write_batch(batch, row_group_size=_ROW_GROUP)
        self.rows += batch.num_rows
        brokers = batch.column("broker").dictionary_encode()
        codes = np.asarray(brokers.indices)
        queues = batch.column("queueId").to_numpy()
        offsets = batch.column("queueOffset").to_numpy()
        for code, queue in {*zip(codes.tolist(), queues.tolist(), strict=True)}:
            mine = offsets[(codes == code) & (queues == queue)]
            key = (str(brokers.dictionary[code]), int(queue))
            low, high = self.spans.get(key, [int(mine.min()), int(mine.max())])
            self.spans[key] = [min(low, int(mine.min())), max(high, int(mine.max()))]


def file_name(stream: str, batch: int, spans: dict[tuple[str, int], list[int]]) -> str:
    """The name of a file with these rows; the same whenever the batch is repeated."""
    head = batch_prefix(stream, batch)
    if len(spans) == 1:
        ((broker, queue), (low, high)) = next(iter(spans.items()))
        return f"{head}{escape(broker)}-{queue}-{low}-{high}.parquet"
    text = json.dumps(sorted([*key, *span] for key, span in spans.items()))
    mark = hashlib.blake2s(text.encode(), digest_size=6).hexdigest()
    return f"{head}{len(spans)}-queues-{mark}.parquet"


def batch_prefix(stream: str, batch: int) -> str:
    """What the names of all files of a batch begin with."""
    return f"b{batch:010d}-{stream}-"


@dataclass(frozen=True)
class ArchiveTask:
    """Writes the rows of one partition; travels to executors."""

    folder: str
    stream: str
    batch: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write files under hidden names; yields one row for each."""
        root = local_path(self.folder)
        assert root is not None  # the caller saw to it
        files: dict[tuple[str, str], _OpenFile] = {}
        try:
            for batch in batches:
                for topic, date, rows in split_by_day(batch):
                    found = files.get((topic, date))
                    if found is None:
                        found = files[topic, date] = self._open(root.resolve(), topic, date, rows)
                    found.write(rows)
        except BaseException:
            for file in files.values():
                file.writer.close()
                Path(file.draft).unlink()
            raise
        lines = [self._close(file) for file in files.values()]
        if lines:
            yield pa.record_batch({"result": lines})

    def _open(self, root: Path, topic: str, date: str, rows: pa.RecordBatch) -> _OpenFile:
        place = root / f"topic={escape(topic)}" / f"date={date}"
        place.mkdir(parents=True, exist_ok=True)
        # The dot hides it from Spark and Arrow, the ending from a search for *.parquet.
        draft = f"{place}/.{batch_prefix(self.stream, self.batch)}{uuid.uuid4().hex}.draft"
        writer = pq.ParquetWriter(draft, rows.schema, compression="zstd")
        return _OpenFile(writer, draft, str(place))

    def _close(self, file: _OpenFile) -> str:
        file.writer.close()
        bring_to_disk(file.draft)
        size = Path(file.draft).stat().st_size
        name = file_name(self.stream, self.batch, file.spans)
        return json.dumps(
            {"draft": file.draft, "final": f"{file.place}/{name}", "rows": file.rows, "bytes": size}
        )


def split_by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """The rows of each topic and day of storing (UTC), without the column topic."""
    days = pc.strftime(batch.column("storeTimestamp"), format="%Y-%m-%d")
    topics = batch.column("topic")
    rest = batch.drop_columns(["topic"])
    for topic in topics.unique().to_pylist():
        of_topic = pc.equal(topics, topic)
        for day in pc.filter(days, of_topic).unique().to_pylist():
            mask = pc.and_(of_topic, pc.equal(days, day))
            yield topic, day, rest.filter(mask)


def make_visible(stream: str, batch: int, files: Sequence[dict[str, Any]]) -> None:
    """Rename the files of a batch, and remove what an earlier try of it left."""
    wanted = {file["final"] for file in files}
    drafts = {file["draft"] for file in files}
    prefix = batch_prefix(stream, batch)
    places = sorted({Path(path).parent for path in wanted})
    for place in places:
        for found in place.iterdir():
            is_old = found.name.startswith(prefix) and str(found) not in wanted
            is_draft = found.name.startswith(f".{prefix}") and str(found) not in drafts
            if is_old or is_draft:
                found.unlink()
    for file in files:
        Path(file["draft"]).replace(file["final"])
    for place in places:
        bring_to_disk(place)


def bring_to_disk(path: str | Path) -> None:
    """Wait until a file or folder outlives a loss of power.

    Spark will not read the messages again once their batch is committed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
