"""What asyncio clients have in common: their life, their connections, their upkeep."""

from __future__ import annotations

import asyncio
import contextlib
import os
import warnings
import weakref
from asyncio import get_running_loop
from collections.abc import Callable
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Generic, Self, TypeVar

from rocketwire.aio.connection_table import connection_table_of
from rocketwire.aio.driver import Driver
from rocketwire.aio.upkeep import Upkeep
from rocketwire.config import ClientConfig
from rocketwire.core.effects import Op
from rocketwire.core.sending.broker_requests import answer
from rocketwire.errors import ClientClosedError
from rocketwire.system.registry import join_instance, leave_instance
from rocketwire.system.weak_calls import weakly

C = TypeVar("C", bound=ClientConfig)
T = TypeVar("T")

_live: weakref.WeakSet[AsyncClient[ClientConfig]] = weakref.WeakSet()


class AsyncClient(Generic[C]):
    """A client of the event loop on which it is started. An asynchronous context manager.

    Any number of tasks of that loop may use it. Without ``async with``, ``await start()`` first
    and ``await shutdown()`` in the end.
    """

    _what = "client"

    def __init__(self, config: C) -> None:
        self._state = "new"
        #: The loop that it may be used on, while it runs.
        self._home: asyncio.AbstractEventLoop | None = None
        #: The thread of that loop, 0 for none; and whether the loop runs. Where both say so, it is
        #: the one that runs here: ``get_running_loop`` costs 0.2 µs, because it asks for the process.
        self._thread = 0
        self._is_awake: Callable[[], bool] = _never
        self._config = config

    async def start(self) -> Self:
        """Make it ready; a second call does nothing.

        Raises:
            ClientClosedError: it was shut down.
            ConfigError: it does not go with the clients whose instance it shares, or a file named
                in the TLS settings can't be used.
        """
        if self._state in {"closed", "inherited"}:
            raise self._not_running()
        if self._state == "new":
            self._open()
            self._home = home = get_running_loop()
            self._thread, self._is_awake = get_ident(), home.is_running
            self._state = "running"
            _live.add(self)  # type: ignore[arg-type]  # any config will do there
        return self

    async def shutdown(self) -> None:
        """Finish what is under way, and close; a second call does nothing.

        Raises:
            ClientClosedError: it belongs to another event loop, which is not closed.
        """
        was_running, home = self._state == "running", self._home
        if was_running and home is not get_running_loop():
            await self._leave_behind()
            return
        self._leave_home("closed")
        if not was_running:
            return
        try:
            await self._closing()
        finally:
            _live.discard(self)  # type: ignore[arg-type]
            self._upkeep.stop()
            self._left()
            leave_instance(self._instance, self._config.hooks)
            await asyncio.gather(self._driver.close(), self._upkeep_driver.close())
            await self._closed()

    async def _leave_behind(self) -> None:
        """Close a client whose loop is closed: nothing is under way, and no connection is left."""
        if self._home is None or not self._home.is_closed():
            raise self._not_running()
        self._leave_home("closed")
        _live.discard(self)  # type: ignore[arg-type]
        self._left()
        leave_instance(self._instance, self._config.hooks)
        self._driver.leave_behind()
        self._upkeep_driver.leave_behind()
        await self._closed()

    def _leave_home(self, state: str) -> None:
        self._state, self._home, self._thread, self._is_awake = state, None, 0, _never

    def _check_loop(self) -> None:
        """Refuse to be used where it may not be.

        Raises:
            ClientClosedError: it does not run, or on another event loop.
        """
        if get_running_loop() is not self._home:
            raise self._not_running()

    def _open(self) -> None:
        config = self._config
        instance = self._instance = join_instance(config)
        with contextlib.ExitStack() as undo:
            undo.callback(leave_instance, instance, config.hooks)
            table = connection_table_of(instance, config)
            self._driver = Driver(config, clock=instance.clock, table=table)
            undo.callback(self._driver.abort)
            # Heartbeats and probes have connections of their own: a probe that waits behind
            # messages would measure those.
            self._upkeep_driver = Driver(
                config,
                clock=instance.clock,
                responder_of=lambda address: partial(answer, instance, address),
            )
            self._opened()
            undo.pop_all()
        on_routes = weakly(self._close_unused)
        self._upkeep = Upkeep(instance, self._upkeep_driver, on_routes=on_routes)
        if config.background:
            self._upkeep.start()

    def _opened(self) -> None:
        """What a kind of client sets up besides."""

    async def _closing(self) -> None:
        """What a kind of client does before its connections are closed."""

    async def _closed(self) -> None:
        """What a kind of client does when nothing can happen any more."""

    def _left(self) -> None:
        """What a kind of client gives back when it leaves its instance."""

    def _close_unused(self) -> None:
        """Close connections to addresses that no route has any more."""
        wanted = self._instance.routes.addresses() | set(self._config.name_servers)
        self._driver.retain(wanted)
        self._upkeep_driver.retain(wanted | self._instance.presence.masters)

    async def _run(self, operation: Op[T]) -> T:
        self._check_loop()
        return await self._driver.run(operation)

    def _deadline(self) -> float:
        """For requests that are no sends."""
        self._check_loop()
        return self._instance.clock() + self._config.request_timeout

    def _not_running(self) -> ClientClosedError:
        if self._state == "new":
            return ClientClosedError(
                f"this {self._what} was not started: use it in an async with statement, "
                "or await start()"
            )
        if self._state == "inherited":
            return ClientClosedError(
                f"this {self._what} belongs to the event loop of the parent process: "
                "make a new one in the child"
            )
        if self._state == "running":
            return ClientClosedError(
                f"this {self._what} belongs to another event loop: make one in each loop, "
                "and shut it down there"
            )
        return ClientClosedError(f"this {self._what} was shut down: make a new one")

    def after_fork(self) -> None:
        """In a forked child: leave it to the parent, whose loop and sockets these are."""
        if self._state == "running":
            self._leave_home("inherited")

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client; empty before the start."""
        return self._instance.client_id if self._state != "new" else ""

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()

    def __del__(self) -> None:
        if getattr(self, "_state", "") != "running":
            return
        warnings.warn(
            f"unclosed {self._what} {self._instance.client_id}: use it in an async with "
            "statement, or await shutdown()",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )
        self._left()
        leave_instance(self._instance, self._config.hooks)
        with contextlib.suppress(RuntimeError):  # the loop is closed: its sockets are gone, too
            loop = self._driver.loop
            for abandon in (self._upkeep.stop, self._upkeep_driver.abort, self._driver.abort):
                loop.call_soon_threadsafe(abandon)

    def __repr__(self) -> str:
        servers = ";".join(self._config.name_servers)
        return f"{type(self).__name__}({servers!r}, {self._state})"


def _never() -> bool:
    """There is no loop that could run."""
    return False


def _disown_all() -> None:
    for client in list(_live):
        client.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
