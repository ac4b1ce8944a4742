"""Dead letters keep what the row had, and no row goes back to where it came from."""

import pyarrow as pa
import pytest

from rocketwire.columns.encode import BatchEncoder
from rocketwire.columns.ids import MessageIdColumn
from rocketwire.errors import ConfigError, InvalidMessageError
from rocketwire.spark.bad_rows import BadRowHandling, check_batch
from rocketwire.spark.options import write_options
from rocketwire.wire.properties import decode_properties_bytes

pytest.importorskip("pyspark")
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from rocketwire.spark.schema import check_loop

DEAD = {"topic": "t", "onbadrow": "deadletter", "deadlettertopic": "dead"}


def letters(batch):
    encoder = BatchEncoder(topic="t", queues=lambda t: [], ids=MessageIdColumn(b"\x7f\0\0\1", 7))
    handling = BadRowHandling(write_options(DEAD), 3)
    return [letter for piece in encoder.encode(batch) for letter in handling.take(piece)]


def test_a_dead_letter_keeps_all_that_the_row_had():
    kinds = pa.map_(pa.string(), pa.string())
    batch = pa.record_batch(
        {
            "body": [b"whole"],
            "keys": ["k"],
            "tags": ["bad\x01tag"],
            "shardingKey": ["s"],
            "flag": pa.array([7], pa.int32()),
            "properties": pa.array([[("x", "1"), ("reason", "mine")]], kinds),
        }
    )
    (letter,) = letters(batch)
    assert (letter.topic, letter.body, letter.flag) == ("dead", b"whole", 7)
    found = decode_properties_bytes(letter.properties)
    assert found.pop("reason").startswith("tags contains")
    assert found == {
        "KEYS": "k", "TAGS": "bad tag", "__SHARDINGKEY": "s", "x": "1", "partition": "3",
        "rowIndex": "0", "topic": "t", "row.reason": "mine",
    }  # fmt: skip


def test_a_reason_names_options_as_they_are_written_here():
    (letter,) = letters(pa.record_batch({"body": [b"x" * (4 * 1024 * 1024 + 1)]}))
    assert "(maxMessageSize)" in decode_properties_bytes(letter.properties)["reason"]
    assert b"(maxMessageSize)" in letter.body


def test_what_does_not_fit_is_left_out_and_the_reason_stays():
    kinds = pa.map_(pa.string(), pa.string())
    many = [(f"name-{i}", "v" * 900) for i in range(50)]
    batch = pa.record_batch({"body": [b"b"], "properties": pa.array([many], kinds)})
    (letter,) = letters(batch)
    assert len(letter.properties) < 32767
    assert "properties take" in decode_properties_bytes(letter.properties)["reason"]


ROWS = pa.record_batch({"body": [b"b", b"c"], "topic": ["u", "t"], "queueOffset": [1, 2]})


def test_rows_are_not_written_back_to_where_they_came_from():
    with pytest.raises(
        InvalidMessageError, match=r"read from topic t would be written back.*allowLoop"
    ):
        check_batch(ROWS, write_options({"topic": "t"}))
    check_batch(ROWS, write_options({"topic": "t", "allowloop": "true"}))
    check_batch(ROWS, write_options({"topic": "other"}))
    check_batch(ROWS.drop_columns(["queueOffset"]), write_options({"topic": "t"}))


def test_rows_without_another_target_are_refused_on_the_driver():
    schema = StructType().add("body", BinaryType()).add("topic", StringType())
    schema = schema.add("queueOffset", LongType())
    with pytest.raises(ConfigError, match="Give the option topic"):
        check_loop(schema, write_options({}))
    check_loop(schema, write_options({"topic": "t"}))
    check_loop(schema, write_options({"allowloop": "true"}))
