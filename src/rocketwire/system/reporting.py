"""What a producer tells others than its callers: telemetry, message traces, a status file.

Both shells use it alike: they make one, give its hooks to their sender, run its operation beside
everything else, and close it. Each part exists only where the settings ask for it, and is loaded
only then.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final

from rocketwire.config import ProducerConfig
from rocketwire.core.effects import Op
from rocketwire.core.faults.positions import Positions
from rocketwire.core.instance import Instance
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.stats import ProducerStats
from rocketwire.hooks import HookSet, RouteEvent
from rocketwire.system.registry import join_group, leave_group

if TYPE_CHECKING:
    from rocketwire.core.sending.trace import Tracer
    from rocketwire.system.status import Status, StatusFile
    from rocketwire.system.telemetry import Telemetry

#: How long shutting down waits for traces that are not sent yet.
TRACE_LIMIT: Final = 3.0

_tracers = count(1)


class Reporting:
    """The reports of one producer.

    Args:
        config: says which.
        instance: the producer's.
        positions: where round robin stands, for trace messages.
        snapshot: the producer's counters, or None when it is gone.
    """

    def __init__(
        self,
        config: ProducerConfig,
        instance: Instance,
        positions: Positions,
        snapshot: Callable[[], ProducerStats | None],
    ) -> None:
        self._config = config
        self._instance = instance
        self._snapshot = snapshot
        self._telemetry = _make_telemetry(config, instance)
        self._trace = _Trace(config, instance, positions) if config.trace else None
        self._status = self._make_status_file()
        self._own = tuple(
            hook
            for hook in (self._telemetry, self._trace and self._trace.tracer)
            if hook is not None
        )
        self.hooks = HookSet((*config.hooks, *self._own))

    def _make_status_file(self) -> StatusFile | None:
        if self._config.status is None:
            return None
        from rocketwire.system.status import StatusFile

        return StatusFile(self._config.status, self._instance.client_id, self._look)

    def _look(self) -> Status | None:
        from rocketwire.system.status import make_status

        stats, instance = self._snapshot(), self._instance
        if stats is None:
            return None
        now = instance.clock()
        return make_status(
            client_id=instance.client_id,
            group=self._config.group,
            health=instance.faults.snapshot(now),
            stats=stats,
            now=now,
            wall=instance.wall(),
        )

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> Op[None] | None:
        """Begin; returns an operation that is to be run until it ends, if there is one."""
        self._instance.watch(self._own)
        if self._telemetry is not None:
            _tell_routes(self._telemetry, self._instance)
        if self._status is not None:
            self._status.start()
        return self._trace.start() if self._trace is not None else None

    def finish_traces(self, limit: float) -> None:
        """Ask the operation to send what is left, and to end within some seconds."""
        if self._trace is not None:
            self._trace.tracer.close(self._instance.clock() + min(limit, TRACE_LIMIT))

    def leftovers(self) -> Op[None] | None:
        """After ``finish_traces``: what is to be run where the operation has never begun."""
        if self._trace is None or self._trace.tracer.is_shipping:
            return None
        return self._trace.ship()

    def close(self) -> None:
        """End it all, after the last message."""
        self._instance.unwatch(self._own)
        if self._trace is not None:
            self._trace.close()
        if self._telemetry is not None:
            self._telemetry.close()
        if self._status is not None:
            self._status.stop()

    def forget(self) -> None:
        """In a forked child: files and threads are the parent's."""
        if self._telemetry is not None:
            self._telemetry.forget()

    # -- looking --------------------------------------------------------------------------------

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups that brokers know because of this."""
        return (self._trace.sender.group,) if self._trace is not None else ()

    @property
    def telemetry_dropped(self) -> int:
        """Telemetry records that were lost."""
        return self._telemetry.dropped if self._telemetry is not None else 0

    @property
    def trace_dropped(self) -> int:
        """Trace records that were lost."""
        return self._trace.tracer.dropped if self._trace is not None else 0


def _make_telemetry(config: ProducerConfig, instance: Instance) -> Telemetry | None:
    if config.telemetry is None:
        return None
    from rocketwire.system.telemetry import Telemetry
    from rocketwire.system.telemetry_lines import settings_of

    return Telemetry(config.telemetry, instance.client_id, settings_of(config))


def _tell_routes(telemetry: Telemetry, instance: Instance) -> None:
    """What clients with the same id learned before; what comes later is told by hooks."""
    for topic in instance.routes.topics():
        entry = instance.routes.get(topic)
        if entry is not None and entry.queues:
            telemetry.route_learned(RouteEvent(topic, (), entry.queues, instance.wall()))


class _Trace:
    """A tracer with the sender of its messages."""

    def __init__(self, config: ProducerConfig, instance: Instance, positions: Positions) -> None:
        from rocketwire.core.sending.trace import Tracer, trace_settings

        self._instance = instance
        self.tracer: Tracer = Tracer(
            config.trace or "",
            config.group,
            clock=instance.clock,
            make_lock=instance.surroundings.make_lock,
        )
        settings = trace_settings(config, next(_tracers))
        # Without hooks: a trace is neither traced nor a part of the telemetry.
        self.sender = Sender(instance, settings, positions, HookSet())

    def start(self) -> Op[None]:
        join_group(self._instance, self.sender.group)
        return self.ship()

    def ship(self) -> Op[None]:
        from rocketwire.core.sending.trace import ship_traces

        return ship_traces(self.tracer, self.sender)

    def close(self) -> None:
        self.tracer.finish()
        leave_group(self._instance, self.sender.group)
