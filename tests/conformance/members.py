"""Members of a group, blocking or asyncio, behind one face."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketwire import AsyncConsumer, Consumer
from rocketwire.message import MessageQueue, StoredMessage

LIMIT = 60.0
_numbers = itertools.count(1)


def unique_group() -> str:
    return f"group-{os.getpid()}-{next(_numbers)}"


class Seen:
    """What handlers saw, in order; somebody may wait for it."""

    def __init__(self) -> None:
        self.all: list[tuple[str, StoredMessage]] = []
        self._changed = threading.Condition()

    def add(self, who: str, message: StoredMessage) -> None:
        with self._changed:
            self.all.append((who, message))
            self._changed.notify_all()

    def wait(self, condition: Callable[[Seen], bool], limit: float = LIMIT) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self), limit):
                raise AssertionError(f"not seen in {limit} s: {len(self.all)} messages came")

    def wait_for_bodies(self, bodies: set[str], limit: float = LIMIT) -> None:
        self.wait(lambda seen: bodies <= set(seen.bodies()), limit)

    def bodies(self, who: str | None = None) -> list[str]:
        return [m.text for name, m in self.all if who in {None, name}]

    def messages(self) -> list[StoredMessage]:
        return [message for _, message in self.all]


class BlockingMember:
    """A ``Consumer`` that runs on a thread."""

    name = "blocking"

    def __init__(self, name_server: str, group: str, *topics: str, **options: Any) -> None:
        handler = options.pop("handler", None)
        self.seen: Seen = options.pop("seen", None) or Seen()
        self.label: str = options.pop("label", "")
        tags = options.pop("tags", "*")
        self.consumer: Any = self.make(name_server, group=group, **options)
        for topic in topics:
            self.consumer.subscribe(topic, tags)
        self._handler = handler or self._note
        self._thread = threading.Thread(target=self._main, daemon=True)
        self.error: BaseException | None = None

    make: Callable[..., Any] = Consumer

    def _note(self, given: Any) -> None:
        for message in given if isinstance(given, list) else [given]:
            self.seen.add(self.label, message)

    def _main(self) -> None:
        try:
            self.consumer.run(self._handler)
        except BaseException as error:
            self.error = error

    def start(self) -> Any:
        self.consumer.join()
        self._thread.start()
        return self

    def stop(self) -> None:
        self.consumer.stop()
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        self.consumer.shutdown()
        if self.error is not None:
            raise self.error

    def assignment(self) -> tuple[MessageQueue, ...]:
        return self.consumer.assignment()

    def stats(self) -> Any:
        return self.consumer.stats()

    def lag(self) -> dict[MessageQueue, int]:
        return self.ask("lag")

    def ask(self, method: str, *args: Any) -> Any:
        """Call something of the consumer that waits."""
        return getattr(self.consumer, method)(*args)


class AsyncMember(BlockingMember):
    """An ``AsyncConsumer`` on an event loop in a thread."""

    name = "asyncio"
    make = AsyncConsumer

    def start(self) -> Any:
        self._joined = threading.Event()
        self._thread.start()
        assert self._joined.wait(LIMIT)
        if self.error is not None:
            raise self.error
        return self

    def _main(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            self.error = error
        finally:
            self._joined.set()

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self.consumer:
            await self.consumer.join()
            self._joined.set()
            await self.consumer.run(self._handler)

    def stop(self) -> None:
        self.consumer.stop()
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def ask(self, method: str, *args: Any) -> Any:
        work = getattr(self.consumer, method)(*args)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT)


class BlockingTaker(BlockingMember):
    """A ``Consumer`` whose deliveries are taken and left open, on a thread."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.taken: list[Any] = []
        self.loop_left = threading.Event()

    def _main(self) -> None:
        try:
            for delivery in self.consumer.deliveries():
                self.taken.append(delivery)
        except BaseException as error:
            self.error = error
        finally:
            self.loop_left.set()

    def take(self, count: int) -> list[Any]:
        """All that came, when so many have; by topic and offset."""
        eventually(lambda: len(self.taken) >= count)
        assert len(self.taken) == count
        return sorted(self.taken, key=lambda d: (d.message.queue, d.message.offset))

    def leave_loop(self) -> None:
        """End the loop, and nothing else."""
        self.consumer.stop()
        assert self.loop_left.wait(LIMIT)

    def decide(self, delivery: Any, verdict: str, *args: Any) -> bool:
        return getattr(delivery, verdict)(*args)


class AsyncTaker(BlockingTaker, AsyncMember):
    """An ``AsyncConsumer`` whose deliveries are taken and left open."""

    name = "asyncio"
    _main = AsyncMember._main
    make = AsyncConsumer

    async def _live(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with self.consumer:
            await self.consumer.join()
            self._joined.set()
            async for delivery in self.consumer.deliveries():
                self.taken.append(delivery)
            self.loop_left.set()
            await self._over.wait()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.leave_loop()
            self._loop.call_soon_threadsafe(self._over.set)
        super().stop()

    def decide(self, delivery: Any, verdict: str, *args: Any) -> bool:
        async def decide() -> bool:
            return await getattr(delivery, verdict)(*args)

        return asyncio.run_coroutine_threadsafe(decide(), self._loop).result(LIMIT)


TAKERS = {"blocking": BlockingTaker, "asyncio": AsyncTaker}
MEMBERS = {"blocking": BlockingMember, "asyncio": AsyncMember}


def eventually(condition: Callable[[], bool], limit: float = LIMIT) -> None:
    """Wait for something that nobody tells of."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"it did not come about in {limit} s")
        time.sleep(0.02)


def shared(*members: BlockingMember) -> list[MessageQueue]:
    """The queues of all members, as often as they are assigned."""
    return sorted(queue for member in members for queue in member.assignment())
