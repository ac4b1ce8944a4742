"""How ``rocketwire fault`` reaches a running ``rocketwire cluster`` or ``rocketwire broker``.

The process that has the brokers listens on a loopback port of its own, apart from the brokers, so
that one that hangs or was killed can still be mended. Where that port is, it notes in the name
server's key-value configuration, under each broker's name: who can find the broker can find it.
One line of JSON asks, one line answers.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from rocketwire.cli.failures import CommandFailedError
from rocketwire.config import check_address
from rocketwire.errors import RocketMQError

if TYPE_CHECKING:
    from rocketwire.cli.admin import Admin

_log: Final = logging.getLogger("rocketwire.cli")
NAMESPACE: Final = "ROCKETWIRE_CONTROL"
_LONGEST_LINE: Final = 64 * 1024
_PATIENCE: Final = 10.0

Handle = Callable[[dict[str, Any]], dict[str, Any]]


class ControlServer:
    """Listens for requests and answers them, one at a time. A context manager."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, name="rocketwire-control", daemon=True)
        self._is_over = False

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over = True
        # Closing a listening socket does not wake who accepts on it; a connection does.
        with contextlib.suppress(OSError):
            socket.create_connection(self._socket.getsockname(), timeout=1.0).close()
        self._thread.join(_PATIENCE)
        self._socket.close()

    def _serve(self) -> None:
        while not self._is_over:
            connection, _ = self._socket.accept()
            with connection, contextlib.suppress(OSError):
                if not self._is_over:
                    connection.settimeout(_PATIENCE)
                    connection.sendall(_encode(self._answer(_read_line(connection))))

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                return {"error": "a request is a JSON object"}
            return self._handle(request)
        except (RocketMQError, CommandFailedError, ValueError, TypeError) as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - one bad request must not end the channel
            _log.exception("a control request failed")
            return {"error": f"{type(error).__name__}: {error}"}


def _read_line(connection: socket.socket) -> bytes:
    data = b""
    while b"\n" not in data and len(data) < _LONGEST_LINE:
        piece = connection.recv(4096)
        if not piece:
            break
        data += piece
    return data


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def ask(address: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request to a control server.

    Raises:
        CommandFailedError: nobody is there, or it refused.
    """
    try:
        with socket.create_connection(check_address(address, "control"), _PATIENCE) as connection:
            connection.sendall(_encode(request))
            line = _read_line(connection)
        answer = json.loads(line)
    except (OSError, ValueError) as error:
        raise CommandFailedError(
            f"the process that had this broker does not answer at {address} ({error}): "
            "start rocketwire cluster again"
        ) from None
    if "error" in answer:
        raise CommandFailedError(str(answer["error"]))
    return dict(answer)


def find(admin: Admin, broker: str) -> str:
    """The address of the control server that has a broker.

    Raises:
        CommandFailedError: none has; the text says which brokers can be broken.
    """
    address = admin.note(NAMESPACE, broker)
    if address is None:
        known = ", ".join(sorted(admin.clusters().brokers)) or "none"
        raise CommandFailedError(
            f"{broker} is no broker of a running rocketwire cluster or rocketwire broker "
            f"(brokers here: {known}); faults can only be made in embedded brokers"
        )
    return address


@contextlib.contextmanager
def announced(admin: Admin, brokers: Iterable[str], address: str) -> Any:
    """Note where the control server of some brokers is, for as long as the block runs."""
    names = list(brokers)
    for name in names:
        admin.set_note(NAMESPACE, name, address)
    try:
        yield
    finally:
        for name in names:
            with contextlib.suppress(RocketMQError):
                if admin.note(NAMESPACE, name) == address:
                    admin.set_note(NAMESPACE, name, None)
