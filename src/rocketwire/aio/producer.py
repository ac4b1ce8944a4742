"""The asyncio producer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from rocketwire.aio.delivery import Delivery, Room, in_callback
from rocketwire.aio.driver import Awaited, Driver
from rocketwire.aio.upkeep import Upkeep
from rocketwire.config import ProducerConfig, from_mapping
from rocketwire.core.admin import create_topic
from rocketwire.core.faults import BrokerHealth
from rocketwire.core.lookup import locate_topic
from rocketwire.core.many import ManySender
from rocketwire.core.retry import SendMode
from rocketwire.core.selection import RoundRobinCounter, Selector
from rocketwire.core.send import Sender
from rocketwire.core.stats import ProducerStats
from rocketwire.core.upkeep import say_goodbye
from rocketwire.errors import (
    ClientClosedError,
    ConfigError,
    Outcome,
    RocketMQError,
    SendFailedError,
)
from rocketwire.message import Message, MessageQueue, SendResult
from rocketwire.registry import join_group, join_instance, leave_group, leave_instance

Messages: TypeAlias = Message | Sequence[Message]

#: Submits in a row after which the loop gets its turn: answers are read while messages are still
#: being handed over, and their latency is the broker's, not ours.
_BURST: Final = 128


class AsyncProducer:
    """Sends messages from coroutines. The twin of ``Producer``, with the same names.

    It belongs to the event loop on which it is started, and may be used by any number of tasks
    there. ``async with`` starts and ends it; otherwise ``await start()`` and ``await shutdown()``.

    Args:
        name_servers: ``"host:port;host:port"`` or a list; without it, ``NAMESRV_ADDR`` counts.
        group: the producer group.
        config: further settings as a mapping; ``options`` are stronger.
        **options: the settings, see the reference of ``ProducerConfig``.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._state = "new"
        if name_servers is not None:
            options["name_servers"] = name_servers
        if group is not None:
            options["group"] = group
        self._config = from_mapping(ProducerConfig, options, mapping=config, environ=os.environ)
        if not self._config.name_servers:
            raise ConfigError(
                "name_servers is empty: give AsyncProducer('host:port'), or set NAMESRV_ADDR"
            )

    # -- life -------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Make it ready; a second call does nothing.

        Raises:
            ClientClosedError: it was shut down.
            ConfigError: its group exists already in the client instance that it shares, or a file
                named in the TLS settings can't be used.
        """
        if self._state == "closed":
            raise ClientClosedError("this producer was shut down: make a new one")
        if self._state == "new":
            self._open()
            self._state = "running"
        return self

    def _open(self) -> None:
        config = self._config
        instance = join_instance(config)
        try:
            driver = Driver(config, clock=instance.clock)
            sender = Sender(instance, config, RoundRobinCounter(instance.random))
            join_group(instance, sender.group)
        except BaseException:
            leave_instance(instance)
            raise
        instance.defaults = sender.defaults
        self._instance, self._sender, self._driver = instance, sender, driver
        self._room = Room(driver.loop, config.max_in_flight, config.max_in_flight_bytes)
        self._burst = 0
        # Heartbeats and probes have connections of their own: a probe that waits behind messages
        # would measure those.
        self._upkeep_driver = Driver(config, clock=instance.clock)
        self._upkeep = Upkeep(instance, self._upkeep_driver, on_routes=_weakly(self._close_unused))
        if config.background:
            self._upkeep.start()

    async def shutdown(self) -> None:
        """Wait for what is in flight (``shutdown_timeout``), say goodbye, close; idempotent."""
        was_running = self._state == "running"
        self._state = "closed"
        if not was_running:
            return
        try:
            await self._room.quiet(self._config.shutdown_timeout, visitors=True)
            self._upkeep.stop()
            with contextlib.suppress(RocketMQError):  # nobody to say it to
                await self._upkeep_driver.run(say_goodbye(self._instance, self._sender.group))
        finally:
            self._upkeep.stop()
            leave_group(self._instance, self._sender.group)
            leave_instance(self._instance)
            await asyncio.gather(self._driver.close(), self._upkeep_driver.close())

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()

    def __del__(self) -> None:
        if getattr(self, "_state", "") != "running":
            return
        warnings.warn(
            f"unclosed producer {self._instance.client_id}: use it in an async with statement, "
            "or await shutdown()",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )
        leave_group(self._instance, self._sender.group)
        leave_instance(self._instance)
        with contextlib.suppress(RuntimeError):  # the loop is closed: its sockets are gone, too
            loop = self._driver.loop
            for abandon in (self._upkeep.stop, self._upkeep_driver.abort, self._driver.abort):
                loop.call_soon_threadsafe(abandon)

    # -- sending ----------------------------------------------------------------------------

    async def send(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline over all attempts
    ) -> SendResult:
        """Send a message, or a batch of them as one request, and wait for the answer.

        Cancelling it leaves the connection usable; the message may be stored all the same.

        Args:
            message: one, or several of one topic.
            queue: where it must go; no other queue is tried then.
            selector: chooses the queue.
            argument: given to the selector.
            timeout: seconds over all attempts; ``send_timeout`` by default.

        Raises:
            InvalidMessageError: nothing was sent.
            SendFailedError: its ``outcome`` tells whether the message may be stored all the same.
        """
        if self._state != "running":
            raise self._not_running()
        sender, room = self._sender, self._room
        plan = sender.plan(
            message,
            SendMode.ASYNC,
            queue=queue,
            selector=selector,
            argument=argument,
            timeout=timeout,
        )
        room.visitors += 1
        try:
            result = await Awaited(self._driver, sender.send(plan))
        finally:
            room.visitors -= 1
            if room.has_listeners:
                room.look_around()
        if result is None:  # never for this mode
            raise SendFailedError("no answer", outcome=Outcome.MAYBE_STORED)
        return result

    async def send_oneway(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | None = None,  # noqa: ASYNC109 - until it is written
    ) -> None:
        """Write a message and do not wait: no answer, no retry.

        Raises:
            InvalidMessageError: nothing was sent.
            SendFailedError: it could not even be written.
        """
        if self._state != "running":
            raise self._not_running()
        plan = self._sender.plan(
            message,
            SendMode.ONEWAY,
            queue=queue,
            selector=selector,
            argument=argument,
            timeout=timeout,
        )
        await Awaited(self._driver, self._sender.send(plan))
        await self._take_turns()

    async def submit(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline over all attempts
        on_success: Callable[[SendResult], Any] | None = None,
        on_error: Callable[[Exception], Any] | None = None,
    ) -> Delivery:
        """Hand a message over; ``await`` the delivery for the answer.

        Waits only for room: ``max_in_flight`` messages may be without an answer. In a callback,
        and in tasks started by one, it does not wait even for that.

        Raises:
            InvalidMessageError: nothing was sent.
            SendFailedError: there was no room before the deadline.
        """
        if self._state != "running":
            raise self._not_running()
        sender, room = self._sender, self._room
        plan = sender.plan(
            message,
            SendMode.ASYNC,
            queue=queue,
            selector=selector,
            argument=argument,
            timeout=timeout,
        )
        outgoing = plan.outgoing
        count, size = len(outgoing.messages), len(outgoing.body)
        if not room.take(count, size):
            await self._wait_for_room(count, size, plan.timeout)
        if outgoing.sharding_keys:
            sender.line_up(plan, is_accepted=True)
        delivery = Delivery(self._driver, sender.send(plan), room, count, size)
        if on_success is not None or on_error is not None:
            delivery.add_done_callback(_teller(on_success, on_error))
        delivery.resume(None)
        self._burst += 1
        if self._burst >= _BURST:
            await self._take_turns()
        return delivery

    async def _wait_for_room(self, count: int, size: int, limit: float) -> None:
        room = self._room
        if in_callback.get():
            room.take_anyway(count, size)
            return
        if not await room.wait(count, size, limit):
            raise SendFailedError(
                f"not sent: {room.held} messages are in flight and none was answered in "
                f"{limit:.1f} s; raise max_in_flight, or send less"
            )
        if self._state != "running":
            room.give_back(count, size)
            raise self._not_running()

    async def _take_turns(self) -> None:
        self._burst = 0
        await asyncio.sleep(0)

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - for each batch
    ) -> list[SendResult | RocketMQError]:
        """Send any number of messages to any topics, in batches, many at once.

        Messages of one sharding key stay in order. ``timeout`` is for each batch.

        Returns:
            One result or error per message, in the order given.

        Raises:
            InvalidMessageError: one of them is wrong; nothing was sent.
        """
        if self._state != "running":
            raise self._not_running()
        many = ManySender(self._sender, messages, timeout)
        room, driver = self._room, self._driver
        room.visitors += 1
        try:
            lanes = await driver.run(many.lanes())
            ends = [driver.run(many.run(lane)) for lane in lanes]
            for end in await asyncio.gather(*ends, return_exceptions=True):
                if isinstance(end, BaseException):
                    raise end
        finally:
            room.visitors -= 1
            room.look_around()
        return [r if r is not None else SendFailedError("not sent") for r in many.results]

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as in Producer
        """Wait until everything submitted has an answer.

        Raises:
            TimeoutError: something still has none.
        """
        if self._state == "new":
            raise self._not_running()
        if not await self._room.quiet(timeout):
            raise TimeoutError(f"{self._room.held} messages have no answer after {timeout} s")

    # -- looking ----------------------------------------------------------------------------

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to, sorted as Java sorts them."""
        if self._state != "running":
            raise self._not_running()
        sender = self._sender
        deadline = self._instance.clock() + self._config.request_timeout
        name = sender.wire_topic(topic)
        operation = locate_topic(self._instance, name, deadline, *sender.defaults)
        return (await self._driver.run(operation)).queues

    def health(self) -> tuple[BrokerHealth, ...]:
        """What the fault table thinks of each broker, and why."""
        if self._state == "new":
            raise self._not_running()
        return self._instance.faults.snapshot(self._instance.clock())

    def stats(self) -> ProducerStats:
        """Counters since the start, and latencies per broker."""
        if self._state == "new":
            raise self._not_running()
        return self._sender.counters.snapshot(
            late_replies=self._driver.late_replies, in_flight=self._room.held
        )

    async def create_topic(self, name: str, queues: int = 8, *, order: bool = False) -> None:
        """Create a topic on every master, or change its number of queues."""
        if self._state != "running":
            raise self._not_running()
        deadline = self._instance.clock() + self._config.request_timeout
        operation = create_topic(
            self._instance, name, queues=queues, order=order, deadline=deadline
        )
        await self._driver.run(operation)

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client; empty before the start."""
        return self._instance.client_id if self._state != "new" else ""

    # -- inside -----------------------------------------------------------------------------

    def _not_running(self) -> ClientClosedError:
        if self._state == "new":
            return ClientClosedError(
                "this producer was not started: use it in an async with statement, or await start()"
            )
        return ClientClosedError("this producer was shut down: make a new one")

    def _close_unused(self) -> None:
        """Close connections to addresses that no route has any more."""
        wanted = self._instance.routes.addresses() | set(self._config.name_servers)
        self._driver.retain(wanted)
        self._upkeep_driver.retain(wanted)

    def __repr__(self) -> str:
        servers = ";".join(self._config.name_servers)
        return f"AsyncProducer({servers!r}, group={self._config.group!r}, {self._state})"


def _teller(
    on_success: Callable[[SendResult], Any] | None, on_error: Callable[[Exception], Any] | None
) -> Callable[[Delivery], None]:
    def tell(delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            if on_success is not None:
                on_success(delivery.result())
        elif on_error is not None:
            on_error(error)

    return tell


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """A call that does not keep the method's object alive, so that a lost producer is noticed."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        found = reference()
        if found is not None:
            found()

    return call
