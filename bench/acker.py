"""The acking server as a process: the C program where there is a compiler, else a Python one.

What it is for is told in ``acker.c``. The Python one is slower than our own client in some paths,
so figures made with it are marked.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("acker.c")


@dataclass(frozen=True)
class Acker:
    """A running acker."""

    addresses: tuple[str, ...]
    is_native: bool
    pid: int

    @property
    def name_server(self) -> str:
        """Where clients ask for routes."""
        return self.addresses[0]


def cache_folder() -> Path:
    """Where built programs are kept."""
    parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(parent) / "rocketwire" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def built(source: Path) -> Path | None:
    """A C program, compiled unless it was before; None where that can't be done."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), "")
    if not compiler or sys.platform != "linux":
        return None
    mark = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    program = cache_folder() / f"{source.stem}-{mark}"
    if not program.exists():
        partial = program.with_suffix(f".{os.getpid()}")
        command = [compiler, "-O2", "-D_GNU_SOURCE", "-pthread", "-o", str(partial), str(source)]
        subprocess.run(command, check=True, timeout=120)
        partial.rename(program)
    return program


def _program() -> list[str]:
    """The command, without its arguments."""
    program = built(_SOURCE)
    return [str(program)] if program else [sys.executable, "-m", "bench.python_acker"]


@contextmanager
def acker(brokers: int = 1, queues: int = 4, header: str = "json") -> Iterator[Acker]:
    """Start one; it ends with the block, and with this process."""
    command = _program()
    process = subprocess.Popen(
        [*command, str(brokers), str(queues), header],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        words = line.split()
        if not words or words[0] != "ready":
            raise RuntimeError(f"the acking server did not start: it said {line!r}")
        addresses = tuple(f"127.0.0.1:{port}" for port in words[1:])
        yield Acker(addresses, len(command) == 1, process.pid)
    finally:
        process.communicate(timeout=10)
