"""A thread that exists once and is ended for sure, whatever interrupts its start.

``Thread.start`` waits until the new thread runs. An interrupt in that wait leaves it open whether there
is a thread: one that was made before it was started, kept in a variable behind the start, or taken for
"not started" because it has no number yet, goes on after its client was shut down.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from _thread import allocate_lock, get_ident
from collections.abc import Callable
from typing import Final

#: A started thread says so as soon as the interpreter lets it run.
_LOOKS: Final = 100
_PAUSE: Final = 0.001


class LoneThread:
    """One daemon thread. ``start`` may be interrupted and repeated: one thread works, others end at once.

    Args:
        name: of the thread.
    """

    __slots__ = ("_claim", "_ident", "_made", "_name", "is_begun")

    def __init__(self, name: str) -> None:
        self._name = name
        self._claim = allocate_lock()
        #: All that were made: an interrupted start does not say whether there is a thread.
        self._made: list[threading.Thread] = []
        self._ident = 0
        #: Whether it works, or has.
        self.is_begun = False

    @property
    def is_made(self) -> bool:
        """Whether a start was tried, and the system had a thread for it."""
        return bool(self._made)

    def start(self, work: Callable[[], object]) -> None:
        """Start it, unless it was; threads that may come at the same time hold a lock.

        Raises:
            RuntimeError: the system has no thread for it now.
        """
        if any(thread.ident is not None for thread in self._made):
            return
        thread = threading.Thread(target=self._main, args=(work,), name=self._name, daemon=True)
        self._made.append(thread)
        handled = sys.exception()  # what the caller is dealing with, and every error here names
        try:
            thread.start()
        except RuntimeError as error:
            if error.__context__ is not None and error.__context__ is not handled:
                # Python's own condition, where an interrupt has come in the midst of it.
                raise error.__context__ from None
            self._made.remove(thread)
            raise

    def _main(self, work: Callable[[], object]) -> None:
        if not self._claim.acquire(blocking=False):
            return  # a start was interrupted and repeated, or it was retired meanwhile
        self.is_begun = True
        self._ident = get_ident()
        try:
            work()
        finally:
            self._ident = 0  # another thread may have the same number later

    def is_current(self) -> bool:
        """Whether the caller runs on it."""
        return self._ident == get_ident()

    def is_alive(self) -> bool:
        """Whether there is such a thread."""
        return any(thread.is_alive() for thread in self._made)

    def retire(self) -> bool:
        """Whether it has never worked; then it never will."""
        return self._claim.acquire(blocking=False)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end; one that was never started, and the caller's own, are not waited for."""
        for thread in list(self._made):
            if thread is not threading.current_thread():
                _join(thread, timeout)


def _join(thread: threading.Thread, timeout: float | None) -> None:
    """Wait for its end, also if it is about to begin, of which an interrupted start does not tell."""
    for _ in range(_LOOKS):
        with contextlib.suppress(RuntimeError):  # it has not begun
            thread.join(timeout)
            return
        time.sleep(_PAUSE)
