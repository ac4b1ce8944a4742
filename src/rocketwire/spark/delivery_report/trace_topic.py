"""Records from the trace topic, which every client can write, Java's among them.

A trace tells how a whole send ended: which broker's address, how long it took in milliseconds, and
whether it succeeded. It knows neither queues, attempts, sharding keys nor isolations, so the parts
of a report that need those stay empty.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from rocketwire.errors import ConfigError, RocketMQError
from rocketwire.spark.delivery_report.records import (
    ATTEMPT,
    COLUMNS,
    FAILED,
    FOREIGN,
    STORED,
    UNREADABLE,
    with_hashes,
)

_log = logging.getLogger("rocketwire.spark")

# As in rocketwire.wire.trace_record, whose decoder the tests hold this to: one Python object a
# record would take ten times as long as Spark's own functions do.
_RECORD_END: Final = "\x02"
_FIELD_END: Final = "\x01"
_FEWEST: Final = 13
#: Kinds of records that tell of other things than sends.
_OTHERS: Final = ("SubBefore", "SubAfter", "EndTransaction", "Recall")


def read_topic(spark: SparkSession, topic: str, options: Mapping[str, str]) -> DataFrame:
    """Records from the traces in a topic, as it is now.

    Raises:
        ConfigError: it can't be read.
    """
    wanted = {**options, "topic": topic, "columns": "body"}
    try:
        messages = spark.read.format("rocketmq").options(**wanted).load()
    except PySparkException as error:
        raise ConfigError(why_not(topic, error)) from error
    return parse(messages)


def parse(messages: DataFrame) -> DataFrame:
    """Records from trace messages, of which only the column ``body`` is looked at."""
    text = f.decode("body", "UTF-8")
    lines = messages.select(f.explode(f.split(text, _RECORD_END)).alias("line"))
    fields = lines.where(f.col("line") != "").select(f.split("line", _FIELD_END).alias("fields"))
    return with_hashes(fields.where(~_field(0).isin(*_OTHERS)).select(*_columns()))


def why_not(topic: str, error: PySparkException) -> str:
    """Why a topic can't be read, in one sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The last line of a worker's traceback is the sentence that was meant for people.
    told = [line for line in lines if "Error: " in line]
    reason = (told[-1].partition("Error: ")[2] if told else lines[0]) if lines else "no reason"
    return f"source {topic!r} is no folder here, and as a topic it can't be read: {reason}"


def _field(index: int) -> Column:
    """A field; null where there are not so many, or where it is empty in Java's way."""
    found = f.get("fields", f.lit(index))
    return f.when(~found.isin("null", ""), found)


def _number(index: int) -> Column:
    return _field(index).try_cast("bigint")


def _columns() -> list[Column]:
    count = f.size("fields")
    # The offset id came later than the rest, in front of the verdict.
    is_success = f.when(count > _FEWEST, _field(13)).otherwise(_field(12)) == "true"
    is_whole = (count >= _FEWEST) & _number(1).isNotNull() & _number(10).between(0, 86_400_000)
    known: dict[str, Column] = {
        "kind": f.when(_field(0) != "Pub", FOREIGN)
        .when(is_whole & _field(4).isNotNull(), ATTEMPT)
        .otherwise(UNREADABLE),
        "at": (_number(1) + _number(10)) / 1000.0,
        "client": f.coalesce(_field(14), _field(3), f.lit("unknown")),
        "topic": _field(4),
        "broker": f.coalesce(_field(8), f.lit("no broker")),
        "message_id": f.coalesce(_field(5), f.uuid()),
        "bytes": _number(9),
        "latency": _number(10) / 1000.0,
        "outcome": f.when(is_success, STORED).otherwise(FAILED),
        "attempt": f.lit(1),
        "messages": f.lit(1),
    }
    rest = [name for name in COLUMNS if name not in {*known, "send", "story"}]
    return [column.alias(name) for name, column in known.items()] + [
        f.lit(None).cast(COLUMNS[name]).alias(name) for name in rest
    ]


def name_brokers(records: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Put brokers' names in place of their addresses, where they are known."""
    if not names:
        return records
    pairs = [f.lit(word) for pair in names.items() for word in pair]
    found = f.create_map(*pairs)[f.col("broker")]
    return records.withColumn("broker", f.coalesce(found, f.col("broker")))


def broker_names(options: Mapping[str, str]) -> dict[str, str]:
    """Names of the brokers by address, as name servers know them now; none if they don't answer."""
    import os

    from rocketwire.columns.client_parts import parts_of
    from rocketwire.core.lookup import cluster_info
    from rocketwire.spark.client import reader_for
    from rocketwire.spark.options import client_options

    try:
        checked = client_options({name.lower(): text for name, text in options.items()}, os.environ)
        parts = parts_of(reader_for(checked))
        deadline = parts.clock() + parts.request_timeout
        brokers = parts.run(cluster_info(parts.instance, deadline)).brokers
    except RocketMQError as error:
        _log.warning("brokers are shown by their addresses: %s", error)
        return {}
    return {
        address: data.broker for data in brokers.values() for address in data.addresses.values()
    }
