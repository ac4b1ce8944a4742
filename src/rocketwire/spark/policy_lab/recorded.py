"""From lines of telemetry to what replays need, by Spark.

Version 1 lines are read, too: they have no headers, routes and probes, so a send's start is when its
first attempt began. What can't be used is counted and told: torn and foreign lines, lines of a later
version, lines too long, clocks that disagree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from rocketwire.core.naming import FORBIDDEN_TOPICS
from rocketwire.errors import ConfigError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.spark.delivery_report.records import LONGEST_LINE
from rocketwire.spark.policy_lab.conditions import PER_SECOND, QUANTILES
from rocketwire.spark.policy_lab.replay import Client
from rocketwire.system.telemetry_lines import VERSION

MOST_BROKERS: Final = 200
MOST_CLIENTS: Final = 20_000
#: Seconds; more than a month is a clock that was never set.
LONGEST: Final = 31 * 86_400.0
_EARLIEST: Final = 946_684_800.0  # 2000
_LATEST: Final = 4_102_444_800.0  # 2100
_DAY: Final = 86_400.0
_LARGEST: Final = 1 << 30
_TOPIC: Final = "^[%|a-zA-Z0-9_-]{1,127}$"
_CORRUPT: Final = "_corrupt"
_LINE: Final = (
    "kind string, time double, clientId string, topic string, broker string, queueId int, "
    "offset bigint, shardingKey string, bytes bigint, latency double, outcome string, "
    "error string, attempt int, reason string, dropped bigint, version int, good boolean, "
    f"queues map<string,int>, mode string, pinned boolean, sendTime double, timeout double, "
    f"{_CORRUPT} string"
)
#: What clocks may differ by before that is told.
_SKEW: Final = 1.0


@dataclass(slots=True)
class Trouble:
    """Lines that were left out, and what else is wrong with the records."""

    lines: int = 0
    unreadable: int = 0
    foreign: int = 0
    too_long: int = 0
    other_version: int = 0
    dropped: int = 0
    impossible: int = 0
    skewed: int = 0

    def sentences(self) -> list[str]:
        """What to tell, if anything."""
        told = (
            (self.unreadable, "lines could not be read (torn, or no JSON)"),
            (self.foreign, "lines came from something else than our producers"),
            (self.too_long, f"lines were longer than {LONGEST_LINE // 1024} KiB"),
            (
                self.other_version,
                f"lines are of a later version than {VERSION}: upgrade rocketwire",
            ),
            (self.dropped, "records were dropped by producers whose disk could not keep up"),
            (self.impossible, "attempts end before their send begins: a clock was set meanwhile"),
            (
                self.skewed,
                (
                    "answers contradict the order of their offsets by more than a second: "
                    "the clocks of some producers disagree, and so may the conditions of brokers"
                ),
            ),
        )
        return [f"{count:,} {words}" for count, words in told if count]


@dataclass(slots=True)
class Recording:
    """The records of one lab."""

    sends: DataFrame
    sightings: DataFrame
    begin: float
    end: float
    attempts: int
    brokers: tuple[str, ...]
    clients: Mapping[str, Client]
    policies: tuple[FaultPolicy, ...]
    usual: float
    trouble: Trouble = field(default_factory=Trouble)


def read_lines(spark: SparkSession, paths: Sequence[str], *, pattern: str | None) -> DataFrame:
    """All lines, with ``kind`` as it is, or what is wrong with a line."""
    reader = spark.read.option("recursiveFileLookup", "true").option("lineSep", "\n")
    if pattern is not None:
        reader = reader.option("pathGlobFilter", pattern)
    raw = reader.text(list(paths)).where(f.trim("value") != "")
    is_long = f.length("value") > LONGEST_LINE
    text = f.when(~is_long, f.col("value"))
    line = f.col("line")
    parsed = raw.select(
        f.from_json(text, _LINE, {"columnNameOfCorruptRecord": _CORRUPT}).alias("line"),
        is_long.alias("is_long"),
        f.when(f.col("value").startswith('{"kind":"header"') & ~is_long, f.col("value")).alias(
            "raw"
        ),
    )
    names = [spec.split()[0] for spec in _LINE.split(", ")]
    fields = [line[name].alias(name) for name in names if name not in {"kind", _CORRUPT}]
    return parsed.select(_kind(line).alias("kind"), "raw", *fields)


def _kind(line: Column) -> Column:
    kind, time, sent = line["kind"], line["time"], line["sendTime"]
    is_ours = time.between(_EARLIEST, _LATEST) & line["clientId"].isNotNull()
    # A topic that no producer sends to can't be replayed, either.
    is_topic = line["topic"].rlike(_TOPIC) & ~line["topic"].isin(*FORBIDDEN_TOPICS)
    is_attempt = (
        (kind == "attempt")
        & is_topic
        & line["broker"].isNotNull()
        & (sent.isNull() | sent.between(time - _DAY, time + _DAY))
        & line["outcome"].isNotNull()
        & line["latency"].between(0.0, _DAY)
        & (line["attempt"] >= 1)
    )
    seen = line["latency"]
    is_probe = (kind == "probe") & (seen.isNull() | seen.between(0.0, _DAY))
    is_other = (
        kind.isin("isolated", "returned", "header", "dropped")
        | ((kind == "route") & is_topic)
        | is_probe
    )
    return (
        f.when(f.col("is_long"), "too long")
        .when(line.isNull() | line[_CORRUPT].isNotNull(), "unreadable")
        .when((kind == "header") & (line["version"] > VERSION), "other version")
        .when(is_ours & (is_attempt | is_other), kind)
        .otherwise("foreign")
    )


# -- the whole ----------------------------------------------------------------------------------


def take(lines: DataFrame, source: str) -> Recording:
    """Look at all lines once, and prepare what replays need.

    Raises:
        ConfigError: there is nothing to replay, or more than can be.
    """
    trouble, seen = _count(lines)
    if not seen["attempts"]:
        raise ConfigError(
            f"telemetry {source!r} has no attempt to replay ({trouble.lines} lines): "
            "producers write them with telemetry=FOLDER"
        )
    begin, end = seen["begin"], seen["end"]
    if end - begin > LONGEST:
        raise ConfigError(
            f"telemetry {source!r} spans {(end - begin) / 86_400:.0f} days: a clock was wrong, or "
            f"it is too much at once; give since and until ({LONGEST / 86_400:.0f} days at most)"
        )
    attempts = lines.where(
        (f.col("kind") == "attempt") & (f.coalesce("error", f.lit("")) != "cancelled")
    )
    trouble.skewed = _skewed(attempts)
    clients = _clients(lines, attempts)
    names = tuple(sorted({b for c in clients.values() for q in c.routes.values() for b in q}))
    if len(names) > MOST_BROKERS:
        raise ConfigError(
            f"telemetry {source!r} names {len(names)} brokers; {MOST_BROKERS} at most"
        )
    usual = (
        attempts.where(f.col("outcome") == "stored")
        .select(f.percentile_approx("latency", 0.5, 1000).alias("usual"))
        .first()
    )
    return Recording(
        sends=_sends(attempts),
        sightings=_sightings(lines, attempts),
        begin=begin,
        end=end,
        attempts=seen["attempts"],
        brokers=names,
        clients=clients,
        policies=_policies(lines),
        usual=(usual["usual"] if usual is not None else None) or 0.001,
        trouble=trouble,
    )


def _count(lines: DataFrame) -> tuple[Trouble, Mapping[str, Any]]:
    kind, is_attempt = f.col("kind"), f.col("kind") == "attempt"
    start = f.col("time") - f.col("latency")
    row = lines.agg(
        f.count(f.lit(1)).alias("lines"),
        f.count_if(kind == "unreadable").alias("unreadable"),
        f.count_if(kind == "foreign").alias("foreign"),
        f.count_if(kind == "too long").alias("too_long"),
        f.count_if(kind == "other version").alias("other_version"),
        f.coalesce(f.sum(f.when(kind == "dropped", f.col("dropped"))), f.lit(0)).alias("dropped"),
        f.count_if(is_attempt & (start < f.col("sendTime") - _SKEW)).alias("impossible"),
        f.count_if(is_attempt).alias("attempts"),
        # A send that waited for its route began before its first attempt.
        f.min(f.when(is_attempt, f.least(start, "sendTime"))).alias("begin"),
        f.max(f.when(is_attempt, f.col("time"))).alias("end"),
    ).first()
    seen = row.asDict() if row is not None else {}
    names = set(Trouble.__dataclass_fields__) & set(seen)
    return Trouble(**{name: seen[name] for name in names}), seen


def _skewed(attempts: DataFrame) -> int:
    """Answers with a lower offset than an earlier one: some clock is wrong. A sample of them."""
    stored = attempts.where(f.col("offset").isNotNull() & (f.pmod("offset", f.lit(4)) == 0))
    line = Window.partitionBy("topic", "broker", "queueId").orderBy("offset")
    before = line.rowsBetween(Window.unboundedPreceding, -1)
    latest = f.max(f.col("time") - f.col("latency")).over(before)
    row = (
        stored.select((f.col("time") + _SKEW < latest).alias("is_late"))
        .agg(f.count_if("is_late").alias("count"))
        .first()
    )
    return int(row["count"]) if row is not None else 0


# -- what producers are ------------------------------------------------------------------------


def _clients(lines: DataFrame, attempts: DataFrame) -> dict[str, Client]:
    """Settings from the newest header of each, and the queues that were told or used."""
    headers = lines.where((f.col("kind") == "header") & f.col("raw").isNotNull())
    told = headers.groupBy("clientId").agg(f.max_by("raw", "time").alias("raw"))
    options = {r["clientId"]: _options(r["raw"]) for r in told.limit(MOST_CLIENTS).collect()}
    used = attempts.groupBy("clientId", "topic", "broker").agg(
        (f.max("queueId") + 1).alias("count")
    )
    routed = lines.where(f.col("kind") == "route").select(
        "clientId", "topic", f.explode("queues").alias("broker", "count")
    )
    both = (
        used.unionByName(routed)
        .groupBy("clientId", "topic", "broker")
        .agg(f.max("count").alias("n"))
    )
    rows = both.limit(MOST_CLIENTS * 50).collect()
    routes: dict[str, dict[str, dict[str, int]]] = {}
    for row in rows:
        topics = routes.setdefault(row["clientId"], {})
        topics.setdefault(row["topic"], {})[row["broker"]] = max(1, min(1024, row["n"] or 1))
    if len(routes) > MOST_CLIENTS:
        raise ConfigError(f"telemetry of {len(routes)} producers; {MOST_CLIENTS} at most at once")
    return {name: Client(options.get(name, {}), topics) for name, topics in routes.items()}


_OPTIONS: Final = {
    "sendTimeout": "send_timeout",
    "attemptTimeout": "attempt_timeout",
    "retries": "retries",
    "asyncRetries": "async_retries",
    "orderedRetries": "ordered_retries",
    "background": "background",
}


def _options(raw: str) -> dict[str, Any]:
    """A producer's options from its header; what is not there, or makes no sense, is the default."""
    try:
        header = json.loads(raw)
    except ValueError:
        return {}
    found = {ours: header[theirs] for theirs, ours in _OPTIONS.items() if theirs in header}
    if found.get("attempt_timeout") == "auto":
        del found["attempt_timeout"]
    from rocketwire.testing.simulated_producer import settings

    try:
        settings(**found)
    except (ConfigError, TypeError):
        return {}
    return found


def _policies(lines: DataFrame) -> tuple[FaultPolicy, ...]:
    """The policies that were at work, as far as headers tell."""
    headers = lines.where((f.col("kind") == "header") & f.col("raw").isNotNull())
    texts = headers.select(f.get_json_object("raw", "$.policy").alias("policy")).distinct()
    found: list[FaultPolicy] = []
    for row in texts.limit(100).collect():
        try:
            values = json.loads(row["policy"] or "null")
            values["latency_table"] = tuple(tuple(pair) for pair in values["latency_table"])
            found.append(FaultPolicy(**values))
        except (ConfigError, TypeError, ValueError, KeyError):
            continue  # of a later version, or made up
    return tuple(dict.fromkeys(found))


# -- what is replayed ----------------------------------------------------------------------------


def _sends(attempts: DataFrame) -> DataFrame:
    """One row for each send, from its first attempt."""
    is_pinned = f.coalesce("pinned", f.col("shardingKey").isNotNull())
    start = f.coalesce("sendTime", f.col("time") - f.col("latency"))
    return attempts.where(f.col("attempt") == 1).select(
        f.col("clientId").alias("client"),
        "topic",
        f.when(is_pinned, f.col("broker")).alias("broker"),
        f.col("queueId").alias("queue"),
        start.alias("at"),
        f.coalesce("timeout", f.lit(3.0)).alias("timeout"),
        f.when(f.col("outcome") == "oneway", "oneway")
        .otherwise(f.coalesce("mode", f.lit("blocking")))
        .alias("mode"),
        f.least(f.greatest("bytes", f.lit(0)), f.lit(_LARGEST)).cast("int").alias("size"),
    )


def _sightings(lines: DataFrame, attempts: DataFrame) -> DataFrame:
    """What was seen of each broker in each stretch: of attempts that began in it, and of probes."""
    error, outcome = f.coalesce("error", f.lit("")), f.col("outcome")
    is_silent = error.rlike("no answer|in time|no time was left") & (outcome != "rejected")
    ends = (
        f.when(outcome == "stored", "answer")
        .when(outcome == "rejected", "rejected")
        .when(outcome == "oneway", None)
        .when(is_silent, "silent")
        .when(outcome == "not sent", "refused")
        .otherwise("lost")
    )
    code = f.regexp_extract(error, r"answered \D*(\d{1,5})", 1).try_cast("int")
    from_sends = attempts.select("broker", "time", "latency", ends.alias("end"), code.alias("code"))
    said = f.coalesce("reason", f.lit(""))
    probe_end = (
        f.when(f.col("good"), "answer")
        .when(f.col("latency").isNotNull(), "rejected")
        .when(said.contains("refused"), "refused")
        .when(said.contains("no answer"), "silent")
        .otherwise("lost")
    )
    probes = lines.where((f.col("kind") == "probe") & f.col("broker").isNotNull()).select(
        "broker",
        "time",
        f.coalesce("latency", f.lit(0.5)).alias("latency"),
        probe_end.alias("end"),
        f.lit(2).alias("code"),
    )
    return _by_slot(from_sends.unionByName(probes).where(f.col("end").isNotNull()))


def _by_slot(seen: DataFrame) -> DataFrame:
    def of(end: str) -> Column:
        return f.col("end") == end

    def count(end: str) -> Column:
        return f.count_if(of(end)).cast("int")

    slot = f.floor((f.col("time") - f.col("latency")) * PER_SECOND)
    return (
        seen.withColumn("slot", slot)
        .groupBy("broker", "slot")
        .agg(
            count("answer").alias("answers"),
            f.percentile_approx(f.when(of("answer"), f.col("latency")), list(QUANTILES), 200).alias(
                "latencies"
            ),
            count("silent").alias("silent"),
            f.coalesce(f.min(f.when(of("silent"), f.col("latency"))), f.lit(0.0)).alias("waited"),
            count("refused").alias("refused"),
            count("lost").alias("lost"),
            count("rejected").alias("rejected"),
            f.coalesce(f.max(f.when(of("rejected"), f.col("code"))), f.lit(1)).alias("code"),
        )
    )
