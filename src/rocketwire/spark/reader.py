"""Reading in tasks, and planning a batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rocketwire.columns.client_parts import parts_of
from rocketwire.columns.schema import select_columns
from rocketwire.core.reading.filters import message_filter
from rocketwire.spark.client import Cluster, reader_for
from rocketwire.spark.completeness import Completeness
from rocketwire.spark.early_end import until_left
from rocketwire.spark.local_record import LocalRecord
from rocketwire.spark.option_names import in_option_words
from rocketwire.spark.options import ClientOptions, ReadOptions
from rocketwire.spark.planning import plan_batch
from rocketwire.spark.ranges import QueueRange, plan_tasks
from rocketwire.spark.settled_worker import settle

if TYPE_CHECKING:
    import pyarrow as pa

    from rocketwire.core.reading.pull import TagFilter
    from rocketwire.sync.reader import Reader

_log = logging.getLogger("rocketwire.spark")


class RangesPartition(InputPartition):
    """The ranges of one task."""

    def __init__(self, ranges: Sequence[QueueRange]) -> None:
        super().__init__(tuple(ranges))

    @property
    def ranges(self) -> tuple[QueueRange, ...]:
        """What the task reads."""
        ranges: tuple[QueueRange, ...] = self.value
        return ranges


def partitions_of(ranges: Sequence[QueueRange], options: ReadOptions) -> list[InputPartition]:
    """Tasks for some ranges, by the options."""
    tasks = plan_tasks(
        ranges,
        join_small=options.join_small,
        max_records=options.max_records,
        min_partitions=options.min_partitions,
    )
    return [RangesPartition(task) for task in tasks]


def read_partition(
    client: ClientOptions,
    options: ReadOptions,
    columns: Sequence[str],
    partition: InputPartition,
) -> Iterator[pa.RecordBatch]:
    """The record batches of one task; runs on an executor."""
    # Spark makes a partition of its own, of value None, where there is nothing to read.
    if isinstance(partition, RangesPartition):
        with in_option_words():
            yield from _read_ranges(client, options, columns, partition.ranges)


def _read_ranges(
    client: ClientOptions,
    options: ReadOptions,
    columns: Sequence[str],
    ranges: Sequence[QueueRange],
) -> Iterator[pa.RecordBatch]:
    # Only tasks need what decodes. A planner, of which every query starts one, does not wait for it.
    from rocketwire.columns.decode import RecordDecoder
    from rocketwire.columns.fetch import FetchPolicy, QueueSpan, fetch_spans

    wanted = filter_of(options)
    decoder = RecordDecoder(
        select_columns(columns),
        properties=options.properties,
        tags=options.tags,
        on_bad_body=options.on_bad_body,
    )
    reader = reader_for(client, options.group_id)
    policy = FetchPolicy(
        timeout=options.read_timeout,
        fail_on_data_loss=options.fail_on_data_loss,
        tags=wanted,
        group=reader._config.group,  # noqa: SLF001 - brokers should see the reader's own group
    )
    spans = [QueueSpan(part.queue, part.start, part.end) for part in ranges]
    yield from until_left(decoder.decode(fetch_spans(parts_of(reader), spans, policy)))
    settle()


def filter_of(options: ReadOptions) -> TagFilter:
    """What brokers are to filter by."""
    return message_filter(options.tags, options.sql)


def cluster_for(reader: Reader, options: ReadOptions) -> Cluster:
    """Questions to the cluster, as patient as the options say."""
    return Cluster(
        reader,
        options.group_id,
        retries=options.offset_retries,
        interval=options.offset_retry_interval,
    )


def completeness_for(
    client: ClientOptions, options: ReadOptions, folder: str | None
) -> Completeness:
    """Finds queues that can't be read; remembers those seen in a folder, if one is given."""
    record = LocalRecord(folder, client.name_servers) if folder is not None else None
    return Completeness(options, record)


class RocketMQReader(DataSourceReader):
    """Reads a batch: offsets are fixed when it is planned, so every action sees the same rows."""

    def __init__(
        self,
        client: ClientOptions,
        options: ReadOptions,
        columns: Sequence[str],
        folder: str | None = None,
    ) -> None:
        self._client = client
        self._options = options
        self._columns = tuple(columns)
        self._folder = folder
        limits = (options.max_offsets, options.min_offsets)
        if limits != (None, None):
            _log.warning("maxOffsetsPerTrigger and minOffsetsPerTrigger do nothing in a batch")

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks; asks brokers for their offsets."""
        reader = reader_for(self._client, self._options.group_id)
        cluster = cluster_for(reader, self._options)
        completeness = completeness_for(self._client, self._options, self._folder)
        with in_option_words():
            cluster.check_filter(self._options.choice, filter_of(self._options))
            ranges = plan_batch(cluster, self._options, completeness)
        return partitions_of(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_partition(self._client, self._options, self._columns, partition)
