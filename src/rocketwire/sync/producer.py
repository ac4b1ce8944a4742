"""The blocking producer."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketwire.config import ProducerConfig, from_mapping
from rocketwire.core.admin import create_topic
from rocketwire.core.effects import Op
from rocketwire.core.faults import BrokerHealth
from rocketwire.core.lookup import locate_topic
from rocketwire.core.many import ManySender, run_together
from rocketwire.core.retry import SendMode
from rocketwire.core.selection import Selector
from rocketwire.core.send import Plan, Sender
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
from rocketwire.sync.background import Background
from rocketwire.sync.connection import Connector, Pool
from rocketwire.sync.delivery import CallbackThread, Delivery, Room
from rocketwire.sync.driver import Driver
from rocketwire.sync.positions import ThreadPositions

T = TypeVar("T")
Messages = Message | Sequence[Message]

_live: weakref.WeakSet[Producer] = weakref.WeakSet()


class Producer:
    """Sends messages, and waits for the answer in the thread that sends.

    One producer may be used from any number of threads. It is a context manager; without
    ``with``, call ``start()`` first and ``shutdown()`` in the end.

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
                "name_servers is empty: give Producer('host:port'), or set NAMESRV_ADDR"
            )
        self._start_lock = threading.Lock()

    # -- life -------------------------------------------------------------------------------

    def start(self) -> Self:
        """Make it ready; a second call does nothing.

        Raises:
            ClientClosedError: it was shut down.
            ConfigError: its group exists already in the client instance that it shares.
        """
        with self._start_lock:
            if self._state == "closed":
                raise ClientClosedError("this producer was shut down: make a new one")
            if self._state == "new":
                self._open()
                self._state = "running"
                _live.add(self)
        return self

    def _open(self) -> None:
        config = self._config
        instance = join_instance(config)
        try:
            sender = Sender(instance, config, ThreadPositions(instance.random))
            join_group(instance, sender.group)
        except BaseException:
            leave_instance(instance)
            raise
        instance.defaults = sender.defaults
        self._instance, self._sender = instance, sender
        self._pool = Pool(
            Connector(
                clock=instance.clock,
                connect_timeout=config.connect_timeout,
                tls=config.tls,
                max_frame=config.max_frame,
            )
        )
        self._driver = Driver(self._pool, instance.clock)
        self._room = Room(config.max_in_flight, config.max_in_flight_bytes)
        self._callbacks = CallbackThread()
        self._background = Background(instance, config, on_routes=self._close_unused)
        if config.background:
            self._background.start()

    def shutdown(self) -> None:
        """Wait for what is in flight (``shutdown_timeout``), say goodbye, close; idempotent."""
        with self._start_lock:
            was_running = self._state == "running"
            self._state = "closed"
        if not was_running:
            return
        _live.discard(self)
        limit = self._instance.clock() + self._config.shutdown_timeout
        if not self._callbacks.is_current():
            self._room.wait_until_empty(self._config.shutdown_timeout)
        self._background.stop(max(1.0, limit - self._instance.clock()))
        self._fail_leftovers()
        self._callbacks.stop(max(0.1, limit - self._instance.clock()))
        with contextlib.suppress(RocketMQError):  # nobody to say it to
            self._driver.run(say_goodbye(self._instance, self._sender.group))
        leave_group(self._instance, self._sender.group)
        leave_instance(self._instance)
        self._pool.close()

    def _fail_leftovers(self) -> None:
        for operation, done in self._background.leftovers():
            operation.close()
            done(None, SendFailedError("not sent: the producer was shut down"))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __del__(self) -> None:
        if getattr(self, "_state", "") == "running":
            warnings.warn(
                f"unclosed producer {self._instance.client_id}: use it in a with statement, "
                "or call shutdown()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )
            self._background.stop(0)
            self._pool.close()

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
            raise self._not_running()
        sender = self._sender
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
            raise self._not_running()
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
            raise self._not_running()
        sender = self._sender
        plan = sender.plan(
            message,
            SendMode.ASYNC,
            queue=queue,
            selector=selector,
            argument=argument,
            timeout=timeout,
        )
        count, size = len(plan.outgoing.messages), len(plan.outgoing.body)
        patience = None if self._callbacks.is_current() else plan.timeout
        if not self._room.take(count, size, patience):
            raise SendFailedError(
                f"not sent: {self._room.held} messages are in flight and none was answered in "
                f"{plan.timeout:.1f} s; raise max_in_flight, or send less"
            )
        delivery = Delivery(self._callbacks.run)
        if on_success is not None or on_error is not None:
            delivery.add_done_callback(_tell(on_success, on_error))
        self._hand_over(plan, delivery, count, size)
        return delivery

    def _hand_over(self, plan: Plan, delivery: Delivery, count: int, size: int) -> None:
        room = self._room

        def done(result: SendResult | None, error: Exception | None) -> None:
            room.give_back(count, size)
            delivery.settle(result, error)

        if plan.outgoing.sharding_keys:
            self._sender.line_up(plan, is_accepted=True)
        self._background.run(self._sender.send(plan), done)

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
            raise self._not_running()
        many = ManySender(self._sender, messages, timeout)
        lanes = self._driver.run(many.lanes())
        self._driver.run(run_together([many.run(lane) for lane in lanes]))
        return [r if r is not None else SendFailedError("not sent") for r in many.results]

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything submitted has an answer.

        Raises:
            TimeoutError: something still has none.
        """
        if self._state == "new":
            raise self._not_running()
        if not self._room.wait_until_empty(timeout):
            raise TimeoutError(f"{self._room.held} messages have no answer after {timeout} s")

    # -- looking ----------------------------------------------------------------------------

    def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be written to, sorted as Java sorts them."""
        sender = self._sender if self._state == "running" else self._refuse()
        deadline = self._instance.clock() + self._config.request_timeout
        operation = locate_topic(
            self._instance, sender.wire_topic(topic), deadline, *sender.defaults
        )
        return self._driver.run(operation).queues

    def health(self) -> tuple[BrokerHealth, ...]:
        """What the fault table thinks of each broker, and why."""
        if self._state == "new":
            raise self._not_running()
        return self._instance.faults.snapshot(self._instance.clock())

    def stats(self) -> ProducerStats:
        """Counters since the start, and latencies per broker."""
        if self._state == "new":
            raise self._not_running()
        return self._sender.counters.snapshot(in_flight=self._room.held)

    def create_topic(self, name: str, queues: int = 8, *, order: bool = False) -> None:
        """Create a topic on every master, or change its number of queues."""
        if self._state != "running":
            raise self._not_running()
        deadline = self._instance.clock() + self._config.request_timeout
        self._run(create_topic(self._instance, name, queues=queues, order=order, deadline=deadline))

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client."""
        return self._instance.client_id if self._state != "new" else ""

    # -- inside -----------------------------------------------------------------------------

    def _run(self, operation: Op[T]) -> T:
        return self._driver.run(operation)

    def _not_running(self) -> ClientClosedError:
        if self._state == "new":
            return ClientClosedError(
                "this producer was not started: use it in a with statement, or call start()"
            )
        return ClientClosedError("this producer was shut down: make a new one")

    def _refuse(self) -> Sender:
        raise self._not_running()

    def _close_unused(self) -> None:
        """Close idle sockets to addresses that no route has any more."""
        wanted = self._instance.routes.addresses() | set(self._config.name_servers)
        for address in self._pool.addresses():
            if address not in wanted:
                self._pool.drop(address)

    def _after_fork(self) -> None:
        """In a child: fresh sockets, locks, ids. The parent's sockets are closed, not shut down."""
        old_pool = self._pool
        self._start_lock = threading.Lock()
        self._open()
        old_pool.close()

    def __repr__(self) -> str:
        servers = ";".join(self._config.name_servers)
        return f"Producer({servers!r}, group={self._config.group!r}, {self._state})"


def _tell(
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


def _renew_all() -> None:
    for producer in list(_live):
        producer._after_fork()  # noqa: SLF001 - our own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
