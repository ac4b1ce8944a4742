"""A client instance: what producers and readers with one client id share.

Routes, the fault table, message ids and the way requests are dressed (header form, namespace,
signature) live here. Connections do not: they belong to a shell.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from rocketwire.config import ClientConfig, Credentials
from rocketwire.core.faults.entries import RandomSource
from rocketwire.core.faults.positions import RoundRobinCounter
from rocketwire.core.faults.selection import Selector
from rocketwire.core.faults.table import FaultTable
from rocketwire.core.naming import without_namespace
from rocketwire.core.presence import Presence
from rocketwire.core.replies import Replies
from rocketwire.core.routes import RouteChange, RouteTable, TopicEntry
from rocketwire.core.wake_up import WakeUp
from rocketwire.errors import ConfigError
from rocketwire.hooks import BrokerEvent, HookSet, ProbeEvent, RouteEvent, call_hooks
from rocketwire.log_fields import about
from rocketwire.wire.acl import sign
from rocketwire.wire.client_bodies import ConsumerData
from rocketwire.wire.command import BINARY, JSON, Command, Request
from rocketwire.wire.message_id import MessageIdMaker

if TYPE_CHECKING:
    from rocketwire.core.sending.checks import CheckRunner

_log = logging.getLogger("rocketwire.routes")


def _unknown_selector(name: str) -> Selector:
    raise ConfigError(f"selector is {name!r}: no names of selectors are known here")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a shell injects into core: time, chance, locks and who we are."""

    clock: Callable[[], float]
    wall: Callable[[], float]
    random: RandomSource
    make_lock: Callable[[], AbstractContextManager[Any]]
    address: bytes
    pid: int
    #: Whether this thread is in the midst of something of the client: it has one of the locks.
    holds_lock: Callable[[], bool] = lambda: False
    #: Which thread this is.
    thread: Callable[[], int] = lambda: 0
    #: The selector of a name.
    named_selector: Callable[[str], Selector] = _unknown_selector


class Instance:
    """The shared state of one client id."""

    def __init__(self, config: ClientConfig, client_id: str, surroundings: Surroundings) -> None:
        self.config = config
        self.client_id = client_id
        self.surroundings = surroundings
        self.clock = surroundings.clock
        self.wall = surroundings.wall
        self.random = surroundings.random
        self.lock = surroundings.make_lock()
        self._watchers = config.hooks
        #: What is told of brokers and routes. What happens to a message is told by its sender.
        self.hooks = HookSet(config.hooks)
        self.routes = RouteTable(
            clock=self.clock,
            lock=surroundings.make_lock(),
            address_map=config.address_map,
            display=lambda topic: without_namespace(topic, config.namespace),
            thread=surroundings.thread,
        )
        self.faults = FaultTable(
            config.fault,
            clock=self.clock,
            lock=surroundings.make_lock(),
            random=surroundings.random,
            on_isolated=self._isolated,
            on_returned=self._returned,
            probing=config.background,
        )
        #: Seconds after which a route is asked for again before it is used. Upkeep refreshes it before,
        #: where there is a background; one that has missed two rounds is not relied on.
        self._route_stale_after = config.route_refresh * (3.0 if config.background else 1.0)
        #: Rung by senders to make the background come at once.
        self.route_wake_up = WakeUp(surroundings.make_lock())
        self.probe_wake_up = WakeUp(surroundings.make_lock())
        self.heartbeat_wake_up = WakeUp(surroundings.make_lock())
        self.ids = self._make_ids()
        self.name_servers = config.name_servers
        #: Name servers that have answered, as only name servers do.
        self.heard_servers: set[str] = set()
        self._first_server = int(surroundings.random.random() * len(config.name_servers))
        self.producer_groups: set[str] = set()
        #: Simple consumers, each with what heartbeats tell of it.
        self.receivers: dict[object, Callable[[], ConsumerData]] = {}
        #: When each broker of a topic was last seen by a read of it.
        self.seen_brokers: dict[str, dict[str, float]] = {}
        self.presence = Presence(surroundings.make_lock())
        self.replies = Replies(surroundings.make_lock())
        #: What answers for the transactions of a producer group.
        self.check_runners: dict[str, CheckRunner] = {}
        #: The topic whose route serves unknown topics, and how many queues those get.
        self.defaults: tuple[str, int] = ("TBW102", 4)
        self._upkeeper: object | None = None
        self._header = BINARY if config.header == "binary" else JSON
        self.is_plain = (
            config.credentials is None and not config.namespace_v2 and self._header == BINARY
        )

    def _make_ids(self) -> MessageIdMaker:
        s, wall = self.surroundings, self.wall
        salt = int(s.random.random() * 2**32)
        return MessageIdMaker(s.address, s.pid, salt, lambda: int(wall() * 1000))

    def recent_route(self, topic: str) -> TopicEntry | None:
        """The route of a topic, if name servers were asked for it within ``route_refresh``."""
        entry = self.routes.get(topic)
        if entry is None or self.clock() - entry.fetched_at > self.config.route_refresh:
            return None
        return entry

    def new_positions(self) -> RoundRobinCounter:
        """Round-robin positions for one thread, or for one producer on an event loop."""
        return RoundRobinCounter(self.random)

    # -- watchers ----------------------------------------------------------------------------

    def watch(self, hooks: Iterable[object]) -> None:
        """Tell these of brokers and routes, too."""
        with self.lock:
            self._watchers += tuple(hooks)
            self.hooks = HookSet(self._watchers)

    def unwatch(self, hooks: Iterable[object]) -> None:
        """Tell these no more; one that several clients gave stays for the others."""
        with self.lock:
            left = list(self._watchers)
            for gone in hooks:
                place = next((i for i, hook in enumerate(left) if hook is gone), None)
                if place is not None:
                    del left[place]
            self._watchers = tuple(left)
            self.hooks = HookSet(left)

    # -- upkeep ------------------------------------------------------------------------------

    def claim_upkeep(self, who: object) -> bool:
        """Become the client that keeps this instance up; False while another one is."""
        with self.lock:
            if self._upkeeper is None:
                self._upkeeper = who
            return self._upkeeper is who

    def release_upkeep(self, who: object) -> None:
        """Leave the upkeep to others."""
        with self.lock:
            if self._upkeeper is who:
                self._upkeeper = None

    # -- requests ---------------------------------------------------------------------------

    def request(
        self, code: int, ext: dict[str, str] | None = None, body: bytes | memoryview = b""
    ) -> Request:
        """A request as this client writes them: header form, namespace v2, signature."""
        fields = dict(ext) if ext else {}
        if self.config.namespace_v2:
            fields |= {"ns": self.config.namespace_v2, "nsd": "true"}
        credentials = self.credentials()
        if credentials is not None:
            fields = sign(fields, bytes(body), credentials)
        return Command(code, fields, body, header=self._header)

    def credentials(self) -> Credentials | None:
        """The keys to use now; asked for each request, because they may rotate."""
        source = self.config.credentials
        if source is None or isinstance(source, Credentials):
            return source
        found = source()
        if not isinstance(found, Credentials):
            raise ConfigError(
                f"the credentials function returned {type(found).__name__}: return a Credentials"
            )
        return found

    # -- name servers -----------------------------------------------------------------------

    def servers_in_turn(self) -> tuple[str, ...]:
        """All name servers, beginning with the one that answered last."""
        servers, first = self.name_servers, self._first_server % max(1, len(self.name_servers))
        return servers[first:] + servers[:first]

    def prefer_server(self, address: str) -> None:
        """This name server answered; ask it first from now on."""
        self.heard_servers.add(address)
        self._first_server = self.name_servers.index(address)

    # -- changes ----------------------------------------------------------------------------

    def fresh_until(self, route: TopicEntry) -> float:
        """Until when a route may be used without being asked for again."""
        return route.fetched_at + self._route_stale_after

    def learned(self, change: RouteChange) -> None:
        """A route came in: keep the fault table in step and call the hooks."""
        if not change.is_change:
            return
        for broker in change.moved:
            self.faults.reset(broker)
        self.faults.retain(self.routes.brokers())
        entry = change.entry
        if self.hooks.route_learned:
            event = RouteEvent(entry.topic, change.before or (), entry.queues, self.wall())
            call_hooks(self.hooks.route_learned, event)
        if change.before is not None and change.before != entry.queues:
            _log.info(
                "topic %s: %d queues on %s (were %d)",
                entry.topic,
                len(entry.queues),
                ", ".join(entry.brokers) or "no broker",
                len(change.before),
                extra=about(topic=entry.topic),
            )
            if self.hooks.route_changed:
                event = RouteEvent(entry.topic, change.before, entry.queues, self.wall())
                call_hooks(self.hooks.route_changed, event)

    def probed(self, broker: str, latency: float | None, why: str, *, good: bool) -> None:
        """A probe is over: let the fault table judge it, and call the hooks."""
        self.faults.probe_finished(broker, self.clock(), latency, good, why)
        if self.hooks.broker_probed:
            event = ProbeEvent(self.wall(), broker, latency, good, why)
            call_hooks(self.hooks.broker_probed, event)
        self.probe_wake_up.wake()

    def _isolated(self, broker: str, why: str, until: float | None) -> None:
        if self.hooks.broker_isolated:
            at = self.wall()
            if until is not None:
                left = until - self.clock()
                until = at + left if isfinite(left) else None
            call_hooks(self.hooks.broker_isolated, BrokerEvent(at, broker, why, until))
        self.probe_wake_up.wake()

    def _returned(self, broker: str, why: str) -> None:
        if self.hooks.broker_returned:
            call_hooks(self.hooks.broker_returned, BrokerEvent(self.wall(), broker, why, None))
