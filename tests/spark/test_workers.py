"""What Spark's Python processes load."""

import sys
from pathlib import Path

import pyspark
import pytest

from rocketwire.spark.worker_python import worker_python

pytestmark = pytest.mark.skipif(
    worker_python() == sys.executable, reason="Spark's own way is in use"
)


def test_workers_have_pyspark_from_its_package(spark):
    def where(batches):
        import pyarrow
        import pyspark as theirs

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"place": [theirs.__file__]})

    (row,) = spark.range(1).coalesce(1).mapInArrow(where, "place string").collect()
    assert row.place == pyspark.__file__


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
def test_processes_of_a_source_that_spark_finds_have_it_too(spark, cluster, topic):
    frame = spark.read.format("rocketmq").options(nameServers=cluster.name_server, topic=topic)
    assert frame.load().count() == 0
    found = paths_of_daemons(spark.sparkContext._gateway.proc.pid)
    assert any("data_source" in module for module in found)
    assert {module for module, path in found.items() if "pyspark.zip" in path} == set()


def paths_of_daemons(java):
    """The Python path of each daemon that a JVM started, by what its workers do."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            variables = (folder / "environ").read_bytes().decode().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if parent == java and "pyspark.daemon" in words:
            found[words[3]] = next(text for text in variables if text.startswith("PYTHONPATH="))
    return found
