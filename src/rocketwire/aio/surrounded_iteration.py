"""``async for message in consumer`` with middleware: open at each message, closed at the next."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from typing import Any, Self

from rocketwire.middleware import AsyncCall
from rocketwire.system.carried_context import CarriedContext
from rocketwire.system.iteration_results import check_result
from rocketwire.system.surrounded_handler import count_of


class SurroundedIteration:
    """The messages, each surrounded. One whose middleware fails is not acknowledged."""

    def __init__(
        self,
        client: object,
        layers: tuple[Callable[..., Any], ...],
        messages: AsyncIterator[Any],
    ) -> None:
        self._client = client
        self._layers = layers
        self._messages: AsyncIterator[Any] | None = messages
        self._visit: _Visit | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        visit, self._visit = self._visit, None
        try:
            if visit is not None:
                await visit.close()
            while self._messages is not None:
                given = await anext(self._messages)
                visit = _Visit(self._client, self._layers, given)
                if await visit.open():
                    self._visit = visit
                    return visit.passed
        except BaseException:
            self._messages = None  # what is in hand is handed out again
            raise
        raise StopAsyncIteration

    def __del__(self) -> None:
        if self._visit is not None:
            self._visit.leave()


class _Visit:
    """One message, from its middleware's beginning to its end."""

    def __init__(self, client: object, layers: tuple[Callable[..., Any], ...], given: Any) -> None:
        self._call = AsyncCall(client, "process", layers, self._inside, None, count_of(given))
        self._given = given
        loop = asyncio.get_running_loop()
        self._reached: asyncio.Future[None] = loop.create_future()
        self._go_on: asyncio.Future[None] = loop.create_future()
        self._context = copy_context()
        self._carried = CarriedContext()
        self.passed: Any = None

    async def open(self) -> bool:
        """Run the middleware up to its ``call_next``; False if it ended without.

        Raises:
            Exception: what it raised.
        """
        self._task = asyncio.create_task(self._run(), context=self._context)
        await asyncio.wait((self._task, self._reached), return_when=asyncio.FIRST_COMPLETED)
        if not self._reached.done():
            await self._task
            return False
        self._carried.take(self._context)
        return True

    async def _run(self) -> None:
        check_result(await self._call(self._given))

    async def _inside(self, passed: Any) -> None:
        if self._reached.done():
            raise RuntimeError("a middleware called on twice: in a loop a message comes once")
        self.passed = passed
        self._reached.set_result(None)
        await self._go_on

    async def close(self) -> None:
        """Let the middleware go on behind its ``call_next``, to its end.

        Raises:
            Exception: what it raised.
        """
        self._carried.give_back()
        self._go_on.set_result(None)
        await self._task

    def leave(self) -> None:
        """The loop was left: the middleware is cancelled where it waits."""
        self._carried.give_back()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._task.cancel()
