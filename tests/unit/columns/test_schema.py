"""Columns are checked by name and type before anything is sent."""

import pyarrow as pa
import pytest

from rocketwire.columns.schema import (
    READ_COLUMNS,
    READ_SCHEMA,
    check_written_schema,
    select_columns,
)
from rocketwire.errors import ConfigError

BODY = ("body", pa.binary())


def check(*fields, topic_given=True):
    check_written_schema(pa.schema(list(fields)), topic_given=topic_given)


def test_everything_that_was_read_can_be_written():
    check_written_schema(READ_SCHEMA, topic_given=False)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(16),
        pa.string_view(), pa.binary_view(), pa.dictionary(pa.int32(), pa.string()),
    ],
)  # fmt: skip
def test_a_body_may_be_any_text_or_bytes(kind):
    check(("body", kind))


def test_properties_may_be_a_list_of_pairs_as_polars_writes_them():
    pair = pa.struct([("key", pa.string()), ("value", pa.string())])
    check(BODY, ("properties", pa.list_(pair)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([("tags", pa.string())], "column body is missing"),
        ([("body", pa.int64())], "column body is int64: it must be binary or string"),
        ([BODY, ("tags", pa.int32())], "column tags is int32: it must be string"),
        ([BODY, ("delayLevel", pa.string())], "column delayLevel is string: it must be int"),
        ([BODY, ("deliverAt", pa.timestamp("us"))], "timestamp with a time zone"),
        ([BODY, ("properties", pa.map_(pa.string(), pa.int32()))], "map<string,string>"),
        ([BODY, ("properties", pa.list_(pa.string()))], "map<string,string>"),
        ([BODY, ("Key", pa.string())], "did you mean 'keys'"),
        ([BODY, ("price", pa.float64())], "column 'price' is unknown"),
        ([BODY, BODY], "column body occurs 2 times"),
        ([BODY, ("targetBroker", pa.string())], "column targetBroker is alone"),
    ],
)
def test_a_wrong_table_is_refused_by_name(fields, words):
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        check(*fields)


def test_a_topic_comes_from_somewhere():
    with pytest.raises(ConfigError, match="no topic"):
        check(BODY, topic_given=False)
    check(BODY, ("topic", pa.string()), topic_given=False)


def test_columns_are_chosen_in_the_order_given():
    assert select_columns(["body", "topic"]).names == ["body", "topic"]
    assert tuple(select_columns(None).names) == READ_COLUMNS


@pytest.mark.parametrize(
    ("names", "words"),
    [(["bodi"], "did you mean 'body'"), (["body", "body"], "given twice"), ([], "none given")],
)
def test_a_wrong_choice_of_columns_is_refused(names, words):
    with pytest.raises(ConfigError, match=words):
        select_columns(names)
