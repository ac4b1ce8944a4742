"""``rocketwire lab``: what another fault policy would have done with recorded sends, by Spark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketwire.cli.failures import UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.progress import PartsBar
from rocketwire.cli.read import parse_moment
from rocketwire.cli.spark_checks import check_page, check_policies
from rocketwire.cli.spark_work import Master, started_spark, tell

if TYPE_CHECKING:
    from rocketwire.spark.policy_lab.findings import LabResult

app = typer.Typer(add_completion=False)


@command(
    app,
    "lab",
    panel="Spark",
    connects=False,
    examples=(
        "rocketwire lab ./telemetry",
        "rocketwire lab ./telemetry --grid floor=0.01,0.02,0.05 --grid relative=2,4,8",
        "rocketwire lab ./telemetry --policy default --policy java5 --since 24h",
    ),
)
def lab(  # noqa: PLR0913 - each has a default
    here: Invocation,
    *,
    telemetry: Annotated[
        str, typer.Argument(metavar="TELEMETRY", help="The folder of Producer(telemetry=FOLDER).")
    ],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("lab.html"),
    tables: Annotated[
        Path | None, typer.Option(help="Parquet tables; beside the page by default.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="default, java4, java5, java5-detector or off; repeatable."),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=V,V", help="Values of the default's numbers, or 'none'."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="All combinations of the grid.")] = False,
    since: Annotated[
        str | None, typer.Option(help="Only from this time on, or an age such as 2h.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only before this time.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="Of the page, e.g. Europe/Berlin.")] = None,
    master: Master = None,
) -> None:
    """Replay recorded sends under other fault policies: a page that says whether to change yours."""
    points = parse_grid(grid) if grid else None
    moments = [parse_moment(text) if text is not None else None for text in (since, until)]
    check_page(out, time_zone, telemetry=telemetry)
    from rocketwire.spark.policy_lab.policies import NAMED

    check_policies(policy or NAMED, points, is_full=full)
    with started_spark(here, master) as spark:
        from rocketwire.spark import lab as run

        with PartsBar(here, "replaying", "reading the records") as bar:
            result = run(
                spark,
                telemetry,
                out,
                policies=policy or NAMED,
                grid=points,
                full_grid=full,
                tables=tables,
                since=moments[0],
                until=moments[1],
                time_zone=time_zone,
                on_plan=lambda estimate: here.note(str(estimate)),
                on_progress=bar,
            )
    tell(here, result, *_sentences(result))


def _sentences(result: LabResult) -> list[str]:
    told = [result.verdict.sentence, result.verdict.why]
    told += [f"{text}." for text in result.trouble]
    for one in result.policies:
        low, high = one.lost
        lost = f"{low:,.1f} s" if f"{low:.1f}" == f"{high:.1f}" else f"{low:,.1f} to {high:,.1f} s"
        failed = f"{one.failed[0]:,.0f}"
        if one.failed[0] != one.failed[1]:
            failed += f" to {one.failed[1]:,.0f}"
        told.append(f"  {one.title}: {lost} lost, {failed} failed, p99 {one.p99[1] * 1000:,.1f} ms")
    told.append(f"\nThe page: {result.page.resolve()}")
    return told


def parse_grid(texts: Iterable[str]) -> dict[str, list[float]]:
    """``NAME=V,V`` as names and numbers; ``none`` alone means no grid."""
    given = list(texts)
    if given == ["none"]:
        return {}
    found: dict[str, list[float]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        try:
            numbers = [float(value) for value in values.split(",")]
        except ValueError:
            numbers = []
        if not equals or not numbers:
            raise UsageError(f"--grid {text!r}: write a number's name and values, floor=0.01,0.05")
        found[name.strip().replace("-", "_")] = numbers
    return found
