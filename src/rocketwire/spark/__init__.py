"""The Spark data source ``rocketmq`` and the pipelines on it.

Spark finds the source by itself where the package is installed. Names are imported when first
used, so that this costs nothing where Spark is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketwire.spark.dedupe import deduplicate
    from rocketwire.spark.delivery_report.findings import ReportResult
    from rocketwire.spark.delivery_report.pipeline import report
    from rocketwire.spark.local_session import session
    from rocketwire.spark.pipelines.archive import ArchiveResult, archive, verify_archive
    from rocketwire.spark.pipelines.publish import PublishResult, publish
    from rocketwire.spark.pipelines.transform import TransformResult, transform
    from rocketwire.spark.policy_lab.findings import LabResult
    from rocketwire.spark.policy_lab.pipeline import lab
    from rocketwire.spark.progress import Lag, lag

_HOMES = {
    "ArchiveResult": "pipelines.archive",
    "LabResult": "policy_lab.findings",
    "Lag": "progress",
    "PublishResult": "pipelines.publish",
    "ReportResult": "delivery_report.findings",
    "TransformResult": "pipelines.transform",
    "archive": "pipelines.archive",
    "deduplicate": "dedupe",
    "lab": "policy_lab.pipeline",
    "lag": "progress",
    "publish": "pipelines.publish",
    "report": "delivery_report.pipeline",
    "session": "local_session",
    "transform": "pipelines.transform",
    "verify_archive": "pipelines.archive",
}

__all__ = [
    "ArchiveResult",
    "LabResult",
    "Lag",
    "PublishResult",
    "ReportResult",
    "TransformResult",
    "archive",
    "deduplicate",
    "lab",
    "lag",
    "publish",
    "register",
    "report",
    "session",
    "transform",
    "verify_archive",
]


def register(spark: SparkSession) -> None:
    """Make a session know the source where Spark can't find it, as with ``--py-files``.

    Call it after ``addPyFile``: the source travels with the files known at that moment.

    Raises:
        ImportError: something that the source needs is missing; the text says what.
    """
    from rocketwire.spark import absent

    absent.require()
    from rocketwire.spark.source import RocketMQDataSource

    spark.dataSource.register(RocketMQDataSource)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
