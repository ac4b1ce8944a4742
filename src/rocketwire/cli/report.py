"""``rocketwire report``: delivery telemetry to a page with plots, by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.read import parse_moment
from rocketwire.cli.spark_checks import check_page
from rocketwire.cli.spark_work import (
    Master,
    SourceOptions,
    missing_line,
    source_options,
    started_spark,
    tell,
)

#: Bytes of telemetry, some 330 an attempt.
_SMALL: Final = 64 * 1024 * 1024

app = typer.Typer(add_completion=False)


@command(
    app,
    "report",
    panel="Spark",
    examples=(
        "rocketwire report ./telemetry",
        "rocketwire report ./telemetry --out yesterday.html --since 24h",
        "rocketwire report RMQ_SYS_TRACE_TOPIC",
    ),
)
def report(  # noqa: PLR0913 - each has a default
    here: Invocation,
    *,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|TOPIC",
            help="Telemetry of Producer(telemetry=FOLDER), or a trace topic.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    tables: Annotated[
        Path | None, typer.Option(help="Parquet tables; beside the page by default.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only from this time on, or an age such as 2h.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only before this time.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="Of the page, e.g. Europe/Berlin.")] = None,
    options: SourceOptions = None,
    master: Master = None,
) -> None:
    """Analyse the delivery telemetry of producers: tables, and one page that needs no network."""
    moments = [parse_moment(text) if text is not None else None for text in (since, until)]
    check_page(out, time_zone)
    with started_spark(here, master, is_short=_is_small(Path(source))) as spark:
        from rocketwire.spark import report as run

        result = run(
            spark,
            source,
            out,
            tables,
            name_servers=here.name_servers,
            options=source_options(here, options),
            since=moments[0],
            until=moments[1],
            time_zone=time_zone,
        )
    page = f"\nThe page: {result.page.resolve()}"
    tell(here, result, *result.summary, *missing_line(result.missing), page)


def _is_small(folder: Path) -> bool:
    """Whether the telemetry is little enough to be read in seconds; a topic is not looked at."""
    files = [folder] if folder.is_file() else folder.rglob("*.jsonl*")
    size = 0
    for path in files:
        size += path.stat().st_size
        if size > _SMALL:
            return False
    return size > 0
