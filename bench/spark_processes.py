"""What the processes below this one used: Spark's JVM and its Python workers, but no servers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_servers: set[int] = set()


def leave_out(process: int) -> None:
    """A server that this program started is no part of what is measured."""
    _servers.add(process)


def _below() -> dict[int, list[str]]:
    """The fields of ``/proc/PID/stat`` after the name, of all descendants."""
    found: dict[int, list[str]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                found[int(path.name)] = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
    return {pid: fields for pid, fields in found.items() if _is_ours(pid, found)}


def _is_ours(pid: int, found: dict[int, list[str]]) -> bool:
    above = pid
    while above in found and above != os.getpid():
        if above in _servers:
            return False
        above = int(found[above][1])
    return above == os.getpid() and pid != os.getpid()


def cpu_of_children() -> float:
    """Seconds of CPU of all processes below this one, living and ended."""
    tick = os.sysconf("SC_CLK_TCK")
    return sum(sum(int(value) for value in fields[11:15]) / tick for fields in _below().values())


@dataclass(frozen=True)
class Cpu:
    """Seconds of CPU of Spark's JVM, and of its Python processes."""

    jvm: float
    workers: float

    def __sub__(self, before: Cpu) -> Cpu:
        return Cpu(self.jvm - before.jvm, self.workers - before.workers)


def cpu_by_kind() -> Cpu:
    """As `cpu_of_children`, and who took it."""
    tick = os.sysconf("SC_CLK_TCK")
    jvm = workers = 0.0
    for pid, fields in _below().items():
        try:
            name = (Path("/proc") / str(pid) / "comm").read_text().strip()
        except OSError:
            continue
        own, of_children = (sum(map(int, fields[at : at + 2])) / tick for at in (11, 13))
        if name == "java":
            # Its ended children are Python's: daemons and workers.
            jvm, workers = jvm + own, workers + of_children
        else:
            workers += own + of_children
    return Cpu(jvm, workers)


def _workers() -> list[Path]:
    """What Linux tells of the Python workers of Spark."""
    found = []
    for pid in _below():
        folder = Path("/proc") / str(pid)
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark" in command and b"java" not in command.split(b"\0")[0]:
            found.append(folder)
    return found


def forget_peaks() -> None:
    """Let the peaks of workers count from here on: they are used by one job after the other."""
    for folder in _workers():
        try:
            (folder / "clear_refs").write_text("5")
        except OSError:
            continue


def peak_of_workers() -> float:
    """The most megabytes that a living worker has had since peaks were forgotten."""
    peak = 0.0
    for folder in _workers():
        try:
            lines = (folder / "status").read_text().splitlines()
        except OSError:
            continue
        sizes = [int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM")]
        peak = max([peak, *sizes])
    return peak
