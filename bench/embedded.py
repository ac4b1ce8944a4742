"""The embedded cluster as a process of its own: how much it takes, and what it costs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import floor
from bench.samples import Sample, process_cpu
from bench.shapes import KEY, maker
from rocketwire import Message, Producer
from rocketwire.wire import headers
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import Command, encode_command

TOPIC = "bench"
_BODY = b"x" * 200
_PULL = 32


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    name_server: str
    address: str
    pid: int

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        return process_cpu(self.pid)

    def memory(self) -> int:
        """Bytes that it holds now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0


@contextmanager
def cluster(brokers: int = 1) -> Iterator[Cluster]:
    """Start one with a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="rocketwire-bench-"))
    ready = folder / "ready.json"
    words = ("cluster", "--brokers", str(brokers), "--folder", str(folder / "store"))
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketwire.embedded", *words, "--ready-file", str(ready)]
    )
    try:
        deadline = time.monotonic() + 60
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the embedded cluster did not start")
            time.sleep(0.005)
        told: dict[str, Any] = json.loads(ready.read_text())
        yield Cluster(told["name-server"], told["broker-a"], process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def figures(scale: float) -> dict[str, float]:
    """The figures of the embedded cluster, by what they are."""
    found: dict[str, float] = {}
    began = time.monotonic()
    with cluster() as running:
        with Producer(running.name_server, group="bench") as producer:
            producer.send(Message(TOPIC, _BODY))
            found["seconds from start to the first message"] = time.monotonic() - began
            times = []
            for _ in range(max(200, int(2_000 * scale))):
                start = time.perf_counter()
                producer.send(Message(TOPIC, _BODY))
                times.append(time.perf_counter() - start)
            found["µs p50 of a send on an idle cluster"] = sorted(times)[len(times) // 2] * 1e6
        found |= _rates(running, scale)
    with cluster(3) as running:
        time.sleep(1.0)
        found["MB of memory, idle, 3 brokers"] = running.memory() / 1e6
    return found


def _rates(running: Cluster, scale: float) -> dict[str, float]:
    singles, packed = max(1_000, int(30_000 * scale)), max(20, int(400 * scale))
    make = maker(KEY, TOPIC, len(_BODY))
    single = floor.frame("broker-a", make)
    many = floor.frame("broker-a", make, batch=500)
    found: dict[str, float] = {}

    def measure(name: str, run: Any) -> None:
        before = running.cpu()
        sample: Sample = run()
        used = max(running.cpu() - before, 0.01)
        found[f"{name}/s"] = sample.rate
        found[f"{name}/s of one core of the cluster"] = sample.messages / used

    measure(
        "single sends, pipelined",
        lambda: floor.pipelined(running.address, single, singles, window=200),
    )
    measure(
        "messages in batches of 500",
        lambda: floor.pipelined(running.address, many, packed, window=4, each=500),
    )
    pulls = max(50, min(int(6_000 * scale), packed * 500 // _PULL))
    measure("messages in pulls of 32", lambda: _pull(running.address, pulls))
    return found


def _pull(address: str, count: int) -> Sample:
    """The same pull again and again: everything is in the page cache anyway."""
    fields = headers.pull(
        group="bench",
        topic=TOPIC,
        queue_id=0,
        offset=0,
        max_messages=_PULL,
        system_flag=4,
        broker="broker-a",
    )
    request = encode_command(Command(RequestCode.PULL_MESSAGE, fields, opaque=1))
    return floor.pipelined(address, request, count, window=16, each=_PULL)
