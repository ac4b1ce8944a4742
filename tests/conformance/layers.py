"""Middleware for both shells, written once: a generator that yields what is passed on."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

Layer = Callable[[Any], Generator[Any, Any, Any]]


def for_shell(name: str, layer: Layer) -> Callable[..., Any]:
    """``layer`` as a middleware: it is resumed with what ``call_next`` gave or raised."""

    def blocking(message: Any, call_next: Any) -> Any:
        steps = layer(message)
        try:
            passed = next(steps)
            while True:
                try:
                    given = call_next(passed)
                except BaseException as error:
                    passed = steps.throw(error)
                else:
                    passed = steps.send(given)
        except StopIteration as end:
            return end.value

    async def asynchronous(message: Any, call_next: Any) -> Any:
        steps = layer(message)
        try:
            passed = next(steps)
            while True:
                try:
                    given = await call_next(passed)
                except BaseException as error:
                    passed = steps.throw(error)
                else:
                    passed = steps.send(given)
        except StopIteration as end:
            return end.value

    return blocking if name == "blocking" else asynchronous
