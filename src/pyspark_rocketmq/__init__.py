"""Makes Spark find the data source ``rocketmq`` by itself.

Spark imports every top-level module named ``pyspark_*`` and takes its ``DefaultSource``. One that
fails to import would void every Python data source of the user, so this one never does: what is
wrong is said when the source is used.
"""

from __future__ import annotations

__all__ = ["DefaultSource"]

try:
    from rocketwire.spark.source import RocketMQDataSource as DefaultSource
except Exception as _error:  # noqa: BLE001 - whatever it is, the others must go on
    try:
        from rocketwire.spark.absent import make_absent_source

        DefaultSource = make_absent_source(_error)  # type: ignore[misc, assignment]
    except Exception:  # noqa: BLE001 - Spark before 4.0 has no data sources at all
        DefaultSource = None  # type: ignore[misc, assignment]
