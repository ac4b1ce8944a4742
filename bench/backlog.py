"""What a backlog costs: the memory of a consumer whose handler stands still."""

from __future__ import annotations

import multiprocessing
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.consuming import LIMIT, new_group
from bench.ours import run_loop
from rocketwire import AsyncConsumer, Consumer

_SETTLED = 3.0
_spawn = multiprocessing.get_context("spawn")


def backlog_cost(name_server: str, topic: str, *, asyncio: bool) -> tuple[float, int]:
    """Bytes that a consumer takes with a backlog behind a stopped handler, and messages held.

    Measured in a process of its own, against the same process before it joined.
    """
    ours, theirs = _spawn.Pipe()
    process = _spawn.Process(target=_hold, args=(name_server, topic, asyncio, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(LIMIT):
            raise RuntimeError("the consumer told nothing of its backlog")
        found: tuple[float, int] = ours.recv()
        return found
    finally:
        process.kill()
        process.join(20)


def _hold(name_server: str, topic: str, is_asyncio: bool, told: Connection) -> None:
    before = _resident()
    consumer: Any = (AsyncConsumer if is_asyncio else Consumer)(
        name_server, group=new_group(), start="earliest"
    ).subscribe(topic)
    begun = threading.Event()

    def watch() -> None:
        begun.wait(LIMIT)
        held, since = -1, time.monotonic()
        while time.monotonic() - since < _SETTLED:
            time.sleep(0.1)
            if consumer.stats().held != held:
                held, since = consumer.stats().held, time.monotonic()
        told.send((_peak() - before, held))

    threading.Thread(target=watch, daemon=True).start()

    def stuck(_: Any) -> None:
        begun.set()
        time.sleep(LIMIT)

    if is_asyncio:
        import asyncio

        async def stuck_task(_: Any) -> None:
            begun.set()
            await asyncio.sleep(LIMIT)

        run_loop(lambda: consumer.run(stuck_task))
    else:
        consumer.run(stuck)


def _status(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024.0
    return 0.0


def _resident() -> float:
    return _status("VmRSS:")


def _peak() -> float:
    return _status("VmHWM:")
