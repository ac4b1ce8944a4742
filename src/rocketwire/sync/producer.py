"""The blocking producer."""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from rocketwire.config import ProducerConfig
from rocketwire.core.admin.topics import create_topic
from rocketwire.core.sending import finish
from rocketwire.core.sending.checks import Check, answer_check
from rocketwire.core.sending.flush import done_callback
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.operation import publish_queues
from rocketwire.core.sending.recall import recall
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.stats import ProducerStats
from rocketwire.core.upkeep import say_goodbye
from rocketwire.errors import RocketMQError
from rocketwire.fault_policy import BrokerHealth
from rocketwire.message import MessageQueue, SendResult, TransactionState
from rocketwire.selectors import Selector
from rocketwire.setting_values import limit
from rocketwire.settings_help import lists_settings
from rocketwire.sync.callbacks import CallbackThread
from rocketwire.sync.calls_under_way import CallsUnderWay
from rocketwire.sync.client import weakly_asked
from rocketwire.sync.contention import Contention
from rocketwire.sync.conversations import Conversations
from rocketwire.sync.delivery import Delivery
from rocketwire.sync.in_flight import InFlightLimit
from rocketwire.sync.round_robin import ThreadPositions
from rocketwire.sync.submit import BatchSubmitter, Messages, SingleSubmitter
from rocketwire.system.latch import Latch
from rocketwire.system.registry import join_group, leave_group, make_config
from rocketwire.system.reporting import Reporting

if TYPE_CHECKING:
    from rocketwire.aio.transaction_checker import Checker
    from rocketwire.middleware import ProducerMiddleware
    from rocketwire.options import ProducerOptions

#: How often a shutdown looks whether other threads are still sending.
_LOOK_AGAIN: Final = 0.002
_log = logging.getLogger("rocketwire.producer")


@lists_settings(ProducerConfig)
class Producer(Conversations):
    """Sends messages, and waits for the answer in the thread that sends.

    One producer may be used from any number of threads. It is a context manager; without
    ``with``, call ``start()`` first and ``shutdown()`` in the end.

    Args:
        name_servers: ``"host:port;host:port"`` or a list; without it, ``NAMESRV_ADDR`` counts.
        group: the producer group.
        config: further settings as a mapping; ``options`` are stronger.
        checker: answers brokers that ask what became of a transaction: a function, or a coroutine
            function, of the stored message that returns a ``TransactionState``, a bool (True
            commits) or None (not known yet).
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
        middleware: Iterable[ProducerMiddleware] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        given = options if middleware is None else {**options, "middleware": middleware}
        super().__init__(make_config(ProducerConfig, name_servers, group, config, given))
        self._calls = CallsUnderWay()
        self._checker = checker
        if checker is not None:
            from rocketwire.aio.transaction_checker import check_checker

            check_checker(checker, background=self._config.background)
        if self._config.middleware:
            from rocketwire.sync.surround import surround

            surround(self, self._config.middleware)

    def _opened(self) -> None:
        config, instance, undo = self._config, self._instance, self._undo_start
        positions = ThreadPositions(instance)
        # Weakly, so that a producer that nobody closed is noticed.
        method = weakref.WeakMethod(self._snapshot)
        reporting = Reporting(config, instance, positions, lambda: (found := method()) and found())
        sender = self._sender = Sender(instance, config, positions, reporting.hooks)
        join_group(instance, sender.group)
        undo.append(lambda: leave_group(instance, sender.group))
        instance.defaults = self._sender.defaults
        background, make_lock = self._background, instance.surroundings.make_lock
        callbacks = CallbackThread(weakly_asked(self._must_not_wait), make_lock())
        self._callbacks = callbacks
        self._contention = Contention()
        must_not_wait = weakly_asked(self._must_not_wait_for_room)
        in_flight = self._in_flight = InFlightLimit(
            config.max_in_flight,
            config.max_in_flight_bytes,
            lambda: callbacks.is_current() or must_not_wait(),
            make_lock(),
        )
        parts = (self._sender, background, in_flight, callbacks)
        self._submitter = (
            SingleSubmitter(*parts)
            if config.auto_batch is None
            else BatchSubmitter(*parts, config.auto_batch)
        )
        self._reporting = reporting
        undo.append(reporting.close)
        self._start_reporting()
        undo.append(self._stop_checking)
        self._start_checking()

    def _start_checking(self) -> None:
        """Let brokers ask for transactions, if there is a checker to answer."""
        if self._checker is None:
            return
        from rocketwire.aio.transaction_checker import ThreadCheckRunner

        instance, background = self._instance, self._background

        def settle(check: Check, state: TransactionState) -> None:
            background.run(answer_check(instance, check, state), _ignore)

        instance.check_runners[self._sender.group] = ThreadCheckRunner(self._checker, settle)
        instance.presence.want()
        background.hurry()

    def _stop_checking(self) -> None:
        runner = self._instance.check_runners.pop(self._sender.group, None)
        if runner is not None:
            runner.close()

    def _start_reporting(self) -> None:
        over = self._traces_over = Latch()
        operation = self._reporting.start()
        if operation is None:
            over.open()
        else:
            self._background.keep(operation, lambda *_: over.open())

    def _ending(self) -> list[Callable[[], object]]:
        """Wait for what is in flight (``shutdown_timeout``), say goodbye."""
        clock = self._instance.clock
        limit = clock() + self._config.shutdown_timeout

        def time_left(least: float) -> float:
            return max(least, limit - clock())

        return [
            self._stop_checking,
            lambda: self._await_sends(limit),
            lambda: self._instance.replies.give_up(self._sender),
            lambda: self._finish_traces(time_left(0.1)),
            lambda: self._background.stop(time_left(1.0)),
            lambda: self._callbacks.stop(time_left(0.1)),
            self._say_goodbye,
            lambda: leave_group(self._instance, self._sender.group),
            # Once more what may have been interrupted; else there is nothing to wait for.
            *[self._reporting.close] * 2,
            lambda: self._callbacks.stop(1.0),
            *super()._ending(),
        ]

    def _closing(self) -> None:
        """Done above."""

    def _await_sends(self, limit: float) -> None:
        clock = self._instance.clock
        self._submitter.hurry()
        self._in_flight.wait_until_empty(limit - clock())
        if not self._is_sending_here():
            # Threads that send tell nobody of it, because that would cost them.
            while self._has_sends() and clock() < limit:
                time.sleep(_LOOK_AGAIN)

    def _has_sends(self) -> bool:
        order, pool, background = self._sender.order, self._pool, self._background
        return bool(len(order)) or background.delays_end or not pool.is_quiet()

    def _say_goodbye(self) -> None:
        with contextlib.suppress(RocketMQError):  # nobody to say it to
            for group in (self._sender.group, *self._reporting.groups):
                self._driver.run(say_goodbye(self._instance, group))

    def _at_exit(self) -> None:
        """What was submitted is in the hands of a daemon thread, which ends with the program."""
        if self._state != "running" or not self._in_flight.held:
            return
        self._submitter.hurry()
        if not self._in_flight.wait_until_empty(self._config.shutdown_timeout):
            _log.warning(
                "the program ends, and %d submitted messages have no answer yet: they may be lost",
                self._in_flight.held,
            )

    def _must_not_wait(self) -> bool:
        """Whether what this thread would wait for is itself, or the code that it interrupts."""
        return self._is_starting_here() or super()._must_not_wait() or self._calls.here.submits > 0

    def _must_not_wait_for_room(self) -> bool:
        """As above, in a submit: one that this thread interrupts may hold the lock or the room."""
        return super()._must_not_wait() or self._calls.here.submits > 1

    def _is_sending_here(self) -> bool:
        """Whether a send of this thread is interrupted by the signal handler or hook that asks."""
        return self._calls.here.sends > 0

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
        timeout: float | str | None = None,
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
        here = self._calls.here
        here.sends += 1
        try:
            attempt = self._sender.start(
                message, SendMode.BLOCKING, queue, selector, argument, timeout
            )
            try:
                return self._driver.send(attempt)
            except BaseException:
                finish.interrupted(attempt)
                raise
        finally:
            here.sends -= 1

    def send_oneway(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | str | None = None,
    ) -> None:
        """Write a message and do not wait: no answer, no retry.

        Raises:
            InvalidMessageError: nothing was sent.
            SendFailedError: it could not even be written.
        """
        if self._state != "running":
            self._make_ready()
        here = self._calls.here
        here.sends += 1
        try:
            attempt = self._sender.start(
                message, SendMode.ONEWAY, queue, selector, argument, timeout
            )
            try:
                self._driver.send_oneway(attempt)
            except BaseException:
                finish.interrupted(attempt)
                raise
        finally:
            here.sends -= 1

    def submit(
        self,
        message: Messages,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | str | None = None,
        argument: Any = None,
        timeout: float | str | None = None,
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
        here = self._calls.here
        here.submits += 1
        try:
            delivery = self._submitter.submit(message, queue, selector, argument, timeout)
        finally:
            here.submits -= 1
        if on_success is not None or on_error is not None:
            delivery.add_done_callback(done_callback(on_success, on_error))
        return delivery

    def flush(self, timeout: float | str | None = None) -> None:
        """Wait until everything submitted before has an answer.

        Raises:
            TimeoutError: something still has none.
            RuntimeError: a hook asks for it on the thread on which the answers come, or a signal
                handler that has interrupted this producer.
        """
        longest = limit(timeout)
        if self._state == "new":
            raise self._not_running()
        if self._state == "inherited":
            return  # nothing was submitted in this process
        self._submitter.hurry()
        if self._background.is_current():
            raise RuntimeError("flush in a hook would wait for ever: answers come on this thread")
        if self._must_not_wait():
            raise RuntimeError(
                "flush in a signal handler or finalizer that has interrupted this producer would wait "
                "for ever: for the code that it has interrupted"
            )
        if not self._in_flight.flush(longest):
            raise TimeoutError(f"{self._in_flight.held} messages have no answer after {longest} s")

    def recall(self, topic: str, handle: str) -> str:
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
        return self._run(recall(self._sender, topic, handle, deadline))

    # -- looking ----------------------------------------------------------------------------

    def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to, in Java's order.

        Those of an ordered or a static topic are listed even while their master is away.
        """
        deadline = self._deadline()
        return self._run(publish_queues(self._sender, topic, deadline))

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
            late_replies=self._background.late_replies + self._instance.replies.late,
            in_flight=self._in_flight.held,
            telemetry_dropped=self._reporting.telemetry_dropped,
            trace_dropped=self._reporting.trace_dropped,
        )

    def create_topic(self, name: str, queues: int = 8, *, order: bool = False) -> None:
        """Create a topic on every master, or change its number of queues."""
        deadline = self._deadline()
        self._run(create_topic(self._instance, name, queues=queues, order=order, deadline=deadline))


def _ignore(_: object, error: Exception | None) -> None:
    """An answer to a check was told, or not: the operation has logged that."""
    if error is not None:
        _log.debug("a check was not answered: %s", error)
