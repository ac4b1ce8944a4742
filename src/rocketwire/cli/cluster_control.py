"""What a process with embedded brokers does when it is asked to break one."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rocketwire.cli.fault_actions import describe_broker, perform
from rocketwire.errors import ConfigError

if TYPE_CHECKING:
    from rocketwire.embedded import BrokerHandle


class BrokerControl:
    """Carries out control requests on some brokers.

    Args:
        brokers: all that there are, asked for anew each time.
        kill_process: whether killing a broker ends this process, because it is one broker.
    """

    def __init__(
        self, brokers: Callable[[], Sequence[BrokerHandle]], *, kill_process: bool = False
    ) -> None:
        self._brokers = brokers
        self._kill_process = kill_process

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request.

        Raises:
            ConfigError: it asks for something that does not exist.
        """
        handle = self._find(str(request.get("broker")))
        name = request.get("action")
        if name == "kill" and self._kill_process:
            # The answer leaves first; nothing else does, as with a real kill.
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return {"broker": handle.name, "faults": ["killed"]}
        if name is not None:
            perform(handle, str(name), request.get("value"), request.get("conditions") or {})
        return {"broker": handle.name, "faults": describe_broker(handle)}

    def _find(self, name: str) -> BrokerHandle:
        brokers = self._brokers()
        for handle in brokers:
            if handle.name == name:
                return handle
        known = ", ".join(handle.name for handle in brokers)
        raise ConfigError(f"there is no broker {name!r} here: there are {known}")
