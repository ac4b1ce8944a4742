"""What threads wait at, safe at any moment: in a signal handler, a hook or a finalizer, too.

``threading``'s events and conditions hold a lock of their own while they work. A handler that comes in
that very moment and uses the same one waits for the code that it has interrupted, and an interrupt
that is raised there may leave a lock behind. Here all is done by single steps of the interpreter.
"""

from __future__ import annotations

import os
from _thread import TIMEOUT_MAX, allocate_lock
from contextlib import suppress

from rocketwire.errors import ClientClosedError

#: Where threads wait now.
_waited_at: set[Latch] = set()


class Latch:
    """Opens once. One thread waits at it, any may open it."""

    __slots__ = ("_is_parents", "_lock", "is_open")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()
        self.is_open = False
        #: Whether the process forked while it was waited at, and this is the child.
        self._is_parents = False

    def open(self) -> None:
        """Let the thread that waits go on; opening twice is harmless."""
        self.is_open = True
        try:  # noqa: SIM105 - a context manager costs more than all the rest
            self._lock.release()
        except RuntimeError:  # it was open
            pass

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open; False if it was not in ``timeout`` seconds.

        Raises:
            ClientClosedError: a signal handler forked meanwhile, and this is the child: what opens it is
                a thread of the parent's.
        """
        if not self.is_open:
            try:
                _waited_at.add(self)
                if self._lock.acquire(timeout=_limit(timeout)):
                    self.open()
            finally:
                _waited_at.discard(self)
        if self._is_parents:
            raise forked_meanwhile()
        return self.is_open

    def leave_to_parent(self) -> None:
        """In a forked child: nothing opens it any more, so the thread that waits is told."""
        self._is_parents = True
        self.open()


class ThreadSignal:
    """Wakes one thread, again and again; a signal before the wait counts, too."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def give(self) -> None:
        """Let the thread go on that waits, or the next one that does."""
        with suppress(RuntimeError):  # it was given, and not waited for yet
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a signal, which is used up by that; False if none came in ``timeout`` seconds."""
        return self._lock.acquire(timeout=_limit(timeout))


def forked_meanwhile() -> ClientClosedError:
    """What a call ends with in a forked child, if the process forked in the midst of it."""
    return ClientClosedError(
        "the process was forked during this call: it is the parent's to finish"
    )


def _tell_child() -> None:
    """The one thread of a child is the one that forked: others that wait are the parent's."""
    for latch in list(_waited_at):
        latch.leave_to_parent()
    _waited_at.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_child)


def _limit(timeout: float | None) -> float:
    return -1 if timeout is None else min(max(timeout, 0.0), TIMEOUT_MAX)
