"""The messages of a Parquet archive, as they were read from their topic.

``rocketwire archive`` writes such folders, and every engine that reads Parquet may. Rows come by
hours, and within each by queue and offset, so that one hour is held at a time and each queue is in
its order: a log is stored in the order of its times.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rocketwire.errors import InvalidMessageError
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage

_HOUR: Final = timedelta(hours=1)
_NEEDED: Final = (
    "topic", "broker", "queueId", "queueOffset", "messageId", "body", "storeTimestamp",
)  # fmt: skip
_WANTED: Final = (
    *_NEEDED, "tags", "keys", "shardingKey", "properties", "bornTimestamp", "reconsumeTimes", "flag",
)  # fmt: skip


class ArchivedMessages:
    """What a folder holds of one topic, between two moments.

    Args:
        folder: of the archive.
        topic: which of its topics; None where it has one.
        start: the first moment; None for the beginning.
        end: the moment after the last; None for the end.

    Raises:
        InvalidMessageError: it is no archive of raw bodies, or has several topics.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        topic: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> None:
        self._data = _open(folder)
        self.topic = _one_topic(self._data, folder, topic)
        wanted = ds.field("topic") == self.topic
        if start is not None:
            wanted &= ds.field("storeTimestamp") >= pa.scalar(start, pa.timestamp("us", tz="UTC"))
        if end is not None:
            wanted &= ds.field("storeTimestamp") < pa.scalar(end, pa.timestamp("us", tz="UTC"))
        self._wanted = wanted
        times = self._data.to_table(columns=["storeTimestamp"], filter=wanted)["storeTimestamp"]
        #: How many messages there are.
        self.count: int = len(times)
        self._times: dict[str, Any] = pc.min_max(times).as_py()

    def __iter__(self) -> Iterator[StoredMessage]:
        if not self.count:
            return
        moment, last = self._times["min"].astimezone(UTC), self._times["max"].astimezone(UTC)
        columns = [name for name in _WANTED if name in self._data.schema.names]
        order = [("broker", "ascending"), ("queueId", "ascending"), ("queueOffset", "ascending")]
        while moment <= last:
            within = _within(moment, moment + _HOUR)
            table = self._data.to_table(columns=columns, filter=self._wanted & within)
            for batch in table.sort_by(order).to_batches(max_chunksize=1024):
                yield from map(_message, batch.to_pylist())
            moment += _HOUR


def _within(start: datetime, end: datetime) -> Any:
    kind = pa.timestamp("us", tz="UTC")
    moment = ds.field("storeTimestamp")
    return (moment >= pa.scalar(start, kind)) & (moment < pa.scalar(end, kind))


def _open(folder: str | Path) -> ds.Dataset:
    try:
        partitions = ds.partitioning(
            pa.schema([("topic", pa.string()), ("date", pa.string())]), flavor="hive"
        )
        data = ds.dataset(str(folder), format="parquet", partitioning=partitions)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidMessageError(f"{folder} can't be read as an archive: {error}") from None
    missing = [name for name in _NEEDED if name not in data.schema.names]
    if missing:
        raise InvalidMessageError(
            f"{folder} is no archive of a topic: it has no {', '.join(missing)} (rocketwire "
            "archive writes them)"
        )
    if not pa.types.is_binary(data.schema.field("body").type):
        raise InvalidMessageError(
            f"{folder} holds bodies that were taken apart when they were archived: only an archive "
            "with --body raw can be replayed"
        )
    return data


def _one_topic(data: ds.Dataset, folder: str | Path, topic: str | None) -> str:
    known = pc.unique(data.to_table(columns=["topic"])["topic"]).to_pylist()
    if topic is None and len(known) == 1:
        return str(known[0])
    if topic in known and topic is not None:
        return topic
    names = ", ".join(sorted(map(str, known))) or "none"
    raise InvalidMessageError(f"{folder} holds the topics {names}: say which one to replay")


def _message(row: dict[str, Any]) -> StoredMessage:
    stored = row["storeTimestamp"]
    return StoredMessage(
        topic=row["topic"],
        body=row["body"] or b"",
        tags=row.get("tags"),
        keys=row.get("keys"),
        properties=dict(row.get("properties") or ()),
        sharding_key=row.get("shardingKey"),
        delay_level=0,
        deliver_at=None,
        flag=row.get("flag") or 0,
        wait_store_ok=True,
        queue=MessageQueue(row["topic"], row["broker"], row["queueId"]),
        offset=row["queueOffset"],
        message_id=row["messageId"],
        offset_message_id="",
        born_at=row.get("bornTimestamp") or stored,
        stored_at=stored,
        born_host="",
        store_host="",
        reconsume_times=row.get("reconsumeTimes") or 0,
        commit_log_offset=-1,
    )
