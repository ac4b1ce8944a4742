"""``rocketwire archive``: a topic to Parquet, Delta Lake or Iceberg, by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rocketwire.cli.failures import FAILED, UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import size_text
from rocketwire.cli.spark_checks import check_archive_use, check_body, check_first
from rocketwire.cli.spark_work import (
    Body,
    BodySchema,
    Conf,
    Follow,
    Master,
    RegistryHeader,
    SourceOptions,
    missing_line,
    require_spark,
    run_stream,
    source_options,
    spark_settings,
    started_spark,
    tell,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketwire.spark.pipelines.archive import ArchiveResult

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
        "rocketwire archive orders s3a://bucket/orders --format delta --conf spark.jars.packages=...",
    ),
)
def archive(  # noqa: PLR0913 - each is one decision of the user
    here: Invocation,
    *,
    topic: Annotated[str, typer.Argument(help="Which; several with commas.")],
    folder: Annotated[
        str, typer.Argument(help="Of the dataset, topic=.../date=..., or of the table.")
    ],
    body: Body = "raw",
    schema: BodySchema = None,
    registry_header: RegistryHeader = False,
    start: Annotated[str, typer.Option("--from", help="Of a new archive.")] = "earliest",
    checkpoint: Annotated[
        str | None, typer.Option(help="Remembers how far it is; beside the dataset by default.")
    ] = None,
    follow: Follow = False,
    file_format: Annotated[
        str, typer.Option("--format", help="parquet, delta or iceberg; Spark needs their packages.")
    ] = "parquet",
    forget_broker: Forgotten = None,
    verify: Verify = False,
    options: SourceOptions = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    """Add what is new in a topic to a dataset or a table; incremental and restartable."""
    given = source_options(here, options)
    settings = _settings(folder, file_format, checkpoint, conf)
    if verify:
        _check_archive(folder, checkpoint)
    # A topic that was archived may be gone since, and is still verified.
    check_first(here, given, reads=None if verify else topic, start=start, folder=folder)
    check_body(body, schema, registry_header=registry_header)
    if not verify:
        check_archive_use(topic, folder, file_format, checkpoint, body, forget_broker or (), given)
    with started_spark(here, master, config=settings) as spark:
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
    _conclude(here, result)


def _conclude(here: Invocation, result: ArchiveResult) -> None:
    tell(
        here,
        result,
        f"{result.rows:,} rows added in {result.files} files ({size_text(result.bytes)}), "
        f"{result.seconds:.1f} s",
        f"dataset: {result.folder}",
        *missing_line(result.missing),
    )


def _settings(
    folder: str, kind: str, checkpoint: str | None, conf: list[str] | None
) -> dict[str, str]:
    """Spark's settings: as given, and what the format needs."""
    given = spark_settings(conf)
    require_spark()
    from rocketwire.spark.pipelines.archive_place import check_place
    from rocketwire.spark.pipelines.packages import session_settings

    check_place(folder, kind, checkpoint)
    return session_settings(kind) | given


def _check_archive(folder: str, checkpoint: str | None) -> None:
    from rocketwire.spark.pipelines.archive import default_checkpoint
    from rocketwire.spark.pipelines.small_files import local_path

    known = checkpoint or default_checkpoint(folder)
    places = [local_path(folder), local_path(known)]
    if all(place is not None and not place.exists() for place in places):
        raise UsageError(f"{folder}: there is no archive, and no checkpoint {known} of one")


def _verify(
    here: Invocation,
    spark: SparkSession,
    folder: str,
    checkpoint: str | None,
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
