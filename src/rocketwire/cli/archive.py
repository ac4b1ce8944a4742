"""``rocketwire archive``: a topic to Parquet, by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketwire.cli.failures import FAILED, UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import size_text
from rocketwire.cli.spark_checks import check_body, check_first
from rocketwire.cli.spark_work import (
    Body,
    BodySchema,
    Follow,
    Master,
    RegistryHeader,
    SourceOptions,
    missing_line,
    run_stream,
    source_options,
    started_spark,
    tell,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(add_completion=False)

Verify = Annotated[bool, typer.Option("--verify", help="Archive nothing, check what is there.")]
Forgotten = Annotated[
    list[str] | None,
    typer.Option("--forget-broker", metavar="NAME", help="It was taken away for good."),
]


@command(
    app,
    "archive",
    panel="Spark",
    examples=(
        "rocketwire archive orders ./archive",
        "rocketwire archive orders ./archive --follow",
        "rocketwire archive orders ./archive --verify",
    ),
)
def archive(  # noqa: PLR0913 - each is one decision of the user
    here: Invocation,
    *,
    topic: Annotated[str, typer.Argument(help="Which; several with commas.")],
    folder: Annotated[Path, typer.Argument(help="The dataset: topic=.../date=.../*.parquet.")],
    body: Body = "raw",
    schema: BodySchema = None,
    registry_header: RegistryHeader = False,
    start: Annotated[str, typer.Option("--from", help="Of a new archive.")] = "earliest",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Remembers how far it is; beside the dataset by default.")
    ] = None,
    follow: Follow = False,
    file_format: Annotated[
        str, typer.Option("--format", help="parquet; delta or iceberg where Spark has them.")
    ] = "parquet",
    forget_broker: Forgotten = None,
    verify: Verify = False,
    options: SourceOptions = None,
    master: Master = None,
) -> None:
    """Add what is new in a topic to a Parquet dataset; incremental and restartable."""
    given = source_options(here, options)
    if verify:
        _check_archive(folder, checkpoint)
    # A topic that was archived may be gone since, and is still verified.
    check_first(here, given, reads=None if verify else topic, folder=folder)
    check_body(body, schema, registry_header=registry_header)
    with started_spark(here, master) as spark:
        from rocketwire.spark import archive as run

        if verify:
            _verify(here, spark, folder, checkpoint, given)
            return
        result = run_stream(
            here,
            lambda watch: run(
                spark,
                topic,
                folder,
                name_servers=here.name_servers,
                body=body,
                schema=schema,
                registry_header=registry_header,
                start=start,
                checkpoint=checkpoint,
                follow=follow,
                forget_brokers=forget_broker or (),
                format=file_format,
                options=given,
                on_start=watch,
            ),
        )
    tell(
        here,
        result,
        f"{result.rows:,} rows added in {result.files} files ({size_text(result.bytes)}), "
        f"{result.seconds:.1f} s",
        f"dataset: {result.folder}",
        *missing_line(result.missing),
    )


def _check_archive(folder: Path, checkpoint: Path | None) -> None:
    from rocketwire.spark.pipelines.archive import default_checkpoint

    known = checkpoint or Path(default_checkpoint(folder))
    if "://" not in str(folder) and not folder.exists() and not known.exists():
        raise UsageError(f"{folder}: there is no archive, and no checkpoint {known} of one")


def _verify(
    here: Invocation,
    spark: SparkSession,
    folder: Path,
    checkpoint: Path | None,
    options: dict[str, str],
) -> None:
    from rocketwire.spark import verify_archive

    servers = here.name_servers
    found = verify_archive(
        spark, folder, name_servers=servers, checkpoint=checkpoint, options=options
    )
    verdict = () if found.problems else ("nothing is missing, and nothing there twice",)
    checked = f"{found.rows:,} rows of {found.queues} queues checked"
    tell(here, found, checked, *found.problems, *verdict)
    if not found.is_good:
        raise typer.Exit(FAILED)
