"""The asyncio producer."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from asyncio import get_running_loop
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import get_ident
from typing import Any, Final, TypeAlias, cast

from rocketwire.aio.boarding import BatchRoom
from rocketwire.aio.client import AsyncClient
from rocketwire.aio.delivery import (
    BatchedDelivery,
    Delivery,
    Room,
    SingleDelivery,
    in_callback,
)
from rocketwire.aio.driver import Awaited
from rocketwire.aio.express import SendOffice, SubmitOffice
from rocketwire.config import ProducerConfig
from rocketwire.core.accumulate import Accumulator
from rocketwire.core.admin import create_topic
from rocketwire.core.express import Parcel, express_for
from rocketwire.core.faults import BrokerHealth
from rocketwire.core.lookup import locate_topic
from rocketwire.core.many import ManySender
from rocketwire.core.plan import Plan
from rocketwire.core.retry import SendMode
from rocketwire.core.selection import RoundRobinCounter, Selector
from rocketwire.core.send import Sender
from rocketwire.core.stats import ProducerStats
from rocketwire.core.turns import teller
from rocketwire.core.upkeep import say_goodbye
from rocketwire.core.validate import check_message
from rocketwire.errors import Outcome, RocketMQError, SendFailedError
from rocketwire.message import Message, MessageQueue, SendResult
from rocketwire.registry import join_group, leave_group, make_config
from rocketwire.reporting import Reporting

Messages: TypeAlias = Message | Sequence[Message]

#: Submits in a row after which the loop gets its turn: answers are read while messages are still
#: being handed over, and their latency is the broker's, not ours.
_BURST: Final = 128
#: The same where they travel in lots: those take a quarter of the time, and lots are not cut short.
_BURST_IN_LOTS: Final = 512


class AsyncProducer(AsyncClient[ProducerConfig]):
    """Sends messages from coroutines. The twin of ``Producer``, with the same names.

    It belongs to the event loop on which it is started, and may be used by any number of tasks
    there. ``async with`` starts and ends it; otherwise ``await start()`` and ``await shutdown()``.
    Shutting down waits for what is in flight, up to ``shutdown_timeout``.

    Args:
        name_servers: ``"host:port;host:port"`` or a list; without it, ``NAMESRV_ADDR`` counts.
        group: the producer group.
        config: further settings as a mapping; ``options`` are stronger.
        **options: the settings, see the reference of ``ProducerConfig``.
    """

    _what = "producer"

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(make_config(ProducerConfig, name_servers, group, config, options))

    def _opened(self) -> None:
        config, instance = self._config, self._instance
        positions = RoundRobinCounter(instance.random)
        # Weakly, so that a producer that nobody closed is noticed.
        method = weakref.WeakMethod(self._snapshot)
        reporting = Reporting(config, instance, positions, lambda: (found := method()) and found())
        self._sender = Sender(instance, config, positions, reporting.hooks)
        limits = (self._driver.loop, config.max_in_flight, config.max_in_flight_bytes)
        self._burst = 0
        self._in_a_row = _BURST if config.auto_batch is None else _BURST_IN_LOTS
        lane = express_for(self._sender, SendMode.ASYNC)
        self._sending = None if lane is None else SendOffice(lane, self._driver)
        self._submitting: SubmitOffice | None = None
        #: The shortest way for a message that has nothing unusual about it, if it may take it.
        self._hand_in: Callable[[Message], Delivery | None] = _nowhere
        self._oneway = express_for(self._sender, SendMode.ONEWAY)
        self._accumulator: Accumulator | None = None
        self._boarding: BatchRoom | None = None
        if config.auto_batch is None:
            self._room = Room(*limits)
            if lane is not None:
                self._submitting = office = SubmitOffice(lane, self._driver, self._room)
                self._hand_in = office.submit
        else:
            room = self._room = self._boarding = BatchRoom(*limits)
            self._hand_in = room.board
            self._accumulator = Accumulator(
                self._sender, config.auto_batch, room.lot_over, room.lot_begun
            )
        join_group(instance, self._sender.group)
        instance.defaults = self._sender.defaults
        self._reporting = reporting
        self._start_reporting()

    def _start_reporting(self) -> None:
        over = self._traces_over = asyncio.Event()
        operation = self._reporting.start()
        if operation is None:
            over.set()
        else:
            self._driver.start(operation, lambda *_: over.set())

    async def _closing(self) -> None:
        """Wait for what is in flight (``shutdown_timeout``), and say goodbye."""
        clock, patience = self._instance.clock, self._config.shutdown_timeout
        limit = clock() + patience
        if self._accumulator is not None:
            self._accumulator.hurry()
        await self._room.quiet(patience, visitors=True)
        await self._finish_traces(max(0.1, limit - clock()))
        self._upkeep.stop()
        with contextlib.suppress(RocketMQError):  # nobody to say it to
            for group in (self._sender.group, *self._reporting.groups):
                await self._upkeep_driver.run(say_goodbye(self._instance, group))

    async def _finish_traces(self, limit: float) -> None:
        self._reporting.finish_traces(limit)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._traces_over.wait(), limit)

    async def _closed(self) -> None:
        if self._config.telemetry is None and self._config.status is None:
            self._reporting.close()
        else:  # the disk may be slow, and the loop has other things to do
            await asyncio.to_thread(self._reporting.close)

    def after_fork(self) -> None:
        """In a forked child: leave it, and what is in flight, to the parent."""
        super().after_fork()
        self._room.is_inherited = True
        if self._accumulator is not None:
            self._accumulator.disown()

    def _left(self) -> None:
        leave_group(self._instance, self._sender.group)

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
        if self._thread != get_ident() or not self._is_awake():
            self._check_loop()
        sender, room, office = self._sender, self._room, self._sending
        if office is not None and queue is None and selector is None and timeout is None:
            waiter = office.begin(message) if type(message) is Message else None
            if waiter is not None:
                room.visitors += 1
                try:
                    return cast("SendResult", await waiter.future)
                finally:
                    room.visitors -= 1
                    if room.has_listeners:
                        room.look_around()
                    if not waiter.is_over:
                        waiter.give_up()
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
        if self._thread != get_ident() or not self._is_awake():
            self._check_loop()
        self._burst += 1
        if self._burst >= _BURST:
            await self._take_turns()
        lane = self._oneway
        if lane is not None and queue is None and selector is None and timeout is None:
            parcel = lane.prepare(message, Parcel) if type(message) is Message else None
            if parcel is not None:
                connection = self._driver.connections.get(parcel.stop.address)
                if connection is not None and connection.is_ready and not connection.is_stale():
                    connection.write_parcel(parcel)
                else:
                    await Awaited(self._driver, lane.take_over(parcel))
                return
        plan = self._sender.plan(
            message,
            SendMode.ONEWAY,
            queue=queue,
            selector=selector,
            argument=argument,
            timeout=timeout,
        )
        await Awaited(self._driver, self._sender.send(plan))

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
        if self._thread != get_ident() or not self._is_awake():
            self._check_loop()
        self._burst += 1
        if self._burst >= self._in_a_row:  # before anything is handed over: this may be cancelled
            await self._take_turns()
        if queue is None and selector is None and timeout is None and type(message) is Message:
            delivery = self._hand_in(message)
            if delivery is None and self._submitting is None:
                delivery = self._post(message)
            if delivery is None and self._is_for_lane(message):
                delivery = await self._post_later(message)
            if delivery is not None:
                if on_success is not None or on_error is not None:
                    delivery.add_done_callback(teller(on_success, on_error))
                return delivery
        batches, plan = self._accumulator, None
        if (
            batches is None
            or type(message) is not Message
            or queue is not None
            or selector is not None
            or not batches.accepts(message)
        ):
            plan = self._sender.plan(
                message,
                SendMode.ASYNC,
                queue=queue,
                selector=selector,
                argument=argument,
                timeout=timeout,
            )
            count, size, limit = len(plan.outgoing.messages), len(plan.outgoing.body), plan.timeout
        else:
            count, size, limit = 1, len(message.body), self._sender.check_timeout(timeout)
        if not self._room.take(count, size):
            await self._wait_for_room(count, size, limit)
        if plan is not None:
            delivery = self._hand_over(plan, count, size)
        else:
            delivery = self._hand_to(cast("Accumulator", batches), cast("Message", message), limit)
        if on_success is not None or on_error is not None:
            delivery.add_done_callback(teller(on_success, on_error))
        return delivery

    def _is_for_lane(self, message: Message) -> bool:
        """Whether a message was not posted only because there was no room for it.

        Raises:
            InvalidMessageError: something is wrong with it, so it need not wait.
        """
        batches = self._accumulator
        if batches is not None:
            return batches.is_plain(message)  # which it would have taken
        if self._submitting is None or message.sharding_key is not None:
            return False
        check_message(message, self._config.max_message_size)
        return self._room.is_full(len(message.body))

    async def _post_later(self, message: Message) -> Delivery:
        """Hand a message over when there is room, which it keeps whatever way it takes then."""
        size = len(message.body)
        await self._wait_for_room(1, size, self._config.send_timeout)
        delivery = None
        try:
            delivery = self._post(message, has_room=True)
            if delivery is None:
                delivery = self._hand_over(self._sender.plan(message, SendMode.ASYNC), 1, size)
        finally:
            if delivery is None:
                self._room.give_back(1, size)
        return delivery

    def _post(self, message: Message, *, has_room: bool = False) -> Delivery | None:
        """Hand a plain message over, if there is room and nothing unusual about it.

        ``has_room`` means that the caller has taken room, and gives it back if this returns None.
        """
        if self._submitting is not None:
            return self._submitting.submit(message, has_room=has_room)
        room, size, batches = self._room, len(message.body), self._accumulator
        if batches is None or not (has_room or room.take(1, size)):
            return None
        if batches.is_plain(message):
            return self._put_into_lot(batches, message)
        if not has_room:
            room.give_back(1, size)
        return None

    def _put_into_lot(self, batches: Accumulator, message: Message) -> Delivery:
        lot, place, is_new = batches.add_plain(message, self._config.send_timeout)
        if is_new:
            self._driver.start(batches.deliver(lot), _ignore)
        if self._boarding is not None:
            self._boarding.begin(lot, batches)
        return BatchedDelivery.of(lot, place)

    def _hand_over(self, plan: Plan, count: int, size: int) -> Delivery:
        if plan.outgoing.sharding_keys:
            self._sender.line_up(plan, is_accepted=True)
        operation = self._sender.send(plan)
        delivery = SingleDelivery(self._driver, operation, self._room, count, size)
        delivery.resume(None)
        return delivery

    def _hand_to(self, batches: Accumulator, message: Message, limit: float) -> Delivery:
        try:
            lot, place, is_new = batches.add(message, limit)
        except RocketMQError:
            self._room.give_back(1, len(message.body))
            raise
        if is_new:
            self._driver.start(batches.deliver(lot), _ignore)
        return BatchedDelivery.of(lot, place)

    async def _wait_for_room(self, count: int, size: int, limit: float) -> None:
        room = self._room
        if in_callback.get():
            room.take_anyway(count, size)
            return
        if not await room.wait(count, size, limit):
            raise SendFailedError(
                f"not sent: {room.in_flight} messages are in flight and none was answered in "
                f"{limit:.1f} s; raise max_in_flight, or send less"
            )
        if self._state != "running":
            room.give_back(count, size)
            raise self._not_running()

    async def _take_turns(self) -> None:
        self._burst = 0
        await asyncio.sleep(0)
        self._check_loop()

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
        self._check_loop()
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
        """Wait until everything submitted before has an answer.

        Raises:
            TimeoutError: something still has none.
        """
        if self._state == "new" or (self._home or get_running_loop()) is not get_running_loop():
            raise self._not_running()
        if self._accumulator is not None:
            self._accumulator.hurry()
        if not await self._room.flush(timeout):
            raise TimeoutError(f"{self._room.in_flight} messages have no answer after {timeout} s")

    # -- looking ----------------------------------------------------------------------------

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to, in Java's order.

        Those of an ordered or a static topic are listed even while their master is away.
        """
        deadline = self._deadline()
        sender = self._sender
        name = sender.wire_topic(topic)
        operation = locate_topic(self._instance, name, deadline, *sender.defaults)
        return (await self._driver.run(operation)).listed

    def health(self) -> tuple[BrokerHealth, ...]:
        """What the fault table thinks of each broker, and why."""
        if self._state == "new":
            raise self._not_running()
        return self._instance.faults.snapshot(self._instance.clock())

    def stats(self) -> ProducerStats:
        """Counters since the start, and latencies per broker."""
        if self._state == "new":
            raise self._not_running()
        return self._snapshot()

    def _snapshot(self) -> ProducerStats:
        return self._sender.counters.snapshot(
            late_replies=self._driver.late_replies,
            in_flight=self._room.in_flight,
            telemetry_dropped=self._reporting.telemetry_dropped,
            trace_dropped=self._reporting.trace_dropped,
        )

    async def create_topic(self, name: str, queues: int = 8, *, order: bool = False) -> None:
        """Create a topic on every master, or change its number of queues."""
        deadline = self._deadline()
        operation = create_topic(
            self._instance, name, queues=queues, order=order, deadline=deadline
        )
        await self._driver.run(operation)


def _nowhere(message: Message) -> None:
    """The way of producers without a fast lane."""


def _ignore(result: object, error: Exception | None) -> None:
    """For operations that tell everything themselves."""
