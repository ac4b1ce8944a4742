"""A session with the packages of Delta Lake, Iceberg and Avro, from Maven; `make test-lake` runs these."""

import os

import pytest
from tests.spark.lake.lake_packages import packages

from rocketwire.spark import archive, session, verify_archive
from rocketwire.spark.pipelines.packages import session_settings

if not os.environ.get("ROCKETWIRE_LAKE"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    running = session(
        "lake",
        master="local[2,4]",
        memory="1500m",
        config={
            "spark.jars.packages": packages("delta", "iceberg", "avro"),
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(folder / "iceberg"),
        }
        | session_settings("delta"),
    )
    yield running
    running.stop()


@pytest.fixture(params=["delta", "iceberg"])
def kind(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "table"


@pytest.fixture
def run(spark, cluster, topic, folder, kind):
    def call(place=folder, **options):
        options = {"format": kind, "name_servers": cluster.name_server} | options
        return archive(spark, options.pop("topic", topic), place, **options)

    return call


@pytest.fixture
def check(spark, cluster, folder):
    def call(place=folder, **options):
        return verify_archive(spark, place, name_servers=cluster.name_server, **options)

    return call
