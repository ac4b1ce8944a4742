"""Making a connection to an address, or to one of the addresses that a name has."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

from rocketwire.aio.connection import Connection
from rocketwire.config import Tls
from rocketwire.errors import ConfigError
from rocketwire.setting_values import check_address
from rocketwire.system.name_lookup import Endpoint, Lookup, literal, look_up
from rocketwire.system.socket_tuning import make_socket
from rocketwire.system.unreachable import explain, too_slow

if TYPE_CHECKING:
    import ssl


async def connect(
    connection: Connection, *, limit: float, tls: Tls | None, context: ssl.SSLContext | None
) -> None:
    """Connect, or tell the connection that it failed. Raises nothing but cancellation."""
    try:
        host, port = check_address(connection.address, "the route")
    except ConfigError as error:
        connection.connect_failed(f"could not be reached: {error}", error)
        return
    name = None if context is None else (tls and tls.server_name) or host
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limit):
            if literal(host, port) is not None:
                where: dict[str, Any] = {"host": host, "port": port}
            else:
                connection.looked_up = host
                lookup = look_up(host)
                await _over(lookup)
                connection.looked_up = None
                where = {"sock": await _reach(lookup.endpoints(port), limit)}
            await loop.create_connection(
                lambda: connection, **where, ssl=context, server_hostname=name
            )
    except asyncio.CancelledError:
        connection.connect_failed("was not connected before the shutdown of this client")
        raise
    except TimeoutError as error:
        connection.connect_failed(too_slow(connection.looked_up, limit), error)
    except (OSError, ValueError) as error:
        connection.connect_failed(explain(error, host, encrypted=context is not None), error)
    except Exception as error:  # noqa: BLE001 - else all who come later would wait for this one
        connection.connect_failed(f"could not be reached: {error!r}", error)


async def _over(lookup: Lookup) -> None:
    """Wait for a look-up, which is done in a thread of its own."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(over.set)

    lookup.add_waiter(wake)
    try:
        await over.wait()
    finally:
        lookup.remove_waiter(wake)


async def _reach(endpoints: list[Endpoint], limit: float) -> socket.socket:
    """A socket that is connected to the first of these that accepts it.

    Raises:
        OSError: none does; it is the error of the first one, which the system finds the best.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + limit
    first: OSError | None = None
    for number, endpoint in enumerate(endpoints):
        # An even share for each, so that one that never answers leaves time for the others.
        share = (until - loop.time()) / (len(endpoints) - number)
        try:
            async with asyncio.timeout(share):
                return await _connect(endpoint)
        except OSError as error:
            first = first or error
    raise first or OSError("its name has no address")


async def _connect(endpoint: Endpoint) -> socket.socket:
    family, place = endpoint
    sock = make_socket(family)
    try:
        sock.setblocking(False)  # noqa: FBT003 - its only parameter
        await asyncio.get_running_loop().sock_connect(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock
