"""Runs the analysis: writes every table, and takes from each as much as a page shows.

Whatever comes to the driver has a limit that does not depend on the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from rocketwire.errors import ConfigError
from rocketwire.pages.scales import BUCKETS, bucket_width
from rocketwire.spark.delivery_report import key_order, periods, sends, tables
from rocketwire.spark.delivery_report.findings import (
    Avoidance,
    Counts,
    Ended,
    Findings,
    Input,
    KeyOrder,
    KeyShare,
    Named,
    Period,
    QueueShare,
    Route,
    Stretch,
    TopicSpread,
    Trouble,
    WorstKey,
)
from rocketwire.spark.delivery_report.records import (
    ATTEMPT,
    DROPPED,
    FOREIGN,
    UNREADABLE,
)
from rocketwire.spark.delivery_report.table_folder import TableFolder

#: Most rows that are taken of each kind.
BROKERS: Final = 12
TOPICS: Final = 6
QUEUES: Final = 96
KEYS: Final = 20
PERIODS: Final = 30
ROUTES: Final = 60
TROUBLES: Final = 15
CLIENTS: Final = 20
FILES: Final = 10

_AT_A_TIME: Final = 3
_COUNTS: Final = tuple(spec.name for spec in dataclasses.fields(Counts))


def watched() -> list[Column]:
    """What to observe while records are staged, for `gather`."""
    kind = f.col("kind")
    return [
        f.count(f.lit(1)).alias("records"),
        f.count_if(kind == UNREADABLE).alias("unreadable"),
        f.count_if(kind == FOREIGN).alias("foreign"),
        f.coalesce(f.sum(f.when(kind == DROPPED, f.col("dropped"))), f.lit(0)).alias("dropped"),
        *tables.overview(),
    ]


def gather(
    records: DataFrame, store: TableFolder, seen: Mapping[str, Any], source: str, *, is_trace: bool
) -> Findings:
    """Analyse records, which are read many times, so they should come from Parquet.

    Args:
        records: all of them.
        store: gets the tables.
        seen: what `watched` saw of the records.
        source: what they are called.
        is_trace: whether they are traces.

    Raises:
        ConfigError: there is not one attempt.
    """
    given = _look_at_input(records, seen, source, is_trace=is_trace)
    attempts = records.where(f.col("kind") == ATTEMPT)
    overall = _counts(dict(seen) | tables.quantiles_of(seen["quantiles"]))
    if overall.attempts == 0:
        raise ConfigError(_nothing(given))
    width = bucket_width(overall.last_at - overall.first_at)
    begin = overall.first_at // width * width
    timing = _Timing(begin, overall.last_at, width)
    parts = _side_by_side(
        partial(_sharding_keys, attempts, store),
        partial(_brokers, attempts, store, timing),
        partial(_spread, attempts, store),
        partial(_who_and_what, attempts, store),
        partial(_whole_sends, attempts, store, overall),
        partial(_isolations, records, store, timing),
    )
    return Findings(
        input=given, overall=overall, begin=begin, end=overall.last_at, width=width, **parts
    )


def _side_by_side(*works: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What all of them found. They begin in this order, so the longest comes first.

    A job on few records is mostly waiting for its planning and for its last task: the next one may
    use that time. More at a time would only share the memory of one driver.
    """
    found: dict[str, Any] = {}
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="rocketwire-report") as pool:
        running = [pool.submit(work) for work in works]
        try:
            for one in running:
                found |= one.result()
        finally:
            for one in running:
                one.cancel()
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Timing:
    begin: float
    end: float
    width: float


def _counts(row: Mapping[str, Any]) -> Counts:
    return Counts(**{name: row[name] for name in _COUNTS if row.get(name) is not None})


def _named(rows: Iterable[Mapping[str, Any]], column: str) -> tuple[Named, ...]:
    return tuple(Named(row[column], _counts(row)) for row in rows)


def _most(table: DataFrame, column: str, limit: int, *ties: str) -> list[Row]:
    return table.orderBy(f.desc(column), *ties).limit(limit).collect()


def _look_at_input(
    records: DataFrame, seen: Mapping[str, Any], source: str, *, is_trace: bool
) -> Input:
    return Input(
        source=source,
        is_trace=is_trace,
        records=seen["records"],
        unreadable=seen["unreadable"],
        foreign=seen["foreign"],
        dropped=seen["dropped"],
        bad_files=_bad_files(records) if seen["unreadable"] + seen["foreign"] else (),
    )


def _bad_files(records: DataFrame) -> tuple[tuple[str, int], ...]:
    bad = records.where(f.col("kind").isin(UNREADABLE, FOREIGN) & f.col("file").isNotNull())
    rows = _most(bad.groupBy("file").count(), "count", FILES, "file")
    return tuple((row["file"], row["count"]) for row in rows)


def _nothing(given: Input) -> str:
    bad = given.unreadable + given.foreign
    what = f"{given.records} records, {bad} of them not ours" if given.records else "no records"
    remedy = (
        "producers write them there with trace=True, and brokers with traceTopicEnable=true"
        if given.is_trace
        else "producers write them with telemetry=FOLDER"
    )
    return f"source {given.source!r} has no attempt to report on ({what}): {remedy}"


def _brokers(attempts: DataFrame, store: TableFolder, timing: _Timing) -> dict[str, Any]:
    store.put("brokers", tables.by_broker(attempts))
    store.put("minutes", tables.by_minute(attempts))
    most = store.top("brokers", "attempts", BROKERS, "broker")
    chosen = sorted(_named(most, "broker"), key=_name)
    names = [broker.name for broker in chosen]
    buckets: dict[str, dict[int, Counts]] = {name: {} for name in names}
    in_time = tables.by_bucket(attempts, names, timing.begin, timing.width)
    for row in in_time.limit(BROKERS * BUCKETS).collect():
        buckets[row["broker"]][row["bucket"]] = _counts(row.asDict())
    bars: dict[str, dict[int, int]] = {name: {} for name in names}
    store.put("latencies", tables.by_latency(attempts, names))
    for bar in store.top("latencies", "attempts", store.rows["latencies"]):
        bars[bar["broker"]][bar["bar"]] = bar["attempts"]
    return {
        "brokers": tuple(chosen),
        "total_brokers": store.rows["brokers"],
        "buckets": buckets,
        "bars": bars,
    }


def _name(named: Named) -> str:
    return named.name


def _isolations(records: DataFrame, store: TableFolder, timing: _Timing) -> dict[str, Any]:
    rows = store.put("isolations", periods.periods(records))
    if not store.rows["isolations"]:
        return {"avoided": (), "stretches": (), "periods": (), "total_periods": 0}
    avoided = _most(periods.by_broker(rows), "avoided_seconds", BROKERS, "broker")
    names = [row["broker"] for row in avoided]
    # With gaps of a bucket there can't be more of them than buckets.
    near = periods.joined(rows.where(f.col("broker").isin(*names)), timing.width)
    inside = near.where((f.col("end") >= timing.begin) & (f.col("begin") <= timing.end))
    return {
        "avoided": tuple(
            Avoidance(
                row["broker"],
                row["periods"],
                row["clients"],
                row["avoided_seconds"],
                row["longest"],
                row["reason"] or "",
            )
            for row in avoided
        ),
        "stretches": tuple(
            _make(Stretch, row) for row in inside.limit(BROKERS * BUCKETS).collect()
        ),
        "periods": tuple(
            _make(Period, row)
            for row in store.top("isolations", "seconds", PERIODS, "begin", "client")
        ),
        "total_periods": store.rows["isolations"],
    }


def _make(kind: type[Any], row: Mapping[str, Any] | Row) -> Any:
    """A finding whose fields have the names of columns; text that is missing is empty."""
    values = {spec.name: row[spec.name] for spec in dataclasses.fields(kind)}
    hints = {spec.name: spec.type for spec in dataclasses.fields(kind)}
    return kind(**{k: "" if v is None and hints[k] == "str" else v for k, v in values.items()})


def _whole_sends(attempts: DataFrame, store: TableFolder, overall: Counts) -> dict[str, Any]:
    eventful = sends.eventful(attempts)
    if not overall.failures and not overall.retries:
        # Then there is none, and Spark makes empty tables of this without looking.
        eventful = eventful.limit(0)
    steps = store.put("eventful_attempts", eventful)
    store.put("retries", sends.routes(steps))
    store.put("eventful_sends", sends.outcomes(steps), *sends.tallies())
    store.discard("eventful_attempts")
    routes = store.top("retries", "retries", ROUTES, "target")
    ended = sends.tallied(store.seen["eventful_sends"])
    return {
        "routes": tuple(_make(Route, row) for row in routes),
        "ended": tuple(_make(Ended, row) for row in ended),
    }


def _spread(attempts: DataFrame, store: TableFolder) -> dict[str, Any]:
    store.put("topics", tables.by_topic(attempts))
    queues = store.put("queues", tables.by_queue(attempts))
    chosen = _named(store.top("topics", "messages", TOPICS, "topic"), "topic")
    return {
        "topics": chosen,
        "total_topics": store.rows["topics"],
        "spreads": _spreads(queues, [topic.name for topic in chosen]),
    }


def _spreads(queues: DataFrame, topics: Sequence[str]) -> tuple[TopicSpread, ...]:
    own = Window.partitionBy("topic")
    rows = (
        queues.where(f.col("topic").isin(*topics))
        .withColumn("place", f.row_number().over(own.orderBy("broker", "queue")))
        .withColumn("total", f.count(f.lit(1)).over(own))
        .where(f.col("place") <= QUEUES)
        .orderBy("topic", "place")
        .collect()
    )
    spreads = {
        topic: TopicSpread(topic, tuple(_make(QueueShare, row) for row in group), group[0]["total"])
        for topic, group in ((t, [r for r in rows if r["topic"] == t]) for t in topics)
        if group
    }
    return tuple(spreads[topic] for topic in topics if topic in spreads)


def _sharding_keys(attempts: DataFrame, store: TableFolder) -> dict[str, Any]:
    store.put("keys", tables.by_key(attempts))
    pairs = key_order.pairs(attempts)
    stories = store.put("stories", key_order.by_story(pairs), *key_order.totals())
    order: KeyOrder = _make(KeyOrder, store.seen["stories"])
    worst = key_order.worst(stories, attempts)
    store.put("order", worst if order.violations or order.moved else worst.limit(0))
    store.discard("stories")
    hot = store.top("keys", "messages", KEYS, "topic", "key")
    bad = store.top("order", "violations", KEYS, "topic", "key")
    return {
        "keys": tuple(_make(KeyShare, row) for row in hot),
        "order": order,
        "worst_keys": tuple(_make(WorstKey, row) for row in bad),
    }


def _who_and_what(attempts: DataFrame, store: TableFolder) -> dict[str, Any]:
    store.put("producers", tables.by_client(attempts))
    store.put("errors", tables.by_error(attempts))
    troubles = store.top("errors", "attempts", TROUBLES, "broker", "error")
    return {
        "clients": _named(store.top("producers", "attempts", CLIENTS, "client"), "client"),
        "total_clients": store.rows["producers"],
        "troubles": tuple(_make(Trouble, row) for row in troubles),
    }
