"""The asyncio consumer: a member of a group whose handlers are tasks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, Unpack, cast, overload

from rocketwire.aio.deliveries import AsyncReceivedDelivery
from rocketwire.aio.group_client import GroupClient
from rocketwire.aio.interrupts import answer_interrupts
from rocketwire.aio.transaction_checker import is_coroutine_function
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.group.deliveries import HandedOut, check_deliveries
from rocketwire.core.group.handling import Failure, cancelled, tell_of_waiting
from rocketwire.core.group.replying import replies_in
from rocketwire.core.group.workload import Work
from rocketwire.errors import ConfigError
from rocketwire.handler_types import Given, HandlerResult
from rocketwire.settings_help import lists_settings
from rocketwire.stored_message import StoredMessage
from rocketwire.system.registry import make_config
from rocketwire.system.surrounded_handler import surround_async

if TYPE_CHECKING:
    from rocketwire.middleware import AsyncBatchMiddleware, AsyncConsumerMiddleware
    from rocketwire.options import ConsumerOptions

_log = logging.getLogger("rocketwire.consumer")

#: A task that never waits gives way to the loop after so long.
_TURN: Final = 0.002


@lists_settings(ConsumerConfig)
class AsyncConsumer(GroupClient, Generic[Given]):
    """Reads as a member of a group, on an event loop. The twin of ``Consumer``.

    Subscribe, then ``await run(handler)``, or iterate with ``async for``. It belongs to the loop
    on which it is started.

    Args:
        name_servers: ``"host:port;host:port"`` or a list; without it, ``NAMESRV_ADDR`` counts.
        group: the consumer group.
        config: further settings as a mapping; ``options`` are stronger.
        batch: above 1, handlers and iterations get lists of up to so many messages.
        middleware: functions ``(message, call_next)`` that surround each call of the handler.
        **options: the settings that are listed below.
    """

    @overload
    def __init__(
        self: AsyncConsumer[StoredMessage],
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        config: Mapping[str, Any] | None = None,
        batch: Literal[1] = 1,
        middleware: Iterable[AsyncConsumerMiddleware] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: AsyncConsumer[list[StoredMessage]],
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        config: Mapping[str, Any] | None = None,
        batch: int,
        middleware: Iterable[AsyncBatchMiddleware] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...
    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(make_config(ConsumerConfig, name_servers, group, config, options))
        self._waiters: deque[asyncio.Future[None]] = deque()

    # -- handling ----------------------------------------------------------------------------

    async def run(
        self, handler: Callable[[Given], HandlerResult | Awaitable[HandlerResult]]
    ) -> None:
        """Handle messages until ``stop()`` is called.

        Args:
            handler: a coroutine function, or a function. It gets a ``StoredMessage``, or a list of
                them where ``batch`` is above 1. If it raises, or returns ``Retry(...)``, the
                message comes again.

        Raises:
            ConfigError: nothing is subscribed to.
            RouteError: no topic is known, or no name server answered.
        """
        if not callable(handler):
            raise ConfigError(
                f"the handler is {handler!r}: give a function, or a coroutine function"
            )
        self._check_open()
        is_own = self._state == "new"
        call: Callable[[Any], Any] = handler
        if self._config.middleware:
            call = surround_async(self, self._config.middleware, handler)
        workers = _Workers(lambda: self._work(call), self._wake_all)
        with contextlib.ExitStack() as on_the_way_out:
            try:
                await self._run_workers(workers, call)
            except asyncio.CancelledError:
                on_the_way_out.enter_context(answer_interrupts(self.give_up_waiting))
                self._tell_of_waiting(workers)
                raise
            except KeyboardInterrupt:  # where no runner of asyncio deals with it
                self._give_up_waiting()
                raise
            finally:
                await self._end(workers)
                if is_own:
                    await self.shutdown()
        if workers.error is not None:
            raise workers.error

    async def _run_workers(self, workers: _Workers, handler: Callable[[Any], Any]) -> None:
        if not self._stop_wanted:
            await self.join()
            self._stopped.clear()
            workers.start(self._config.workers)
            if self._group is not None:
                self._group.call_handler = partial(self._call_directly, handler, workers)
        while not self._is_ending and self._session is not None and workers.error is None:
            await self._stopped.wait()

    def _tell_of_waiting(self, workers: _Workers) -> None:
        if workers.were_started:
            tell_of_waiting(self._workload, self._config.shutdown_timeout, self._config.group)

    async def _end(self, workers: _Workers) -> None:
        workers.is_ending = True
        try:
            if workers.were_started:
                await self.leave()
        except KeyboardInterrupt:
            self._give_up_waiting()
            await self.leave()
            raise
        finally:
            self._has_stopped()
            if self._group is not None:
                self._group.call_handler = None
            await workers.end()

    def _call_directly(
        self,
        handler: Callable[[Any], Any],
        workers: _Workers,
        message: StoredMessage,
        done: Callable[[object], None],
    ) -> None:
        """Handle a message beside the ordinary order, because an operator wants it."""
        given: Any = [message] if self._config.batch > 1 else message

        async def call() -> None:
            outcome: object = Failure(RuntimeError("the consumer was stopped meanwhile"))
            try:
                result = handler(given)
                outcome = await result if isinstance(result, Awaitable) else result
                self._reply(replies_in(outcome, given))
            except Exception as error:  # noqa: BLE001 - whatever it is, the operator is told
                outcome = Failure(error)
            finally:
                done(outcome)

        workers.add(call())

    async def _work(self, handler: Callable[[Any], Any]) -> None:
        workload, is_coroutine = self._workload, is_coroutine_function(handler)
        is_cancelled = cast("Any", asyncio.current_task()).cancelling
        # Not the loop's own clock: uvloop's stands still while a task does not wait.
        clock = self._instance.clock
        turn = clock()
        while (work := self._next_now() or await self._next()) is not None:
            handled = self._handled(workload, work)
            given = next(handled)
            while True:
                try:
                    result = handler(given)
                    if is_coroutine or isinstance(result, Awaitable):
                        result = await result
                except Exception as error:  # noqa: BLE001 - whatever it is, the message comes again
                    result = Failure(error)
                except asyncio.CancelledError as error:
                    if is_cancelled():
                        workload.release(work)
                        raise
                    result = cancelled(error)
                except BaseException:
                    workload.release(work)
                    raise
                try:
                    given = handled.send(result)
                except StopIteration:
                    break
            # With an error it holds this frame, and all that the handler had; and a worker that waits keeps
            # no messages.
            work = given = result = None
            if clock() - turn > _TURN:
                await asyncio.sleep(0)
                turn = clock()

    def _next_now(self, *, is_open: bool = False) -> Work | None:
        """The next piece of work, if there is any and it is not time to stop."""
        if self._stop_wanted or self._is_leaving:
            return None
        workload = self._workload
        with workload.lock:
            return workload.next_open() if is_open else workload.next_work()

    async def _next(self, *, is_open: bool = False) -> Work | None:
        """Wait for the next piece of work; None when it is time to stop."""
        while not self._is_ending:
            if (work := self._next_now(is_open=is_open)) is not None:
                return work
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
                else:
                    self._wake()  # it was to take something, and to wake the next
                raise
        return None

    def _wake(self) -> None:
        """Wake a task that waits for work."""
        waiters = self._waiters
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        super()._wake_all()
        while self._waiters:
            self._wake()

    def __aiter__(self) -> AsyncIterator[Given]:
        """Messages one by one (lists, where ``batch`` is above 1). Going on acknowledges."""
        messages = cast("AsyncIterator[Given]", _Iteration(self))
        if not self._config.middleware:
            return messages
        from rocketwire.aio.surrounded_iteration import SurroundedIteration

        return SurroundedIteration(self, self._config.middleware, messages)

    def deliveries(self) -> AsyncIterator[AsyncReceivedDelivery]:
        """Messages one by one, each to be acknowledged by hand, in any order.

        It ends after ``stop()``. The consumer remains a member until it is shut down or leaves, so
        that deliveries can be decided about after the loop; what is open then comes again.

        Raises:
            ConfigError: ``batch`` is above 1, or nothing is subscribed to.
            RouteError: no topic is known, or no name server answered.
        """
        check_deliveries(self._config)
        return _Deliveries(self)

    async def _next_delivery(self) -> AsyncReceivedDelivery | None:
        if not self._stop_wanted:
            await self.join()
        work, group = await self._next(is_open=True), self._group
        if work is None or group is None:
            self._has_stopped()
            return None
        return AsyncReceivedDelivery(HandedOut(group, work), self._loop)


class _Iteration:
    """One ``async for``. What it leaves unacknowledged is handed out again."""

    def __init__(self, consumer: AsyncConsumer[Any]) -> None:
        self._consumer = consumer
        self._in_hand: Work | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StoredMessage | list[StoredMessage]:
        consumer = self._consumer
        work, self._in_hand = self._in_hand, None
        if work is not None:
            given = consumer._go_on(work)  # noqa: SLF001 - they are one thing in two classes
            if given is not None:
                self._in_hand = work
                return given
            consumer._workload.finish(work)  # noqa: SLF001
        elif not consumer._stop_wanted:  # noqa: SLF001
            await consumer.join()
        work = self._in_hand = await consumer._next()  # noqa: SLF001
        if work is None:
            if consumer._session is not None:  # noqa: SLF001
                await consumer.leave()
            consumer._has_stopped()  # noqa: SLF001
            raise StopAsyncIteration
        return cast("StoredMessage | list[StoredMessage]", work.given)

    def __del__(self) -> None:
        work = self._in_hand
        if work is not None:
            self._consumer._workload.release(work)  # noqa: SLF001


class _Deliveries:
    """One ``async for`` over messages that are acknowledged by hand."""

    def __init__(self, consumer: AsyncConsumer[Any]) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncReceivedDelivery:
        delivery = await self._consumer._next_delivery()  # noqa: SLF001 - one thing in two classes
        if delivery is None:
            raise StopAsyncIteration
        return delivery


class _Workers:
    """The tasks that call the handler. One that fails ends ``run`` with its error.

    Args:
        work: what each of them does.
        on_error: called when one has failed.
    """

    def __init__(
        self, work: Callable[[], Coroutine[Any, Any, None]], on_error: Callable[[], None]
    ) -> None:
        self._work = work
        self._on_error = on_error
        self._tasks: set[asyncio.Task[None]] = set()
        #: Whether those that end are not replaced any more.
        self.is_ending = False
        self.were_started = False
        self.error: BaseException | None = None

    def start(self, count: int) -> None:
        """Start so many."""
        self.were_started = True
        for _ in range(count):
            task = asyncio.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def add(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something once beside them; it is ended with them."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self.is_ending:
            return
        if task.cancelled():
            # A handler can cancel the task that it runs in. Its message was put back.
            _log.warning("a handler cancelled the task that called it: another takes its place")
            self.start(1)
        elif (error := task.exception()) is not None:
            self.error = self.error or error
            self._on_error()

    async def end(self) -> None:
        """End all of them."""
        self.is_ending = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
