"""What a pipeline's topics have and can't be read now, as seen from the process that runs it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rocketwire.errors import RocketMQError
from rocketwire.message import MessageQueue
from rocketwire.spark.client import Bounds, Cluster, reader_for
from rocketwire.spark.completeness import Completeness, Missing
from rocketwire.spark.local_record import LocalRecord, local_folder
from rocketwire.spark.offsets import by_broker
from rocketwire.spark.options import FORGOTTEN, KNOWN, REACHED, read_options
from rocketwire.spark.pipelines.checkpoint import Checkpoint
from rocketwire.spark.pipelines.connection import checked
from rocketwire.spark.planning import view_or_absent
from rocketwire.spark.progress import lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("rocketwire.spark")


def look(
    spark: SparkSession,
    settings: Mapping[str, str],
    topics: str,
    known: Iterable[MessageQueue] = (),
) -> tuple[Bounds, Missing]:
    """What brokers answer now, and which queues can't be read.

    Args:
        spark: the session, which knows the folder of the local record.
        settings: options of the data source; those of a pipeline's record count.
        topics: which, with commas.
        known: queues that the topics had.

    Raises:
        RocketMQError: no name server answers.
    """
    given = {name.lower(): value for name, value in settings.items()}
    for name in ("topic", "topicpattern", "assign"):
        given.pop(name, None)
    options = read_options(given | {"topics": topics}, streaming=False)
    client = checked(settings)
    cluster = Cluster(reader_for(client))
    names = cluster.topics(options.choice)
    completeness = Completeness(options, LocalRecord(_folder(spark), client.name_servers))
    had = list(known)
    views = {topic: view_or_absent(cluster, completeness, topic, had) for topic in names}
    bounds = cluster.bounds(queue for topic in names for queue in cluster.queues_of(topic) or ())
    return bounds, completeness.missing(views, bounds, had)


def _folder(spark: SparkSession) -> str:
    try:
        return spark.conf.get("spark.local.dir", None) or local_folder()
    except Exception:  # noqa: BLE001 - a setting that a server does not show is no fault
        return local_folder()


def missing_after(
    spark: SparkSession,
    settings: Mapping[str, str],
    topics: str,
    progress: Any,
    known: Iterable[MessageQueue] = (),
) -> int:
    """How many queues a run could not read: by its last progress, and by a look of our own.

    A run that found nothing new has no progress to tell by, and a client of Spark Connect may be
    where no broker can be reached, so neither is enough.
    """
    told = lag(progress).missing
    try:
        _, found = look(spark, settings, topics, known)
    except RocketMQError as error:
        _log.warning("what is missing can't be looked up from here: %s", error)
        return told
    return max(told, len(found))


def checkpoint_options(checkpoint: Checkpoint, *, follow: bool) -> dict[str, str]:
    """Options of a pipeline's reader that follow from its checkpoint, and from how it ends."""
    offset = checkpoint.last_offsets()
    made = {} if offset is None else {REACHED: json.dumps(offset)}
    # A limit would end a run before the end that stood at its start, on a PySpark before 4.2.
    return made if follow else made | {"limitBefore42": "false"}


def record_options(queues: Iterable[MessageQueue], forgotten: Iterable[str]) -> dict[str, str]:
    """A pipeline's record as options of the reader."""
    nested = by_broker(queues)
    made = {KNOWN: json.dumps(nested)} if nested else {}
    return made | ({FORGOTTEN: ",".join(sorted(forgotten))} if forgotten else {})
