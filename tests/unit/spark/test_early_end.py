"""A worker that Spark has left ends without a word; one that it has not goes on."""

import socket
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from rocketwire.spark.early_end import is_gone, until_left

# Stands in for PySpark's worker, which is known by the name of its module.
WORKER = """
import socket
from rocketwire.spark.early_end import until_left

ours, theirs = socket.socketpair()
code = '''
def main(outfile):
    batches = until_left(iter(range(3)))
    next(batches)
    {leave}
    batches.close()
'''
space = {{"__name__": "pyspark.worker", "theirs": theirs, "until_left": until_left}}
exec(code.format(leave="{leave}"), space)
space["main"](ours.makefile("wb"))
print("goes on")
"""


def run(leave):
    program = WORKER.format(leave=leave)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_worker_that_spark_has_left_ends_in_silence():
    done = run("theirs.close()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_worker_whose_rows_are_refused_goes_on_to_tell_why():
    done = run("pass")
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")


def test_batches_pass_through_unchanged_outside_of_a_worker():
    assert list(until_left(iter([1, 2, 3]))) == [1, 2, 3]
    batches = until_left(iter([1, 2, 3]))
    next(batches)
    batches.close()


def test_a_connection_is_gone_when_the_other_side_closed_it():
    ours, theirs = socket.socketpair()
    with ours:
        assert not is_gone(ours.fileno())
        theirs.sendall(b"data that nobody has read does not count")
        assert not is_gone(ours.fileno())
        theirs.close()
        assert is_gone(ours.fileno())
