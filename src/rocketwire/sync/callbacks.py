"""The thread on which the callbacks of submitted messages run."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

_log = logging.getLogger("rocketwire.producer")


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
        self._thread: threading.Thread | None = None
        self._ident = 0
        self._is_over = False
        self._claim = threading.Lock()
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
                if self._thread is None or self._thread.ident is None:
                    self._thread = _make(self._main)
                    self._thread.start()
                return
        # After the shutdown: a thread for this one alone, because nobody would end another.
        _make(lambda: _call(callback)).start()

    def is_current(self) -> bool:
        """Whether the caller is a callback."""
        return self._ident == threading.get_ident()

    def stop(self, timeout: float) -> None:
        """Run what is queued, then end; from within a callback without waiting for that."""
        with self._lock:
            self._is_over = True
            thread = self._thread
        if thread is not None and thread.ident is not None:
            self._queue.put(None)
            if not self.is_current():
                thread.join(timeout)

    def _main(self) -> None:
        if not self._claim.acquire(blocking=False):
            return  # the one who started this was interrupted by another who did
        self._ident = threading.get_ident()
        while (callback := self._queue.get()) is not None:
            _call(callback)


def _make(target: Callable[[], object]) -> threading.Thread:
    return threading.Thread(target=target, name="rocketwire-callbacks", daemon=True)


def _call(callback: Callable[[], Any]) -> None:
    try:
        callback()
    except BaseException:  # noqa: BLE001 - not even sys.exit() may end the thread of the others
        _log.exception("a callback of a submitted message failed")
