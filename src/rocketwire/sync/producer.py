"""The blocking producer."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, cast

from rocketwire.config import ProducerConfig
from rocketwire.core.accumulate import Accumulator, Lot
from rocketwire.core.admin import create_topic
from rocketwire.core.express import express_for
from rocketwire.core.faults import BrokerHealth
from rocketwire.core.lookup import locate_topic
from rocketwire.core.many import ManySender, run_together
from rocketwire.core.plan import Plan
from rocketwire.core.retry import SendMode
from rocketwire.core.selection import Selector
from rocketwire.core.send import Sender
from rocketwire.core.stats import ProducerStats
from rocketwire.core.turns import teller
from rocketwire.core.upkeep import say_goodbye
from rocketwire.core.validate import check_message
from rocketwire.errors import Outcome, RocketMQError, SendFailedError
from rocketwire.message import Message, MessageQueue, SendResult
from rocketwire.registry import join_group, leave_group, make_config
from rocketwire.reporting import Reporting
from rocketwire.sync import express
from rocketwire.sync.client import BlockingClient
from rocketwire.sync.delivery import (
    BatchedDelivery,
    CallbackThread,
    Delivery,
    Room,
    SingleDelivery,
)
from rocketwire.sync.positions import ThreadPositions

if TYPE_CHECKING:
    from rocketwire.sync.posting import PostingOffice

Messages = Message | Sequence[Message]

#: How often a shutdown looks whether other threads are still sending.
_LOOK_AGAIN: Final = 0.002
_log = logging.getLogger("rocketwire.producer")


class Producer(BlockingClient[ProducerConfig]):
    """Sends messages, and waits for the answer in the thread that sends.

    One producer may be used from any number of threads. It is a context manager; without
    ``with``, call ``start()`` first and ``shutdown()`` in the end.

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
        positions = ThreadPositions(instance.random)
        # Weakly, so that a producer that nobody closed is noticed.
        method = weakref.WeakMethod(self._snapshot)
        reporting = Reporting(config, instance, positions, lambda: (found := method()) and found())
        self._sender = Sender(instance, config, positions, reporting.hooks)
        join_group(instance, self._sender.group)
        instance.defaults = self._sender.defaults
        callbacks, background = CallbackThread(), self._background
        self._callbacks = callbacks
        room = self._room = Room(
            config.max_in_flight,
            config.max_in_flight_bytes,
            lambda: callbacks.is_current() or background.is_current(),
        )
        self._accumulator: Accumulator | None = None
        if config.auto_batch is not None:
            self._accumulator = Accumulator(
                self._sender, config.auto_batch, room.lot_over, room.lot_begun
            )
        self._express = express_for(self._sender, SendMode.BLOCKING)
        self._posting = express_for(self._sender, SendMode.ASYNC)
        self._office: PostingOffice | None = None
        self._oneway = express_for(self._sender, SendMode.ONEWAY)
        self._reporting = reporting
        self._start_reporting()

    def _start_reporting(self) -> None:
        over = self._traces_over = threading.Event()
        operation = self._reporting.start()
        if operation is None:
            over.set()
        else:
            self._background.keep(operation, lambda *_: over.set())

    def _closing(self) -> None:
        """Wait for what is in flight (``shutdown_timeout``), say goodbye."""
        clock, patience = self._instance.clock, self._config.shutdown_timeout
        limit = clock() + patience
        if self._accumulator is not None:
            self._accumulator.hurry()
        self._room.wait_until_empty(patience)
        if not self._is_sending_here():
            # Threads that send tell nobody of it, because that would cost them.
            while (len(self._sender.lines) or not self._pool.is_quiet()) and clock() < limit:
                time.sleep(_LOOK_AGAIN)
        self._finish_traces(max(0.1, limit - clock()))
        self._background.stop(max(1.0, limit - clock()))
        self._callbacks.stop(max(0.1, limit - clock()))
        with contextlib.suppress(RocketMQError):  # nobody to say it to
            for group in (self._sender.group, *self._reporting.groups):
                self._driver.run(say_goodbye(self._instance, group))
        leave_group(self._instance, self._sender.group)
        self._reporting.close()

    def _at_exit(self) -> None:
        """What was submitted is in the hands of a daemon thread, which ends with the program."""
        if self._state != "running" or not self._room.held:
            return
        if self._accumulator is not None:
            self._accumulator.hurry()
        if not self._room.wait_until_empty(self._config.shutdown_timeout):
            _log.warning(
                "the program ends, and %d submitted messages have no answer yet: they may be lost",
                self._room.held,
            )

    def _is_sending_here(self) -> bool:
        """Whether a send of this very thread waits for us: a signal or a hook shuts down."""
        frame: FrameType | None = sys._getframe()  # noqa: SLF001 - its documented use
        kind = type(self)
        sends = {m.__code__ for m in (kind.send, kind.send_oneway, kind.send_many)}
        while frame is not None:
            if frame.f_code in sends and frame.f_locals.get("self") is self:
                return True
            frame = frame.f_back
        return False

    def _finish_traces(self, limit: float) -> None:
        self._reporting.finish_traces(limit)
        leftovers = self._reporting.leftovers()
        if leftovers is not None:  # the background has never come to it
            self._driver.run(leftovers)
        else:
            self._traces_over.wait(limit)

    def after_fork(self) -> None:
        """In a forked child: fresh sockets, locks, ids and files; what is in flight is not ours."""
        self._reporting.forget()
        self._callbacks.disown()
        super().after_fork()

    # -- sending ----------------------------------------------------------------------------

    def send(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message, or a batch of them as one request, and wait for the answer.

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
            self._make_ready()
        sender, lane = self._sender, self._express
        if (
            lane is not None
            and queue is None
            and selector is None
            and timeout is None
            and type(message) is Message
        ):
            stored = express.send(lane, message, self._pool, self._driver)
            if stored is not None:
                return stored
        plan = sender.plan(
            message,
            SendMode.BLOCKING,
            queue=queue,
            selector=selector,
            argument=argument,
            timeout=timeout,
        )
        result = self._driver.run(sender.send(plan))
        if result is None:  # never for this mode
            raise SendFailedError("no answer", outcome=Outcome.MAYBE_STORED)
        return result

    def send_oneway(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | None = None,
    ) -> None:
        """Write a message and do not wait: no answer, no retry.

        Raises:
            InvalidMessageError: nothing was sent.
            SendFailedError: it could not even be written.
        """
        if self._state != "running":
            self._make_ready()
        lane = self._oneway
        if (
            lane is not None
            and queue is None
            and selector is None
            and timeout is None
            and type(message) is Message
            and express.send_oneway(lane, message, self._pool, self._driver)
        ):
            return
        plan = self._sender.plan(
            message,
            SendMode.ONEWAY,
            queue=queue,
            selector=selector,
            argument=argument,
            timeout=timeout,
        )
        self._driver.run(self._sender.send(plan))

    def submit(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | None = None,
        on_success: Callable[[SendResult], Any] | None = None,
        on_error: Callable[[Exception], Any] | None = None,
    ) -> Delivery:
        """Hand a message over; the answer comes later.

        Waits only for room: ``max_in_flight`` messages may be without an answer.

        Raises:
            InvalidMessageError: nothing was sent.
            SendFailedError: there was no room before the deadline.
        """
        if self._state != "running":
            self._make_ready()
        if queue is None and selector is None and timeout is None and type(message) is Message:
            posted = self._post(message)
            if posted is not None:
                if on_success is not None or on_error is not None:
                    posted.add_done_callback(teller(on_success, on_error))
                return posted
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
        self._take_room(count, size, limit)
        if plan is not None:
            delivery: Delivery = self._hand_over(plan, count, size)
        else:
            delivery = self._hand_to(cast("Accumulator", batches), cast("Message", message), limit)
        if on_success is not None or on_error is not None:
            delivery.add_done_callback(teller(on_success, on_error))
        return delivery

    def _post(self, message: Message) -> Delivery | None:
        """Hand a plain message over when there is room, if there is nothing unusual about it."""
        size, batches, office = len(message.body), self._accumulator, self._office
        if batches is not None:
            if not batches.is_plain(message):
                return None
            self._take_room(1, size, self._config.send_timeout)
            found = batches.add_plain(message, self._config.send_timeout)
            return self._batched(batches, *found)
        if office is None:
            office = self._open_office()
        if office is None or message.sharding_key is not None:
            return None
        turn = self._room.post(size)
        if turn is None:
            return self._post_later(office, message, size)
        parcel = None
        try:
            parcel = office.prepare(message)
        finally:
            if parcel is None:
                self._room.finish(turn, size)
        if parcel is not None:
            parcel.turn = turn
            self._background.post(parcel)
        return parcel

    def _open_office(self) -> PostingOffice | None:
        """Where the fast lane begins, if there is one; loads the asyncio shell."""
        if self._posting is None:
            return None
        from rocketwire.sync.posting import PostingOffice

        office = self._office = PostingOffice(self._posting, self._room, self._callbacks)
        return office

    def _post_later(self, office: PostingOffice, message: Message, size: int) -> Delivery:
        """Hand a message over when there is room, which it keeps whatever way it takes then."""
        check_message(message, self._config.max_message_size)  # a bad one need not wait
        self._take_room(1, size, self._config.send_timeout)
        plan = None
        try:
            parcel = office.prepare(message)
            if parcel is None:
                plan = self._sender.plan(message, SendMode.ASYNC)
        except BaseException:
            self._room.give_back(1, size)
            raise
        if parcel is not None:
            parcel.turn = self._room.enter()
            self._background.post(parcel)
            return parcel
        return self._hand_over(cast("Plan", plan), 1, size)

    def _take_room(self, count: int, size: int, limit: float) -> None:
        if not self._room.take(count, size, limit):
            raise SendFailedError(
                f"not sent: {self._room.held} messages are in flight and none was answered in "
                f"{limit:.1f} s; raise max_in_flight, or send less"
            )

    def _hand_over(self, plan: Plan, count: int, size: int) -> Delivery:
        room, delivery = self._room, SingleDelivery(self._callbacks)
        turn = room.enter()

        def done(result: SendResult | None, error: Exception | None) -> None:
            room.give_back(count, size)
            delivery.settle(result, error)
            room.leave(turn)

        if plan.outgoing.sharding_keys:
            self._sender.line_up(plan, is_accepted=True)
        self._background.run(self._sender.send(plan), done)
        return delivery

    def _hand_to(self, batches: Accumulator, message: Message, limit: float) -> Delivery:
        try:
            lot, place, is_new = batches.add(message, limit)
        except RocketMQError:
            self._room.give_back(1, len(message.body))
            raise
        return self._batched(batches, lot, place, is_new)

    def _batched(self, batches: Accumulator, lot: Lot, place: int, is_new: bool) -> Delivery:  # noqa: FBT001
        if is_new:

            def done(_: object, error: Exception | None) -> None:
                if error is not None:
                    batches.refuse(lot, error)

            self._background.run(batches.deliver(lot), done)
        return BatchedDelivery(lot, place, self._callbacks)

    def send_many(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[SendResult | RocketMQError]:
        """Send any number of messages to any topics, in batches, many at once.

        Messages of one sharding key stay in order. ``timeout`` is for each batch.

        Returns:
            One result or error per message, in the order given.

        Raises:
            InvalidMessageError: one of them is wrong; nothing was sent.
        """
        if self._state != "running":
            self._make_ready()
        many = ManySender(self._sender, messages, timeout)
        lanes = self._driver.run(many.lanes())
        self._driver.run(run_together([many.run(lane) for lane in lanes]))
        return [r if r is not None else SendFailedError("not sent") for r in many.results]

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything submitted before has an answer.

        Raises:
            TimeoutError: something still has none.
            RuntimeError: a hook asks for it on the thread on which the answers come.
        """
        if self._state == "new":
            raise self._not_running()
        if self._state == "inherited":
            return  # nothing was submitted in this process
        if self._accumulator is not None:
            self._accumulator.hurry()
        if self._background.is_current():
            raise RuntimeError("flush in a hook would wait for ever: answers come on this thread")
        if not self._room.flush(timeout):
            raise TimeoutError(f"{self._room.held} messages have no answer after {timeout} s")

    # -- looking ----------------------------------------------------------------------------

    def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to, in Java's order.

        Those of an ordered or a static topic are listed even while their master is away.
        """
        deadline = self._deadline()
        name = self._sender.wire_topic(topic)
        operation = locate_topic(self._instance, name, deadline, *self._sender.defaults)
        return self._run(operation).listed

    def health(self) -> tuple[BrokerHealth, ...]:
        """What the fault table thinks of each broker, and why."""
        if self._state != "closed":
            self._make_ready()
        return self._instance.faults.snapshot(self._instance.clock())

    def stats(self) -> ProducerStats:
        """Counters since the start, and latencies per broker."""
        if self._state != "closed":
            self._make_ready()
        return self._snapshot()

    def _snapshot(self) -> ProducerStats:
        return self._sender.counters.snapshot(
            late_replies=self._background.late_replies,
            in_flight=self._room.held,
            telemetry_dropped=self._reporting.telemetry_dropped,
            trace_dropped=self._reporting.trace_dropped,
        )

    def create_topic(self, name: str, queues: int = 8, *, order: bool = False) -> None:
        """Create a topic on every master, or change its number of queues."""
        deadline = self._deadline()
        self._run(create_topic(self._instance, name, queues=queues, order=order, deadline=deadline))
