"""The asyncio consumer: a member of a group whose handlers are tasks."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
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
from typing import Any, Final, Self, cast

from rocketwire.aio.client import AsyncClient
from rocketwire.aio.group_session import GroupSession
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.group import view as group_view
from rocketwire.core.group.handling import (
    Failure,
    cancelled,
    error_of,
    make_workload,
    tell_of_waiting,
    trace_code,
    wanted_retry,
)
from rocketwire.core.group.membership import Group
from rocketwire.core.group.replying import replies_in, send_reply
from rocketwire.core.group.send_back import Retry
from rocketwire.core.group.stats import ConsumerStats
from rocketwire.core.group.trace import ConsumeTracer
from rocketwire.core.group.upkeep import give_up_waiting
from rocketwire.core.group.workload import Work, Workload
from rocketwire.core.reading.filters import message_filter
from rocketwire.core.reading.pull import TagFilter
from rocketwire.core.sending.validate import check_topic
from rocketwire.errors import ClientClosedError, ConfigError
from rocketwire.hooks import HookSet
from rocketwire.message import MessageQueue
from rocketwire.offset_file import OffsetFile
from rocketwire.registry import make_config
from rocketwire.stored_message import Reply, StoredMessage

_log = logging.getLogger("rocketwire.consumer")

Handler = Callable[[Any], Any]

#: A task that never waits gives way to the loop after so long.
_TURN: Final = 0.002


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
        #: The membership now, or the last one: its numbers outlive it.
        self._group: Group | None = None

    def _opened(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._join_lock = asyncio.Lock()
        self._stopped = asyncio.Event()

    # -- what is wanted ----------------------------------------------------------------------

    def subscribe(
        self, topic: str, tags: str | Iterable[str] = "*", *, sql: str | None = None
    ) -> Self:
        """Want a topic, or some messages of it; several topics may be subscribed to.

        Args:
            topic: its name.
            tags: ``*``, ``TagA``, ``TagA || TagB`` or a list of tags; replaces what was wanted of
                it before.
            sql: an SQL92 expression over properties instead of tags, which brokers evaluate. A
                wrong one is an error of ``join`` and ``run``.

        Raises:
            InvalidMessageError: the topic, the tags or the expression make no sense.
        """
        check_topic(topic)
        self._subscriptions[topic] = message_filter(tags, sql)
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
        self._group = group
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
        workers = _Workers(lambda: self._work(handler), self._wake_all)
        try:
            await self._run_workers(workers)
        except KeyboardInterrupt:  # the second Ctrl-C, come so soon that it hit us and not the loop
            self._give_up_waiting()
            raise
        finally:
            await self._end(workers)
            if is_own:
                await self.shutdown()
        if workers.error is not None:
            raise workers.error

    async def _run_workers(self, workers: _Workers) -> None:
        try:
            if not self._stop_wanted:
                await self.join()
                self._stopped.clear()
                workers.start(self._config.workers)
            while not self._is_ending and self._session is not None and workers.error is None:
                await self._stopped.wait()
        except asyncio.CancelledError:
            if workers.were_started:
                tell_of_waiting(self._workload, self._config.shutdown_timeout)
            raise

    def _give_up_waiting(self) -> None:
        """Leave without those handlers that are still at work."""
        if self._group is not None:
            give_up_waiting(self._group)

    async def _end(self, workers: _Workers) -> None:
        try:
            if workers.were_started:
                await self.leave()
        except KeyboardInterrupt:
            self._give_up_waiting()
            await self.leave()
            raise
        finally:
            self._stop_wanted = False
            await workers.end()

    async def _work(self, handler: Handler) -> None:  # noqa: C901 - a call costs each message
        workload, tracer = self._workload, self._tracer
        is_batch, is_coroutine = self._config.batch > 1, is_coroutine_function(handler)
        group, is_cancelled = self._config.group, cast("Any", asyncio.current_task()).cancelling
        # Not the loop's own clock: uvloop's stands still while a task does not wait.
        clock = self._instance.clock
        turn = clock()
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
                except asyncio.CancelledError as error:
                    if is_cancelled():
                        workload.release(work)
                        raise
                    result = cancelled(error)
                except BaseException:
                    workload.release(work)
                    raise
                retry = None if result is None else wanted_retry(result, given, group)
                if tracer is not None:
                    tracer.end(trace, trace_code(result, retry))
                if retry is None and result is not None:
                    self._reply(replies_in(result, given))
                if retry is not None:
                    self._failed(work, retry, error_of(result))
                    result = None  # with an error it holds this frame, and all that the handler had
                    break
                # Not one more after a stop, and those that wait go to other members.
                given = None if self._stop_wanted or self._is_leaving else workload.go_on(work)
            else:
                workload.finish(work)
            if clock() - turn > _TURN:
                await asyncio.sleep(0)
                turn = clock()

    def _go_on(self, work: Work) -> StoredMessage | None:
        """What whoever iterates gets next of the same work; None if he should finish it."""
        # Not one more after a stop, and those that wait go to other members.
        return None if self._is_ending else self._workload.go_on(work)

    def _succeeded(self, work: Work) -> None:
        self._workload.finish(work)

    def _reply(self, replies: list[tuple[StoredMessage, Reply]]) -> None:
        session = self._session
        if session is not None:
            for request, reply in replies:
                session.group.start(send_reply(session.group, request, reply))

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

        After it has left, the numbers of the time when it was a member.

        Raises:
            ClientClosedError: it never was a member.
        """
        if self._group is None:
            raise ClientClosedError(
                "this consumer is no member of its group, and never was: run it, or join()"
            )
        return group_view.stats(self._group)


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
        self._is_ending = False
        self.were_started = False
        self.error: BaseException | None = None

    def start(self, count: int) -> None:
        """Start so many."""
        self.were_started = True
        for _ in range(count):
            task = asyncio.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._is_ending:
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
        self._is_ending = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_coroutine_function(handler: Handler) -> bool:
    """Whether calling it gives something to await."""
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object may have a coroutine method
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
