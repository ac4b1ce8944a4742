"""Handlers with middleware around them, for consumers of both shells.

What comes out is a handler like any other, so the loops that call it need not know. In an
iteration there is no handler that could be surrounded: ``sync/surrounded_iteration.py`` and
``aio/surrounded_iteration.py`` have that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rocketwire.middleware import AsyncCall, Call

Layers = tuple[Callable[..., Any], ...]


def surround(client: object, layers: Layers, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A blocking handler, surrounded."""

    def handle(given: Any) -> Any:
        return Call(client, "process", layers, handler, None, count_of(given))(given)

    return handle


def surround_async(
    client: object, layers: Layers, handler: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """A handler of asyncio, surrounded: a coroutine function, whatever it was."""

    async def end(given: Any) -> Any:
        result = handler(given)
        return await result if isinstance(result, Awaitable) else result

    async def handle(given: Any) -> Any:
        return await AsyncCall(client, "process", layers, end, None, count_of(given))(given)

    return handle


def count_of(given: object) -> int:
    """How many messages a handler gets."""
    return len(given) if isinstance(given, list) else 1
