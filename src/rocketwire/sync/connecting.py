"""Opening a socket in time, to an address or to one of the addresses that a name has."""

from __future__ import annotations

import socket
from collections.abc import Callable

from rocketwire.errors import ConnectFailedError
from rocketwire.setting_values import check_address
from rocketwire.system.latch import Latch
from rocketwire.system.name_lookup import Endpoint, literal, look_up
from rocketwire.system.socket_tuning import make_socket
from rocketwire.system.unreachable import explain, too_slow


def open_socket(
    address: str, patience: float, clock: Callable[[], float]
) -> tuple[socket.socket, str]:
    """A connected socket, whose time limit is what is left of the time; and the host's name.

    Args:
        address: ``host:port``; the host is a name or an address.
        patience: seconds that it may take, the look-up of the name included.
        clock: what they are measured on.

    Raises:
        ConnectFailedError: there is none to be had in time.
    """
    limit = clock() + patience
    host = address
    try:
        host, port = check_address(address, "the route")
        plain = literal(host, port)
        return _reach([plain] if plain else _look_up(host, port, limit, clock), limit, clock), host
    except _LookupTooSlowError:
        raise ConnectFailedError(f"{address} {too_slow(host, patience)}") from None
    except TimeoutError:
        raise ConnectFailedError(f"{address} {too_slow(None, patience)}") from None
    except OSError as error:
        raise ConnectFailedError(f"{address} {explain(error, host)}") from error
    except ValueError as error:  # no address at all, or a name that can't be one
        raise ConnectFailedError(f"{address} could not be reached: {error}") from error


class _LookupTooSlowError(TimeoutError):
    """The time was over before the name was looked up."""


def _look_up(host: str, port: int, limit: float, clock: Callable[[], float]) -> list[Endpoint]:
    lookup = look_up(host)
    latch = Latch()
    lookup.add_waiter(latch.open)
    if not latch.wait(limit - clock()):
        lookup.remove_waiter(latch.open)
        raise _LookupTooSlowError
    return lookup.endpoints(port)


def _reach(endpoints: list[Endpoint], limit: float, clock: Callable[[], float]) -> socket.socket:
    """A socket that is connected to the first of these that accepts it.

    Raises:
        OSError: none does; it is the error of the first one, which the system finds the best.
    """
    first: OSError | None = None
    for number, endpoint in enumerate(endpoints):
        # An even share for each, so that one that never answers leaves time for the others.
        share = (limit - clock()) / (len(endpoints) - number)
        try:
            sock = _connect(endpoint, max(share, 0.001))
        except OSError as error:
            first = first or error
        else:
            try:
                sock.settimeout(max(limit - clock(), 0.001))
            except BaseException:  # an interrupt may come at any moment
                sock.close()
                raise
            return sock
    raise first or OSError("its name has no address")


def _connect(endpoint: Endpoint, timeout: float) -> socket.socket:
    family, place = endpoint
    sock = make_socket(family)
    try:
        sock.settimeout(timeout)
        sock.connect(place)
    except BaseException:
        sock.close()
        raise
    return sock
