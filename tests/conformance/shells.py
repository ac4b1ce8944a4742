"""Both shells behind one face, so that every scenario is written once."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rocketwire import AsyncProducer, AsyncReader, Producer, Reader, TopicNotFoundError
from rocketwire.message import Message, SendResult, StoredMessage

T = TypeVar("T")
LIMIT = 60.0


class BlockingShell:
    """Producer and Reader."""

    name = "blocking"

    def __init__(self, name_server: str, **options: Any) -> None:
        self.producer = Producer(name_server, **({"group": "conformance"} | options))
        reader_options = {k: v for k, v in options.items() if k in READER_OPTIONS}
        self.reader = Reader(name_server, **reader_options)

    def __enter__(self) -> BlockingShell:
        self.producer.start()
        self.reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.shutdown()
        self.producer.shutdown()

    def send(self, message: Any, **how: Any) -> SendResult:
        return self.producer.send(message, **how)

    def send_oneway(self, message: Any, **how: Any) -> None:
        self.producer.send_oneway(message, **how)

    def submit(self, message: Any, **how: Any) -> Callable[[], SendResult]:
        delivery = self.producer.submit(message, **how)
        return lambda: delivery.result(LIMIT)

    def send_many(self, messages: list[Message], **how: Any) -> list[Any]:
        return self.producer.send_many(messages, **how)

    def flush(self) -> None:
        self.producer.flush(LIMIT)

    def publish_queues(self, topic: str) -> Any:
        return self.producer.publish_queues(topic)

    def create_topic(self, topic: str, queues: int) -> None:
        self.producer.create_topic(topic, queues)

    def read(self, topic: Any, **how: Any) -> list[StoredMessage]:
        return list(self.reader.read(topic, **how))

    def ask_reader(self, method: str, *args: Any, **how: Any) -> Any:
        return getattr(self.reader, method)(*args, **how)

    def recall(self, topic: Any, handle: Any) -> str:
        return self.producer.recall(topic, handle)

    def request(self, message: Any, **how: Any) -> StoredMessage:
        return self.producer.request(message, **how)

    def run_step(self, step: Callable[[], Any]) -> Any:
        return step()

    def transact(self, message: Any, *steps: Any, **how: Any) -> Any:
        """A transaction with ``steps`` in its block: its methods by name, calls, and errors to raise."""
        with self.producer.transaction(message, **how) as self.tx:
            for step in steps:
                if isinstance(step, BaseException):
                    raise step
                getattr(self.tx, step)() if isinstance(step, str) else step()
        return self.tx

    def health(self) -> Any:
        return {h.broker: h for h in self.producer.health()}

    def stats(self) -> Any:
        return self.producer.stats()


READER_OPTIONS = {"credentials", "tls", "namespace", "namespace_v2", "address_map", "header"}


class AsyncShell:
    """AsyncProducer and AsyncReader on an event loop in a thread."""

    name = "asyncio"

    def __init__(self, name_server: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._make = lambda: AsyncProducer(name_server, **({"group": "conformance"} | options))
        reader_options = {k: v for k, v in options.items() if k in READER_OPTIONS}
        self._make_reader = lambda: AsyncReader(name_server, **reader_options)

    def __enter__(self) -> AsyncShell:
        self._thread.start()
        try:
            self.producer, self.reader = self._run(self._start())
        except BaseException:
            self._stop_loop()
            raise
        return self

    async def _start(self) -> tuple[AsyncProducer, AsyncReader]:
        return await self._make().start(), await self._make_reader().start()

    def __exit__(self, *_: object) -> None:
        try:
            self._run(self.reader.shutdown())
            self._run(self.producer.shutdown())
        finally:
            self._stop_loop()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()

    def _run(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(LIMIT)

    def send(self, message: Any, **how: Any) -> SendResult:
        return self._run(self.producer.send(message, **how))

    def send_oneway(self, message: Any, **how: Any) -> None:
        self._run(self.producer.send_oneway(message, **how))

    def submit(self, message: Any, **how: Any) -> Callable[[], SendResult]:
        delivery = self._run(self.producer.submit(message, **how))
        return lambda: self._run(delivery)

    def send_many(self, messages: list[Message], **how: Any) -> list[Any]:
        return self._run(self.producer.send_many(messages, **how))

    def flush(self) -> None:
        self._run(self.producer.flush(LIMIT))

    def publish_queues(self, topic: str) -> Any:
        return self._run(self.producer.publish_queues(topic))

    def create_topic(self, topic: str, queues: int) -> None:
        self._run(self.producer.create_topic(topic, queues))

    def read(self, topic: Any, **how: Any) -> list[StoredMessage]:
        async def read() -> list[StoredMessage]:
            return [message async for message in self.reader.read(topic, **how)]

        return self._run(read())

    def ask_reader(self, method: str, *args: Any, **how: Any) -> Any:
        return self._run(getattr(self.reader, method)(*args, **how))

    def recall(self, topic: Any, handle: Any) -> str:
        return self._run(self.producer.recall(topic, handle))

    def request(self, message: Any, **how: Any) -> StoredMessage:
        return self._run(self.producer.request(message, **how))

    def run_step(self, step: Callable[[], Any]) -> Any:
        return self._run(step())

    def transact(self, message: Any, *steps: Any, **how: Any) -> Any:
        async def run() -> Any:
            async with self.producer.transaction(message, **how) as self.tx:
                for step in steps:
                    if isinstance(step, BaseException):
                        raise step
                    done = getattr(self.tx, step)() if isinstance(step, str) else step()
                    if asyncio.iscoroutine(done):
                        await done
            return self.tx

        return self._run(run())

    def health(self) -> Any:
        return {h.broker: h for h in self.producer.health()}

    def stats(self) -> Any:
        return self.producer.stats()


SHELLS = {"blocking": BlockingShell, "asyncio": AsyncShell}


def read_all(shell: Any, topic: str, count: int) -> list[StoredMessage]:
    """What the topic holds; asked again while a message or a new topic's route is on its way."""
    found: list[StoredMessage] = []
    for _ in range(100):
        # The broker tells its name server of a new topic after it has answered.
        with contextlib.suppress(TopicNotFoundError):
            found = shell.read(topic)
        if len(found) >= count:
            return found
        time.sleep(0.05)
    return found
