"""Compresses large bodies on threads of our own, so that the event loop goes on meanwhile.

Small bodies are compressed on the loop, a few hundred KiB in one tick; what is beyond that, and every
body above 64 KiB, goes to a thread. zlib leaves the interpreter to others while it works.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, cast

from rocketwire.aio.in_flight import InFlightLimit
from rocketwire.core.sending.encode import CompressFirst, Encoder
from rocketwire.message import Message

__all__ = ["CompressFirst", "Compressor"]

#: A larger body is never compressed on the loop: 64 KiB of text take 3 ms.
_LARGE: Final = 64 * 1024
#: Bytes that are compressed on the loop in one tick.
_AT_ONCE: Final = 256 * 1024

T = TypeVar("T")

_threads: ThreadPoolExecutor | None = None


class Compressor:
    """What a producer on one loop has compressed elsewhere.

    Args:
        encoder: of the producer; from now on it says what has to be compressed first.
        loop: the producer's.
        in_flight: what a shutdown waits for.
    """

    def __init__(
        self, encoder: Encoder, loop: asyncio.AbstractEventLoop, in_flight: InFlightLimit
    ) -> None:
        self._encoder = encoder
        self._loop = loop
        self._in_flight = in_flight
        encoder.may_compress = self._may_compress
        self._left = _AT_ONCE

    def _may_compress(self, size: int) -> bool:
        """Whether a body may be compressed on the loop, in this tick."""
        if size > _LARGE or size > self._left:
            return False
        if self._left == _AT_ONCE:
            self._loop.call_soon(self._begin_tick)
        self._left -= size
        return True

    def _begin_tick(self) -> None:
        self._left = _AT_ONCE

    async def prepare(self, message: Message) -> None:
        """Compress a body on a thread; the next send of the message finds it done."""
        body, in_flight = message.body, self._in_flight
        in_flight.awaited += 1  # a shutdown waits for it
        try:
            done = await self._loop.run_in_executor(_pool(), self._encoder.compress, body)
        finally:
            in_flight.awaited -= 1
            in_flight.look_around()
        self._encoder.prepared[id(body)] = (body, *done)

    async def start(
        self,
        message: Message | Sequence[Message],
        again: Callable[[], T],
        check_loop: Callable[[], None],
    ) -> T:
        """Start a send again whose body had to be compressed first."""
        await self.prepare(cast("Message", message))  # a list travels as it is
        with self.forgetting(message):
            check_loop()
            return again()

    @contextlib.contextmanager
    def forgetting(self, message: Message | Sequence[Message]) -> Iterator[None]:
        """After an error in the block nothing is left of what was prepared for it."""
        try:
            yield
        except BaseException:
            if isinstance(message, Message):
                self.forget([message])
            raise

    def takes_long(self, message: Message) -> bool:
        """Whether the body of a message is compressed on a thread."""
        return len(message.body) > _LARGE and self._encoder.is_compressed(message)

    async def prepare_all(self, messages: list[Message]) -> None:
        """Compress all large bodies among these, one after another."""
        for message in messages:
            if self.takes_long(message):
                await self.prepare(message)

    @contextlib.asynccontextmanager
    async def beforehand(self, messages: list[Message]) -> AsyncIterator[None]:
        """Have large bodies compressed for what is done in the block, and nothing left of it after."""
        try:
            await self.prepare_all(messages)
            yield
        finally:
            self.forget(messages)

    def forget(self, messages: list[Message]) -> None:
        """What was prepared of these and not used."""
        for message in messages:
            self._encoder.prepared.pop(id(message.body), None)


def _pool() -> ThreadPoolExecutor:
    global _threads  # noqa: PLW0603 - one for all producers of the process
    if _threads is None:
        _threads = ThreadPoolExecutor(2, thread_name_prefix="rocketwire-compress")
    return _threads


def _forget() -> None:
    """In a forked child: the threads are the parent's."""
    global _threads  # noqa: PLW0603
    _threads = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
