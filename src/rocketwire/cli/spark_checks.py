"""What the Spark commands find out before Spark starts, which takes some seconds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketwire.cli.failures import CommandFailedError, UsageError
from rocketwire.cli.invocation import Invocation
from rocketwire.cli.spark_work import require_spark

if TYPE_CHECKING:
    from rocketwire.testing.simulated_cluster import Setting


def check_first(
    here: Invocation,
    options: Mapping[str, str],
    *,
    reads: str | None = None,
    writes: str | None = None,
    start: str | None = None,
    folder: str | None = None,
) -> None:
    """Refuse what can't work: options, topics that are not there, a folder that is none.

    Args:
        here: the command.
        options: of the data source.
        reads: topics that are read, with commas.
        writes: the topic that is written; one that is not there yet may be made by the first send.
        start: where a new stream starts.
        folder: where files are written.

    Raises:
        UsageError: an argument can't be right.
        CommandFailedError: a topic is unknown.
        RocketMQError: no name server answers, or an option is wrong.
    """
    require_spark()
    if folder is not None:
        _check_folder(folder)
    from rocketwire.spark.client import Cluster, reader_for
    from rocketwire.spark.options import (
        check_expected_topics,
        client_options,
        read_options,
        write_options,
    )

    given = {name.lower(): value for name, value in options.items()}
    given["nameservers"] = here.name_servers
    client = client_options(given, os.environ)
    if writes is not None:
        write_options(given | {"topic": writes})
    cluster = Cluster(reader_for(client))
    cluster.check_reachable(None)
    if reads is None:
        return
    reading = given | {"topics": reads} | ({"startingoffsets": start} if start else {})
    wanted = read_options(reading, streaming=True)
    check_expected_topics(wanted)
    for topic in wanted.choice.topics:
        if cluster.view_of(topic) is None:
            raise CommandFailedError(
                f"topic {topic} is unknown: check its name, create it, or bring its brokers back if "
                "all of them are away"
            )


def check_body(kind: str, schema: str | None, *, registry_header: bool) -> None:
    """Refuse a way to read bodies that there is not.

    Raises:
        ConfigError: there is not.
    """
    from rocketwire.spark.pipelines.bodies import check_kind, schema_file

    check_kind(kind, schema, has_header=registry_header)
    if kind in {"avro", "protobuf"} and schema is not None:
        schema_file(kind, schema)


def check_stream(source: str, target: str) -> None:
    """Refuse a stream that would feed itself.

    Raises:
        ConfigError: it would.
    """
    from rocketwire.spark.pipelines.transform import check_topics

    check_topics(source, target)


def check_archive_use(
    topic: str,
    folder: str,
    kind: str,
    checkpoint: str | None,
    body: str,
    forgotten: Sequence[str],
    options: Mapping[str, str],
) -> None:
    """Refuse what an archive that is there already can't be used for.

    Raises:
        ConfigError: it was begun otherwise, or never read from a broker to forget.
    """
    from rocketwire.spark.pipelines.archive import check_use

    check_use(
        topic, folder, format=kind, checkpoint=checkpoint, body=body, forget_brokers=forgotten,
        options=options,
    )  # fmt: skip


def checkpoint_of(source: str, target: str, given: str | None) -> str:
    """Where a stream from topic to topic keeps its progress."""
    from rocketwire.spark.pipelines.checkpoint import default_checkpoint

    return given or str(default_checkpoint("transform", source, target))


def check_transform_use(
    source: str,
    target: str,
    sql: str | None,
    function: Callable[[Any], Any] | None,
    checkpoint: str,
    *,
    force: bool,
) -> None:
    """Refuse a checkpoint of another stream.

    Raises:
        ConfigError: it is one.
    """
    from rocketwire.spark.pipelines.transform import check_use

    check_use(source, target, sql=sql, function=function, checkpoint=checkpoint, force=force)


def check_mapping(
    topic: str | None, expression: str | None, sharding_key: str | None, order_by: str | None
) -> None:
    """Refuse what contradicts itself about where rows go, before it is looked for.

    Raises:
        ConfigError: it does.
    """
    require_spark()
    from rocketwire.spark.pipelines.mapping import MessageMapping

    MessageMapping(sharding_key=sharding_key, topic=expression, order_by=order_by).check(topic)


def check_dataset(dataset: str) -> None:
    """Refuse files that are not there.

    Raises:
        ConfigError: they are not.
    """
    require_spark()
    from rocketwire.spark.pipelines.dataset import check_dataset as check

    check(dataset)


def check_page(out: Path, time_zone: str | None = None, *, telemetry: str | None = None) -> None:
    """Refuse a page that can't be written, a time zone or a folder that is not there.

    Raises:
        ConfigError: one of them is wrong.
    """
    require_spark()
    from rocketwire.spark.delivery_report.places import found_place, page_path, time_zone_of

    page_path(out)
    time_zone_of(time_zone)
    if telemetry is not None:
        found_place(telemetry, "telemetry")


def check_policies(
    policies: Iterable[str], grid: Mapping[str, Sequence[float]] | None, *, is_full: bool
) -> None:
    """Refuse policies that there are not, and numbers that they do not have.

    Raises:
        ConfigError: there are not.
    """
    from rocketwire.spark.policy_lab.policies import candidates

    candidates(policies, grid, is_full=is_full)


def check_simulation(
    setting: Setting,
    faults: Sequence[str],
    policies: Sequence[str],
    seeds: int,
    sizes: Sequence[tuple[int, int]],
) -> None:
    """Refuse experiments that can't be made.

    Raises:
        ConfigError: one can't.
    """
    from rocketwire.spark.policy_lab.simulation import tasks_of

    tasks_of(setting, faults, policies, seeds, sizes)


def _check_folder(folder: str) -> None:
    from rocketwire.spark.pipelines.small_files import local_path

    place = local_path(folder)
    if place is None:
        return
    if place.exists() and not place.is_dir():
        raise UsageError(f"{folder} is a file: name a folder")
    there = place
    while not there.exists() and there != there.parent:
        there = there.parent
    if not os.access(there, os.W_OK):
        raise UsageError(f"{folder}: {there} can't be written to")
