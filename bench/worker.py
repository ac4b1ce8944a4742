"""One of our paths in a process of its own, which may have the package of another commit.

``python -m bench.worker`` reads one JSON object a line from its standard input and answers with
one: what to run (the fields of ``Task``), and what was measured (those of ``Sample``) or ``{"error":
...}``. The package is the one that ``PYTHONPATH`` leads to.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from bench import consuming, ours, reference, shapes
from bench.samples import Sample

_ROOT: Final = Path(__file__).parent.parent
_LIMIT: Final = 180.0
#: Messages of a list, where a path sends lists.
LIST: Final = 500
#: Single messages without an answer, at most.
WINDOW: Final = 1024


@dataclass(frozen=True)
class Task:
    """What is to be run."""

    path: str
    shape: str
    count: int
    name_server: str
    topic: str = "bench"
    size: int = 200
    #: Whether a consumer takes all queues without asking: the pull server knows no groups.
    is_alone: bool = False


def _made(task: Task, run: int = 1) -> tuple[str, shapes.Maker, int]:
    make = shapes.maker(shapes.SHAPES[task.shape], task.topic, task.size, run)
    return task.name_server, make, task.count


def _alone(task: Task) -> Sample:
    used = shapes.construction(shapes.SHAPES[task.shape], task.topic, task.size, task.count)
    return Sample(task.count, used, used)


@cache
def _table(shape: str, size: int, count: int) -> Any:
    return shapes.table(shapes.SHAPES[shape], size, count)


def _columns(task: Task) -> Sample:
    return ours.columns(task.name_server, task.topic, _table(task.shape, task.size, task.count))


def _read(task: Task, *, looking: bool) -> Sample:
    return consuming.read(task.name_server, task.topic, task.count, looking=looking)


def _handled(task: Task, run: Callable[..., Sample], batch: int = 1) -> Sample:
    where = (task.name_server, task.topic, task.count)
    with tempfile.TemporaryDirectory(prefix="rocketwire-bench-") as folder:
        alone = {"broadcast": True, "offsets_folder": folder} if task.is_alone else {}
        return run(*where, batch=batch, looking=True, **alone)


#: Every way to send, by the words in which a user would write it.
SENDING: Final[dict[str, Callable[[Task], Sample]]] = {
    "Message(...)": _alone,
    "send": lambda task: ours.blocking(*_made(task)),
    "await send, 1024 at once": lambda task: ours.awaited(*_made(task), WINDOW),
    "submit": lambda task: ours.handed_over(*_made(task), max_in_flight=WINDOW),
    "await submit": lambda task: ours.submitted(*_made(task), max_in_flight=WINDOW),
    "submit, auto_batch": lambda task: ours.handed_over(*_made(task), auto_batch=True),
    "await submit, auto_batch": lambda task: ours.submitted(*_made(task), auto_batch=True),
    "send of 500": lambda task: ours.lists(*_made(task, LIST), LIST),
    "await submit of 500": lambda task: ours.batches(*_made(task, LIST), LIST),
    "send_many": lambda task: ours.many(*_made(task)),
    "await send_many": lambda task: ours.many_on_loop(*_made(task)),
    "send_oneway": lambda task: ours.oneway(*_made(task)),
    "await send_oneway": lambda task: ours.oneway_on_loop(*_made(task)),
    "send_table": _columns,
}

#: Every way to read. Handlers look at keys, tags, body and one property.
READING: Final[dict[str, Callable[[Task], Sample]]] = {
    "read": lambda task: _read(task, looking=False),
    "read, looked at": lambda task: _read(task, looking=True),
    "await read, looked at": lambda task: consuming.read_on_loop(
        task.name_server, task.topic, task.count, looking=True
    ),
    "handler": lambda task: _handled(task, consuming.blocking),
    "await handler": lambda task: _handled(task, consuming.on_loop),
    "handler, batch 256": lambda task: _handled(task, consuming.blocking, 256),
    "await handler, batch 256": lambda task: _handled(task, consuming.on_loop, 256),
}
PATHS: Final = SENDING | READING


def perform(task: Task) -> Sample:
    """Run a path with the package of this process."""
    gc.collect()
    return PATHS[task.path](task)


def run(task: Task) -> Sample:
    """Run a path at a pace that is measured around it."""
    before = reference.pace()
    sample = perform(task)
    return replace(sample, pace=(before + reference.pace()) / 2)


def main() -> int:
    """Obey line after line."""
    for line in sys.stdin:
        try:
            answer = asdict(run(Task(**json.loads(line))))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    return 0


class Worker:
    """The other side: a process that runs what it is told with the package of a checkout."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self._process = process

    def run(self, task: Task) -> Sample:
        """Have a path run.

        Raises:
            RuntimeError: it failed, or the process is gone or hung.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError(f"{self.name} has no pipes")
        killer = threading.Timer(_LIMIT, self._process.kill)
        killer.start()
        try:
            self._process.stdin.write(json.dumps(asdict(task)) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            killer.cancel()
        if not line:
            raise RuntimeError(f"{self.name} ended, or took more than {_LIMIT:.0f} s")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return Sample(**answer)


@contextmanager
def working(name: str, checkout: Path) -> Iterator[Worker]:
    """Start a worker with the package in ``checkout/src``; it ends with the block."""
    package = checkout / "src"
    found = subprocess.run(
        [sys.executable, "-c", "import rocketwire; print(rocketwire.__file__)"],
        env=_surroundings(package), capture_output=True, text=True, check=True, timeout=60,
    ).stdout.strip()  # fmt: skip
    if not Path(found).is_relative_to(package.resolve()):
        raise RuntimeError(f"{name} would run {found}, not the package in {package}")
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=_ROOT, env=_surroundings(package),
    )  # fmt: skip
    try:
        yield Worker(name, process)
    finally:
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate(timeout=20)


def _surroundings(package: Path) -> dict[str, str]:
    # The same order of sets and dictionaries on both sides: it moves small figures by percents.
    return os.environ | {"PYTHONPATH": str(package.resolve()), "PYTHONHASHSEED": "0"}


if __name__ == "__main__":
    sys.exit(main())
