"""The thread on which the callbacks of submitted messages run."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("rocketwire.producer")


class CallbackThread:
    """Runs users' callbacks, one after another, off the thread that reads answers."""

    def __init__(self) -> None:
        self._prepare()
        #: Whether this is a forked child, and the deliveries that it serves are the parent's.
        self.is_inherited = False

    def _prepare(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def disown(self) -> None:
        """In a forked child: what is queued is the parent's."""
        self._prepare()
        self.is_inherited = True

    def run(self, callback: Callable[[], Any]) -> None:
        """Call it soon."""
        with self._lock:
            if not self._is_over:
                self._queue.put(callback)
                if self._thread is None:
                    self._thread = _start(self._main)
                return
        # After the shutdown: a thread for this one alone, because nobody would end another.
        _start(lambda: _call(callback))

    def is_current(self) -> bool:
        """Whether the caller is a callback."""
        return self._thread is not None and self._thread is threading.current_thread()

    def stop(self, timeout: float) -> None:
        """Run what is queued, then end; from within a callback without waiting for that."""
        with self._lock:
            self._is_over = True
            thread = self._thread
        if thread is not None:
            self._queue.put(None)
            if not self.is_current():
                thread.join(timeout)

    def _main(self) -> None:
        while (callback := self._queue.get()) is not None:
            _call(callback)


def _start(target: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=target, name="rocketwire-callbacks", daemon=True)
    thread.start()
    return thread


def _call(callback: Callable[[], Any]) -> None:
    try:
        callback()
    except BaseException:  # noqa: BLE001 - not even sys.exit() may end the thread of the others
        _log.exception("a callback of a submitted message failed")
