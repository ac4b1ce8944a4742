"""One broker as a process of its own, so that it can be killed for real."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocketwire.embedded.broker import Broker
from rocketwire.embedded.journal import Journal
from rocketwire.embedded.loop_thread import new_loop
from rocketwire.embedded.options import BrokerOptions
from rocketwire.errors import ConfigError


def run_broker(
    *,
    name_server: str,
    name: str,
    folder: str | os.PathLike[str],
    port: int = 0,
    host: str = "127.0.0.1",
    ready: Callable[[Broker], None] | None = None,
    journal_limit: int = 1000,
    **options: Any,
) -> None:
    """Run a broker in this thread until SIGTERM or SIGINT, then end it properly.

    Args:
        name_server: addresses to register with, separated by semicolons; ours or Apache's.
        name: unique in the cluster.
        folder: of its store.
        port: 0 for any free one.
        host: an address of this machine.
        ready: called once it serves.
        journal_limit: requests that the journal keeps.
        options: anything of ``BrokerOptions``.

    Raises:
        ConfigError: a setting is wrong, or the port is taken.
        StoreError: the store can't be opened.
    """
    try:
        checked = BrokerOptions(**options)
    except TypeError as error:
        raise ConfigError(f"run_broker: {error}") from None
    broker = Broker(
        name,
        Path(folder),
        [address.strip() for address in name_server.split(";") if address.strip()],
        Journal(journal_limit),
        checked,
        host=host,
        port=port,
    )
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(broker, ready))


async def _serve(broker: Broker, ready: Callable[[Broker], None] | None) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Signals can be handled in the main thread only; elsewhere the caller ends us otherwise.
        with contextlib.suppress(ValueError, RuntimeError):
            loop.add_signal_handler(number, ended.set)
    await broker.start()
    try:
        if ready is not None:
            ready(broker)
        await ended.wait()
    finally:
        await broker.stop()
        broker.release()
