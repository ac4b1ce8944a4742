"""The handles by which a program breaks servers of an embedded cluster and mends them.

They may be used from any thread but the cluster's own; every call returns when it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rocketwire.embedded.faults import Fault, FaultKind
from rocketwire.setting_values import seconds as as_seconds
from rocketwire.wire.codes import Permission

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker
    from rocketwire.embedded.server import Server


class LoopThread(Protocol):
    """Whatever runs the cluster's event loop."""

    def run(self, work: Callable[[], Any]) -> Any:
        """Run a function or a coroutine function there and wait for its result."""


class ServerHandle:
    """A name server or a broker, and its faults.

    Every fault takes the same conditions: ``code`` (one request code), ``topic``, ``next`` (only
    so many requests) and ``probability``. Without any it holds for every request until ``heal``.
    Faults add up: a server may be slow and busy.
    """

    def __init__(self, server: Server, thread: LoopThread) -> None:
        self._server = server
        self._thread = thread

    @property
    def name(self) -> str:
        """As the journal has it."""
        return self._server.name

    @property
    def address(self) -> str:
        """``host:port``."""
        return self._server.address

    @property
    def port(self) -> int:
        """Where it listens, also while it is down."""
        return self._server.port

    @property
    def fast_port(self) -> int | None:
        """Where it listens for senders besides (the "VIP channel"); None where it does not."""
        return self._server.fast_port

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Those in force."""
        return self._server.faults.faults

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._server.connections)

    def fault(self, fault: Fault) -> Fault:
        """Put any fault into force; the methods below make the common ones."""
        self._thread.run(lambda: self._server.faults.add(fault))
        return fault

    def end_fault(self, fault: Fault) -> None:
        """End one fault and leave the others."""
        self._thread.run(lambda: self._server.faults.remove(fault))

    def _make(
        self,
        kind: FaultKind,
        *,
        code: int | None,
        topic: str | None,
        next: int | None,  # noqa: A002 - reads well where it is called
        probability: float,
        **details: Any,
    ) -> Fault:
        if "seconds" in details:
            details["seconds"] = as_seconds(details["seconds"])
        return self.fault(
            Fault(kind, code=code, topic=topic, remaining=next, probability=probability, **details)
        )

    def slow(
        self,
        seconds: float | str,
        *,
        jitter: float = 0.0,
        code: int | None = None,
        topic: str | None = None,
        next: int | None = None,  # noqa: A002
        probability: float = 1.0,
    ) -> Fault:
        """Each request waits so long before it is handled, plus up to ``jitter`` seconds."""
        return self._make(
            FaultKind.SLOW, code=code, topic=topic, next=next, probability=probability,
            seconds=seconds, jitter=jitter,
        )  # fmt: skip

    def hang(
        self,
        *,
        code: int | None = None,
        topic: str | None = None,
        next: int | None = None,  # noqa: A002
        probability: float = 1.0,
    ) -> Fault:
        """Connections stay open and requests stay unanswered, as with a stopped process.

        When the server is healed, it handles what has come meanwhile.
        """
        return self._make(
            FaultKind.HANG, code=code, topic=topic, next=next, probability=probability
        )

    def busy(
        self,
        *,
        code: int | None = None,
        topic: str | None = None,
        next: int | None = None,  # noqa: A002
        probability: float = 1.0,
    ) -> Fault:
        """Requests are answered "system busy"."""
        return self._make(
            FaultKind.BUSY, code=code, topic=topic, next=next, probability=probability
        )

    def reject(
        self,
        response_code: int,
        *,
        code: int | None = None,
        topic: str | None = None,
        next: int | None = None,  # noqa: A002
        probability: float = 1.0,
    ) -> Fault:
        """Requests are answered with this code and not handled."""
        return self._make(
            FaultKind.REJECT, code=code, topic=topic, next=next, probability=probability,
            response_code=response_code,
        )  # fmt: skip

    def refuse(self) -> None:
        """Connections are refused, and those that are open are closed."""

        def work() -> None:
            self._server.stop_listening()
            self._server.abort_connections()

        self._thread.run(work)

    def drop_connections(
        self,
        *,
        code: int | None = None,
        topic: str | None = None,
        next: int | None = None,  # noqa: A002
        probability: float = 1.0,
        after_handling: bool = False,
    ) -> None:
        """Close every connection now; with a condition, close each over which such a request comes.

        With ``after_handling``, the request is carried out first and only its answer is lost.
        """
        everything = code is None and topic is None and next is None and probability == 1.0
        if everything and not after_handling:
            self._thread.run(self._server.abort_connections)
            return
        kind = FaultKind.DROP_REPLY if after_handling else FaultKind.DROP
        self._make(kind, code=code, topic=topic, next=next, probability=probability)

    def late_replies(
        self,
        seconds: float | str,
        *,
        code: int | None = None,
        topic: str | None = None,
        next: int | None = None,  # noqa: A002
        probability: float = 1.0,
    ) -> Fault:
        """Requests are handled at once and answered so much later."""
        return self._make(
            FaultKind.LATE_REPLY, code=code, topic=topic, next=next, probability=probability,
            seconds=seconds,
        )  # fmt: skip

    def lose_replies(
        self,
        *,
        code: int | None = None,
        topic: str | None = None,
        next: int | None = None,  # noqa: A002
        probability: float = 1.0,
    ) -> Fault:
        """Requests are handled and never answered."""
        return self._make(
            FaultKind.LOSE_REPLY, code=code, topic=topic, next=next, probability=probability
        )

    def half_replies(
        self,
        *,
        code: int | None = None,
        topic: str | None = None,
        next: int | None = None,  # noqa: A002
        probability: float = 1.0,
    ) -> Fault:
        """Requests are handled; half of the answer comes, and the connection is closed."""
        return self._make(
            FaultKind.HALF_REPLY, code=code, topic=topic, next=next, probability=probability
        )

    def wrong_replies(
        self,
        *,
        garbage: bool = False,
        code: int | None = None,
        topic: str | None = None,
        next: int | None = None,  # noqa: A002
        probability: float = 1.0,
    ) -> Fault:
        """Requests are handled and answered under another request's number, or with garbage."""
        kind = FaultKind.GARBAGE_REPLY if garbage else FaultKind.WRONG_REPLY
        return self._make(kind, code=code, topic=topic, next=next, probability=probability)

    def heal(self) -> None:
        """End every fault but a kill."""
        self._thread.run(self._heal)

    async def _heal(self) -> None:
        self._server.heal()
        await self._server.listen()


class BrokerHandle(ServerHandle):
    """A broker of an embedded cluster."""

    def __init__(self, broker: Broker, thread: LoopThread) -> None:
        super().__init__(broker, thread)
        self._broker = broker

    @property
    def running(self) -> bool:
        """Whether it is neither killed nor stopped."""
        return self._broker.running

    @property
    def folder(self) -> Path:
        """Its store."""
        return self._broker.folder

    @property
    def index_lag(self) -> int:
        """Bytes of the log that the index has not seen yet."""
        return self._broker.store.follower.behind if self.running else 0

    @property
    def stored_bytes(self) -> int:
        """Bytes of the commit log."""
        return self._broker.store.log.used if self.running else 0

    @property
    def messages_in(self) -> int:
        """Messages stored since the start."""
        return self._broker.messages_in

    @property
    def messages_out(self) -> int:
        """Messages given to readers since the start."""
        return self._broker.messages_out

    @property
    def topics(self) -> list[str]:
        """Names of all its topics, built-in ones too."""
        return [config.name for config in self._broker.topics] if self.running else []

    @property
    def own_topics(self) -> list[str]:
        """Names of its topics without those that every broker has."""
        topics = self._broker.topics
        return [name for name in self.topics if not topics.is_system(name)]

    def read_only(self) -> None:
        """Routes say that it can't be written to, and sends are refused."""

        async def work() -> None:
            self._broker.allow(Permission.READ)
            await self._broker.register_now()

        self._thread.run(work)

    def disk_full(self) -> None:
        """Nothing can be stored any more; reading works."""

        def work() -> None:
            self._broker.store.disk.full = True

        self._thread.run(work)

    def clock(self, offset: float) -> None:
        """Its clock is wrong by so many seconds."""

        def work() -> None:
            self._broker.clock_offset = offset

        self._thread.run(work)

    def kill(self) -> None:
        """End it as ``kill -9`` would: nothing more is flushed, and nobody is told."""
        self._thread.run(self._broker.kill)

    def stop(self) -> None:
        """End it properly."""
        self._thread.run(self._broker.stop)

    def restart(self) -> None:
        """Start it again from its folder, on its port, without any fault."""

        async def work() -> None:
            await self._broker.stop()
            self._mend()
            await self._broker.start()

        self._thread.run(work)

    def _mend(self) -> None:
        broker = self._broker
        broker.faults.clear()
        broker.clock_offset = 0.0
        if broker.permission != Permission.READ | Permission.WRITE:
            broker.allow(Permission.READ | Permission.WRITE)

    async def _heal(self) -> None:
        broker = self._broker
        self._mend()
        if not broker.running:
            return
        broker.store.disk.full = False
        broker.heal()
        await broker.listen()
        await broker.register_now()
