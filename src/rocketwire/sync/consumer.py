"""The blocking consumer: a member of a group whose handlers are threads.

The membership itself (pulls, heartbeats, rebalancing, offsets) is the asyncio consumer's, on a
thread with a loop: it must go on while handlers block. See ``member``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sys
import threading
import warnings
import weakref
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, Unpack, overload

from rocketwire.aio.interrupts import answer_interrupts
from rocketwire.aio.transaction_checker import is_coroutine_function
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.group.control import stop_limit
from rocketwire.core.group.deliveries import check_deliveries
from rocketwire.core.group.pauses import Pauses
from rocketwire.core.reading.filters import message_filter
from rocketwire.core.reading.pull import TagFilter
from rocketwire.core.sending.validate import check_topic
from rocketwire.errors import ClientClosedError, ConfigError
from rocketwire.handler_types import Given, HandlerResult
from rocketwire.middleware import check_blocking
from rocketwire.settings_help import lists_settings
from rocketwire.stored_message import StoredMessage
from rocketwire.sync.consumer_control import ConsumerControl
from rocketwire.sync.deliveries import ReceivedDelivery
from rocketwire.sync.loop_thread import LoopThread
from rocketwire.sync.member import Member
from rocketwire.system.latch import forked_meanwhile
from rocketwire.system.registry import make_config
from rocketwire.system.weak_calls import weakly

if TYPE_CHECKING:
    from rocketwire.middleware import BatchMiddleware, ConsumerMiddleware
    from rocketwire.options import ConsumerOptions

_live: weakref.WeakSet[Consumer[Any]] = weakref.WeakSet()
#: What a forked child inherited and must not touch: the parent still uses it.
_left_behind: list[object] = []


@lists_settings(ConsumerConfig)
class Consumer(ConsumerControl, Generic[Given]):
    """Reads as a member of a group. A context manager.

    Subscribe, then ``run(handler)``, or iterate with ``for``. Without ``with``, ``run`` starts it
    and shuts it down by itself.

    >>> consumer = Consumer("127.0.0.1:9876", group="billing").subscribe("orders", "paid || sent")

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
        self: Consumer[StoredMessage],
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        config: Mapping[str, Any] | None = None,
        batch: Literal[1] = 1,
        middleware: Iterable[ConsumerMiddleware] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Consumer[list[StoredMessage]],
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str | None = None,
        config: Mapping[str, Any] | None = None,
        batch: int,
        middleware: Iterable[BatchMiddleware] | None = None,
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
        self._state = "new"
        self._config = make_config(ConsumerConfig, name_servers, group, config, options)
        check_blocking(self._config.middleware)
        self._subscriptions: dict[str, TagFilter] = {}
        self._pauses = Pauses()
        self._lock = threading.RLock()  # a signal handler may shut it down while it starts
        self._thread: LoopThread | None = None
        self._member: Member | None = None
        # Safe to fill from a signal handler, whatever the interrupted thread was doing.
        self._stops: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._stop_wanted = False
        #: Whether the loop of the membership ended by an error.
        self._is_lost = False
        #: Whether a shutdown was interrupted.
        self._is_left = False

    # -- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Make it ready; a second call does nothing. It joins its group when it is run.

        Raises:
            ClientClosedError: it was shut down.
            ConfigError: it does not go with the clients whose instance it shares.
        """
        with self._lock:
            if self._state == "closed":
                raise ClientClosedError("this consumer was shut down: make a new one")
            if self._state == "new":
                self._open()
        return self

    def _open(self) -> None:
        member = Member(self._config, self._subscriptions, self._pauses)
        thread = LoopThread("rocketwire-consumer", weakly(self._loop_failed))
        thread.start()
        try:
            thread.run(member.start)
            is_wanted = self._state != "closed"  # by a signal handler, in the midst of that
            if is_wanted:
                _live.add(self)
                self._thread, self._member, self._state = thread, member, "running"
        except BaseException:  # an interrupt may come at any moment
            _live.discard(self)
            thread.close(member.shutdown)
            raise
        if not is_wanted:
            thread.close(member.shutdown)
            raise ClientClosedError("this consumer was shut down while it started")

    def _loop_failed(self, error: BaseException) -> Coroutine[Any, Any, object] | None:
        """The membership is lost: end ``run`` with the reason. On the thread that it ran on."""
        self._is_lost = True
        self._stops.put(error)
        return None if self._member is None else self._member.shutdown()

    def shutdown(self) -> None:
        """Finish what is in hand, commit, leave the group, close; a second call does nothing.

        If the first one was interrupted, the second ends what that has left. Called by a hook it
        returns at once, and what is left is done beside it.
        """
        is_ours = False
        try:
            with self._lock:
                is_ours = self._state == "running" or self._is_left
                self._state, self._is_left = "closed", False
            if is_ours:
                self._shut_down()
        except BaseException:
            self._is_left = is_ours
            raise

    def _shut_down(self) -> None:
        _live.discard(self)
        self._stops.put(None)
        if self._thread is not None and self._member is not None:
            self._thread.close(self._member.shutdown)

    def stop(self, timeout: float | str | None = None) -> None:
        """End ``run`` or an iteration soon; may be called from any thread or signal handler.

        Args:
            timeout: seconds for which handlers that are at work are waited for; without it,
                ``shutdown_timeout``. A second call may only shorten it.
        """
        limit = stop_limit(timeout)
        self._stop_wanted = True
        self._stops.put(None)
        if self._member is not None:
            self._member.stop(limit)

    def join(self) -> Self:
        """Become a member of the group now; ``run`` and iteration do it by themselves.

        Raises:
            ConfigError: nothing is subscribed to.
            RouteError: no topic is known, or no name server answered.
        """
        self.start()
        self._call(lambda member: member.join())
        return self

    def leave(self) -> None:
        """Finish what is in hand, commit, and leave the group; a second call does nothing."""
        self._call(lambda member: member.leave())

    def _call(self, make: Callable[[Member], Any]) -> Any:
        """Run a coroutine of the member on its loop."""
        thread, member = self._thread, self._member
        if self._state != "running" or thread is None or member is None:
            what = "was not started: run it" if self._state == "new" else "was shut down"
            raise ClientClosedError(f"this consumer {what}")
        if thread.is_current():
            raise ConfigError(
                "a hook called something of its consumer that waits: hooks run on the thread that "
                "it would wait for; do it on another one"
            )
        return thread.run(lambda: make(member))

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
        thread, member = self._thread, self._member
        if self._state == "running" and thread is not None and member is not None:
            thread.loop.call_soon_threadsafe(member.resubscribe, dict(self._subscriptions))

    # -- handling ----------------------------------------------------------------------------

    def run(self, handler: Callable[[Given], HandlerResult | Awaitable[HandlerResult]]) -> None:
        """Handle messages on ``workers`` threads until ``stop()`` is called.

        Args:
            handler: a function, or a coroutine function. It gets a ``StoredMessage``, or a list of
                them where ``batch`` is above 1. If it raises, or returns ``Retry(...)``, the
                message comes again. ``SystemExit`` in a handler ends ``run`` and is raised there.

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
        ending: BaseException | None = None
        try:
            if not self._stop_wanted:
                ending = self._run_threads(handler)
        finally:
            if _is_second_interrupt(sys.exc_info()[1]) and self._member is not None:
                self._member.give_up_waiting()
            self._reset()
            if is_own:
                self.shutdown()
        if ending is not None:
            raise ending

    def _run_threads(self, handler: Callable[[Any], Any]) -> BaseException | None:
        self.join()
        member = self._member
        if member is None:
            return None
        is_awaited = is_coroutine_function(handler)
        direct = (lambda given: asyncio.run(handler(given))) if is_awaited else handler
        member.offer(self._surrounded(direct))
        threads = [
            threading.Thread(
                target=self._work,
                args=(member, handler),
                name=f"rocketwire-handler-{number}",
                daemon=True,
            )
            for number in range(self._config.workers)
        ]
        with contextlib.ExitStack() as on_the_way_out:
            try:
                for thread in threads:
                    thread.start()
                return self._stops.get()
            except KeyboardInterrupt:
                on_the_way_out.enter_context(answer_interrupts(member.give_up_waiting))
                member.tell_of_waiting()
                raise
            finally:
                if self._state == "running" and not self._is_lost:
                    self._leave_or_give_up(member)
                for thread in threads:
                    # One that hangs is left behind: it is a daemon, and its message is unhandled.
                    if thread.ident is not None:  # else the interrupt came before it was started
                        thread.join(0.1)

    def _leave_or_give_up(self, member: Member) -> None:
        """Leave the group; a second interrupt gives up the handlers that are still at work."""
        if _is_second_interrupt(sys.exc_info()[1]):
            member.give_up_waiting()
        try:
            self.leave()
        except KeyboardInterrupt:
            member.give_up_waiting()
            self.leave()
            raise

    def _reset(self) -> None:
        """What a later ``run`` needs."""
        self._stop_wanted = False
        self._stops = queue.SimpleQueue()
        if self._member is not None:
            self._member.ended()

    def _work(self, member: Member, handler: Callable[[Any], Any]) -> None:
        try:
            if is_coroutine_function(handler):
                with asyncio.Runner() as runner:
                    member.handle_all(self._surrounded(lambda given: runner.run(handler(given))))
            else:
                member.handle_all(self._surrounded(handler))
        except BaseException as error:  # noqa: BLE001 - it is raised by run()
            self._stops.put(error)

    def _surrounded(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        if not self._config.middleware:
            return handler
        from rocketwire.system.surrounded_handler import surround

        return surround(self, self._config.middleware, handler)

    def __iter__(self) -> Iterator[Given]:
        """Messages one by one (lists, where ``batch`` is above 1).

        Going on acknowledges the last; ``break`` leaves it unacknowledged.
        """
        if not self._config.middleware:
            return self._iterate()
        from rocketwire.sync.surrounded_iteration import iterate_surrounded

        return iterate_surrounded(self, self._config.middleware, self._iterate())

    def _iterate(self) -> Generator[Given, None, None]:
        while not self._stop_wanted:
            member = self._member
            if member is None or not member.is_member:
                self.join()
                continue
            work = member.next_work()
            if work is None:
                break
            given: Any = work.given
            while given is not None:
                try:
                    yield given
                except BaseException:  # the loop was left: nobody said that it is handled
                    member.release(work)
                    raise
                given = member.go_on(work)
            member.succeeded(work)
        if self._state == "running":
            self.leave()
        self._reset()

    def deliveries(self) -> Iterator[ReceivedDelivery]:
        """Messages one by one, each to be acknowledged by hand, in any order.

        It ends after ``stop()``. The consumer remains a member until it is shut down or leaves, so
        that deliveries can be decided about after the loop; what is open then comes again.

        Raises:
            ConfigError: ``batch`` is above 1, or nothing is subscribed to.
            RouteError: no topic is known, or no name server answered.
        """
        check_deliveries(self._config)
        return self._deliver()

    def _deliver(self) -> Iterator[ReceivedDelivery]:
        while not self._stop_wanted:
            member = self._member
            if member is None or not member.is_member:
                self.join()
                continue
            delivery = member.next_delivery()
            if delivery is None:
                break
            yield delivery
        self._reset()

    @property
    def client_id(self) -> str:
        """The id by which brokers know this member; empty before the start."""
        return "" if self._member is None else self._member.client_id

    # -- the rest ----------------------------------------------------------------------------

    def after_fork(self) -> None:
        """In a forked child: forget the parent's membership. Run it to join as a new member."""
        if self._member is not None:
            self._member.let_go()
        # A signal handler that forks in the midst of ``run`` goes on with it in the child, too.
        self._stops.put(forked_meanwhile())
        _left_behind.append((self._thread, self._member, self._stops))
        self._lock = threading.RLock()
        self._stops = queue.SimpleQueue()
        self._thread = self._member = None
        self._state, self._stop_wanted = "new", False

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            if self._state == "running":  # interrupted in the last moment: nobody else ends it
                self.shutdown()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()

    def __del__(self) -> None:
        if getattr(self, "_state", "") == "running" and self._member is not None:
            warnings.warn(
                f"unclosed consumer {self._member.client_id}: use it in a with statement, or call "
                "shutdown()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )
            # It would go on as a member, and keep its queues from others who handle them.
            if self._thread is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed already
                    self._thread.finish(self._member.shutdown)

    def __repr__(self) -> str:
        servers = ";".join(self._config.name_servers)
        return f"Consumer({servers!r}, group={self._config.group!r}, {self._state})"


def _is_second_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt came while another was dealt with: so soon that nothing waited yet."""
    return isinstance(error, KeyboardInterrupt) and isinstance(error.__context__, KeyboardInterrupt)


def _renew_all() -> None:
    for consumer in list(_live):
        consumer.after_fork()
    _live.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
