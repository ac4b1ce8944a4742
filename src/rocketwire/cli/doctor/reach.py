"""Who listens at an address? Looked at with bare sockets, because the peer may be anything."""

from __future__ import annotations

import contextlib
import enum
import ipaddress
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Final

from rocketwire.setting_values import check_address
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import JSON, Command, encode_command

_PATIENCE: Final = 2.0
_TLS_ALERT: Final = 0x15
_HTTP2_SETTINGS: Final = 4
_QUESTION: Final = encode_command(
    Command(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=1, header=JSON)
)
_HTTP_GREETING: Final = b"GET / HTTP/1.0\r\n\r\n"
_HTTP2_GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"


class Peer(enum.Enum):
    """What an address turned out to be."""

    UNKNOWN_HOST = "its name can't be resolved"
    REFUSED = "nothing listens there"
    NO_ROUTE = "it can't be reached"
    SILENT = "it takes the connection and says nothing"
    CLOSES = "it closes the connection without an answer"
    HTTP = "it is a web server"
    GRPC = "it speaks gRPC"
    TLS = "it wants TLS"
    ROCKETMQ = "it speaks RocketMQ's protocol"
    OTHER = "it speaks some other protocol"


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen at an address, and how long connecting took."""

    peer: Peer
    detail: str = ""
    connect_time: float | None = None


def look_at(address: str) -> Sight:
    """Connect without TLS, ask a harmless question, and judge by the first bytes of the answer."""
    host, port = check_address(address, "address")
    begun = time.monotonic()
    try:
        sock = socket.create_connection((host, port), _PATIENCE)
    except socket.gaierror as error:
        return Sight(Peer.UNKNOWN_HOST, str(error.strerror))
    except ConnectionRefusedError:
        return Sight(Peer.REFUSED)
    except OSError as error:
        return Sight(Peer.NO_ROUTE, error.strerror or "no answer in time")
    taken = time.monotonic() - begun
    with sock:
        peer = _judge(_ask(sock, _QUESTION))
    if peer in {Peer.CLOSES, Peer.OTHER, Peer.SILENT}:
        peer = _guess(host, port) or peer
    return Sight(peer, connect_time=taken)


def _guess(host: str, port: int) -> Peer | None:
    """One that does not understand us may understand TLS, or the web's protocols."""
    if wants_tls(host, port):
        return Peer.TLS
    for greeting, wanted in ((_HTTP2_GREETING, Peer.GRPC), (_HTTP_GREETING, Peer.HTTP)):
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, port), _PATIENCE) as sock,
        ):
            if _judge(_ask(sock, greeting)) is wanted:
                return wanted
    return None


def _ask(sock: socket.socket, question: bytes) -> bytes | None:
    """The first bytes of the answer; empty when it was closed, None when none came."""
    try:
        sock.settimeout(_PATIENCE)
        sock.sendall(question)
        return sock.recv(64)
    except TimeoutError:
        return None
    except OSError:
        return b""


def _judge(answer: bytes | None) -> Peer:
    if answer is None:
        return Peer.SILENT
    if not answer:
        return Peer.CLOSES
    if answer.startswith((b"HTTP/", b"<!", b"<html")):
        return Peer.HTTP
    if answer[0] == _TLS_ALERT and answer[1:2] == b"\x03":
        return Peer.TLS
    if len(answer) >= 9 and answer[3] == _HTTP2_SETTINGS and answer[5:9] == b"\0\0\0\0":
        return Peer.GRPC
    # A frame: its length, then a byte that tells JSON (0) or binary (1).
    if len(answer) >= 5 and 0 < int.from_bytes(answer[:4], "big") < 1 << 24 and answer[4] in (0, 1):
        return Peer.ROCKETMQ
    return Peer.OTHER


def wants_tls(host: str, port: int) -> bool:
    """Whether a TLS handshake succeeds, whatever name the peer's certificate has."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), _PATIENCE) as sock,
            context.wrap_socket(sock, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        # One that asks for our certificate has understood us.
        return "CERTIFICATE_REQUIRED" in str(error)
    except OSError:
        return False


def kind_of_host(host: str) -> str:
    """What kind of address a broker advertises: loopback, private, public, or a name."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_loopback:
            return "loopback"
        return "private" if address.is_private else "public"
    return "name"
