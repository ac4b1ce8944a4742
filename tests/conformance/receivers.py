"""Simple consumers, blocking or asyncio, behind one face."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

from rocketwire import AsyncSimpleConsumer, SimpleConsumer

LIMIT = 60.0


class BlockingReceiver:
    """A ``SimpleConsumer``; what is done to a message is done through it."""

    name = "blocking"

    def __init__(self, name_server: str, **options: Any) -> None:
        self.consumer: Any = SimpleConsumer(name_server, **options)

    def subscribe(self, *args: Any, **how: Any) -> None:
        assert self.consumer.subscribe(*args, **how) is self.consumer

    def start(self) -> None:
        assert self.consumer.start() is self.consumer

    def shutdown(self) -> None:
        self.consumer.shutdown()

    def receive(self, *args: Any, **how: Any) -> list[Any]:
        return self.consumer.receive(*args, **how)

    def acknowledge(self, messages: Iterable[Any]) -> None:
        self.consumer.acknowledge(messages)

    def do(self, message: Any, what: str, *args: Any) -> None:
        getattr(message, what)(*args)


class AsyncReceiver(BlockingReceiver):
    """An ``AsyncSimpleConsumer`` on an event loop in a thread."""

    name = "asyncio"

    def __init__(self, name_server: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.consumer = AsyncSimpleConsumer(name_server, **options)

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT)

    def start(self) -> None:
        assert self._run(self.consumer.start()) is self.consumer

    def shutdown(self) -> None:
        if self._loop.is_closed():
            return
        self._run(self.consumer.shutdown())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()

    def receive(self, *args: Any, **how: Any) -> list[Any]:
        return self._run(self.consumer.receive(*args, **how))

    def acknowledge(self, messages: Iterable[Any]) -> None:
        self._run(self.consumer.acknowledge(messages))

    def do(self, message: Any, what: str, *args: Any) -> None:
        self._run(getattr(message, what)(*args))


RECEIVERS = {"blocking": BlockingReceiver, "asyncio": AsyncReceiver}
