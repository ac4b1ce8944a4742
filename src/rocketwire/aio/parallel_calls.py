"""Runs the chains of several messages as tasks, so that all surround one request.

Each waits at its end until the request is answered, which the caller's own task sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rocketwire.message import Message
from rocketwire.system.many_calls import ManyCalls

#: Runs the chain of a message with something else at its end.
Begin = Callable[[Message, Callable[[Message], Awaitable[Any]]], Awaitable[Any]]
SendAll = Callable[[list[Message]], Awaitable[tuple[Any, list[Any]]]]


async def call_together(calls: ManyCalls, begin: Begin, send_all: SendAll) -> None:
    """Run all chains; the request is sent when each has come to its end, or has ended."""
    together = _Together(calls, begin)
    tasks = [asyncio.create_task(together.chain(place)) for place in range(len(calls.messages))]
    try:
        await together.all_there.wait()
        places = calls.sendable()
        if places:
            try:
                calls.sent(places, await send_all(calls.passed(places)))
            except Exception as error:  # noqa: BLE001 - each chain gets it, and the caller what they make of it
                calls.failed(places, error)
        together.answered.set()
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class _Together:
    def __init__(self, calls: ManyCalls, begin: Begin) -> None:
        self._calls = calls
        self._begin = begin
        self._missing = set(range(len(calls.messages)))
        self.all_there = asyncio.Event()
        self.answered = asyncio.Event()

    def _arrived(self, place: int) -> None:
        self._missing.discard(place)
        if not self._missing:
            self.all_there.set()

    async def chain(self, place: int) -> None:
        """Run the chain of one message."""
        calls = self._calls

        async def end(message: Message) -> Any:
            calls.enter(place, message)
            self._arrived(place)
            await self.answered.wait()
            return calls.given(place)

        try:
            outcome = await self._begin(calls.messages[place], end)
        except Exception as error:  # noqa: BLE001 - kept: the caller gets it when all have ended
            outcome = error
        calls.ended(place, outcome)
        self._arrived(place)
