"""The thread on which the callbacks of submitted messages run."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from rocketwire.system.lone_thread import LoneThread

_log = logging.getLogger("rocketwire.producer")
_NAME: Final = "rocketwire-callbacks"


class CallbackThread:
    """Runs users' callbacks, one after another, off the thread that reads answers.

    Args:
        must_not_wait: whether answers to submitted messages wait for the calling thread.
        lock: one that its holder may take again.
    """

    def __init__(
        self,
        must_not_wait: Callable[[], bool] = lambda: False,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.must_not_wait = must_not_wait
        self._prepare(lock)
        #: Whether this is a forked child, and the deliveries that it serves are the parent's.
        self.is_inherited = False

    def _prepare(self, lock: AbstractContextManager[Any] | None = None) -> None:
        self._queue: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._thread = LoneThread(_NAME)
        self._is_over = False
        self._lock = threading.RLock() if lock is None else lock

    def disown(self) -> None:
        """In a forked child: what is queued is the parent's."""
        self._prepare()
        self.is_inherited = True

    def run(self, callback: Callable[[], Any]) -> None:
        """Call it soon."""
        with self._lock:
            if not self._is_over:
                self._queue.put(callback)
                with _telling_of_no_thread("callbacks wait for the next one"):
                    self._thread.start(self._main)
                return
        # After the shutdown: a thread for this one alone, because nobody would end another.
        with _telling_of_no_thread("a callback is not called"):
            threading.Thread(target=_call, args=(callback,), name=_NAME, daemon=True).start()

    def is_current(self) -> bool:
        """Whether the caller is a callback."""
        return self._thread.is_current()

    def stop(self, timeout: float) -> None:
        """Run what is queued, then end; from within a callback without waiting for that."""
        with self._lock:
            self._is_over = True
        self._queue.put(None)
        self._thread.join(timeout)

    def _main(self) -> None:
        while (callback := self._queue.get()) is not None:
            _call(callback)


@contextlib.contextmanager
def _telling_of_no_thread(what: str) -> Iterator[None]:
    """Not by an error: it would come between the answer and others who wait for it."""
    try:
        yield
    except RuntimeError as error:
        _log.error("%s: %s", what, error)


def _call(callback: Callable[[], Any]) -> None:
    try:
        callback()
    except BaseException:  # noqa: BLE001 - not even sys.exit() may end the thread of the others
        _log.exception("a callback of a submitted message failed")
