"""Where the jars of Apache RocketMQ come from, and the Java programs compiled against them.

Jars are copied once per release by Maven into a folder outside the tree (``ROCKETWIRE_APACHE_CACHE``,
or ``rocketwire/apache`` in the user's cache folder) and shared by every run and every xdist worker.
A missing ``mvn`` or ``java`` is a reason to skip; anything else that goes wrong is a failure, because
a suite that silently stops talking to the real thing proves nothing.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

VERSIONS = ("4.9.7", "5.3.3", "5.5.0")

_HERE = Path(__file__).parent
_POM = _HERE / "pom.xml"
PROXY_POM = _HERE / "proxy-pom.xml"
"""Names the jars of the proxy, which has a class path of its own."""

_MAVEN_LIMIT = 540.0
_COMPILE_LIMIT = 120.0


class PreparationError(RuntimeError):
    """The tools are there, but what they should have made is not."""


def cache_folder() -> Path:
    """The folder of all downloads and builds; made when missing."""
    named = os.environ.get("ROCKETWIRE_APACHE_CACHE")
    if named:
        folder = Path(named)
    else:
        parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(parent) / "rocketwire" / "apache"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(path: Path, limit: float = _MAVEN_LIMIT) -> Iterator[None]:
    """Hold the lock file ``path`` against other processes, waiting at most ``limit`` seconds."""
    deadline = time.monotonic() + limit
    with path.open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise PreparationError(
                        f"{path} was held by another process for {limit:.0f} s; "
                        "end that process or remove the file"
                    ) from None
                time.sleep(0.2)
        yield


def require_tools(version: str, pom: Path = _POM) -> None:
    """Skip the calling test, saying why, where ``version`` cannot be run on this machine.

    Once the jars are in the cache Maven is no longer needed, and its absence is no reason to skip.
    """
    needed = ["java"] if _is_complete(_library(version, pom)) else ["java", "mvn"]
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"Apache RocketMQ {version} needs {' and '.join(missing)} on the PATH")


def class_path(version: str, pom: Path = _POM) -> str:
    """A class path with every jar of ``version``, downloading them on first use."""
    library = _library(version, pom)
    if not _is_complete(library):
        with locked(cache_folder() / f"{version}.lock"):
            if not _is_complete(library):
                _download(version, library, pom)
    return f"{library}/*"


def compiled(version: str, sources: Sequence[Path], pom: Path = _POM) -> str:
    """A class path with ``sources`` compiled against the jars of ``version``, jars included.

    The output folder is named by the text of the sources, so an edited program is compiled again
    and two checkouts with different programs share one cache.
    """
    jars = class_path(version, pom)
    classes = cache_folder() / version / f"classes-{fingerprint(sources)}"
    if not _is_complete(classes):
        with locked(cache_folder() / f"{version}.lock"):
            if not _is_complete(classes):
                _compile(jars, sources, classes)
    return f"{classes}:{jars}"


def fingerprint(sources: Sequence[Path]) -> str:
    """A short text that changes when a name or a byte of ``sources`` changes."""
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _library(version: str, pom: Path) -> Path:
    if version not in VERSIONS:
        raise ValueError(f"version is {version!r}; the pom is tried with {', '.join(VERSIONS)}")
    return cache_folder() / version / f"lib-{fingerprint([pom])}"


def _is_complete(folder: Path) -> bool:
    return (folder / ".complete").exists()


def _download(version: str, library: Path, pom: Path) -> None:
    shutil.rmtree(library, ignore_errors=True)
    command = [
        "mvn",
        "--quiet",
        "--batch-mode",
        f"--file={pom}",
        f"-Drocketmq.version={version}",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={library}",
    ]
    run(command, f"the jars of Apache RocketMQ {version}", _MAVEN_LIMIT)
    (library / ".complete").touch()


def _compile(jars: str, sources: Sequence[Path], classes: Path) -> None:
    if shutil.which("javac") is None:
        raise PreparationError("java is on the PATH but javac is not: install a JDK, not a JRE")
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    command = ["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(classes), "-cp", jars]
    names = ", ".join(source.name for source in sources)
    run([*command, *map(str, sources)], f"the compilation of {names}", _COMPILE_LIMIT)
    (classes / ".complete").touch()


def run(command: Sequence[str], what: str, limit: float, folder: Path | None = None) -> None:
    """Run a tool; ``PreparationError`` with the end of its output when ``what`` was not made."""
    try:
        done = subprocess.run(
            list(command),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PreparationError(f"{what} took more than {limit:.0f} s") from error
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-4000:]
        raise PreparationError(f"{what} failed with {done.returncode}:\n{output}")
