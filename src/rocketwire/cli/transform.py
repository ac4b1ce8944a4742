"""``rocketwire transform``: topic to topic, by SQL or a function, on Spark."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketwire.cli.failures import UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.spark_checks import (
    check_body,
    check_first,
    check_stream,
    check_transform_use,
    checkpoint_of,
)
from rocketwire.cli.spark_work import (
    Body,
    BodySchema,
    Conf,
    Follow,
    Master,
    RegistryHeader,
    SourceOptions,
    missing_line,
    run_stream,
    source_options,
    spark_settings,
    started_spark,
    tell,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketwire.spark.pipelines.transform import TransformResult

app = typer.Typer(add_completion=False)

DeadLetter = Annotated[str | None, typer.Option(help="A topic for rows that can't be written.")]
PythonFunction = Annotated[
    str | None,
    typer.Option(metavar="MODULE:FUNCTION", help="Takes and returns a DataFrame instead."),
]


@command(
    app,
    "transform",
    panel="Spark",
    examples=(
        "rocketwire transform orders big --sql \"select keys, body from messages where tags = 'paid'\"",
        "rocketwire transform orders totals --body json --sql 'select string(data.total) as body from messages'",
        "rocketwire transform orders copy --sql 'select * from messages' --follow",
        "rocketwire transform orders clean --python jobs:clean",
    ),
)
def transform(  # noqa: PLR0913 - each is one decision of the user
    here: Invocation,
    *,
    source: Annotated[str, typer.Argument(metavar="FROM", help="A topic; several with commas.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The topic to write.")],
    sql: Annotated[
        str | None, typer.Option(help="Selects from the table 'messages'; or --python.")
    ] = None,
    python: PythonFunction = None,
    body: Body = "raw",
    schema: BodySchema = None,
    registry_header: RegistryHeader = False,
    start: Annotated[str, typer.Option("--from", help="Of a new checkpoint.")] = "earliest",
    checkpoint: Annotated[
        str | None, typer.Option(help="Remembers how far it is; else rocketwire-checkpoints here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Go on with a changed --sql.")] = False,
    dead_letter: DeadLetter = None,
    follow: Follow = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show ten rows only.")] = False,
    options: SourceOptions = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    """Read a topic, change its messages by SQL or Python, write another topic; restartable."""
    function = _function(sql, python)
    given, settings = source_options(here, options), spark_settings(conf)
    check_first(here, given, reads=source, writes=target, start=start)
    check_stream(source, target)
    check_body(body, schema, registry_header=registry_header)
    place = checkpoint_of(source, target, checkpoint)
    if not dry_run:
        check_transform_use(source, target, sql, function, place, force=force)
        here.note(f"checkpoint: {place}")
    with started_spark(here, master, is_short=dry_run, config=settings) as spark:
        from rocketwire.spark import transform as run

        _ship(spark, function)
        result = run_stream(
            here,
            lambda watch: run(
                spark,
                source,
                target,
                name_servers=here.name_servers,
                sql=sql,
                function=function,
                body=body,
                schema=schema,
                registry_header=registry_header,
                start=start,
                checkpoint=place,
                force=force,
                dead_letter=dead_letter,
                follow=follow,
                dry_run=dry_run,
                options=given,
                on_start=watch,
            ),
        )
    _conclude(here, result, dry_run=dry_run)


def _conclude(here: Invocation, result: TransformResult, *, dry_run: bool) -> None:
    if dry_run:
        tell(here, result, result.schema, *(str(row) for row in result.sample))
        return
    tell(
        here,
        result,
        f"{result.rows_read:,} rows read, {result.rows_written:,} written, "
        f"{result.bad_rows:,} bad, in {result.seconds:.1f} s",
        *missing_line(result.missing),
    )


def _function(sql: str | None, python: str | None) -> Callable[[Any], Any] | None:
    if (sql is None) == (python is None):
        raise UsageError("give exactly one of --sql and --python")
    return None if python is None else load_function(python)


def load_function(text: str) -> Callable[[Any], Any]:
    """The function that ``module:function`` names; modules of the current folder are found, too.

    Raises:
        UsageError: there is no such function.
    """
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise UsageError(f"--python {text!r}: write MODULE:FUNCTION")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise UsageError(f"--python {text!r}: {error}") from error
    if not callable(found):
        raise UsageError(f"--python {text!r}: {module} has no function {name}")
    function: Callable[[Any], Any] = found
    return function


def _ship(spark: SparkSession, function: Callable[[Any], Any] | None) -> None:
    """Let workers elsewhere find the function's module; a package is installed there, or not."""
    if function is None:
        return
    path = getattr(sys.modules.get(function.__module__), "__file__", None) or ""
    if path.endswith(".py") and Path(path).name == f"{function.__module__}.py":
        spark.sparkContext.addPyFile(path)
