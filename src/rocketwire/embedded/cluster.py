"""The embedded cluster: name servers and brokers in one thread of this process.

For a first try, and for tests that break things on purpose. Production is Apache RocketMQ.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, Unpack

from rocketwire.embedded.broker import Broker
from rocketwire.embedded.clock import Ahead, ClusterClock
from rocketwire.embedded.control import BrokerHandle, ServerHandle
from rocketwire.embedded.journal import Journal
from rocketwire.embedded.loop_thread import LoopThread
from rocketwire.embedded.nameserver import NameServer
from rocketwire.embedded.options import BrokerOptions, BrokerSettings, check_name
from rocketwire.embedded.progress import wait_idle
from rocketwire.embedded.remote_control import CONTROL_CODE, FROM_OUTSIDE, RemoteControl
from rocketwire.embedded.server import FAST_STEP, check_server
from rocketwire.embedded.store import StoreSizes
from rocketwire.embedded.topics import DEAD_LETTER_PREFIX, TopicConfig, name_problem
from rocketwire.errors import ClientClosedError, ConfigError
from rocketwire.setting_values import seconds
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.lazy_message import messages_in

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"

Ports = int | Sequence[int] | Mapping[str, int] | None


class EmbeddedCluster:
    """A name server and brokers on loopback.

    >>> with EmbeddedCluster(brokers=2) as cluster:
    ...     sorted(broker.name for broker in cluster.brokers)
    ['broker-a', 'broker-b']

    Args:
        brokers: how many, or their names.
        folder: of the stores; a temporary one, deleted at the end, when not given.
        ports: an int for the name server alone, a sequence for the name server and then the
            brokers, or a mapping by name; any free ones where not given.
        host: a loopback address.
        name_servers: how many.
        queues: of topics that sends make.
        auto_create_topics: whether sends make topics.
        flush: ``"async"``, or ``"sync"`` to acknowledge only what is on disk.
        apache_sizes: use store files as large as a Java broker's.
        seed: of everything that happens by chance.
        journal_limit: requests that the journal keeps.
        reply_header: ``"same"`` as the request, or ``"json"`` as 5.x does.
        tls: a server's context, when connections shall be encrypted.
        order_routes: whether routes have ordered-topic configuration from the name server.
        broker_timeout: seconds of silence after which the name server forgets a broker.
        connection_limit: connections that each server takes.
        idle_timeout: seconds after which a silent connection is closed.
        broker_options: anything else of ``BrokerOptions``.
    """

    def __init__(  # noqa: PLR0913 - every one has a default
        self,
        brokers: int | Sequence[str] = 1,
        *,
        folder: str | os.PathLike[str] | None = None,
        ports: Ports = None,
        host: str = "127.0.0.1",
        name_servers: int = 1,
        queues: int = 4,
        auto_create_topics: bool = True,
        flush: Literal["async", "sync"] = "async",
        apache_sizes: bool = False,
        seed: int = 0,
        journal_limit: int = 10_000,
        reply_header: Literal["same", "json"] = "same",
        tls: ssl.SSLContext | None = None,
        order_routes: bool = False,
        broker_timeout: float = 120.0,
        connection_limit: int = 1024,
        idle_timeout: float = 120.0,
        **broker_options: Unpack[BrokerSettings],
    ) -> None:
        if apache_sizes:
            broker_options.setdefault("sizes", StoreSizes.apache())
        try:
            self._options = BrokerOptions(
                queues=queues,
                auto_create_topics=auto_create_topics,
                flush=flush,
                **broker_options,
            )
        except TypeError as error:
            raise ConfigError(f"EmbeddedCluster: {error}") from None
        check_server(host, reply_header)
        self._names = _broker_names(brokers)
        if not 1 <= name_servers <= 16:
            raise ConfigError(f"name_servers is {name_servers}: give 1 to 16")
        self._given_folder = Path(folder) if folder is not None else None
        self._ports = _port_table(ports, name_servers, self._names)
        self._name_server_count = name_servers
        self._seed = seed
        self._server_options: dict[str, Any] = {
            "host": host,
            "reply_header": reply_header,
            "tls": tls,
            "connection_limit": connection_limit,
            "idle_timeout": idle_timeout,
        }
        self._order_routes = order_routes
        self._broker_timeout = broker_timeout
        self.journal = Journal(journal_limit)
        self._ahead = Ahead()
        self._thread: LoopThread | None = None
        self._pid = os.getpid()
        self._folder: Path | None = None
        self._name_servers: list[NameServer] = []
        self._brokers: dict[str, Broker] = {}

    # Life

    def start(self) -> Self:
        """Start everything; returns when routes are known. Starting twice does nothing.

        Raises:
            ConfigError: a port is taken.
            StoreError: a store can't be opened.
        """
        if self._thread is not None:
            return self
        self._pid = os.getpid()
        self._thread = LoopThread()
        self._thread.start()
        try:
            self._folder = self._given_folder or Path(tempfile.mkdtemp(prefix="rocketwire-"))
            if self._given_folder is None:
                atexit.register(self._remove_folder)
            self._thread.run(self._start)
        except BaseException:
            self.stop()
            raise
        return self

    async def _start(self) -> None:
        for number in range(self._name_server_count):
            name = "name-server" if number == 0 else f"name-server-{number + 1}"
            server = NameServer(
                self.journal,
                name=name,
                port=self._ports.get(name, 0),
                folder=self.folder / name,
                order_routes=self._order_routes,
                broker_timeout=self._broker_timeout,
                seed=self._seed,
                **self._server_options,
            )
            server.handlers[CONTROL_CODE] = RemoteControl(self._find, FROM_OUTSIDE).handle
            self._name_servers.append(server)
            await server.listen()
        for name in self._names:
            await self._start_broker(name)

    def _find(self, name: str | None) -> Broker | None:
        return self._brokers.get(name) if name is not None else None

    async def _start_broker(self, name: str) -> None:
        broker = Broker(
            name,
            self.folder / name,
            [server.address for server in self._name_servers],
            self.journal,
            self._options,
            self._ahead,
            port=self._ports.get(name, 0),
            seed=self._seed + 1 + len(self._brokers),
            **self._server_options,
        )
        # A port that was given to another server is not for a VIP channel.
        broker.has_fast_port = broker.port - FAST_STEP not in self._ports.values()
        self._brokers[name] = broker
        await broker.start()

    def stop(self) -> None:
        """Stop everything; a temporary folder is deleted. Stopping twice does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if os.getpid() != self._pid:
            # A fork has no copy of the thread, and the servers belong to the parent.
            return
        try:
            thread.run(self._stop)
        finally:
            thread.stop()
            self._name_servers.clear()
            self._brokers.clear()
            self._remove_folder()

    async def _stop(self) -> None:
        await asyncio.gather(
            *(broker.stop() for broker in self._brokers.values()), return_exceptions=True
        )
        for server in (*self._brokers.values(), *self._name_servers):
            server.shut()
            server.release()
        # Aborted connections are told so in the loop's next turns.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _remove_folder(self) -> None:
        if self._given_folder is None and self._folder is not None and os.getpid() == self._pid:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            atexit.unregister(self._remove_folder)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    # What is there

    @property
    def name_server(self) -> str:
        """What a client is given: ``host:port``, several separated by semicolons."""
        self._check_running()
        return ";".join(server.address for server in self._name_servers)

    @property
    def name_servers(self) -> tuple[ServerHandle, ...]:
        """Handles of the name servers, which can be broken, too."""
        return tuple(ServerHandle(s, self._check_running()) for s in self._name_servers)

    @property
    def folder(self) -> Path:
        """Of all stores."""
        if self._folder is None:
            raise ClientClosedError("the embedded cluster is not running: start it first")
        return self._folder

    @property
    def brokers(self) -> tuple[BrokerHandle, ...]:
        """Handles of all brokers."""
        thread = self._check_running()
        return tuple(BrokerHandle(broker, thread) for broker in self._brokers.values())

    @property
    def clock(self) -> ClusterClock:
        """The clock of all brokers, which can be put forward: ``cluster.clock.advance("10s")``."""
        return ClusterClock(self._ahead, self._brokers.values, self._check_running().run)

    def broker(self, name: str) -> BrokerHandle:
        """The handle of one broker.

        Raises:
            ConfigError: there is none of that name.
        """
        thread = self._check_running()
        if name not in self._brokers:
            raise ConfigError(f"there is no broker {name!r}: there are {', '.join(self._brokers)}")
        return BrokerHandle(self._brokers[name], thread)

    def _check_running(self) -> LoopThread:
        if self._thread is None:
            raise ClientClosedError("the embedded cluster is not running: start it first")
        return self._thread

    # Changes

    def add_broker(self, name: str | None = None) -> BrokerHandle:
        """Start one more broker."""
        name = name if name is not None else _name_of(len(self._brokers))
        check_name("broker name", name)
        if name in self._brokers:
            raise ConfigError(f"there is a broker {name!r} already: give another name")
        self._check_running().run(lambda: self._start_broker(name))
        return self.broker(name)

    def create_topic(
        self,
        name: str,
        queues: int = 8,
        *,
        brokers: Sequence[str] | None = None,
        permission: int = 6,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic, on all running brokers or on some; returns when routes know it.

        With ``order`` and ``EmbeddedCluster(order_routes=True)``, clients keep to its queues while
        a broker is away, so that a sharding key never moves.
        """
        problem = name_problem(name)
        if problem is not None:
            raise ConfigError(f"topic {name!r}: {problem}")
        if not 1 <= queues <= 65536:
            raise ConfigError(f"queues is {queues}: give 1 to 65536")
        names = list(self._brokers) if brokers is None else list(brokers)
        for broker in names:
            self.broker(broker)
        config = TopicConfig(
            name, queues, queues, permission, order=order, attributes=dict(attributes or {})
        )

        async def work() -> None:
            for broker in [self._brokers[n] for n in names]:
                if broker.running:
                    broker.topics.put(config)
                    await broker.register_now()
            for server in self._name_servers if order else ():
                server.order_topic(name, dict.fromkeys(names, queues))

        self._check_running().run(work)

    def delete_topic(self, name: str) -> None:
        """Forget a topic and its messages everywhere."""

        async def work() -> None:
            for server in self._name_servers:
                server.forget_topic(name)
            for broker in self._brokers.values():
                if broker.running:
                    broker.delete_topic(name)
                    await broker.register_now()

        self._check_running().run(work)

    def dead_letters(self, group: str) -> list[StoredMessage]:
        """The messages that a consumer group has given up."""
        return self.messages(DEAD_LETTER_PREFIX + group)

    def wait_idle(self, group: str, timeout: float | str = 10.0) -> None:
        """Wait until a consumer group has handled everything that is in its queues.

        Messages that wait for their time (delayed, or to be tried again) are in no queue yet: put
        the clock forward and wait again.

        Raises:
            TimeoutError: it has not; the text says where it is behind.
        """
        run, limit = self._check_running().run, seconds(timeout)
        wait_idle(lambda work: run(lambda: work(tuple(self._brokers.values()))), group, limit)

    def messages(self, topic: str) -> list[StoredMessage]:
        """Everything stored of a topic on running brokers, by broker, queue and offset."""
        return list(self._check_running().run(lambda: self._read_all(topic)))

    def _read_all(self, topic: str) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        for broker in self._brokers.values():
            queues = sorted(broker.store.queues.items()) if broker.running else ()
            for (name, _), queue in queues if broker.running else ():
                if name != topic:
                    continue
                for offset in range(queue.minimum, queue.maximum):
                    unit = queue.unit(offset)
                    record = broker.store.record_at(unit[0]) if unit is not None else None
                    if record is not None:
                        found += messages_in(bytes(record), broker=broker.name)
        return found


def _name_of(number: int) -> str:
    text = ""
    while number >= 0:
        text = _LETTERS[number % 26] + text
        number = number // 26 - 1
    return f"broker-{text}"


def _broker_names(brokers: int | Sequence[str]) -> list[str]:
    if isinstance(brokers, int):
        if not 0 <= brokers <= 256:
            raise ConfigError(f"brokers is {brokers}: give 0 to 256, or their names")
        return [_name_of(number) for number in range(brokers)]
    names = list(brokers)
    for name in names:
        check_name("broker name", name)
    if isinstance(brokers, str) or len(set(names)) != len(names):
        raise ConfigError(f"brokers is {brokers!r}: give a number, or names that differ")
    return names


def _port_table(ports: Ports, name_servers: int, brokers: Sequence[str]) -> dict[str, int]:
    if ports is None:
        return {}
    if isinstance(ports, Mapping):
        return dict(ports)
    extra = [f"name-server-{number + 1}" for number in range(1, name_servers)]
    names = ["name-server", *extra, *brokers]
    given = [ports] if isinstance(ports, int) else list(ports)
    if len(given) > len(names):
        raise ConfigError(f"ports has {len(given)} entries: there are {len(names)} servers")
    return dict(zip(names, given, strict=False))
