"""The one thread in which all servers of an embedded cluster live."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable
from typing import Any, Final

from rocketwire.errors import ClientClosedError

_PATIENCE: Final = 30.0


class LoopThread:
    """An event loop in a daemon thread. ``run`` may be used from any other thread."""

    def __init__(self, name: str = "rocketwire-embedded") -> None:
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        """Begin; returns when the loop is there."""
        self._thread.start()
        self._ready.wait(_PATIENCE)

    def _main(self) -> None:
        loop = new_loop()
        asyncio.set_event_loop(loop)
        self._loop = loop
        self._ready.set()
        try:
            loop.run_forever()
        finally:
            with contextlib.suppress(RuntimeError):
                loop.run_until_complete(_wind_up())
            asyncio.set_event_loop(None)
            loop.close()

    def run(self, work: Callable[[], Any]) -> Any:
        """Call a function, or await a coroutine function, in the loop, and wait for its result.

        Raises:
            ClientClosedError: the cluster is not running.
        """
        loop = self._loop
        if loop is None or loop.is_closed() or not self._thread.is_alive():
            raise ClientClosedError("the embedded cluster is not running: start it first")
        if threading.current_thread() is self._thread:
            raise ClientClosedError("called from the cluster's own thread: use another one")

        async def wrapper() -> Any:
            result = work()
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(wrapper(), loop).result(_PATIENCE)

    def stop(self) -> None:
        """End the loop and the thread."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_PATIENCE)


async def _wind_up() -> None:
    """Let cancelled tasks end, and aborted connections be closed, before the loop goes."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)
    # Some loops close a connection's handle only when they have looked at the network again.
    await asyncio.sleep(0.001)


def new_loop() -> asyncio.AbstractEventLoop:
    """Uvloop's where it is installed: it has twice the throughput."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
