"""Runs the endless operations of an instance: heartbeats, fresh routes, probes.

Clients that share an instance share its upkeep: one of them does it, and when that one leaves,
another takes over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from rocketwire.aio.driver import Driver, Run
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.upkeep import keep_heartbeats, keep_probing, keep_routes

_log = logging.getLogger("rocketwire.upkeep")
_LOOK_AGAIN = 1.0


class Upkeep:
    """The upkeep of one instance on one event loop."""

    def __init__(
        self,
        instance: Instance,
        driver: Driver,
        *,
        on_routes: Callable[[], None] | None = None,
    ) -> None:
        self._instance = instance
        self._driver = driver
        self._on_routes = on_routes
        self._runs: set[Run[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def start(self) -> None:
        """Do the upkeep, as soon as nobody else of the instance does."""
        if self._is_over:
            return
        if not self._instance.claim_upkeep(self):
            self._timer = self._driver.loop.call_later(_LOOK_AGAIN, self.start)
            return
        instance = self._instance
        self._keep(lambda: keep_heartbeats(instance))
        self._keep(lambda: keep_routes(instance, self._routes_came))
        if instance.config.fault.mode != "off":
            self._keep(lambda: keep_probing(instance, self._spawn))

    def stop(self) -> None:
        """Leave it to others."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        for run in list(self._runs):
            run.cancel()
        self._runs.clear()
        self._instance.release_upkeep(self)

    def _keep(self, make: Callable[[], Op[None]]) -> None:
        """Run an endless operation; one that fails all the same is told and begun again."""

        def ended(_: None, error: Exception | None) -> None:
            if not self._is_over:
                _log.error("upkeep failed and goes on", exc_info=error)
                self._timer = self._driver.loop.call_later(_LOOK_AGAIN, self._keep, make)

        self._runs.add(self._driver.start(make(), ended))

    def _spawn(self, operation: Op[None]) -> None:
        def ended(_: None, error: Exception | None) -> None:
            if error is not None and not self._is_over:
                _log.error("a probe failed", exc_info=error)

        # In a tick of its own: the operation that spawns is in the midst of its step.
        self._driver.loop.call_soon(lambda: self._driver.start(operation, ended))

    def _routes_came(self) -> None:
        instance = self._instance
        self._driver.retain(instance.routes.addresses() | set(instance.name_servers))
        if self._on_routes is not None:
            self._on_routes()
