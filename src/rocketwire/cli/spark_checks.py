"""What the Spark commands find out before Spark starts, which takes some seconds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from rocketwire.cli.failures import CommandFailedError, UsageError
from rocketwire.cli.invocation import Invocation


def check_first(
    here: Invocation,
    options: Mapping[str, str],
    *,
    reads: str | None = None,
    writes: str | None = None,
    folder: Path | None = None,
) -> None:
    """Refuse what can't work: options, topics that are not there, a folder that is none.

    Args:
        here: the command.
        options: of the data source.
        reads: topics that are read, with commas.
        writes: the topic that is written; one that is not there yet may be made by the first send.
        folder: where files are written.

    Raises:
        UsageError: an argument can't be right.
        CommandFailedError: a topic is unknown.
        RocketMQError: no name server answers, or an option is wrong.
    """
    if find_spec("pyspark") is None:
        raise CommandFailedError("this command needs Spark: pip install 'rocketwire[spark]'")
    if folder is not None:
        _check_folder(folder)
    from rocketwire.spark.client import Cluster, reader_for
    from rocketwire.spark.options import client_options, read_options, write_options

    given = {name.lower(): value for name, value in options.items()}
    given["nameservers"] = here.name_servers
    client = client_options(given, os.environ)
    if writes is not None:
        write_options(given | {"topic": writes})
    cluster = Cluster(reader_for(client))
    cluster.check_reachable(None)
    if reads is None:
        return
    for topic in read_options(given | {"topics": reads}, streaming=True).choice.topics:
        if cluster.view_of(topic) is None:
            raise CommandFailedError(f"topic {topic} is unknown: check its name, or create it")


def check_body(kind: str, schema: str | None, *, registry_header: bool) -> None:
    """Refuse a way to read bodies that there is not.

    Raises:
        ConfigError: there is not.
    """
    from rocketwire.spark.pipelines.bodies import check_kind

    check_kind(kind, schema, has_header=registry_header)


def _check_folder(folder: Path) -> None:
    if "://" in str(folder) or ":/" in str(folder):
        return
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: name a folder")
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    if not os.access(there, os.W_OK):
        raise UsageError(f"{folder}: {there} can't be written to")
