"""``rocketwire transform``: topic to topic, by SQL, on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.spark_work import (
    Master,
    SourceOptions,
    run_stream,
    source_options,
    started_spark,
    tell,
)

app = typer.Typer(add_completion=False)


@command(
    app,
    "transform",
    panel="Spark",
    examples=(
        "rocketwire transform orders big --sql \"select keys, body from messages where tags = 'paid'\"",
        "rocketwire transform orders totals --body json --sql 'select string(data.total) as body from messages'",
        "rocketwire transform orders copy --sql 'select * from messages' --follow",
    ),
)
def transform(  # noqa: PLR0913 - each is one decision of the user
    here: Invocation,
    *,
    source: Annotated[str, typer.Argument(metavar="FROM", help="A topic; several with commas.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The topic to write.")],
    sql: Annotated[str, typer.Option(help="Selects from the table 'messages'.")],
    body: Annotated[str, typer.Option(help="raw, or json: parsed as the column data.")] = "raw",
    schema: Annotated[
        str | None, typer.Option(help="Of JSON bodies, as DDL; else learned.")
    ] = None,
    start: Annotated[str, typer.Option("--from", help="Of a new checkpoint.")] = "earliest",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Remembers how far it is; else rocketwire-checkpoints here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Go on with a changed --sql.")] = False,
    dead_letter: Annotated[
        str | None, typer.Option(help="A topic for rows that can't be written.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Go on with what comes.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show ten rows only.")] = False,
    options: SourceOptions = None,
    master: Master = None,
) -> None:
    """Read a topic, change its messages by SQL, write another topic; restartable."""
    with started_spark(here, master, is_short=dry_run) as spark:
        from rocketwire.spark import transform as run

        result = run_stream(
            here,
            lambda watch: run(
                spark,
                source,
                target,
                name_servers=here.name_servers,
                sql=sql,
                body=body,
                schema=schema,
                start=start,
                checkpoint=checkpoint,
                force=force,
                dead_letter=dead_letter,
                follow=follow,
                dry_run=dry_run,
                options=source_options(here, options),
                on_start=watch,
            ),
        )
    if dry_run:
        tell(here, result, result.schema, *(str(row) for row in result.sample))
        return
    tell(
        here,
        result,
        f"{result.rows_read:,} rows read, {result.rows_written:,} written, "
        f"{result.bad_rows:,} bad, in {result.seconds:.1f} s",
        f"checkpoint: {result.checkpoint}",
    )
