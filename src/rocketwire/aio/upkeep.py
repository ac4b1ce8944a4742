"""Heartbeats, fresh routes and probes, run beside everything else on the loop.

What they do is decided in ``core/upkeep``; here they are started, restarted if they should ever
fail, and ended. Of the clients that share an instance one keeps it up; when it leaves, another
takes over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from rocketwire.aio.driver import Driver, Run
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.upkeep import keep_heartbeats, keep_probing, keep_routes

_log = logging.getLogger("rocketwire.upkeep")

#: How long a failed part rests, and how often an instance that others keep up is looked at.
_PAUSE: Final = 1.0


def _ignore() -> None:
    """Ignore the outcome."""


class Upkeep:
    """Keeps one client instance up, while no other client does."""

    def __init__(
        self, instance: Instance, driver: Driver, *, on_routes: Callable[[], None] = _ignore
    ) -> None:
        """Do nothing yet.

        Args:
            instance: what is kept up.
            driver: runs it; heartbeats and probes should not share connections with messages.
            on_routes: called after each refresh of the routes.
        """
        self._instance = instance
        self._driver = driver
        self._on_routes = on_routes
        self._runs: set[Run[Any]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_stopped = False

    def start(self) -> None:
        """Begin, now or when nobody else keeps the instance up any more."""
        if not self._instance.claim_upkeep(self):
            self._later(self.start)
            return
        instance = self._instance
        self._keep(lambda: keep_heartbeats(instance))
        self._keep(lambda: keep_routes(instance, self._on_routes))
        self._keep(lambda: keep_probing(instance, self._start_one))

    def stop(self) -> None:
        """End it all; what is under way is given up."""
        self._is_stopped = True
        for timer in self._timers:
            timer.cancel()
        for run in list(self._runs):
            run.give_up()
        self._runs.clear()
        self._instance.release_upkeep(self)

    def _keep(self, make: Callable[[], Op[None]]) -> None:
        """Run an endless operation, and a new one if it ends all the same."""

        def again(error: Exception | None) -> None:
            # In this order: a log may fail, too.
            self._later(lambda: self._keep(make))
            if error is not None and not self._is_stopped:
                _log.error("upkeep failed and is started again", exc_info=error)

        self._run(make(), again)

    def _start_one(self, operation: Op[None]) -> None:
        def done(error: Exception | None) -> None:
            if error is not None and not self._is_stopped:
                _log.error("a probe failed", exc_info=error)

        self._run(operation, done)

    def _run(self, operation: Op[None], done: Callable[[Exception | None], None]) -> None:
        run: Run[None] | None = None

        def ended(_: object, error: Exception | None) -> None:
            if run is not None:
                self._runs.discard(run)
            done(error)

        run = self._driver.start(operation, ended)
        if not run.is_over:
            self._runs.add(run)

    def _later(self, call: Callable[[], None]) -> None:
        if self._is_stopped:
            return

        def fire() -> None:
            self._timers.discard(timer)
            call()

        timer = self._driver.loop.call_later(_PAUSE, fire)
        self._timers.add(timer)
