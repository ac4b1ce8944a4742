"""The job of the how-to, submitted to a cluster whose Python has never heard of this package."""

import importlib.util
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from rocketwire.embedded.cluster import EmbeddedCluster

# Test modules are imported by path, so a neighbour is found by its folder.
sys.path.insert(0, str(Path(__file__).parent))
from standalone import SOURCE, StandaloneSpark, environment

PAGE = SOURCE.parent / "docs" / "howto" / "spark-cluster.md"


def python_with(folder, *packages):
    """A Python that has these packages of ours, and no others."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in packages:
        home = Path(importlib.util.find_spec(name).origin).parent
        # Wheels keep the libraries that they bring in a folder beside the package.
        for part in (home, home.with_name(f"{name}.libs")):
            if part.exists():
                (site / part.name).symlink_to(part)
    return str(folder / "bin" / "python")


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        for package in ("rocketwire", "pyspark_rocketmq"):
            for file in sorted((SOURCE / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(SOURCE))
    return str(path)


def job_of_the_page(name_server):
    (job,) = re.findall(r'```python title="job.py"\n(.*?)```', PAGE.read_text(), re.DOTALL)
    assert "127.0.0.1:9876" in job
    return job.replace("127.0.0.1:9876", name_server)


@pytest.mark.timeout(900)
def test_a_zip_of_the_package_is_all_that_a_cluster_with_arrow_needs(tmp_path):
    python = python_with(tmp_path / "plain", "pyarrow", "numpy")

    def surroundings(host="127.0.0.1"):
        around = environment(host) | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
        del around["PYTHONPATH"]
        return around

    missing = subprocess.run(
        [python, "-c", "import rocketwire"], env=surroundings(), capture_output=True, check=False
    )
    assert b"No module named 'rocketwire'" in missing.stderr
    with (
        EmbeddedCluster(brokers=1) as cluster,
        StandaloneSpark(tmp_path, workers=1, surroundings=surroundings) as spark,
    ):
        job = tmp_path / "job.py"
        job.write_text(job_of_the_page(cluster.name_server))
        submit = os.path.join(surroundings()["SPARK_HOME"], "bin", "spark-submit")
        light = "-XX:TieredStopAtLevel=1"
        done = subprocess.run(
            [
                submit, "--master", spark.master, "--py-files", zipped(tmp_path / "rocketwire.zip"),
                "--driver-memory", "512m", "--executor-memory", "512m",
                "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false",
                "--conf", f"spark.executor.extraJavaOptions={light}",
                "--conf", "spark.sql.shuffle.partitions=2", "--driver-java-options", light,
                str(job),
            ],
            env=surroundings(), cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert "1000 rows" in done.stdout
    # It ran there, and not beside the test.
    assert spark.master in done.stderr
