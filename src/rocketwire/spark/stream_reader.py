"""Reading as a stream: offsets, limits, and queues that come and go.

Spark asks for the latest offset every few milliseconds while it is idle, ends the query at the
first error, and repeats the first batch from another "latest"; the answers here are cached,
patient, and carried along.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rocketwire.errors import RocketMQError, RouteError
from rocketwire.message import MessageQueue
from rocketwire.spark.absent_queues import AbsentQueues
from rocketwire.spark.client import Bounds, Cluster, reader_for
from rocketwire.spark.completeness import Completeness
from rocketwire.spark.offsets import StreamOffset, batch_begin, batch_end
from rocketwire.spark.option_names import in_camel_case, in_option_words
from rocketwire.spark.options import ClientOptions, ReadOptions
from rocketwire.spark.planning import start_offsets, view_or_absent, whole_bounds, within
from rocketwire.spark.ranges import QueueRange
from rocketwire.spark.reader import (
    cluster_for,
    completeness_for,
    filter_of,
    partitions_of,
    read_partition,
)
from rocketwire.spark.spark_api import (
    HAS_LIMITS,
    VERSION,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from rocketwire.spark.topic_view import TopicView

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("rocketwire.spark")

_FRESH: Final = 0.1
_WARN_EVERY: Final = 60.0
_REPORT_EVERY: Final = 1.0


class StreamSource:
    """What is known of the stream on the driver. No Spark here, so that it can be tested bare.

    Args:
        cluster: answers questions.
        options: of the read.
        completeness: finds queues that can't be read.
        clock: seconds.
        sleep: waits so many.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ReadOptions,
        completeness: Completeness | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._absent = AbsentQueues(completeness or Completeness(options), options, clock)
        self._initial: StreamOffset | None = None
        self._ceiling: dict[MessageQueue, int] | None = None
        #: Queues that could not be reached when the ceiling was taken.
        self._late: set[MessageQueue] = set()
        self._bounds: Bounds | None = None
        self._bounds_at = 0.0
        self._known: Mapping[MessageQueue, int] = {}
        #: Why topics could not be looked up when that was last tried; None when all of them could.
        self._unseen: RouteError | None = None
        #: Where a Spark before 4.2 is, and queues that it does not name any more.
        self._reached: StreamOffset | None = None
        if options.reached is not None:
            self._reached = StreamOffset.from_json(json.loads(options.reached))
        self._carried: dict[MessageQueue, int] = {}
        self._warned: dict[str, float] = {}
        self._waiting_since: float | None = None
        self._reported: StreamOffset | None = None
        self._reported_at = 0.0

    def initial(self) -> StreamOffset:
        """Where a new query starts; the same answer however often it is asked."""
        if self._initial is None:
            bounds = whole_bounds(
                self._cluster,
                self._options,
                self._absent.completeness,
                self._clock,
                self._sleep,
            )
            starts = start_offsets(self._cluster, self._options, bounds)
            offsets = {
                queue: within(queue, offset, bounds.first[queue], bounds.end[queue], self._options)
                for queue, offset in starts.items()
            }
            self._initial = StreamOffset(offsets, is_initial=True, is_blind=not HAS_LIMITS)
            self._reached = self._initial
        return self._initial

    def stop_at_present_end(self) -> None:
        """Take nothing that comes after now (trigger AvailableNow).

        Raises:
            RouteError: what there is can't be looked up for too long; without it the run would end
                with success, and have read nothing.
        """
        began = self._clock()
        while True:
            bounds = self._current()
            if self._unseen is None:
                break
            if self._clock() - began >= self._options.read_timeout:
                raise self._unseen
            self._sleep(_FRESH * 2)
        self._ceiling = dict(bounds.end)
        self._late = set(self._absent.missing)

    def latest(self, start: StreamOffset, limit: int | None) -> StreamOffset:
        """The end of the next batch, ``start`` when there is none yet.

        Raises:
            MissingQueuesError: queues can't be read for too long, and that matters.
            DataLossError: messages are gone, and that matters.
            RouteError: queues that were there at the beginning can't be looked up for too long.
        """
        began = self._clock()
        while True:
            found = self._next(start, limit)
            if found is not start or self._ceiling is None:
                return found
            # Nothing new would end the run with success: what is missing is waited for.
            if self._unseen is not None and not self._ceiling.keys() <= start.offsets.keys():
                if self._clock() - began >= self._options.read_timeout:
                    raise self._unseen
            elif not (self._absent.missing and self._options.fail_on_data_loss):
                return found
            self._sleep(_FRESH * 2)

    def _next(self, start: StreamOffset, limit: int | None) -> StreamOffset:
        if not start.offsets.keys() <= self._known.keys():
            self._bounds = None  # what is missing was found without knowing of these
        self._known = start.offsets
        bounds = self._current()
        if self._absent.missing:
            self._warn(f"queues are skipped until they return: {self._absent.told}")
        self._absent.check_patience()
        ends = dict(bounds.end)
        if self._ceiling is not None:
            self._raise_ceiling(start, bounds)
            ends = {
                queue: min(end, self._ceiling[queue])
                for queue, end in ends.items()
                if queue in self._ceiling
            }
        corrections = self._corrections(start, bounds)
        found = batch_end(start, bounds.first, ends, limit, corrections)
        if self._ceiling is None and self._should_wait(start, ends, limit):
            found = start
        self._report(start, is_idle=found is start)
        return found

    def latest_without_start(self) -> StreamOffset:
        """As `latest`, for a Spark that does not say where the batch starts (before 4.2).

        Such a Spark does not say, either, whether the end found now is the last one that it wants.
        So queues that can't be read are waited for, instead of being read later.

        Raises:
            MissingQueuesError: they stay away, and that matters.
            DataLossError: messages are gone, and that matters.
        """
        options = self._options
        if self._reached is None:  # the query goes on from a checkpoint, which only Spark knows
            bounds = whole_bounds(
                self._cluster, options, self._absent.completeness, self._clock, self._sleep
            )
            return StreamOffset(bounds.end, firsts=bounds.first, is_blind=True)
        limit = options.max_offsets if options.limit_before_42 else None
        while True:
            found = self._next(self._reached, limit)
            if not (self._absent.missing and options.fail_on_data_loss):
                return found if found is self._reached else replace(found, is_blind=True)
            self._sleep(_FRESH * 2)

    def begun(self, start: StreamOffset, end: StreamOffset) -> None:
        """Spark runs a batch; where the next one starts follows from it (before 4.2).

        Raises:
            MissingQueuesError: queues of the checkpoint can't be read, and that matters.
        """
        left = {q: offset for q, offset in start.offsets.items() if q not in end.offsets}
        self._carried = {q: o for q, o in {**self._carried, **left}.items() if q not in end.offsets}
        self._report(start, is_idle=True)
        self._reached = end if not self._carried else self._with_carried(end)
        while left and self._options.fail_on_data_loss:
            self._known = self._reached.offsets
            self._bounds = None
            self._current()
            if not self._absent.missing:
                return
            self._absent.check_patience()
            self._sleep(_FRESH * 2)

    def _with_carried(self, end: StreamOffset) -> StreamOffset:
        return StreamOffset({**end.offsets, **self._carried}, is_blind=True)

    def _raise_ceiling(self, start: StreamOffset, bounds: Bounds) -> None:
        """Queues that could not be reached when the end was taken have theirs once they return."""
        assert self._ceiling is not None
        # The end is taken before Spark tells what the checkpoint names.
        self._late |= (start.offsets.keys() | self._absent.missing.keys()) - self._ceiling.keys()
        for queue in sorted(self._late & set(bounds.end)):
            self._ceiling[queue] = bounds.end[queue]
            self._late.discard(queue)
        # Which queues a broker has is known only once it is back.
        for whole in [queue for queue in self._late if queue.id < 0]:
            back = [queue for queue in bounds.end if queue.topic == whole.topic]
            if whole not in self._absent.missing:
                for queue in back:
                    self._ceiling.setdefault(queue, bounds.end[queue])
                self._late.discard(whole)

    def _corrections(self, start: StreamOffset, bounds: Bounds) -> dict[MessageQueue, int]:
        """Where to go on in queues that do not have their offset any more."""
        found: dict[MessageQueue, int] = {}
        for queue, offset in start.offsets.items():
            if queue in bounds.end:
                first, end = bounds.first[queue], bounds.end[queue]
                nearest = within(queue, offset, first, end, self._options)
                if nearest != offset:
                    found[queue] = nearest
        return found

    def _should_wait(
        self, start: StreamOffset, ends: dict[MessageQueue, int], limit: int | None
    ) -> bool:
        """Whether there are too few messages yet for a batch (minOffsetsPerTrigger)."""
        least = self._options.min_offsets
        if least is None or not (HAS_LIMITS or self._options.limit_before_42):
            return False
        if limit is None and self._options.max_offsets is not None:
            return False
        waiting = sum(max(0, end - start.offsets.get(queue, end)) for queue, end in ends.items())
        now = self._clock()
        if waiting == 0 or waiting >= least:
            self._waiting_since = None
            return False
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        if now - self._waiting_since < self._options.max_trigger_delay:
            return True
        self._waiting_since = None
        return False

    def true_ends(self) -> StreamOffset:
        """What the brokers have, whatever limits say, and which queues can't be read."""
        end = self._current().end
        return StreamOffset(end, missing=tuple(self._absent.missing))

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
        """What a batch reads."""
        # Queues that a Spark before 4.2 lost from its offsets go on where they were.
        known = StreamOffset({**self._carried, **start.offsets}) if self._carried else start
        return [
            QueueRange(queue, begin, max(begin, end.offsets[queue]))
            for queue, begin in batch_begin(known, end).items()
        ]

    # -- what brokers have ------------------------------------------------------------------

    def _current(self) -> Bounds:
        now = self._clock()
        if self._bounds is None or now - self._bounds_at > _FRESH:
            queues, views = self._queues()
            self._bounds = self._cluster.bounds(queues)
            self._bounds_at = self._clock()
            self._absent.look(views, self._bounds, self._known)
        return self._bounds

    def _queues(self) -> tuple[tuple[MessageQueue, ...], dict[str, TopicView | None]]:
        """The queues to read now, and what name servers say of their topics."""
        choice = self._options.choice
        if choice.queues:
            return choice.queues, {}
        self._unseen = None
        had = {queue.topic for queue in self._known}
        listed = set(self._topics())
        topics = listed | had | self._absent.completeness.topics()
        found: list[MessageQueue] = []
        views: dict[str, TopicView | None] = {}
        for topic in sorted(topics):
            known = [queue for queue in self._known if queue.topic == topic]
            try:
                queues = self._cluster.queues_of(topic)
                views[topic] = view_or_absent(
                    self._cluster, self._absent.completeness, topic, known
                )
            except RouteError as error:
                self._unseen = error
                self._warn(f"topic {topic} can't be looked up: {error}")
                found += known
                continue
            if views[topic] is None and topic not in listed | had:
                del views[topic]  # only a record had it: it was deleted since
                continue
            found += queues or ()
            # A queue less on a broker that is there: its last messages may still be read.
            there = {queue.broker for queue in queues or ()}
            found += [q for q in known if q.broker in there and q not in set(queues or ())]
        return tuple(found), views

    def _topics(self) -> Sequence[str]:
        try:
            return self._cluster.topics(self._options.choice)
        except RouteError as error:
            self._unseen = error
            self._warn(f"topics can't be looked up: {error}")
            return ()

    def _warn(self, text: str) -> None:
        """Log a warning, but not every few milliseconds."""
        text = in_camel_case(text)
        now = self._clock()
        if now - self._warned.get(text, -_WARN_EVERY) >= _WARN_EVERY:
            self._warned = {**self._warned, text: now} if len(self._warned) < 100 else {text: now}
            _log.warning("%s", text)

    def _report(self, start: StreamOffset, *, is_idle: bool) -> None:
        """Show progress as consumer offsets. ``start`` is what the sink has committed."""
        group = self._options.group_id
        if group is None or start.is_initial or start == self._reported:
            return
        now = self._clock()
        if is_idle or now - self._reported_at >= _REPORT_EVERY:
            self._cluster.commit(group, start.offsets)
            self._reported, self._reported_at = start, now


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream as Spark calls it."""

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
        self._warned = False
        self._source: StreamSource | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy of this object; what the driver knows is of no use to them.
        return {**self.__dict__, "_source": None}

    @property
    def source(self) -> StreamSource:
        """The driver's state, made when first asked for."""
        if self._source is None:
            reader = reader_for(self._client, self._options.group_id)
            cluster = cluster_for(reader, self._options)
            completeness = completeness_for(self._client, self._options, self._folder)
            self._source = StreamSource(cluster, self._options, completeness)
        return self._source

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts."""
        with in_option_words():
            cluster_for(
                reader_for(self._client, self._options.group_id), self._options
            ).check_filter(self._options.choice, filter_of(self._options))
            return self.source.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit from the options."""
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """The end of the next batch."""
        if start is None:
            return self._latest_without_start()
        begin = StreamOffset.from_json(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with in_option_words():
            end = self.source.latest(begin, most)
        return start if end is begin else end.to_json()

    def _latest_without_start(self) -> dict[str, Any]:
        options = self._options
        if not (self._warned or options.limit_before_42) and options.max_offsets is not None:
            self._warned = True
            _log.warning(
                "maxOffsetsPerTrigger is ignored: PySpark %d.%d does not tell a source the trigger, and "
                "availableNow would end early, with success; limitBefore42=true keeps it for "
                "streams that are not availableNow",
                *VERSION,
            )
        with in_option_words():
            return self.source.latest_without_start().to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The brokers' true ends, for progress and lag."""
        try:
            return self.source.true_ends().to_json()
        except RocketMQError as error:
            _log.warning("the latest offsets can't be told: %s", in_camel_case(str(error)))
            return None

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and no more."""
        with in_option_words():
            self.source.stop_at_present_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        begin, stop = StreamOffset.from_json(start), StreamOffset.from_json(end)
        ranges = self.source.ranges(begin, stop)
        if not HAS_LIMITS:
            with in_option_words():
                self.source.begun(begin, stop)
        return partitions_of(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_partition(self._client, self._options, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: progress is reported from `latestOffset`, which is a batch earlier."""

    def stop(self) -> None:
        """Nothing to do: Spark does not call it when a query is stopped."""
