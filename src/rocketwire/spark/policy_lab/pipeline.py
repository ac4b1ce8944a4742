"""``lab``: from a folder of telemetry to what each policy would have done, and a page about it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rocketwire.errors import ConfigError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.pages.document import write_page
from rocketwire.pages.words import core_time, some
from rocketwire.spark.delivery_report.places import (
    Place,
    found_place,
    page_path,
    table_folder,
    time_zone_of,
)
from rocketwire.spark.delivery_report.records import FILE_PATTERN
from rocketwire.spark.delivery_report.table_folder import TableFolder, unglobbed
from rocketwire.spark.pipelines.arrow_map import map_in_arrow
from rocketwire.spark.policy_lab.conditions import BadTime, Incident, bad_time, incidents
from rocketwire.spark.policy_lab.figures import Bounds, tally_from
from rocketwire.spark.policy_lab.findings import LabResult, PolicyFigures, figures_of
from rocketwire.spark.policy_lab.page import make_page
from rocketwire.spark.policy_lab.policies import NAMED, Candidate, candidates, describe
from rocketwire.spark.policy_lab.recorded import Recording, read_lines, take
from rocketwire.spark.policy_lab.tasks import (
    COLUMNS,
    KEYS,
    RESULT,
    Plan,
    Worker,
    period_seconds,
    plan_for,
    sighting_from,
    warm_up_of,
)
from rocketwire.spark.policy_lab.verdict import judge
from rocketwire.spark.policy_lab.watch import watched

if TYPE_CHECKING:
    from pathlib import Path

#: Replayed attempts a second and core, below what ``bench/policy_lab.py`` measures.
SPEED: Final = 25_000
#: Bad stretches that are looked at on the driver.
_MOST_BAD: Final = 2_000_000
#: A failed send counts as so many seconds beside its own.
_PER_FAILURE: Final = 3.0
_MOST_PARTITIONS: Final = 200


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a lab is going to do, told before it begins."""

    attempts: int
    policies: int
    incidents: int
    core_hours: float

    def __str__(self) -> str:
        return (
            f"{self.attempts:,} attempts, {some(self.incidents, 'incident')}, {self.policies} policies: "
            f"about {core_time(3600 * self.core_hours)}"
        )


def lab(  # noqa: PLR0913 - most have defaults, and are named
    spark: SparkSession,
    telemetry: Place | Sequence[Place],
    out: Place = "lab.html",
    *,
    policies: Iterable[str | FaultPolicy] = NAMED,
    grid: Mapping[str, Sequence[float]] | None = None,
    full_grid: bool = False,
    tables: Place | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    time_zone: str | None = None,
    on_plan: Callable[[Estimate], None] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> LabResult:
    """Replay recorded sends under other fault policies, and say whether one of them is better.

    Args:
        spark: the session that does the work.
        telemetry: a folder of telemetry files (``Producer(telemetry=FOLDER)``), or several.
        out: the page, one HTML file that needs no network.
        policies: names of policies, or policies; the recorded one is always among them.
        grid: values of the default's numbers to try beside it, such as ``{"floor": [0.01, 0.05]}``;
            None for some of the main ones, an empty mapping for none.
        full_grid: try all combinations of the grid instead of one number at a time.
        tables: the folder that gets the Parquet tables; beside the page unless given.
        since: only what ended at or after this moment.
        until: only what ended before this moment.
        time_zone: of the page, such as ``Europe/Berlin``; this machine's unless given.
        on_plan: told before the replays begin what they take.
        on_progress: told now and then how many parts of how many are done.

    Raises:
        ConfigError: there is nothing to replay, or an argument is wrong; the text says which.
    """
    began = time.monotonic()
    zone, page = time_zone_of(time_zone), page_path(out)
    tried = candidates(policies, grid, is_full=full_grid)
    lines, name = _open(spark, telemetry, since, until)
    store = TableFolder(spark, table_folder(tables, page))
    recording = take(store.put("lines", lines), name)
    try:
        recorded, tried = _with_recorded(tried, recording.policies)
        recording.sends = store.put("sends", recording.sends)
        recording.sightings = store.put("sightings", recording.sightings)
        found, chosen = _incidents(recording)
        if on_plan is not None:
            on_plan(_estimate(recording, tried, len(found)))
        results = _replay(spark, recording, tried, found, chosen, on_progress)
    finally:
        for table in ("lines", "sends"):
            if table in store.paths:
                store.discard(table)
    verdict = judge(results, recorded, [one.number for one in found], per_failure=_PER_FAILURE)
    figures = tuple(figures_of(one, results[one.name], recorded) for one in tried)
    _keep_figures(spark, store, figures)
    result = _result(page, store, recording, verdict, figures, found, time.monotonic() - began)
    text = make_page(result, results, recording, chosen, source=name, zone=zone)
    write_page(page, text)
    return result


# -- what there is --------------------------------------------------------------------------------


def _open(
    spark: SparkSession,
    telemetry: Place | Sequence[Place],
    since: datetime | None,
    until: datetime | None,
) -> tuple[DataFrame, str]:
    places = [telemetry] if isinstance(telemetry, str | os.PathLike) else list(telemetry)
    texts = [os.fspath(place) for place in places]
    if not texts or not all(texts):
        raise ConfigError(f"telemetry is {telemetry!r}: give a folder of telemetry files")
    found = [found_place(text, "telemetry") for text in texts]
    is_one_file = all(path is not None and path.is_file() for path in found)
    literal = [unglobbed(str(path or text)) for path, text in zip(found, texts, strict=True)]
    lines = read_lines(spark, literal, pattern=None if is_one_file else FILE_PATTERN)
    # What a file begins with holds for all that follows, whenever it was written.
    keeps = f.col("kind").isin("header", "route") | f.col("time").isNull()
    for moment, name in ((since, "since"), (until, "until")):
        if moment is not None and moment.tzinfo is None:
            raise ConfigError(f"{name} {moment} has no time zone: give an aware datetime")
    if since is not None:
        lines = lines.where(keeps | (f.col("time") >= since.timestamp()))
    if until is not None:
        lines = lines.where(keeps | (f.col("time") < until.timestamp()))
    return lines, ", ".join(texts)


def _with_recorded(
    tried: list[Candidate], policies: Sequence[FaultPolicy]
) -> tuple[str | None, list[Candidate]]:
    """The name of the policy that was at work, which is tried, too."""
    if len(policies) != 1:
        return None, tried
    for one in tried:
        if one.policy == policies[0]:
            return one.name, tried
    own = Candidate(f"recorded ({describe(policies[0])})", policies[0], {})
    return own.name, [own, *tried]


def _incidents(recording: Recording) -> tuple[list[Incident], Incident | None]:
    """All incidents, and the one that is shown: the longest with a beginning and an end."""
    usual = recording.usual
    count = (
        f.col("answers") + f.col("silent") + f.col("refused") + f.col("lost") + f.col("rejected")
    )
    # Rows that may be bad; whether they are is decided in one place.
    doubtful = (f.col("answers") < count) | (f.col("latencies")[3] > usual)
    rows = recording.sightings.where(doubtful).limit(_MOST_BAD).toLocalIterator()
    bad: dict[str, list[BadTime]] = {}
    for row in rows:
        broker, slot, seen = sighting_from(row.asDict())
        if seen.is_bad(usual):
            bad.setdefault(broker, []).append(bad_time(slot, seen))
    found = incidents(bad)
    inside = [one for one in found if one.begin > recording.begin + 2.0] or found
    # One that lasts for hours can't be drawn; the longest of the others says most.
    short = [one for one in inside if one.end - one.begin <= 600.0] or inside
    return found, max(short, key=lambda one: one.end - one.begin, default=None)


def _estimate(recording: Recording, tried: Sequence[Candidate], found: int) -> Estimate:
    # Best and worst case are two replays, the warm-up is replayed twice.
    seconds = period_seconds(len(recording.brokers))
    factor = 2 * (1 + warm_up_of(len(recording.brokers)) / seconds)
    hours = recording.attempts * len(tried) * factor / SPEED / 3600
    return Estimate(recording.attempts, len(tried), found, hours)


# -- the replays ---------------------------------------------------------------------------------


def _replay(
    spark: SparkSession,
    recording: Recording,
    tried: Sequence[Candidate],
    found: Sequence[Incident],
    chosen: Incident | None,
    on_progress: Callable[[int, int], None] | None,
) -> dict[str, Bounds]:
    plan = _plan(recording)
    worker = Worker(
        plan,
        [one.policy for one in tried],
        recording.clients,
        recording.usual,
        found,
        chosen,
    )
    tasks = plan.periods * plan.buckets * len(tried)
    parts = max(1, min(tasks, _MOST_PARTITIONS))
    rows = _task_rows(spark, recording, plan, len(tried))
    split = rows.repartition(parts, *KEYS).sortWithinPartitions(*KEYS)
    results = {one.name: Bounds() for one in tried}
    with watched(spark, parts, on_progress):
        told = map_in_arrow(split, worker, RESULT).collect()
    for row in told:
        bounds = results[tried[row["policy"]].name]
        tally = tally_from(json.loads(row["tally"]))
        (bounds.best if row["is_best"] else bounds.worst).add(tally)
    return results


def _plan(recording: Recording) -> Plan:
    seconds = period_seconds(len(recording.brokers))
    period = f.floor((f.col("at") - recording.begin) / seconds)
    most = recording.sends.groupBy(period.alias("p")).count().agg(f.max("count").alias("n")).first()
    count = most["n"] if most is not None and most["n"] else 1
    return plan_for(
        recording.begin,
        recording.end,
        brokers=len(recording.brokers),
        clients=len(recording.clients),
        rate=count / seconds,
    )


def _task_rows(spark: SparkSession, recording: Recording, plan: Plan, policies: int) -> DataFrame:
    """The rows of all tasks: each send with its producers', each sighting with all of its time."""
    buckets = f.lit(plan.buckets)
    sends = recording.sends.withColumn("bucket", f.pmod(f.xxhash64("client"), buckets).cast("int"))
    sends = sends.withColumn("period", f.explode(_periods(f.col("at"), plan, 0.0)))
    every = spark.range(plan.buckets).select(f.col("id").cast("int").alias("bucket"))
    seen = recording.sightings.crossJoin(f.broadcast(every))
    seen = seen.withColumn("period", f.explode(_periods(f.col("slot") / 10.0, plan, 10.0)))
    both = _shaped(sends).unionByName(_shaped(seen))
    numbers = spark.range(policies).select(f.col("id").cast("int").alias("policy"))
    return both.crossJoin(f.broadcast(numbers))


def _periods(at: Any, plan: Plan, after: float) -> Any:
    """The periods that a moment belongs to, as part of them, of their warm-up or of their end."""
    first = f.floor((at - f.lit(plan.begin) - after) / plan.seconds)
    last = f.floor((at - f.lit(plan.begin) + plan.warm_up) / plan.seconds)
    # What is at the very end belongs to the last one, however its quotient is rounded.
    low, high = (f.least(f.greatest(n, f.lit(0)), f.lit(plan.periods - 1)) for n in (first, last))
    return f.sequence(low, high).cast("array<int>")


def _shaped(rows: DataFrame) -> DataFrame:
    there = set(rows.columns)
    columns = [
        (f.col(name) if name in there else f.lit(None)).cast(kind).alias(name)
        for name, kind in COLUMNS.items()
    ]
    return rows.select("period", "bucket", *columns)


# -- what is handed back -------------------------------------------------------------------------


def _keep_figures(
    spark: SparkSession, store: TableFolder, figures: Sequence[PolicyFigures]
) -> None:
    rows = [one.as_row() for one in figures]
    store.put("policies", spark.createDataFrame(rows))


def _result(
    page: Path,
    store: TableFolder,
    recording: Recording,
    verdict: Any,
    figures: tuple[PolicyFigures, ...],
    found: Sequence[Incident],
    seconds: float,
) -> LabResult:
    return LabResult(
        page=page,
        tables=dict(store.paths),
        verdict=verdict,
        policies=figures,
        incidents=tuple(found),
        attempts=recording.attempts,
        replayed=sum(one.attempts for one in figures),
        trouble=tuple(recording.trouble.sentences()),
        seconds=seconds,
    )
