"""The answer to a peer's request that takes a while."""

from __future__ import annotations

from collections.abc import Callable

from rocketwire.wire.command import Command


class LaterAnswer:
    """Given by what works on a request, sent by the connection that it came on. On one thread."""

    __slots__ = ("_answer", "_send")

    def __init__(self) -> None:
        self._answer: Command | None = None
        self._send: Callable[[Command], None] | None = None

    def give(self, answer: Command) -> None:
        """The answer is there."""
        self._answer = answer
        self._go()

    def when_given(self, send: Callable[[Command], None]) -> None:
        """Send it by this call as soon as it is there."""
        self._send = send
        self._go()

    def _go(self) -> None:
        if self._answer is not None and self._send is not None:
            self._send(self._answer)
