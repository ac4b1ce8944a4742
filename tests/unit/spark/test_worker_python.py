"""Spark's workers import PySpark from its package, where compiled code is, and not from a zip file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import pyspark

from rocketwire.spark.worker_python import worker_python

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the script is for a shell")
HOME = Path(pyspark.__file__).resolve().parent


@pytest.fixture(autouse=True)
def no_other_spark(monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)


def told_by(python: str, *path: str) -> list[str]:
    program = "import sys, pyspark; print(sys.executable, pyspark.__file__, *sys.path, sep='\\n')"
    done = subprocess.run(
        [python, "-c", program],
        check=True, capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": ":".join(path)},
    )  # fmt: skip
    return done.stdout.splitlines()


def test_spark_s_archives_are_not_on_the_path_and_all_else_is(tmp_path):
    python = worker_python(tmp_path / "a folder's name")
    own = [str(tmp_path / name) for name in ("with space", "star*", "mine.zip", "pyspark.zip")]
    archives = [f"{HOME}/python/lib/pyspark.zip", f"{HOME}/jars/spark-core_2.13-4.3.0.jar"]
    executable, found, *path = told_by(python, archives[0], *own[:2], archives[1], *own[2:])
    assert (executable, Path(found).resolve().parent) == (sys.executable, HOME)
    assert [entry for entry in path if entry in own] == own
    assert not set(archives) & set(path)


def test_the_script_is_made_once_and_another_python_has_another(tmp_path, monkeypatch):
    first = worker_python(tmp_path)
    before = Path(first).stat().st_mtime_ns
    assert worker_python(tmp_path) == first
    assert Path(first).stat().st_mtime_ns == before
    monkeypatch.setattr(sys, "executable", "/opt/it's/python")
    other = worker_python(tmp_path)
    assert other != first
    assert "exec '/opt/it'\"'\"'s/python' \"$@\"" in Path(other).read_text()


def test_another_spark_keeps_its_own_pyspark(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert worker_python(tmp_path) == sys.executable
    monkeypatch.setenv("SPARK_HOME", str(HOME))
    assert worker_python(tmp_path) != sys.executable


def test_without_a_place_for_the_script_python_itself_serves(tmp_path):
    (tmp_path / "file").write_text("")
    assert worker_python(tmp_path / "file") == sys.executable
    script = Path(worker_python(tmp_path))
    script.chmod(0o644)
    assert worker_python(tmp_path) == sys.executable
