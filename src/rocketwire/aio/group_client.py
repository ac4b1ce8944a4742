"""A client that can be a member of a consumer group, of either shell.

The asyncio consumer handles messages in tasks, the blocking one on threads; what both have in common is
here: subscriptions, joining and leaving, control, and what a member shows of itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections.abc import Generator, Iterable
from datetime import datetime
from functools import partial
from typing import Any, Literal, Self

from rocketwire.aio.client import AsyncClient
from rocketwire.aio.group_session import GroupSession
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.group import control
from rocketwire.core.group import view as group_view
from rocketwire.core.group.handling import error_of, make_workload, trace_code, wanted_retry
from rocketwire.core.group.membership import Group
from rocketwire.core.group.pauses import Pauses
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
from rocketwire.log_fields import about
from rocketwire.message import MessageQueue
from rocketwire.stored_message import Reply, StoredMessage
from rocketwire.system.offset_file import OffsetFile

_log = logging.getLogger("rocketwire.consumer")


class GroupClient(AsyncClient[ConsumerConfig]):
    """Joins and leaves a group. What handles its messages is told when there are some.

    A subclass says what that is: ``_wake`` when there is work for one more, and ``_wake_all`` when it
    is time to stop.
    """

    _what = "consumer"

    def __init__(self, config: ConsumerConfig, pauses: Pauses | None = None) -> None:
        super().__init__(config)
        self._subscriptions: dict[str, TagFilter] = {}
        self._pauses = pauses or Pauses()
        self._session: GroupSession | None = None
        #: Whether ``stop()`` was called; until ``run`` or the iteration has ended.
        self._stop_wanted = False
        #: How long leaving may wait for handlers, if ``stop()`` has said so: a moment of the clock.
        self._stop_until: float | None = None
        self._is_leaving = False
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
        self._check_open()
        check_topic(topic)
        self._subscriptions[topic] = message_filter(tags, sql)
        self._resubscribe()
        return self

    def unsubscribe(self, topic: str) -> None:
        """Want a topic no more; its queues are given back."""
        self._subscriptions.pop(topic, None)
        self._pauses.forget(topic)
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
        hooks = HookSet(config.hooks)
        group = Group(instance, config, self._workload, hooks, self._file, self._pauses)
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
                if not await session.leave(self._patience()):
                    _log.warning(
                        "a handler was still at work when its consumer left the group",
                        extra=about(group=self._config.group),
                    )
            finally:
                self._session, self._is_leaving = None, False
                self._close_file()

    def _patience(self) -> float:
        """How long leaving waits for handlers that are at work."""
        if self._stop_until is None:
            return self._config.shutdown_timeout
        return max(0.0, self._stop_until - self._instance.clock())

    def stop(self, timeout: float | str | None = None) -> None:
        """End ``run`` or an iteration soon; may be called from any thread or signal handler.

        Args:
            timeout: seconds for which handlers that are at work are waited for; without it,
                ``shutdown_timeout``. A second call may only shorten it.
        """
        limit = control.stop_limit(timeout)
        self._stop_wanted = True
        if self._state == "running":
            if limit is not None:
                until = self._instance.clock() + limit
                earlier = self._stop_until
                self._stop_until = until if earlier is None else min(until, earlier)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(self._begin_to_stop, limit)

    def _begin_to_stop(self, limit: float | None) -> None:
        self._wake_all()
        if limit is not None and self._is_leaving and self._group is not None:
            # It waits already, for longer maybe.
            self._loop.call_later(limit, partial(give_up_waiting, self._group))

    def _has_stopped(self) -> None:
        """``run`` or an iteration is over; a later one may begin."""
        self._stop_wanted, self._stop_until = False, None

    @abstractmethod
    def _wake(self) -> None:
        """There is work for one more."""

    def _wake_all(self) -> None:
        """Let all that wait see that it is time to stop."""
        self._stopped.set()

    @property
    def _is_ending(self) -> bool:
        return self._stop_wanted or self._is_leaving

    def give_up_waiting(self) -> None:
        """Leave without those handlers that are still at work. From any thread or signal handler."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._give_up_waiting)

    def _give_up_waiting(self) -> None:
        """Leave without those handlers that are still at work."""
        if self._group is not None:
            give_up_waiting(self._group)

    async def _closing(self) -> None:
        await self.leave()

    def _close_unused(self) -> None:
        super()._close_unused()
        session = self._session
        if session is not None:
            session.retain(self._instance.routes.addresses() | set(self._config.name_servers))

    # -- what became of a message ------------------------------------------------------------

    def _go_on(self, work: Work) -> StoredMessage | None:
        """What an iteration gets next of the same work; None if it should finish it."""
        # Not one more after a stop, and those that wait go to other members.
        return None if self._is_ending else self._workload.go_on(work)

    def _handled(self, workload: Workload, work: Work) -> Generator[Any, object, None]:
        """Yields each input of the handler, and is sent its result.

        Both shells go through it and call the handler in between, which one of them awaits: a step
        of a generator costs less than a call. If it is closed early, no message is settled.
        """
        tracer, group, is_batch = self._tracer, self._config.group, self._config.batch > 1
        given: Any = work.given
        while given is not None:
            trace = None
            if tracer is not None:
                trace = tracer.begin(given if is_batch else (given,))
            result = yield given
            retry = None if result is None else wanted_retry(result, given, group)
            if tracer is not None:
                tracer.end(trace, trace_code(result, retry))
            if retry is not None:
                self._give_back(workload, work, retry, error_of(result))
                return
            if result is not None:
                self._reply_to(replies_in(result, given))
            # Not one more after a stop, and those that wait go to other members.
            given = None if self._stop_wanted or self._is_leaving else workload.go_on(work)
        workload.finish(work)

    def _reply_to(self, replies: list[tuple[StoredMessage, Reply]]) -> None:
        """A handler has replied."""
        self._reply(replies)

    def _give_back(
        self, workload: Workload, work: Work, retry: Retry, error: Exception | None
    ) -> None:
        """A handler has failed, or wants its messages again; ``workload`` is the one they came from."""
        self._failed(work, retry, error)

    def _reply(self, replies: list[tuple[StoredMessage, Reply]]) -> None:
        session = self._session
        if session is not None:
            for request, reply in replies:
                session.group.start(send_reply(session.group, request, reply))

    def _failed(self, work: Work, retry: Retry, error: Exception | None) -> None:
        if self._session is not None:
            self._session.failed(work, retry, error)

    # -- control -----------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._state == "closed":
            raise self._not_running()

    def _member_group(self) -> Group:
        self._check_open()
        if self._session is None:
            raise ClientClosedError(
                "this consumer is no member of its group now: run it, or join() first"
            )
        return self._session.group

    def pause(self, topic_or_queue: str | MessageQueue) -> None:
        """Hand out nothing more of a topic or a queue until ``resume``; handlers at work finish.

        It remains a member, and keeps its queues. A pause holds for queues that come later, too. A
        topic's pause keeps back its retried messages, a queue's does not: they come through the
        group's retry topic. The last word about a queue counts, of topic or queue.

        Raises:
            ConfigError: the topic is not subscribed to.
            ClientClosedError: the consumer was shut down.
        """
        self._set_pause(topic_or_queue, is_paused=True)

    def resume(self, topic_or_queue: str | MessageQueue) -> None:
        """End a pause of a topic and all its queues, or of one queue.

        Raises:
            ConfigError: the topic is not subscribed to.
        """
        self._set_pause(topic_or_queue, is_paused=False)

    def _set_pause(self, what: str | MessageQueue, *, is_paused: bool) -> None:
        self._check_open()
        self._pauses.put(what, self._subscriptions, is_paused=is_paused)
        self.apply_pauses()

    def apply_pauses(self) -> None:
        """Hold back what is paused now, and nothing else. From any thread."""
        session = self._session
        if session is not None:
            session.group.apply_pauses()

    async def seek(
        self, queue: MessageQueue, where: int | Literal["earliest", "latest"] | datetime
    ) -> None:
        """Go on elsewhere in one of our queues; handlers at work finish, and count no more.

        Args:
            queue: one of ``assignment()``.
            where: an offset, ``"earliest"``, ``"latest"``, or an aware ``datetime``: the first
                message stored at that time or later.

        Raises:
            ConfigError: the queue is not ours, or has no such place.
            ClientClosedError: the consumer is no member of its group now.
        """
        group = self._member_group()
        await self._run(control.seek(group, queue, where, self._deadline()))

    async def position(self, queue: MessageQueue) -> int:
        """The offset of the message of one of our queues that is handed out next.

        Raises:
            ConfigError: the queue is not ours.
            ClientClosedError: the consumer is no member of its group now.
        """
        return control.position(self._member_group(), queue)

    async def committed(self, queue: MessageQueue) -> int | None:
        """How far the group has come in a queue, as its broker knows; None: nothing yet.

        When broadcasting: as the local file knows.

        Raises:
            ClientClosedError: the consumer is no member of its group now.
        """
        group = self._member_group()
        return await self._run(control.committed(group, queue, self._deadline()))

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
