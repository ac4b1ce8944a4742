"""Groups that gave messages up, and a command that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketwire import Consumer

SOURCES = str(Path(__file__).parents[2] / "src")


def give_up(name_server: str, topic: str, group: str, count: int) -> None:
    """Have a group give up so many messages of a topic."""

    def fail(message: Any) -> None:
        raise LookupError(f"no such order: {message.text}")

    with Consumer(name_server, group=group, start="earliest", max_attempts=1) as consumer:
        consumer.subscribe(topic).join()
        thread = threading.Thread(target=consumer.run, args=(fail,))
        thread.start()
        deadline = time.monotonic() + 60
        while consumer.stats().dead_lettered < count and time.monotonic() < deadline:
            time.sleep(0.02)
        consumer.stop()
        thread.join(60)
        assert consumer.stats().dead_lettered >= count


def _start(arguments: tuple[str, ...], cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rocketwire", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": SOURCES, "XDG_CONFIG_HOME": str(cwd)},
    )


def kill_after_lines(count: int, *arguments: str, cwd: Path) -> None:
    """Run a command, and kill it (-9) once it has written so many lines of JSON."""
    process = _start((*arguments, "--json"), cwd)
    assert process.stdout is not None
    try:
        for _ in range(count):
            process.stdout.readline()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)


def run_until(
    condition: Callable[[], bool], *arguments: str, cwd: Path, number: int = signal.SIGKILL
) -> subprocess.CompletedProcess[str]:
    """Run a command until something holds, and end it then with a signal."""
    process = _start(arguments, cwd)
    deadline = time.monotonic() + 60
    try:
        while process.poll() is None and not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)
