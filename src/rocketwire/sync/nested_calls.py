"""Runs the chains of several messages one inside the other, so that all surround one request.

A blocking middleware that has called on can only wait, on its own stack, until the request is
answered. So the end of each chain begins the next one, and that of the last sends. Python's stack
is bounded: every so many messages the rest goes on in a thread, while this one waits for it. Each
chain has a copy of the caller's context variables.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Final

from rocketwire.message import Message
from rocketwire.system.many_calls import ManyCalls

#: Chains on one stack: with five middlewares they take some 350 of Python's 1000 frames.
_ON_ONE_STACK: Final = 24

#: Runs the chain of a message with something else at its end.
Begin = Callable[[Message, Callable[[Message], Any]], Any]
SendAll = Callable[[list[Message]], tuple[Any, list[Any]]]


def call_nested(calls: ManyCalls, begin: Begin, send_all: SendAll) -> None:
    """Run all chains; the request is sent inside the last of them."""
    _Nest(calls, begin, send_all, copy_context()).level(0)


class _Nest:
    def __init__(self, calls: ManyCalls, begin: Begin, send_all: SendAll, context: Context) -> None:
        self._calls = calls
        self._begin = begin
        self._send_all = send_all
        self._context = context
        self._is_sent = False

    def level(self, place: int) -> None:
        """Run the chain of a message, and inside it those of all behind it."""
        calls = self._calls
        while place < len(calls.messages) and calls.refusal is None:
            self._chain(place)
            if calls.has_entered(place):
                return
            place += 1  # it was not passed on, so the next one is not inside it
        if not self._is_sent:
            self._is_sent = True
            calls.run(self._send_all)

    def _chain(self, place: int) -> None:
        calls = self._calls

        def end(message: Message) -> Any:
            calls.enter(place, message)
            self._deeper(place + 1)
            return calls.given(place)

        try:
            outcome = self._context.copy().run(self._begin, calls.messages[place], end)
        except Exception as error:  # noqa: BLE001 - kept: the caller gets it when all have ended
            outcome = error
        calls.ended(place, outcome)

    def _deeper(self, place: int) -> None:
        if place % _ON_ONE_STACK:
            self.level(place)
            return
        caught: list[BaseException] = []

        def run() -> None:
            try:
                self.level(place)
            except BaseException as error:  # noqa: BLE001 - raised where it belongs, below
                caught.append(error)

        thread = threading.Thread(target=run, name="rocketwire-middleware", daemon=True)
        thread.start()
        thread.join()
        if caught:
            raise caught[0]
