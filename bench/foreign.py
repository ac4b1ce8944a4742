"""Apache's Java client and the Go client as warm processes that run one path at a time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.acker import cache_folder
from bench.samples import Sample

VERSION = "5.3.3"
_HERE = Path(__file__).parent
_LIMIT = 180.0


class ForeignClient:
    """One process. It is told a path in a line and answers with what it measured."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self._process = process

    def run(
        self,
        path: str,
        topic: str,
        count: int,
        *,
        threads: int = 1,
        batch: int = 1,
        window: int = 1000,
        size: int = 200,
        shape: str = "body",
    ) -> Sample:
        """Send ``count`` messages on a path.

        Raises:
            RuntimeError: the client says no, or nothing.
        """
        words = (path, count, threads, batch, window, topic, size, shape)
        if self._process.stdin is None:
            raise RuntimeError(f"the {self.name} client has no input")
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self.line().split()
        if not answer or answer[0] != "ok":
            raise RuntimeError(f"the {self.name} client on {path}: {' '.join(answer)}")
        messages, seconds, cpu, p50, p99 = int(answer[1]), *map(float, answer[2:6])
        return Sample(messages, seconds, cpu, p50 or None, p99 or None)

    def line(self) -> str:
        """The next line of its output; a client that hangs is killed."""
        killer = threading.Timer(_LIMIT, self._process.kill)
        killer.start()
        try:
            return self._process.stdout.readline() if self._process.stdout is not None else ""
        finally:
            killer.cancel()


@contextmanager
def _running(name: str, command: Sequence[str], folder: Path) -> Iterator[ForeignClient]:
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder,
            env=os.environ | {"ROCKETMQ_GO_LOG_LEVEL": "error", "HOME": str(folder)},
        )
        try:
            client = ForeignClient(name, process)
            if (said := client.line().strip()) != "ready":
                raise RuntimeError(f"the {name} client did not start: {said}")
            yield client
        finally:
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate(timeout=20)


@contextmanager
def java_client(name_server: str, program: str = "BenchClient") -> Iterator[ForeignClient]:
    """Apache's own client with the JVM's default compiler and collector."""
    from tests.real import jars

    classes = jars.compiled(VERSION, [_HERE / "java" / f"{program}.java"])
    with _folder() as folder:
        command = [
            "java",
            "-Xms256m",
            "-Xmx512m",
            "-Djava.net.preferIPv4Stack=true",
            # Its faster headers; JSON, which it writes by default, would flatter us.
            "-Drocketmq.serialize.type=ROCKETMQ",
            f"-Duser.home={folder}",
            f"-Drocketmq.client.logRoot={folder}",
            "-cp",
            classes,
            program,
            name_server,
        ]
        with _running("java", command, folder) as client:
            yield client


@contextmanager
def go_client(name_server: str) -> Iterator[ForeignClient]:
    """The Go client, built once into the cache."""
    program = _build_go()
    with _folder() as folder, _running("go", [str(program), name_server], folder) as client:
        yield client


def _build_go() -> Path:
    sources = sorted((_HERE / "go").iterdir())
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    program = cache_folder() / f"go-client-{digest}"
    if not program.exists():
        partial = program.with_suffix(f".{os.getpid()}")
        command = ["go", "build", "-mod=readonly", "-o", str(partial), "."]
        subprocess.run(command, cwd=_HERE / "go", check=True, timeout=540)
        partial.rename(program)
    return program


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rocketwire-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
