"""Looking up host names, for no longer than there is time.

``getaddrinfo`` can't be interrupted: while the resolver hangs, so does the thread that asked. So
each name is looked up in a daemon thread of its own, one at a time however many ask, and a caller
waits as long as it likes. The executor of an event loop would be no better: its threads are
few, they are joined at the end of the program, and a hanging name would keep one for every try.

Literal addresses, which is what brokers announce, need no thread.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final

#: How long an answer serves: many threads that connect at once ask once.
_KEPT: Final = 1.0

#: A family, and an address of it as ``socket.connect`` takes it.
Endpoint = tuple[int, tuple[Any, ...]]

_lock = threading.RLock()
_lookups: dict[str, Lookup] = {}


class Lookup:
    """A name that is being looked up, or was a moment ago."""

    __slots__ = ("_error", "_found", "_waiters", "ended_at", "host", "is_over")

    def __init__(self, host: str) -> None:
        self.host = host
        self.is_over = False
        self.ended_at = 0.0
        self._found: list[Endpoint] = []
        self._error: Exception | None = None
        self._waiters: set[Callable[[], None]] = set()

    def is_current(self) -> bool:
        """Whether it may serve a caller that asks now: under way, or a success of a moment ago."""
        if not self.is_over:
            return True
        return self._error is None and time.monotonic() - self.ended_at < _KEPT

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when it is over, on whatever thread; now if it is."""
        with _lock:
            is_over = self.is_over
            if not is_over:
                self._waiters.add(wake)
        if is_over:
            wake()

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        """A caller gave up."""
        with _lock:
            self._waiters.discard(wake)

    def endpoints(self, port: int) -> list[Endpoint]:
        """What was found, with the port in place.

        Raises:
            OSError: the name is not known.
            ValueError: it can't be a name.
        """
        if self._error is not None:
            # One error raised in several threads would collect all their tracebacks.
            raise type(self._error)(*self._error.args)
        return [(family, (place[0], port, *place[2:])) for family, place in self._found]

    def run(self) -> None:
        """Look it up; may take for ever."""
        try:
            self._found = _ask(self.host, 0)
        except (OSError, ValueError) as error:
            self._error = error
        except BaseException as error:  # noqa: BLE001 - else it would never be over
            self._error = OSError(f"its name could not be looked up: {error!r}")
        with _lock:
            self.ended_at = time.monotonic()
            self.is_over = True
            waiters, self._waiters = self._waiters, set()
        for wake in waiters:
            wake()


def literal(host: str, port: int) -> Endpoint | None:
    """The endpoint of an address in digits; None for a name.

    Raises:
        ValueError: it is neither.
    """
    try:
        return _ask(host, port, socket.AI_NUMERICHOST)[0]
    except socket.gaierror:
        return None


def look_up(host: str) -> Lookup:
    """The look-up of a name that is under way, or a new one.

    Raises:
        OSError: there is no thread to be had for it.
    """
    with _lock:
        found = _lookups.get(host)
        if found is not None and found.is_current():
            return found
        for name in [name for name, old in _lookups.items() if not old.is_current()]:
            del _lookups[name]
        made = Lookup(host)
        thread = threading.Thread(target=made.run, name=f"rocketwire-lookup-{host}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread for us now
            raise OSError(f"its name can't be looked up: {error}") from error
        _lookups[host] = made
    return made


def _ask(host: str, port: int, flags: int = 0) -> list[Endpoint]:
    # As bytes: for a text Python loads a codec, which fails in a signal handler that interrupts that.
    name = host.encode() if host.isascii() else host
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, place) for family, _, _, _, place in found]


def _forget() -> None:
    """In a forked child: the threads are the parent's."""
    global _lock  # noqa: PLW0603 - the old one may have been held when the process forked
    _lock = threading.RLock()
    _lookups.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
