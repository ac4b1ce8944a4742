"""How the sockets of clients are made and set."""

from __future__ import annotations

import socket


def make_socket(family: int) -> socket.socket:
    """A stream socket that no interrupt takes along.

    One behind ``socket.socket(...)`` would come when the socket is open and nobody has it yet.
    """
    sock = socket.socket.__new__(socket.socket)
    try:
        sock.__init__(family, socket.SOCK_STREAM)  # type: ignore[misc]  # see above
    except BaseException:
        number = sock.detach()  # close() needs a socket that is made to the end
        if number >= 0:
            socket.close(number)
        raise
    return sock


def tune(sock: socket.socket | None) -> None:
    """Small packets leave at once; a peer that vanished is noticed while nothing is sent."""
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
