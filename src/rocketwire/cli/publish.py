"""``rocketwire publish``: files to a topic, by Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from rocketwire.cli.failures import FAILED
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import size_text
from rocketwire.cli.spark_checks import check_dataset, check_first, check_mapping
from rocketwire.cli.spark_work import (
    Conf,
    Master,
    SourceOptions,
    source_options,
    spark_settings,
    started_spark,
    tell,
)

if TYPE_CHECKING:
    from rocketwire.spark.pipelines.publish import PublishProgress, PublishResult

app = typer.Typer(add_completion=False)

FileFormat = Annotated[
    str | None, typer.Option("--format", help="Of the files, where names do not tell.")
]
Properties = Annotated[
    list[str] | None,
    typer.Option("--property", help="A column to send as property; repeatable."),
]
State = Annotated[
    str | None, typer.Option(help="A folder that remembers what was sent, for restarts.")
]


@command(
    app,
    "publish",
    panel="Spark",
    examples=(
        "rocketwire publish orders.parquet orders --key order_id",
        "rocketwire publish events.csv events --sharding-key customer --order-by at --verify",
        "rocketwire publish orders.json orders --body payload --dry-run",
    ),
)
def publish(  # noqa: PLR0913 - each is one decision of the user
    here: Invocation,
    *,
    dataset: Annotated[str, typer.Argument(help="Files (Parquet, JSON, CSV, ...) or a table.")],
    topic: Annotated[
        str | None, typer.Argument(help="Where the rows go; or --topic-expression.")
    ] = None,
    topic_expression: Annotated[
        str | None, typer.Option(help="Column or expression: the topic of each row.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Column or expression: keys.")] = None,
    body: Annotated[
        str | None, typer.Option(help="Likewise: the body. The row as JSON by default.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Likewise: the tag.")] = None,
    sharding_key: Annotated[
        str | None, typer.Option(help="Likewise: rows of one key go to one queue, in order.")
    ] = None,
    order_by: Annotated[str | None, typer.Option(help="Sort rows of one key by this.")] = None,
    prop: Properties = None,
    rate: Annotated[float | None, typer.Option(min=0.1, help="Rows a second at most.")] = None,
    state: State = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read back and compare.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show ten messages only.")] = False,
    file_format: FileFormat = None,
    source: SourceOptions = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    """Send every row of a dataset as a message, with a progress bar and a summary."""
    given, settings = source_options(here, source), spark_settings(conf)
    check_mapping(topic, topic_expression, sharding_key, order_by)
    if not dry_run:
        check_first(here, given, writes=topic, folder=state)
    check_dataset(dataset)
    with started_spark(here, master, is_short=dry_run, config=settings) as spark:
        from rocketwire.spark import publish as run

        with _Bar(here) as bar:
            result = run(
                spark,
                dataset,
                topic,
                name_servers=here.name_servers,
                body=body,
                key=key,
                tag=tag,
                sharding_key=sharding_key,
                order_by=order_by,
                properties=prop,
                topic_expression=topic_expression,
                rate=rate,
                state=state,
                verify_after=verify,
                dry_run=dry_run,
                format=file_format,
                options=given,
                on_progress=bar,
            )
    _conclude(here, result, dry_run=dry_run)


def _conclude(here: Invocation, result: PublishResult, *, dry_run: bool) -> None:
    if dry_run:
        tell(here, result, *(str(row) for row in result.sample))
        return
    lines = [
        (
            f"{result.rows:,} rows, {size_text(result.bytes)} in {result.seconds:.1f} s "
            f"({result.rows / max(result.seconds, 0.001):,.0f} rows/s)"
        ),
        f"brokers: {', '.join(f'{name} {rows:,}' for name, rows in result.by_broker.items())}",
    ]
    if result.bad_rows:
        lines.append(f"{result.bad_rows:,} bad rows were not sent to the topic")
    if result.skipped:
        lines.append(f"{result.skipped} parts were sent before and left out")
    if result.may_repeat:
        lines.append(f"{result.may_repeat} rows may be there twice; deduplicate() drops them")
    found = result.verification
    if found is not None:
        verdict = "all there" if found.is_good else "; ".join(found.problems)
        lines.append(f"verified {found.rows:,} rows: {verdict}, {found.repeats} repeats")
    tell(here, result, *lines)
    if found is not None and not found.is_good:
        raise typer.Exit(FAILED)


class _Bar:
    """A progress bar on a terminal, a line now and then elsewhere."""

    def __init__(self, here: Invocation) -> None:
        self._here = here
        self._told_at = time.monotonic()
        self._progress: Progress | None = None
        if here.errors.is_terminal and not here.as_json:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[rows]:,} rows"),
                TextColumn("{task.fields[speed]:,.0f} rows/s"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=here.errors,
            )
            self._task = self._progress.add_task("publishing", total=None, rows=0, speed=0, left="")

    def __enter__(self) -> Callable[[PublishProgress], None]:
        if self._progress is not None:
            self._progress.start()
        return self._update

    def __exit__(self, *_: Any) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _update(self, now: PublishProgress) -> None:
        if self._progress is not None:
            self._progress.update(
                self._task,
                total=now.parts_in_all,
                completed=now.parts,
                rows=now.rows,
                speed=now.rows_per_second,
                left=_left(now),
            )
        elif time.monotonic() - self._told_at > 5:
            self._told_at = time.monotonic()
            self._here.note(
                f"{now.parts} of {now.parts_in_all} parts, {now.rows:,} rows, "
                f"{now.rows_per_second:,.0f} rows/s, {_left(now)}"
            )


def _left(now: PublishProgress) -> str:
    seconds = now.seconds_left
    if seconds is None:
        return "time left unknown"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} left"
