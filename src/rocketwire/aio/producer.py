"""The asyncio producer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from asyncio import get_running_loop
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Unpack

from rocketwire.aio.awaited_send import AwaitedSend
from rocketwire.aio.compressing import CompressFirst, Compressor
from rocketwire.aio.delivery import Delivery
from rocketwire.aio.driver import Awaited
from rocketwire.aio.in_flight import InFlightLimit
from rocketwire.aio.many_sends import ManySends
from rocketwire.aio.submit import BatchSubmitter, Messages, SingleSubmitter
from rocketwire.aio.surround import surround
from rocketwire.aio.transaction import AsyncTransaction
from rocketwire.aio.transaction_checker import (
    Checker,
    LoopCheckRunner,
    ThreadCheckRunner,
    check_checker,
    is_coroutine_function,
)
from rocketwire.config import ProducerConfig
from rocketwire.core.admin.topics import create_topic
from rocketwire.core.sending.checks import Check, answer_check
from rocketwire.core.sending.flush import done_callback
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.operation import publish_queues
from rocketwire.core.sending.recall import recall
from rocketwire.core.sending.requests import check_request, request
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.stats import ProducerStats
from rocketwire.core.sending.validate import at_once
from rocketwire.core.upkeep import say_goodbye
from rocketwire.errors import RocketMQError
from rocketwire.fault_policy import BrokerHealth
from rocketwire.message import Message, MessageQueue, SendResult, TransactionState
from rocketwire.selectors import Selector
from rocketwire.setting_values import limit
from rocketwire.settings_help import lists_settings
from rocketwire.stored_message import StoredMessage
from rocketwire.system.registry import join_group, leave_group, make_config
from rocketwire.system.reporting import Reporting

if TYPE_CHECKING:
    from rocketwire.middleware import AsyncProducerMiddleware
    from rocketwire.options import ProducerOptions

_log = logging.getLogger("rocketwire.producer")


@lists_settings(ProducerConfig)
class AsyncProducer(ManySends):
    """Sends messages from coroutines. The twin of ``Producer``, with the same names.

    It belongs to the event loop on which it is started, and may be used by any number of tasks
    there. ``async with`` starts and ends it; otherwise ``await start()`` and ``await shutdown()``.
    Shutting down waits for what is in flight, up to ``shutdown_timeout``.

    Args:
        name_servers: ``"host:port;host:port"`` or a list; without it, ``NAMESRV_ADDR`` counts.
        group: the producer group.
        config: further settings as a mapping; ``options`` are stronger.
        checker: answers brokers that ask what became of a transaction, as for ``Producer``.
        middleware: functions ``(message, call_next)`` that surround each send, the first outermost.
        **options: the settings that are listed below.
    """

    _what = "producer"

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        config: Mapping[str, Any] | None = None,
        checker: Checker | None = None,
        middleware: Iterable[AsyncProducerMiddleware] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        given = options if middleware is None else {**options, "middleware": middleware}
        super().__init__(make_config(ProducerConfig, name_servers, group, config, given))
        self._checker = checker
        check_checker(checker, background=self._config.background)
        if self._config.middleware:
            surround(self, self._config.middleware)

    def _opened(self) -> None:
        config, instance = self._config, self._instance
        positions = instance.new_positions()
        # Weakly, so that a producer that nobody closed is noticed.
        method = weakref.WeakMethod(self._snapshot)
        reporting = Reporting(config, instance, positions, lambda: (found := method()) and found())
        self._sender = Sender(instance, config, positions, reporting.hooks)
        in_flight = self._in_flight = InFlightLimit(
            self._driver.loop, config.max_in_flight, config.max_in_flight_bytes
        )
        self._compressor = Compressor(self._sender.encoder, self._driver.loop, in_flight)
        parts = (self._sender, self._driver, in_flight, self._compressor)
        self._submitter = (
            SingleSubmitter(*parts)
            if config.auto_batch is None
            else BatchSubmitter(*parts, config.auto_batch)
        )
        join_group(instance, self._sender.group)
        instance.defaults = self._sender.defaults
        self._reporting = reporting
        self._start_reporting()
        self._start_checking()

    def _start_checking(self) -> None:
        """Let brokers ask for transactions, if there is a checker to answer."""
        checker = self._checker
        if checker is None:
            return
        instance, driver = self._instance, self._driver
        loop = driver.loop

        def settle(check: Check, state: TransactionState) -> None:
            answer = answer_check(instance, check, state)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(driver.start, answer, _ignore)

        instance.check_runners[self._sender.group] = (
            LoopCheckRunner(loop, checker, settle)
            if is_coroutine_function(checker)
            else ThreadCheckRunner(checker, settle)
        )
        instance.presence.want()

    def _stop_checking(self) -> None:
        runner = self._instance.check_runners.pop(self._sender.group, None)
        if runner is not None:
            runner.close()

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
        self._stop_checking()
        self._submitter.hurry()
        await self._in_flight.quiet(patience, awaited=True)
        self._instance.replies.give_up(self._sender)
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
        self._submitter.disown()

    def _left(self) -> None:
        self._stop_checking()
        leave_group(self._instance, self._sender.group)

    # -- sending ----------------------------------------------------------------------------

    async def send(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | str | None = None,  # noqa: ASYNC109 - a deadline over all attempts
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
        driver, in_flight = self._driver, self._in_flight
        start = self._sender.start
        try:
            attempt = start(message, SendMode.ASYNC, queue, selector, argument, timeout)
        except CompressFirst:
            again = partial(start, message, SendMode.ASYNC, queue, selector, argument, timeout)
            attempt = await self._compressor.start(message, again, self._check_loop)
        waiter = AwaitedSend(attempt, driver.loop.create_future())
        waiter.begin(driver)
        in_flight.awaited += 1
        try:
            return await waiter.future
        finally:
            in_flight.awaited -= 1
            if in_flight.has_waiters:
                in_flight.look_around()
            if not waiter.is_over:
                waiter.give_up()

    async def send_oneway(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | str | None = None,  # noqa: ASYNC109 - until it is written
    ) -> None:
        """Write a message and do not wait: no answer, no retry.

        Raises:
            InvalidMessageError: nothing was sent.
            SendFailedError: it could not even be written.
        """
        if self._thread != get_ident() or not self._is_awake():
            self._check_loop()
        sender, driver, submitter = self._sender, self._driver, self._submitter
        if submitter.is_due():
            await submitter.give_way(self._check_loop)
        try:
            attempt = sender.start(message, SendMode.ONEWAY, queue, selector, argument, timeout)
        except CompressFirst:
            start = sender.start
            again = partial(start, message, SendMode.ONEWAY, queue, selector, argument, timeout)
            attempt = await self._compressor.start(message, again, self._check_loop)
        if not driver.write_oneway(attempt):
            await Awaited(driver, sender.oneway(attempt))

    async def submit(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | str | None = None,  # noqa: ASYNC109 - a deadline over all attempts
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
        if type(message) is not Message:
            message = at_once(message)
        given, submitter = (message, queue, selector, argument, timeout), self._submitter
        delivery = submitter.submit(*given)
        if delivery is None:
            delivery = await submitter.submit_later(self._check_loop, *given)
        if on_success is not None or on_error is not None:
            delivery.add_done_callback(done_callback(on_success, on_error))
        return delivery

    async def flush(self, timeout: float | str | None = None) -> None:  # noqa: ASYNC109 - as in Producer
        """Wait until everything submitted before has an answer.

        Raises:
            TimeoutError: something still has none.
        """
        longest = limit(timeout)
        if self._state == "new" or (self._home or get_running_loop()) is not get_running_loop():
            raise self._not_running()
        self._submitter.hurry()
        if not await self._in_flight.flush(longest):
            raise TimeoutError(f"{self._in_flight.held} messages have no answer after {longest} s")

    def transaction(
        self, message: Message, *, timeout: float | str | None = None
    ) -> AsyncTransaction:
        """A message that is delivered if a block ends without an error.

        ``async with producer.transaction(message) as tx:`` stores it so that nobody sees it, commits it
        at the end of the block, and rolls it back if the block raises. ``tx.commit()``,
        ``tx.rollback()`` and ``tx.leave_open()`` decide by hand.

        Args:
            message: neither delayed nor with a sharding key.
            timeout: seconds for storing it, and as many for the decision; ``send_timeout`` by
                default.

        Raises:
            InvalidMessageError: it can't be part of a transaction.
        """
        self._check_loop()
        return AsyncTransaction(
            self._sender, message, timeout, self._driver, self._in_flight, self._compressor
        )

    async def request(
        self,
        message: Message,
        *,
        timeout: float | str = 3.0,  # noqa: ASYNC109 - a deadline over all of it
    ) -> StoredMessage:
        """Send a request, and wait for the reply of its handler.

        Brokers since 4.6 serve it; a proxy does not.

        Args:
            message: neither delayed nor a batch.
            timeout: seconds until the reply must be there.

        Raises:
            InvalidMessageError: nothing was sent.
            SendFailedError: the request could not be sent, or was refused.
            ReplyTimeoutError: no reply came; its ``outcome`` tells whether the request was stored.
            ClientClosedError: the producer is not running, or was shut down meanwhile.
            UnsupportedRequestError: a proxy is in the way, and nothing was sent.
        """
        self._check_loop()
        check_request(message, background=self._config.background)
        limit, clock = self._sender.check_timeout(timeout), self._instance.clock
        if not self._compressor.takes_long(message):
            return await Awaited(
                self._driver, request(self._sender, message, SendMode.ASYNC, limit)
            )
        end = clock() + limit
        async with self._compressor.beforehand([message]):
            self._check_loop()
            limit = max(end - clock(), 0.001)
            return await self._driver.run(request(self._sender, message, SendMode.ASYNC, limit))

    async def recall(self, topic: str, handle: str) -> str:
        """Call back a message that waits for its time (brokers since 5.3.2).

        Args:
            topic: where it was sent to.
            handle: the ``recall_handle`` of the send's result.

        Returns:
            The id of the message. The broker has accepted the recall; it does not say whether the
            message was still there.

        Raises:
            RecallError: its ``problem`` tells what is wrong.
            RouteError: the broker that keeps the message can't be found.
            TransportError: that broker could not be reached, or did not answer.
        """
        deadline = self._deadline()
        return await self._run(recall(self._sender, topic, handle, deadline))

    # -- looking ----------------------------------------------------------------------------

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to, in Java's order.

        Those of an ordered or a static topic are listed even while their master is away.
        """
        deadline = self._deadline()
        return await self._driver.run(publish_queues(self._sender, topic, deadline))

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
            late_replies=self._driver.late_replies + self._instance.replies.late,
            in_flight=self._in_flight.held,
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


def _ignore(_: object, error: Exception | None) -> None:
    """An answer to a check was told, or not: the operation has logged that."""
    if error is not None:
        _log.debug("a check was not answered: %s", error)
