"""Where archives are, and which package a session lacks."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines import packages
from rocketwire.spark.pipelines.archive_place import (
    check_place,
    default_checkpoint,
    is_table_name,
)
from rocketwire.spark.pipelines.packages import package_for, require_format
from rocketwire.spark.pipelines.small_files import local_path, place_beside, place_text
from rocketwire.spark.pipelines.state import PublishState


@pytest.mark.parametrize(
    ("given", "local"),
    [
        ("lake", Path("lake")),
        ("/data/lake", Path("/data/lake")),
        ("file:///data/lake", Path("/data/lake")),
        ("file:/data/lake", Path("/data/lake")),
        (Path("/data/a:b"), Path("/data/a:b")),
        ("s3a://bucket/lake", None),
        ("hdfs:///lake", None),
        (Path("s3a://bucket/lake"), None),
    ],
)
def test_a_place_is_local_unless_its_scheme_says_otherwise(given, local):
    assert local_path(given) == local


def test_a_slash_that_path_takes_away_is_put_back():
    assert place_text(Path("s3a://bucket/lake")) == "s3a://bucket/lake"
    assert place_text("hdfs:///lake") == "hdfs:///lake"
    assert place_text(Path("/data/lake")) == "/data/lake"
    assert default_checkpoint(Path("s3a://bucket/a/lake")) == "s3a://bucket/a/.lake.checkpoint"
    assert place_beside("s3a://bucket/lake/", "lock") == "s3a://bucket/.lake.lock"


def test_an_iceberg_table_is_a_name_with_dots_and_without_slashes():
    assert is_table_name("lake.shop.orders", "iceberg")
    assert not is_table_name("lake.shop.orders", "delta")
    assert not is_table_name("./lake.d", "iceberg")
    assert not is_table_name("lake", "iceberg")
    assert not is_table_name("..", "iceberg")
    with pytest.raises(ConfigError, match=r"checkpoint is missing: a\.b is a table"):
        check_place("a.b", "iceberg", None)
    check_place("a.b", "iceberg", "progress")
    with pytest.raises(ConfigError, match="format is 'orc': parquet, delta or iceberg"):
        check_place("a", "orc", None)


class _Settings(dict):
    def get(self, name, default=None):
        return dict.get(self, name, default)


class _Session:
    """As much of a session as is asked."""

    def __init__(self, version, **settings):
        self.version = version
        self.conf = _Settings({name.replace("_", "."): value for name, value in settings.items()})


def told(monkeypatch, session, kind, *, is_found):
    monkeypatch.setattr(packages, "_is_found", lambda *_: is_found)
    with pytest.raises(ConfigError) as caught:
        require_format(session, kind)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_package_for_this_spark_is_named(monkeypatch):
    text = told(monkeypatch, _Session("4.1.3"), "delta", is_found=False)
    assert "spark.jars.packages=io.delta:delta-spark_4.1_2.13:" in text
    assert "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension" in text
    text = told(monkeypatch, _Session("4.0.1"), "iceberg", is_found=False)
    assert "spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:" in text
    text = told(monkeypatch, _Session("4.9.0"), "iceberg", is_found=False)
    assert "none for Spark 4.9.0 is known to this release, the newest is org.apache.iceberg" in text
    assert package_for("avro", "4.1.3") == "org.apache.spark:spark-avro_2.13:4.1.3"


def test_a_setting_that_delta_needs_is_named(monkeypatch):
    text = told(monkeypatch, _Session("4.1.3"), "delta", is_found=True)
    assert "must be started with spark.sql.extensions=io.delta" in text


def test_a_publishing_job_keeps_its_record_on_this_machine():
    with pytest.raises(ConfigError, match="state: s3a://bucket/x is not on this machine"):
        PublishState.open(Path("s3a://bucket/x"), {}, {})
