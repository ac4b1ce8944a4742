"""``report``: from a folder of telemetry, or the trace topic, to tables and a page."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from rocketwire.errors import ConfigError
from rocketwire.pages.document import write_page
from rocketwire.spark.delivery_report import trace_topic
from rocketwire.spark.delivery_report.findings import Findings, ReportResult
from rocketwire.spark.delivery_report.gather import gather, watched
from rocketwire.spark.delivery_report.page import make_page
from rocketwire.spark.delivery_report.places import (
    Place,
    found_place,
    page_path,
    table_folder,
    time_zone_of,
)
from rocketwire.spark.delivery_report.records import FILE_PATTERN, read_files
from rocketwire.spark.delivery_report.summary import summarise
from rocketwire.spark.delivery_report.table_folder import TableFolder, unglobbed
from rocketwire.spark.pipelines.connection import source_options
from rocketwire.spark.pipelines.missing import missing_after

#: The cleaned records, as a table of their own.
_RECORDS: Final = "attempts"


def report(  # noqa: PLR0913 - most have defaults, and are named
    spark: SparkSession,
    source: Place | Sequence[Place],
    out: Place = "report.html",
    tables: Place | None = None,
    *,
    name_servers: str | Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    keep_attempts: bool = False,
    time_zone: str | None = None,
) -> ReportResult:
    """Analyse the delivery telemetry of producers.

    Lines that can't be read are counted and told on the page, and stop nothing.

    Args:
        spark: the session that does the work; only aggregates come to this process.
        source: a folder of telemetry files (``Producer(telemetry=FOLDER)``), or several, each with
            all below it; or the name of a trace topic. A folder of that name comes first.
        out: the page, one HTML file that needs no network.
        tables: the folder that gets the Parquet tables, one folder each; unless given, it is
            beside the page and has its name. Tables of an earlier report are overwritten.
        name_servers: for a trace topic; ``NAMESRV_ADDR`` counts without it.
        options: further options of the data source for a trace topic, such as ``accessKey``.
        since: only what ended at or after this moment.
        until: only what ended before this moment.
        keep_attempts: keep the cleaned records as a table, too; about a tenth of the files' size.
        time_zone: of the page, such as ``Europe/Berlin``; this machine's unless given.

    Raises:
        ConfigError: there is nothing to report on, or an argument is wrong; the text says which.
    """
    began = time.monotonic()
    zone = time_zone_of(time_zone)
    page = page_path(out)
    records, name, is_trace = _open(spark, source, name_servers, options)
    store = TableFolder(spark, table_folder(tables, page))
    findings = _analyse(store, _between(records, since, until), name, is_trace, keep_attempts)
    summary = summarise(findings)
    write_page(page, make_page(findings, summary, zone=zone, made_at=datetime.now(zone)))
    found = _result(findings, page, store.paths, summary, time.monotonic() - began)
    if not is_trace:
        return found
    settings = source_options(name_servers, options)
    return replace(found, missing=missing_after(spark, settings, name, None))


def _analyse(
    store: TableFolder,
    records: DataFrame,
    name: str,
    is_trace: bool,  # noqa: FBT001 - one caller
    keep_attempts: bool,  # noqa: FBT001
) -> Findings:
    # Text is parsed once; what follows reads columns of Parquet, which takes a fraction of it.
    try:
        seen = Observation()
        staged = _stage(store, records.observe(seen, *watched()), name, is_trace)
        return gather(staged, store, seen.get, name, is_trace=is_trace)
    finally:
        if not keep_attempts and _RECORDS in store.paths:
            store.discard(_RECORDS)


def _stage(store: TableFolder, records: DataFrame, name: str, is_trace: bool) -> DataFrame:  # noqa: FBT001
    try:
        return store.put(_RECORDS, records)
    except PySparkException as error:
        if not is_trace:
            raise
        # A topic is looked for when the job is planned, not before.
        raise ConfigError(trace_topic.why_not(name, error)) from error


# -- where from ---------------------------------------------------------------------------------


def _open(
    spark: SparkSession,
    source: Place | Sequence[Place],
    name_servers: str | Sequence[str] | None,
    options: Mapping[str, str] | None,
) -> tuple[DataFrame, str, bool]:
    """The records, what they are called, and whether they are traces."""
    places = [source] if isinstance(source, str | os.PathLike) else list(source)
    texts = [os.fspath(place) for place in places]
    if not texts or not all(texts):
        raise ConfigError(f"source is {source!r}: give a folder of telemetry, or a trace topic")
    servers = _server_options(name_servers, options)
    if len(texts) == 1 and _may_be_topic(texts[0]):
        if servers is None:
            raise ConfigError(
                f"source {texts[0]!r}: there is no such folder here; "
                "if it is a trace topic, give name_servers, too"
            )
        traces = trace_topic.read_topic(spark, texts[0], servers)
        named = trace_topic.name_brokers(traces, trace_topic.broker_names(servers))
        return named, texts[0], True
    found = [found_place(text, "source") for text in texts]
    # A file that was named is meant, whatever its name.
    is_one_file = all(path is not None and path.is_file() for path in found)
    pattern = None if is_one_file else FILE_PATTERN
    literal = [unglobbed(str(path or text)) for path, text in zip(found, texts, strict=True)]
    return read_files(spark, literal, pattern=pattern), ", ".join(texts), False


def _may_be_topic(text: str) -> bool:
    return "/" not in text and os.sep not in text and "." not in text and not Path(text).exists()


def _server_options(
    name_servers: str | Sequence[str] | None, options: Mapping[str, str] | None
) -> dict[str, str] | None:
    """Options of the data source; None when nobody said where the name servers are."""
    made = {str(name): str(value) for name, value in (options or {}).items()}
    if name_servers is not None:
        is_text = isinstance(name_servers, str)
        made["nameServers"] = str(name_servers) if is_text else ";".join(name_servers)
    told = {name.lower() for name in made}
    environment = os.environ.get("ROCKETWIRE_NAME_SERVERS") or os.environ.get("NAMESRV_ADDR")
    return made if "nameservers" in told or environment else None


def _between(records: DataFrame, since: datetime | None, until: datetime | None) -> DataFrame:
    for name, moment in (("since", since), ("until", until)):
        if moment is not None and moment.tzinfo is None:
            raise ConfigError(f"{name} {moment} has no time zone: give an aware datetime")
    if since is not None and until is not None and since >= until:
        raise ConfigError(f"since {since} is not before until {until}")
    at = f.col("at")
    # Lines without a moment are kept, so that they are counted.
    if since is not None:
        records = records.where(at.isNull() | (at >= since.timestamp()))
    if until is not None:
        records = records.where(at.isNull() | (at < until.timestamp()))
    return records


# -- what is handed back ------------------------------------------------------------------------


def _result(
    findings: Findings,
    page: Path,
    paths: Mapping[str, str],
    summary: Sequence[str],
    seconds: float,
) -> ReportResult:
    given = findings.input
    return ReportResult(
        page=page,
        tables=dict(paths),
        summary=tuple(summary),
        attempts=findings.overall.attempts,
        sends=findings.sends,
        failed_sends=findings.failed_sends,
        retries=findings.overall.retries,
        maybe_duplicates=findings.maybe_duplicates,
        isolations=findings.total_periods,
        order_violations=findings.order.violations,
        unreadable=given.unreadable,
        foreign=given.foreign,
        dropped=given.dropped,
        seconds=seconds,
    )
