"""The job of the how-to, submitted to a cluster whose Python has never heard of this package."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import uuid
import venv
import zipfile
from pathlib import Path

import pytest

# Test modules are imported by path, so a neighbour is found by its folder.
sys.path.insert(0, str(Path(__file__).parent))
from standalone import SOURCE, bare_environment

PACKAGES = ("rocketwire", "pyspark_rocketmq")
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
        for package in PACKAGES:
            for file in sorted((SOURCE / package).rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(SOURCE))
    return str(path)


def packed(folder, path):
    """An environment with everything, as venv-pack makes it: a tar whose root is the environment.

    The two packages of others are links in it, which saves half a minute of packing and nothing else.
    """
    python_with(folder, "pyarrow", "numpy")
    site = next(folder.glob("lib/python*/site-packages"))
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(SOURCE / package, site / package, ignore=ignored)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(folder, ".")
    return str(path)


def job_of_the_page(name_server, topic):
    (job,) = re.findall(r'```python title="job.py"\n(.*?)```', PAGE.read_text(), re.DOTALL)
    assert "127.0.0.1:9876" in job
    return job.replace("127.0.0.1:9876", name_server).replace(
        '"topic", "job"', f'"topic", "{topic}"'
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shipping")


@pytest.fixture(scope="module")
def plain(folder):
    """A Python with Arrow, and without our package."""
    python = python_with(folder / "plain", "pyarrow", "numpy")
    missing = subprocess.run(
        [python, "-c", "import rocketwire"], env=alone(python), capture_output=True, check=False
    )
    assert b"No module named 'rocketwire'" in missing.stderr
    return python


def alone(python):
    return bare_environment() | {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}


@pytest.fixture
def submit(cluster, folder, standalone):
    """Submits a job, and returns what it printed."""

    def call(text, surroundings, *arguments):
        job = folder / f"{uuid.uuid4().hex}.py"
        job.write_text(text)
        command = os.path.join(surroundings["SPARK_HOME"], "bin", "spark-submit")
        light = "-XX:TieredStopAtLevel=1"
        done = subprocess.run(
            [
                command, "--master", standalone.master, *arguments,
                "--driver-memory", "512m", "--executor-memory", "512m", "--total-executor-cores", "1",
                "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false",
                "--conf", f"spark.executor.extraJavaOptions={light}",
                "--conf", "spark.sql.shuffle.partitions=2", "--driver-java-options", light,
                str(job),
            ],
            env=surroundings, cwd=folder, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        # It ran there, and not beside the test.
        assert standalone.master in done.stderr
        return done.stdout

    return call


@pytest.mark.timeout(900)
def test_a_zip_of_the_package_is_all_that_a_cluster_with_arrow_needs(
    submit, cluster, folder, plain, topic
):
    told = submit(
        job_of_the_page(cluster.name_server, topic),
        alone(plain),
        *("--py-files", zipped(folder / "rocketwire.zip")),
    )
    assert "1000 rows" in told


@pytest.mark.timeout(900)
def test_an_environment_that_travels_needs_nothing_on_the_cluster_but_python(
    submit, standalone, cluster, folder, topic
):
    archive = packed(folder / "environment", folder / "environment.tar.gz")
    job = job_of_the_page(cluster.name_server, topic)
    # Spark finds the source in it by itself.
    job, count = re.subn(r"register\(spark\).*", "", job)
    assert count == 1
    job += """
def where(_):
    import sys, rocketwire
    return f"executor: {sys.prefix} {rocketwire.__file__}"

print(spark.sparkContext.parallelize([0], 1).map(where).first())
"""
    python = "./environment/bin/python"
    told = submit(
        job.replace("deduplicate, register, session", "deduplicate, session"),
        alone(python),
        *("--archives", f"{archive}#environment"),
    )
    assert "1000 rows" in told
    # The executor has its own copy, below its worker's folder.
    prefix, module = re.findall(r"executor: (\S+) (\S+)", told)[0]
    assert any(prefix.startswith(str(place)) for place in standalone.folders)
    assert module.startswith(prefix)
