"""Threads that call a blocking consumer's handler because an operator wants one message handled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final

from rocketwire.core.group.handling import Failure
from rocketwire.core.group.replying import replies_in
from rocketwire.stored_message import Reply, StoredMessage

#: How many at a time: an operator tries one message, and a loop of a script must not fill the machine.
_MOST: Final = 4


class DirectCalls:
    """Calls the handler beside the threads that handle messages in their order.

    Args:
        handler: the function of ``run``.
        loop: where what came of it is told.
        reply: sends the replies that it returned.
        is_batch: whether it takes lists.
    """

    def __init__(
        self,
        handler: Callable[[Any], Any],
        loop: asyncio.AbstractEventLoop,
        reply: Callable[[list[tuple[StoredMessage, Reply]]], None],
        *,
        is_batch: bool,
    ) -> None:
        self._handler = handler
        self._loop = loop
        self._reply = reply
        self._is_batch = is_batch
        self._under_way = 0

    def call(self, message: StoredMessage, done: Callable[[object], None]) -> None:
        """Begin; on the loop's thread, as is ``done`` later."""
        if self._under_way >= _MOST:
            done(Failure(RuntimeError(f"{_MOST} messages are handled directly already: wait")))
            return
        self._under_way += 1
        thread = threading.Thread(
            target=self._run, args=(message, done), name="rocketwire-direct", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread for us now
            self._under_way -= 1
            done(Failure(error))

    def _run(self, message: StoredMessage, done: Callable[[object], None]) -> None:
        given: Any = [message] if self._is_batch else message
        result: object
        try:
            result = self._handler(given)
            if asyncio.iscoroutine(result):
                result = asyncio.run(result)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the operator is told
            result = Failure(error if isinstance(error, Exception) else _as_failure(error))

        def tell() -> None:
            self._under_way -= 1
            self._reply(replies_in(result, given))
            done(result)

        with contextlib.suppress(RuntimeError):  # the loop is closed: the consumer has ended
            self._loop.call_soon_threadsafe(tell)


def _as_failure(error: BaseException) -> Exception:
    return RuntimeError(f"the handler ended with {type(error).__name__}: {error}")
