"""What blocking clients have in common: their life, their sockets, and what a fork does to them."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from rocketwire.config import ClientConfig
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.errors import ClientClosedError
from rocketwire.sync.background import Background
from rocketwire.sync.connection import Connector, Pool
from rocketwire.sync.driver import Driver
from rocketwire.system.registry import join_instance, leave_instance
from rocketwire.system.weak_calls import weakly

C = TypeVar("C", bound=ClientConfig)
T = TypeVar("T")

#: What a parent's threads use, in a forked child.
_left_behind: list[Background] = []
_pools: weakref.WeakKeyDictionary[Instance, Pool] = weakref.WeakKeyDictionary()
_live: weakref.WeakSet[BlockingClient[ClientConfig]] = weakref.WeakSet()


class BlockingClient(Generic[C]):
    """A client that waits in the thread that asks. A context manager.

    Without ``with``, call ``start()`` first and ``shutdown()`` in the end.
    """

    _what = "client"

    def __init__(self, config: C) -> None:
        self._state = "new"
        self._config = config
        self._start_lock = threading.RLock()
        #: What takes back a start that is interrupted, the last of it first.
        self._undo_start: list[Callable[[], object]] = []
        #: What a shutdown that has begun still has to do.
        self._left: list[Callable[[], object]] = []
        self._is_finishing = False

    def start(self) -> Self:
        """Make it ready; a second call does nothing.

        Raises:
            ClientClosedError: it was shut down.
            ConfigError: it does not go with the clients whose instance it shares.
        """
        with self._start_lock:
            if self._state == "closed":
                raise ClientClosedError(f"this {self._what} was shut down: make a new one")
            if self._state in {"new", "inherited"}:
                self._start()
        return self

    def _start(self) -> None:
        undo = self._undo_start = []
        try:
            self._open()
            is_wanted = self._state != "closed"  # by a signal handler, in the midst of that
            if is_wanted:
                self._state = "running"
            else:
                undo = self._ending()[::-1]
        except BaseException:  # an interrupt may come at any moment
            self._undo(undo)
            raise
        self._undo_start = []  # it would keep a client alive that nobody uses any more
        if not is_wanted:
            self._undo(undo)
            raise ClientClosedError(f"this {self._what} was shut down while it started")

    def _undo(self, undo: list[Callable[[], object]]) -> None:
        """Take back what a start has done that came to nothing."""
        try:
            self._left = undo[::-1]
            self._finish()
        finally:
            self._is_finishing = False  # it may be started again

    def _make_ready(self) -> None:
        """Called before any use, unless it is running.

        Raises:
            ClientClosedError: it was not started, or was shut down.
        """
        if self._state == "inherited":
            self.start()
        elif self._state != "running":
            raise self._not_running()

    def shutdown(self) -> None:
        """Finish what is under way, and close; a second call does nothing.

        Called by a hook on the background thread, or by a signal handler or finalizer in the midst of
        another call of this client, it returns at once, and a thread does the rest: the interrupted call
        has to end first.
        """
        with self._start_lock:
            if self._state == "running":
                left = self._ending()
                self._state, self._left = "closed", left
            self._state = "closed"
        if not self._left or self._is_finishing:
            return
        if self._must_not_wait():
            # No daemon: a program that ends now waits for it.
            thread = threading.Thread(target=self._finish, name="rocketwire-shutdown")
            with contextlib.suppress(RuntimeError):  # no thread to be had: no grace either
                thread.start()
                return
        self._finish()

    def _must_not_wait(self) -> bool:
        """Whether what this thread would wait for is itself, or the code that it interrupts."""
        return self._background.is_current() or self._instance.surroundings.holds_lock()

    def _is_starting_here(self) -> bool:
        """Whether this thread is in the midst of a start, which holds its lock and has something to undo."""
        return bool(self._undo_start) and self._start_lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001

    def _ending(self) -> list[Callable[[], object]]:
        """What a shutdown has to do, one after another."""
        return [
            self._closing,
            # What an interrupt in the midst of the above has left is ended now.
            lambda: self._background.stop(1.0),
            lambda: _live.discard(self),  # type: ignore[arg-type]
            lambda: leave_instance(self._instance, self._config.hooks),
            # Once more, should an interrupt come in the midst of it.
            *[lambda: self._pool.leave(self)] * 2,
        ]

    def _finish(self) -> None:
        """Do all that is left; what is interrupted is left out, and the rest is done."""
        try:
            self._is_finishing, left = True, self._left
            while left:
                step = left[0]
                del left[0]
                step()
        except BaseException:
            self._finish()
            raise

    def _open(self) -> None:
        config, undo = self._config, self._undo_start
        instance = self._instance = join_instance(config)
        undo.append(lambda: leave_instance(instance, config.hooks))
        undo.append(lambda: _leave_pool(instance, self))
        self._pool = _pool_of(instance, config, self)
        self._driver = Driver(self._pool, instance.clock, weakly_asked(self._must_not_wait))
        background = self._background = Background(
            instance, config, on_routes=weakly(self._close_unused)
        )
        undo.append(lambda: background.stop(1.0))
        self._opened()
        if config.background:
            background.start()
        undo.append(lambda: _live.discard(self))  # type: ignore[arg-type]
        _live.add(self)  # type: ignore[arg-type]  # any config will do there

    def _opened(self) -> None:
        """What a kind of client sets up besides."""

    def _closing(self) -> None:
        """What a kind of client does before its sockets are closed."""
        self._background.stop(1.0)

    def _at_exit(self) -> None:
        """The program ends, and nobody has called ``shutdown``."""

    def _close_unused(self) -> None:
        """Close idle sockets to addresses that no route has any more."""
        wanted = self._instance.routes.addresses() | set(self._config.name_servers)
        for address in self._pool.addresses():
            if address not in wanted:
                self._pool.drop(address)

    def _run(self, operation: Op[T]) -> T:
        if self._state != "running":
            self._make_ready()
        return self._driver.run(operation)

    def _deadline(self) -> float:
        """For requests that are no sends."""
        if self._state != "running":
            self._make_ready()
        return self._instance.clock() + self._config.request_timeout

    def _not_running(self) -> ClientClosedError:
        if self._state == "new":
            return ClientClosedError(
                f"this {self._what} was not started: use it in a with statement, or call start()"
            )
        return ClientClosedError(f"this {self._what} was shut down: make a new one")

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client; empty before the start."""
        if self._state == "inherited":
            self._make_ready()
        return self._instance.client_id if self._state != "new" else ""

    def after_fork(self) -> None:
        """In a forked child: let go of what is the parent's.

        Fresh sockets, locks and ids come with the first use: most children of a program that has
        a client never use it. The parent's sockets are closed here, never shut down, so that the
        parent is unharmed. A call in the midst of which the process forked is the parent's: where
        it goes on in the child, too, it fails there.
        """
        self._start_lock = threading.RLock()
        self._pool.disown()
        self._background.let_go()
        # Its transports would warn that nobody has closed them.
        _left_behind.append(self._background)
        if self._state == "running":
            self._state = "inherited"

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            if self._state == "running":  # interrupted in the last moment: nobody else ends it
                self.shutdown()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __del__(self) -> None:
        if getattr(self, "_state", "") == "running":
            warnings.warn(
                f"unclosed {self._what} {self._instance.client_id}: use it in a with statement, "
                "or call shutdown()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )
            self._background.stop(0)
            self._pool.leave(self)

    def __repr__(self) -> str:
        servers = ";".join(self._config.name_servers)
        return f"{type(self).__name__}({servers!r}, {self._state})"


def _pool_of(instance: Instance, config: ClientConfig, user: object) -> Pool:
    """The sockets of an instance, which its clients share; each of them ``leave``s once."""
    with instance.lock:
        pool = _pools.get(instance)
        if pool is None or not pool.join(user):
            pool = _pools[instance] = Pool(
                Connector(
                    clock=instance.clock,
                    connect_timeout=config.connect_timeout,
                    tls=config.tls,
                    max_frame=config.max_frame,
                )
            )
            pool.join(user)
        return pool


def _leave_pool(instance: Instance, user: object) -> None:
    pool = _pools.get(instance)
    if pool is not None:
        pool.leave(user)


def weakly_asked(question: Callable[[], bool]) -> Callable[[], bool]:
    """A method, without keeping alive a client that nobody uses any more."""
    method = weakref.WeakMethod(question)

    def ask() -> bool:
        found = method()
        return found is not None and found()

    return ask


def _end_all() -> None:
    for client in list(_live):
        client._at_exit()  # noqa: SLF001 - our own


atexit.register(_end_all)


def _renew_all() -> None:
    for client in list(_live):
        client.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
