"""The connections of one client instance on one event loop, by address.

Clients that share an instance (by an explicit id) share these, too, on one loop: each has a driver
of its own, which knows its operations. A client that leaves takes its own requests along; the
last one closes the connections.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Collection

from rocketwire.aio.connecting import connect
from rocketwire.aio.connection import Connection
from rocketwire.aio.responding import ResponderOf, refusing
from rocketwire.config import ClientConfig
from rocketwire.core.instance import Instance
from rocketwire.core.tell_each import tell_each


class ConnectionTable:
    """Opens connections and closes them.

    Args:
        config: time limits, sizes and TLS.
        loop: whose they are.
        clock: the clock that deadlines are on.
        responder_of: what answers requests of the server at an address.

    Raises:
        ConfigError: a file named in the TLS settings can't be used.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        responder_of: ResponderOf = refusing,
    ) -> None:
        self.loop = loop
        #: Those that take requests.
        self.connections: dict[str, Connection] = {}
        self.users = 1
        self._config = config
        self._clock = clock
        self._responder_of = responder_of
        self._late = 0
        self._alive: set[Connection] = set()
        self._dials: dict[Connection, asyncio.Task[None]] = {}
        self._context = None
        if config.tls is not None:
            from rocketwire.system.tls import make_context

            self._context = make_context(config.tls)

    def open(self, address: str) -> Connection:
        """Begin to connect."""
        connection = Connection(
            address,
            loop=self.loop,
            clock=self._clock,
            on_over=self._over,
            responder=self._responder_of(address),
            limit=self._config.max_frame,
        )
        self.connections[address] = connection
        self._alive.add(connection)
        connection.closed.add_done_callback(lambda _: self._forget(connection))
        task = self.loop.create_task(
            connect(
                connection,
                limit=self._config.connect_timeout,
                tls=self._config.tls,
                context=self._context,
            )
        )
        self._dials[connection] = task
        task.add_done_callback(lambda _: self._dials.pop(connection, None))
        return connection

    def retain(self, addresses: Collection[str]) -> None:
        """Close the connections to all other addresses, each when its last answer has come."""
        for connection in [c for a, c in self.connections.items() if a not in addresses]:
            connection.retire()

    def descriptors(self) -> list[int]:
        """The numbers of all open sockets, for a forked child that has to let go of them."""
        return [number for c in self._alive if (number := c.descriptor) >= 0]

    def leave(self, owner: object) -> bool:
        """One of the users goes; its requests fail. True if it was the last one."""
        self.users -= 1
        if self.users:
            tell_each(list(self._alive), lambda connection: connection.dismiss(owner))
        return not self.users

    async def close(self, limit: float) -> None:
        """Close all; callers that still wait are told. What was written gets ``limit``."""
        try:
            tell_each(list(self._alive), Connection.close)
        finally:  # also where a hook of one that is told ends the program
            await self._closed(limit)

    async def _closed(self, limit: float) -> None:
        # An attempt that has connected ends by itself; cutting it short would lose what is written.
        for task in [t for c, t in self._dials.items() if not c.is_connected]:
            task.cancel()
        for _ in range(2):
            if self._alive:
                await asyncio.wait([c.closed for c in self._alive], timeout=limit)
            for connection in list(self._alive):
                connection.abort()
        await asyncio.gather(*self._dials.values(), return_exceptions=True)

    def abort(self) -> None:
        """Close everything without a word; for clients that were lost."""
        for task in list(self._dials.values()):
            task.cancel()
        alive = list(self._alive)
        try:
            tell_each(alive, Connection.close)
        finally:
            tell_each(alive, Connection.abort)

    @property
    def late_replies(self) -> int:
        """Replies that came after their request was given up."""
        return self._late + sum(c.session.late for c in list(self._alive))

    def _forget(self, connection: Connection) -> None:
        if connection in self._alive:
            self._alive.remove(connection)
            self._late += connection.session.late

    def _over(self, connection: Connection) -> None:
        if self.connections.get(connection.address) is connection:
            del self.connections[connection.address]


_by_instance: weakref.WeakKeyDictionary[Instance, list[ConnectionTable]] = (
    weakref.WeakKeyDictionary()
)


def connection_table_of(instance: Instance, config: ClientConfig) -> ConnectionTable:
    """The connections of an instance on the running loop; every caller ``leave``s them once.

    Raises:
        ConfigError: a file named in the TLS settings can't be used.
    """
    loop = asyncio.get_running_loop()
    with instance.lock:  # its clients may be on several loops, in several threads
        found = [table for table in _by_instance.get(instance, []) if table.users]
        for table in found:
            if table.loop is loop:
                table.users += 1
                return table
        made = ConnectionTable(config, loop=loop, clock=instance.clock)
        _by_instance[instance] = [*found, made]
        return made
