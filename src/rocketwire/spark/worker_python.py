"""The Python that Spark starts for its workers: this one, without Spark's zipped copy of PySpark.

Spark puts ``pyspark.zip`` before everything else on the path of each Python process that it starts.
There is no compiled code in it, so every process compiles all that it imports of PySpark anew: half a
second of a core for each stream, and for each kind of worker. Where PySpark is installed as a package,
what Python compiled when it was installed is at hand. So a small script takes Spark's archives off
the path, and then becomes the Python that runs here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import sys
from pathlib import Path
from typing import Final

from rocketwire.spark.java import cache_folder

_SCRIPT: Final = """#!/bin/sh
# Made by rocketwire: Python for Spark's workers, with PySpark from its package instead of a zip file.
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
  case "$entry" in
    {archives}*.zip|{jars}*.jar) ;;
    *) kept="$kept${{kept:+:}}$entry" ;;
  esac
done
unset IFS
export PYTHONPATH="$kept"
exec {python} "$@"
"""


def worker_python(cache: Path | None = None) -> str:
    """What to start as the Python of workers; this one itself where nothing is gained by a script.

    Args:
        cache: the folder that holds the script.
    """
    home = _package()
    if home is None or os.name != "posix":
        return sys.executable
    script = _SCRIPT.format(
        archives=shlex.quote(f"{home}/python/lib/"),
        jars=shlex.quote(f"{home}/jars/"),
        python=shlex.quote(sys.executable),
    )
    try:
        return _kept(script, cache or cache_folder())
    except OSError:
        return sys.executable


def _package() -> Path | None:
    """Where PySpark is installed as a package that brings its own Spark, with what it imports."""
    found = [importlib.util.find_spec(name) for name in ("pyspark", "py4j")]
    origins = [Path(spec.origin) for spec in found if spec is not None and spec.origin]
    if len(origins) < len(found) or not all(origin.is_file() for origin in origins):
        return None
    home = origins[0].resolve().parent  # as Spark itself names its home
    other = os.environ.get("SPARK_HOME")
    if other is not None and Path(other).resolve() != home:
        return None  # that Spark's workers may need another PySpark than the one here
    return home if (home / "python" / "lib").is_dir() else None


def _kept(script: str, cache: Path) -> str:
    """The path of a script with this text; made once, safe in parallel."""
    mark = hashlib.sha256(script.encode()).hexdigest()[:12]
    path = cache / f"python-{mark}"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(script)
        draft.chmod(0o755)
        draft.replace(path)
    # Nothing can be started from some file systems.
    return str(path) if os.access(path, os.X_OK) else sys.executable
