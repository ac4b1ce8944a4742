"""A worker that Spark has left ends without a word; one that it has not goes on."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from rocketwire.spark.early_end import until_left

# Stands in for PySpark's worker: what ``worker.process`` and its serializers do.
WORKER = """
import socket
from pyspark import TaskContext
from rocketwire.spark.early_end import until_left

ours, theirs = socket.socketpair()

def checked(batches):
    for batch in batches:
        yield batch

def main():
    batches = {batches}
    try:
        for number in batches:
            {leave}
            ours.sendall(bytes(1000))
    finally:
        batches.close()

if {is_task}:
    TaskContext._getOrCreate()
try:
    main()
except Exception as error:
    print("goes on after", type(error).__name__)
"""
LEAVES = "theirs.close()"


def run(leave, *, batches="until_left(iter(range(3)))", is_task=True):
    program = WORKER.format(leave=leave, batches=batches, is_task=is_task)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_a_worker_that_spark_has_left_ends_in_silence():
    assert run(LEAVES) == (0, "", "")


def test_so_does_one_that_closes_only_what_it_has_put_around_the_batches():
    """PySpark checks each batch in generators of its own, and closes the outermost."""
    assert run(LEAVES, batches="checked(checked(until_left(iter(range(3)))))") == (0, "", "")
    by_map = "checked(map(lambda batch: batch, until_left(iter(range(3)))))"
    assert run(LEAVES, batches=by_map) == (0, "", "")


def test_a_worker_whose_rows_are_refused_goes_on_to_tell_why():
    assert run("raise ValueError") == (0, "goes on after ValueError\n", "")


def test_a_broken_pipe_outside_of_a_worker_ends_nothing():
    assert run(LEAVES, is_task=False) == (0, "goes on after BrokenPipeError\n", "")


def test_batches_pass_through_unchanged_outside_of_a_worker():
    assert list(until_left(iter([1, 2, 3]))) == [1, 2, 3]
    batches = until_left(iter([1, 2, 3]))
    next(batches)
    batches.close()
