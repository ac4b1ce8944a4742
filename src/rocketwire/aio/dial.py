"""Making a connection, and saying in words why none came about."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from typing import TYPE_CHECKING

from rocketwire.aio.connection import Connection, in_words
from rocketwire.config import Tls, check_address
from rocketwire.errors import ConfigError

if TYPE_CHECKING:
    import ssl

_ERRNO = re.compile(r"\[Errno (\d+)\]")


async def dial(
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
            await loop.create_connection(
                lambda: connection, host, port, ssl=context, server_hostname=name
            )
    except asyncio.CancelledError:
        connection.connect_failed("was not connected before the shutdown of this client")
        raise
    except TimeoutError as error:
        text = f"could not be reached: no connection in {limit:.1f} s"
        connection.connect_failed(text, error)
    except (OSError, ValueError) as error:
        connection.connect_failed(explain(error, host, encrypted=context is not None), error)


def explain(error: Exception, host: str, *, encrypted: bool = False) -> str:
    """Why a connection was not made, as what the server did, e.g. ``refused the connection``."""
    if isinstance(error, ConnectionRefusedError) or _all_refused(error):
        return "refused the connection"
    if isinstance(error, socket.gaierror):
        return f"could not be reached: the name {host!r} is not known here ({in_words(error)})"
    if encrypted:
        import ssl

        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"showed a certificate that is not accepted ({error.verify_message}): "
                "check tls ca_file and server_name"
            )
        if isinstance(error, (ssl.SSLError, ConnectionError)):
            return f"did not agree on TLS ({in_words(error)}): check that it is on there"
    return f"could not be reached: {in_words(error)}"


def _all_refused(error: Exception) -> bool:
    """Whether each of several addresses of one name refused."""
    numbers = {int(n) for n in _ERRNO.findall(str(error))}
    return numbers == {errno.ECONNREFUSED}
