"""The asyncio consumer: a member of a group whose handlers are tasks."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Self, cast

from rocketwire.aio.client import AsyncClient
from rocketwire.aio.group_session import GroupSession
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core import group_view
from rocketwire.core.consume_trace import EXCEPTION, FAILED, SUCCESS, ConsumeTracer
from rocketwire.core.consumer_stats import ConsumerStats
from rocketwire.core.group import Group
from rocketwire.core.pull import TagFilter, tag_filter
from rocketwire.core.send_back import Retry
from rocketwire.core.validate import check_topic
from rocketwire.core.workload import Limits, Work, Workload
from rocketwire.errors import ClientClosedError, ConfigError
from rocketwire.hooks import HookSet
from rocketwire.message import MessageQueue
from rocketwire.offset_file import OffsetFile
from rocketwire.registry import make_config
from rocketwire.stored_message import StoredMessage

_log = logging.getLogger("rocketwire.consumer")

Handler = Callable[[Any], Any]

#: A task that never waits gives way to the loop after so long.
_TURN: Final = 0.002


def make_workload(config: ConsumerConfig, lock: Any, clock: Callable[[], float]) -> Workload:
    """What handlers of a consumer take their messages from."""
    return Workload(
        lock=lock,
        clock=clock,
        ordered=config.ordered,
        batch=config.batch,
        limits=Limits(
            config.max_queue_messages,
            config.max_queue_bytes,
            config.max_queue_span,
            config.max_messages,
            config.max_bytes,
        ),
        needs_lock=not config.broadcast,
    )


class AsyncConsumer(AsyncClient[ConsumerConfig]):
    """Reads as a member of a group, on an event loop. The twin of ``Consumer``.

    Subscribe, then ``await run(handler)``, or iterate with ``async for``. It belongs to the loop
    on which it is started.

    Args:
        name_servers: ``"host:port;host:port"`` or a list; without it, ``NAMESRV_ADDR`` counts.
        group: the consumer group.
        config: further settings as a mapping; ``options`` are stronger.
        **options: the settings, see the reference of ``ConsumerConfig``.
    """

    _what = "consumer"

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._prepare(make_config(ConsumerConfig, name_servers, group, config, options))

    def _prepare(self, config: ConsumerConfig) -> None:
        super().__init__(config)
        self._subscriptions: dict[str, TagFilter] = {}
        self._session: GroupSession | None = None
        #: Whether somebody called ``stop()``; until ``run`` or the iteration has ended.
        self._stop_wanted = False
        self._is_leaving = False
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._file: OffsetFile | None = None
        self._tracer: ConsumeTracer | None = None

    def _opened(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._join_lock = asyncio.Lock()
        self._stopped = asyncio.Event()

    # -- what is wanted ----------------------------------------------------------------------

    def subscribe(self, topic: str, tags: str = "*") -> Self:
        """Want a topic, or some tags of it; several topics may be subscribed to.

        Args:
            topic: its name.
            tags: ``*``, ``TagA`` or ``TagA || TagB``; replaces what was wanted of it before.

        Raises:
            InvalidMessageError: the topic or the tags make no sense.
        """
        check_topic(topic)
        self._subscriptions[topic] = tag_filter(tags)
        self._resubscribe()
        return self

    def unsubscribe(self, topic: str) -> None:
        """Want a topic no more; its queues are given back."""
        self._subscriptions.pop(topic, None)
        self._resubscribe()

    def _resubscribe(self) -> None:
        if self._session is not None:
            self._session.group.subscribe(self._subscriptions)

    # -- membership --------------------------------------------------------------------------

    async def join(self) -> Self:
        """Become a member of the group now; ``run`` and iteration do it by themselves.

        Raises:
            ConfigError: nothing is subscribed to.
            RouteError: no topic is known, or no name server answered.
        """
        await self.start()
        async with self._join_lock:
            if self._session is None:
                self._session = await self._joined()
        return self

    async def _joined(self) -> GroupSession:
        if not self._subscriptions:
            raise ConfigError("nothing is subscribed to: call subscribe(topic) first")
        instance, config = self._instance, self._config
        self._workload = self._make_workload()
        self._file = OffsetFile(config.offsets_folder, config.group) if config.broadcast else None
        group = Group(instance, config, self._workload, HookSet(config.hooks), self._file)
        group.subscribe(self._subscriptions)
        self._tracer = group.tracer
        session = GroupSession(group)
        try:
            await session.join()
        except BaseException:
            await session.close()
            self._close_file()
            raise
        return session

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()

    def _make_workload(self) -> Workload:
        instance = self._instance
        workload = make_workload(self._config, instance.surroundings.make_lock(), instance.clock)
        workload.on_ready = self._wake
        return workload

    async def leave(self) -> None:
        """Finish what is in hand, commit, and leave the group; a second call does nothing."""
        async with self._join_lock:
            session = self._session
            if session is None:
                return
            self._is_leaving = True
            self._wake_all()
            try:
                if not await session.leave(self._config.shutdown_timeout):
                    _log.warning("a handler was still at work when its consumer left the group")
            finally:
                self._session, self._is_leaving = None, False
                self._close_file()

    def stop(self) -> None:
        """End ``run`` or an iteration soon; may be called from any thread or signal handler."""
        self._stop_wanted = True
        if self._state == "running":
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        """Let everybody see that it is time to stop."""
        self._stopped.set()
        while self._waiters:
            self._wake()

    @property
    def _is_ending(self) -> bool:
        return self._stop_wanted or self._is_leaving

    async def _closing(self) -> None:
        await self.leave()

    def _close_unused(self) -> None:
        super()._close_unused()
        session = self._session
        if session is not None:
            session.retain(self._instance.routes.addresses() | set(self._config.name_servers))

    # -- handling ----------------------------------------------------------------------------

    async def run(self, handler: Handler) -> None:
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
        is_own = self._state == "new"
        tasks: list[asyncio.Task[None]] = []
        try:
            if not self._stop_wanted:
                await self.join()
                self._stopped.clear()
                tasks += [
                    asyncio.create_task(self._work(handler)) for _ in range(self._config.workers)
                ]
            while not self._is_ending and self._session is not None:
                await self._stopped.wait()
        finally:
            await self._end(tasks)
            if is_own:
                await self.shutdown()

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        try:
            if tasks:
                await self.leave()
        finally:
            self._stop_wanted = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, handler: Handler) -> None:
        loop, workload, tracer = self._loop, self._workload, self._tracer
        is_batch, is_coroutine = self._config.batch > 1, is_coroutine_function(handler)
        turn = loop.time()
        while (work := self._next_now() or await self._next()) is not None:
            given: Any = work.given
            while given is not None:
                trace = None
                if tracer is not None:
                    trace = tracer.begin(given if is_batch else (given,))
                try:
                    result = handler(given)
                    if is_coroutine or isinstance(result, Awaitable):
                        result = await result
                except Exception as error:  # noqa: BLE001 - whatever it is, the message comes again
                    result = Failure(error)
                except BaseException:
                    workload.release(work)
                    raise
                retry = None if result is None else wanted_retry(result, given)
                if tracer is not None:
                    tracer.end(trace, trace_code(result, retry))
                if retry is not None:
                    self._failed(work, retry, error_of(result))
                    result = None  # with an error it holds this frame, and all that the handler had
                    break
                # Not one more after a stop, and those that wait go to other members.
                given = None if self._stop_wanted or self._is_leaving else workload.go_on(work)
            else:
                workload.finish(work)
            if loop.time() - turn > _TURN:
                await asyncio.sleep(0)
                turn = loop.time()

    def _go_on(self, work: Work) -> StoredMessage | None:
        """What whoever iterates gets next of the same work; None if he should finish it."""
        # Not one more after a stop, and those that wait go to other members.
        return None if self._is_ending else self._workload.go_on(work)

    def _succeeded(self, work: Work) -> None:
        self._workload.finish(work)

    def _failed(self, work: Work, retry: Retry, error: Exception | None) -> None:
        if self._session is not None:
            self._session.failed(work, retry, error)

    def _next_now(self) -> Work | None:
        """The next piece of work, if there is any and it is not time to stop."""
        if self._stop_wanted or self._is_leaving:
            return None
        workload = self._workload
        with workload.lock:
            return workload.next_work()

    async def _next(self) -> Work | None:
        """Wait for the next piece of work; None when it is time to stop."""
        while not self._is_ending:
            if (work := self._next_now()) is not None:
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
        """Wake one who waits for work."""
        waiters = self._waiters
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def __aiter__(self) -> AsyncIterator[Any]:
        """Messages one by one (lists, where ``batch`` is above 1). Going on acknowledges."""
        return _Iteration(self)

    # -- looking -----------------------------------------------------------------------------

    async def lag(self) -> dict[MessageQueue, int]:
        """How many messages of each of our queues are not handled yet; brokers are asked."""
        deadline = self._deadline()
        session = self._session
        return {} if session is None else await self._run(group_view.lag(session.group, deadline))

    def assignment(self) -> tuple[MessageQueue, ...]:
        """The queues that are ours now."""
        return () if self._session is None else group_view.assignment(self._session.group)

    def stats(self) -> ConsumerStats:
        """Counters since the consumer joined, and each queue as it stands.

        Raises:
            ClientClosedError: it is no member now.
        """
        if self._session is None:
            raise ClientClosedError("this consumer is no member of its group: run it, or join()")
        return group_view.stats(self._session.group)


class _Iteration:
    """One ``async for``. What it leaves unacknowledged is handed out again."""

    def __init__(self, consumer: AsyncConsumer) -> None:
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
            consumer._succeeded(work)  # noqa: SLF001
        elif not consumer._stop_wanted:  # noqa: SLF001
            await consumer.join()
        work = self._in_hand = await consumer._next()  # noqa: SLF001
        if work is None:
            if consumer._session is not None:  # noqa: SLF001
                await consumer.leave()
            consumer._stop_wanted = False  # noqa: SLF001
            raise StopAsyncIteration
        return cast("StoredMessage | list[StoredMessage]", work.given)

    def __del__(self) -> None:
        work = self._in_hand
        if work is not None:
            self._consumer._workload.release(work)  # noqa: SLF001


class Failure:
    """In place of a handler's result: it raised."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def wanted_retry(result: object, given: StoredMessage | list[StoredMessage]) -> Retry | None:
    """What a handler's result asks for."""
    if isinstance(result, Retry):
        return result
    if isinstance(result, Failure):
        first = given[0] if isinstance(given, list) else given
        _log.warning("a handler failed at %s", first.message_id, exc_info=result.error)
        return Retry()
    return Retry() if result is Retry else None


def error_of(result: object) -> Exception | None:
    """What a handler raised, if it did."""
    return result.error if isinstance(result, Failure) else None


def trace_code(result: object, retry: Retry | None) -> int:
    """What a trace says of a handler's result."""
    if isinstance(result, Failure):
        return EXCEPTION
    return SUCCESS if retry is None else FAILED


def is_coroutine_function(handler: Handler) -> bool:
    """Whether calling it gives something to await."""
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object may have a coroutine method
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
