"""Groups that gave messages up, and a command that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
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


def kill_after_lines(count: int, *arguments: str, cwd: Path) -> list[str]:
    """Run a command, and kill it (-9) once it has written so many lines; what it wrote."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketwire", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": SOURCES, "XDG_CONFIG_HOME": str(cwd)},
    )
    assert process.stdout is not None
    lines = []
    try:
        while len(lines) < count and (line := process.stdout.readline()):
            lines.append(line)
    finally:
        process.send_signal(signal.SIGKILL)
        rest = process.communicate(timeout=30)[0]
    return lines + rest.splitlines()
