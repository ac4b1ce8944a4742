"""An error that passed through Spark is told as the sentence that it began as."""

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from rocketwire.cli import failures

OURS = """[STREAM_FAILED] Query [id = 8b15, runId = 1a22] terminated with exception: Traceback (most recent call last):
  File "/lib/pyspark/sql/streaming/python_streaming_source_runner.py", line 281, in main
    offset = reader.latestOffset(start_offset_dict, limit_obj)
rocketwire.errors.MissingQueuesError: queues can't be read, after 3 s: topic orders, broker broker-b
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 8b15, runId = 1a22]
Current State: ACTIVE
"""
USERS = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/here/jobs.py", line 3, in clean
    raise ValueError("no total")
ValueError: no total

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:5)
Caused by: org.apache.spark.SparkException: again
"""
SPARKS = """[UNRESOLVED_COLUMN] A column `totl` can't be resolved. SQLSTATE: 42703; line 1 pos 7;
'Project ['totl]
+- SubqueryAlias messages
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (OURS, "queues can't be read, after 3 s: topic orders, broker broker-b"),
        (USERS, "ValueError: no total"),
        (
            SPARKS,
            "[UNRESOLVED_COLUMN] A column `totl` can't be resolved. SQLSTATE: 42703; line 1 pos 7;",
        ),
        ("", "Spark gives no reason"),
    ],
    ids=["ours", "the user's", "Spark's", "none"],
)
def test_one_line_is_told_of_pages(capsys, monkeypatch, text, line):
    monkeypatch.setattr(failures.wishes, "as_json", False)
    monkeypatch.setattr(failures.wishes, "debug", False)
    assert failures.report(PySparkException(text)) == failures.FAILED
    told = capsys.readouterr().err
    assert told == f"rocketwire: {line} (--debug shows the rest)\n"
