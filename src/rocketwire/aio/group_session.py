"""A membership under way on an event loop: its connections and its endless operations.

What they do is decided in ``core``. Control traffic (heartbeats, locks, offsets) has connections of
its own: it must not wait behind pulls, and brokers tell a member of changes on the connection of
its heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from rocketwire.aio.driver import Driver, Run
from rocketwire.core.effects import Op
from rocketwire.core.group.membership import Group
from rocketwire.core.group.offsets import keep_commits
from rocketwire.core.group.queue_locks import keep_locks
from rocketwire.core.group.rebalance import keep_rebalancing
from rocketwire.core.group.requests import answer
from rocketwire.core.group.send_back import Retry, keep_watch, return_work
from rocketwire.core.group.upkeep import join, keep_heartbeats, leave
from rocketwire.core.group.workload import Work
from rocketwire.core.instance import Instance
from rocketwire.errors import ConfigError

_log = logging.getLogger("rocketwire.consumer")

#: How long a failed part rests before it is started again.
_PAUSE: Final = 1.0
#: How long leaving waits for traces that are not sent yet.
_TRACE_LIMIT: Final = 3.0


#: Groups that have a member in an instance. Clients with one explicit id share an instance.
_groups: WeakKeyDictionary[Instance, set[str]] = WeakKeyDictionary()


def _enter(group: Group) -> None:
    with group.instance.lock:
        names = _groups.setdefault(group.instance, set())
        if group.wire_name in names:
            raise ConfigError(
                f"group {group.name!r} has a member already in client "
                f"{group.instance.client_id!r}: brokers would take both for one; give this "
                "consumer another client_id, or none"
            )
        names.add(group.wire_name)


class GroupSession:
    """Runs one member of a group. Made and used on the loop's thread."""

    def __init__(self, group: Group) -> None:
        self.group = group
        config, clock = group.config, group.instance.clock
        self._control = Driver(config, clock=clock, responder_of=lambda _: partial(answer, group))
        self._pulls = Driver(config, clock=clock)
        self._runs: set[Run[Any]] = set()
        self._is_over = False
        self._is_member = False
        group.start = lambda operation: self._run(self._control, operation)
        group.start_pulling = lambda operation: self._run(self._pulls, operation)

    async def join(self) -> None:
        """Become a member; returns when the first queues are ours.

        Raises:
            ConfigError: another consumer with the same client id is a member already.
            RouteError: the topics are unknown, or no name server answered.
        """
        group = self.group
        _enter(group)
        self._is_member = True
        await self._control.run(join(group))
        self._keep(lambda: keep_heartbeats(group))
        self._keep(lambda: keep_rebalancing(group))
        self._keep(lambda: keep_commits(group))
        self._keep(lambda: keep_watch(group))
        if group.needs_locks:
            self._keep(lambda: keep_locks(group))
        if group.tracer is not None:
            self._keep(group.tracer.keep_shipping)

    async def leave(self, limit: float) -> bool:
        """Finish what handlers have in hand, commit, say goodbye; False if time ran out."""
        deadline = self.group.instance.clock() + limit
        try:
            is_clean = await self._control.run(leave(self.group, deadline))
            await self._ship_last_traces()
        finally:
            await self.close()
        return is_clean

    async def _ship_last_traces(self) -> None:
        if self.group.tracer is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TRACE_LIMIT):
                    await self._control.run(self.group.tracer.ship())

    async def close(self) -> None:
        """End everything as it is."""
        self._stop()
        await asyncio.gather(self._control.close(), self._pulls.close())

    def _stop(self) -> None:
        self._is_over = True
        if self._is_member:
            self._is_member = False
            with self.group.instance.lock:
                _groups.get(self.group.instance, set()).discard(self.group.wire_name)
        for run in list(self._runs):
            run.give_up()
        self._runs.clear()

    def failed(self, work: Work, retry: Retry, error: Exception | None) -> None:
        """A handler failed, or wants its messages again."""
        if not work.is_abandoned and not self._is_over:
            self._run(self._control, return_work(self.group, work, retry, error))

    def retain(self, addresses: frozenset[str] | set[str]) -> None:
        """Close connections to all other addresses."""
        self._control.retain(addresses)
        self._pulls.retain(addresses)

    @property
    def drivers(self) -> tuple[Driver, Driver]:
        """The connections of control traffic and those of pulls."""
        return self._control, self._pulls

    def _keep(self, make: Callable[[], Op[None]]) -> None:
        """Run an endless operation, and a new one if it ends all the same."""

        def again(error: Exception | None) -> None:
            if not self._is_over and not self.group.is_leaving:
                # In this order: a log may fail, too.
                self._control.loop.call_later(_PAUSE, lambda: self._keep(make))
                _log.error("a part of a consumer failed and is started again", exc_info=error)

        if not self._is_over:
            self._run(self._control, make(), again)

    def _run(
        self,
        driver: Driver,
        operation: Op[None],
        done: Callable[[Exception | None], None] | None = None,
    ) -> None:
        run: Run[None] | None = None

        def ended(_: object, error: Exception | None) -> None:
            if run is not None:
                self._runs.discard(run)
            if done is not None:
                done(error)
            elif error is not None and not self._is_over:
                _log.error("a part of a consumer failed", exc_info=error)

        run = driver.start(operation, ended)
        if not run.is_over:
            self._runs.add(run)
