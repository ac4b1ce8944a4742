"""Breaking and mending a running broker from another process.

A private request (``CONTROL_CODE``), which no RocketMQ knows, names what to do in the header field
``action``, on a name server also the ``broker``, and carries the arguments as JSON. It
is understood by each broker, and by the name servers of an embedded cluster on behalf of its
brokers: a broker that refuses connections can be mended through them. It is not subject to
faults.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from rocketwire.embedded.call import CONTROL_CODE, Answer, Call, Refusal
from rocketwire.embedded.control import BrokerHandle
from rocketwire.errors import RocketMQError
from rocketwire.wire.codes import Permission, ResponseCode
from rocketwire.wire.headers import text_field
from rocketwire.wire.lenient_json import dumps, loads

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

__all__ = ["ACTIONS", "CONTROL_CODE", "FROM_OUTSIDE", "RemoteControl", "status"]

#: What can be asked of a broker itself; the methods of ``BrokerHandle`` have these names.
ACTIONS: Final = frozenset(
    {
        "slow", "hang", "busy", "reject", "drop_connections", "late_replies", "lose_replies",
        "half_replies", "wrong_replies", "read_only", "disk_full", "clock", "heal", "refuse",
    }
)  # fmt: skip
#: What only another process than the broker's can do.
FROM_OUTSIDE: Final = ACTIONS | {"kill", "stop", "restart"}


class _Here:
    """Stands in for the cluster's thread where the work is done in that thread already."""

    def __init__(self) -> None:
        self.pending: list[Awaitable[Any]] = []

    def run(self, work: Callable[[], Any]) -> Any:
        result = work()
        if inspect.isawaitable(result):
            self.pending.append(result)
            return None
        return result


class RemoteControl:
    """Serves the private request.

    Args:
        find: the broker of a name, or the only one for None; None when there is none.
        allowed: actions that may be asked for.
    """

    def __init__(
        self, find: Callable[[str | None], Broker | None], allowed: frozenset[str]
    ) -> None:
        self._find = find
        self._allowed = allowed

    def handle(self, call: Call) -> Answer | None:
        """Do what is asked for; answered when it is done."""
        action = text_field(call.ext, "action")
        name = call.ext.get("broker")
        broker = self._find(name)
        if broker is None:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"there is no broker {name!r} here")
        if action == "status":
            return Answer(body=(dumps(status(broker)),))
        if action not in self._allowed:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"action is {action[:40]!r}: give one of {', '.join(sorted(self._allowed))}",
            )
        arguments = loads(call.command.body) if call.command.body else {}
        if not isinstance(arguments, dict):
            raise Refusal(ResponseCode.INVALID_PARAMETER, "the arguments are not a JSON object")
        call.connection.server.spawn(self._act(call, broker, action, arguments))
        return None

    async def _act(
        self, call: Call, broker: Broker, action: str, arguments: dict[str, Any]
    ) -> None:
        here = _Here()
        try:
            getattr(BrokerHandle(broker, here), action)(**arguments)
            for work in here.pending:
                await work
        except (RocketMQError, TypeError, OSError) as error:
            call.answer(Answer(ResponseCode.INVALID_PARAMETER, remark=f"{action}: {error}"))
            return
        call.answer(Answer())


def status(broker: Broker) -> dict[str, Any]:
    """A broker's figures, for screens and scripts."""
    running = broker.running
    return {
        "address": broker.address,
        "clock_offset": broker.clock_offset,
        "connections": len(broker.connections),
        "disk_full": running and broker.store.disk.full,
        "faults": [_describe(fault) for fault in broker.faults.faults],
        "held_pulls": len(broker.pulls) if running else 0,
        "index_lag": broker.store.follower.behind if running else 0,
        "listening": broker.listening,
        "messages_in": broker.messages_in,
        "messages_out": broker.messages_out,
        "name": broker.name,
        "running": running,
        "stored_bytes": broker.store.log.used if running else 0,
        "topics": sum(1 for _ in broker.topics) if running else 0,
        "undecided": broker.transactions.undecided if running else 0,
        "uptime": round(time.time() - broker.started_at, 3) if running else 0.0,
        "writable": bool(broker.permission & Permission.WRITE),
    }


def _describe(fault: Any) -> dict[str, Any]:
    fields = {
        "kind": fault.kind.value,
        "seconds": fault.seconds,
        "code": fault.code,
        "topic": fault.topic,
        "next": fault.remaining,
        "probability": fault.probability,
    }
    return {name: value for name, value in fields.items() if value is not None}
