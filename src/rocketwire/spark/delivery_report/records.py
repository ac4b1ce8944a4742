"""What the records of attempts are, wherever they come from, and how files of them are read.

Whatever is found becomes a row of one shape (``COLUMNS``): attempts, isolations, returns, dropped
records, and lines that are none of these. Nothing is thrown away silently, and nothing stops the
reading: a bad line becomes a row that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

ATTEMPT: Final = "attempt"
ISOLATED: Final = "isolated"
RETURNED: Final = "returned"
DROPPED: Final = "dropped"
PROBE: Final = "probe"
ROUTE: Final = "route"
HEADER: Final = "header"
#: No JSON object, such as a line torn by a full disk, one with a field of the wrong type, or too long.
UNREADABLE: Final = "unreadable"
#: A JSON object that no producer of ours wrote.
FOREIGN: Final = "foreign"

STORED: Final = "stored"
ONEWAY: Final = "oneway"
REJECTED: Final = "rejected"
MAYBE_STORED: Final = "maybe stored"
NOT_SENT: Final = "not sent"
#: A failure of which the source does not tell more.
FAILED: Final = "failed"
OUTCOMES: Final = (STORED, ONEWAY, REJECTED, MAYBE_STORED, NOT_SENT, FAILED)

#: Column: type. ``send`` stands for a message's sends and ``story`` for the messages of one key
#: from one client; both are 64-bit hashes, because shuffling and sorting long ids would cost most
#: of the time. Two of ten million collide with a probability of three in a million.
COLUMNS: Final = {
    "kind": "string",
    "at": "double",
    "client": "string",
    "topic": "string",
    "broker": "string",
    "queue": "int",
    "offset": "bigint",
    "message_id": "string",
    "send": "bigint",
    "key": "string",
    "story": "bigint",
    "bytes": "bigint",
    "latency": "double",
    "outcome": "string",
    "error": "string",
    "attempt": "int",
    "messages": "int",
    "state": "string",
    "reason": "string",
    "until": "double",
    "dropped": "bigint",
    "file": "string",
}

_CORRUPT: Final = "_corrupt"
_LINE: Final = (
    "kind string, time double, clientId string, topic string, broker string, queueId int, "
    "offset bigint, messageId string, shardingKey string, bytes bigint, latency double, "
    "outcome string, error string, attempt int, messages int, state string, reason string, "
    f"until double, dropped bigint, {_CORRUPT} string"
)
#: Moments outside are no moments: a clock that was never set would stretch every time axis.
_EARLIEST: Final = 946_684_800.0  # 2000
_LATEST: Final = 4_102_444_800.0  # 2100
_LONGEST: Final = 86_400.0

#: Characters of a line; producers write far shorter ones, and a longer one would only take memory.
LONGEST_LINE: Final = 64 * 1024

#: Which files of a folder count. Spark unpacks the compressed ones.
FILE_PATTERN: Final = "*.{jsonl,jsonl.gz,jsonl.zst,jsonl.bz2}"
FILE_ENDINGS: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".jsonl.bz2")


def read_files(spark: SparkSession, paths: Sequence[str], *, pattern: str | None) -> DataFrame:
    """Records from files of lines, as ``rocketwire.telemetry`` writes them.

    Args:
        spark: the session.
        paths: folders, searched with all below them, or files.
        pattern: only files of such names; None for all.
    """
    reader = spark.read.option("recursiveFileLookup", "true").option("lineSep", "\n")
    if pattern is not None:
        reader = reader.option("pathGlobFilter", pattern)
    raw = reader.text(list(paths)).select("value", f.col("_metadata.file_name").alias("file"))
    text = f.when(f.length("value") <= LONGEST_LINE, f.col("value"))
    parsed = raw.where(f.trim("value") != "").select(
        f.from_json(text, _LINE, {"columnNameOfCorruptRecord": _CORRUPT}).alias("line"), "file"
    )
    line = f.col("line")
    names = {"at": "time", "client": "clientId", "queue": "queueId", "key": "shardingKey"}
    own = {"kind", "send", "story", "message_id", "file"}
    plain = [line[names.get(name, name)].alias(name) for name in COLUMNS if name not in own]
    return with_hashes(
        parsed.select(
            _kind_of_line(line).alias("kind"),
            *plain,
            line["messageId"].alias("message_id"),
            f.when(_kind_of_line(line).isin(UNREADABLE, FOREIGN), f.col("file")).alias("file"),
        )
    )


def with_hashes(records: DataFrame) -> DataFrame:
    """Add ``send`` and ``story``, and put the columns in order.

    Ids of messages are kept only of attempts that failed or were not the first: the others are of
    no interest, and would be most of the bytes.
    """
    has_a_tale = (f.col("attempt") > 1) | ~f.col("outcome").isin(STORED, ONEWAY)
    made = {
        "send": f.xxhash64("client", "message_id"),
        "story": f.when(f.col("key").isNotNull(), f.xxhash64("client", "topic", "key")),
        "message_id": f.when(has_a_tale, f.col("message_id")),
    }
    return records.select(
        *(made.get(name, f.col(name)).cast(kind).alias(name) for name, kind in COLUMNS.items())
    )


def _kind_of_line(line: Column) -> Column:
    kind = line["kind"]
    is_plausible = line["time"].between(_EARLIEST, _LATEST) & line["clientId"].isNotNull()
    is_attempt = (
        (kind == ATTEMPT)
        & line["topic"].isNotNull()
        & line["broker"].isNotNull()
        & line["messageId"].isNotNull()
        & line["outcome"].isin(*OUTCOMES)
        & line["latency"].between(0.0, _LONGEST)
        & (line["attempt"] >= 1)
    )
    is_event = kind.isin(ISOLATED, RETURNED, PROBE) & line["broker"].isNotNull()
    is_setting = (kind == HEADER) | ((kind == ROUTE) & line["topic"].isNotNull())
    is_loss = (kind == DROPPED) & (line["dropped"] >= 0)
    return (
        f.when(line.isNull() | line[_CORRUPT].isNotNull(), UNREADABLE)
        .when(is_plausible & (is_attempt | is_event | is_loss | is_setting), kind)
        .otherwise(FOREIGN)
    )


def acknowledged() -> Column:
    """Whether an attempt was answered as stored, or needs no answer."""
    return f.col("outcome").isin(STORED, ONEWAY)


def waited() -> Column:
    """The latency of attempts that waited for an answer, whether it came or not; else null."""
    return f.when(f.col("outcome").isin(STORED, REJECTED, MAYBE_STORED, FAILED), f.col("latency"))
