"""The membership of a blocking consumer, and the threads that handle its messages.

The membership lives on an event loop, as the asyncio consumer's does. Handler threads take messages
straight from the workload and settle them there; only what failed goes through the loop.
"""

from __future__ import annotations

import contextlib
import os
import threading
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from typing import Any

from rocketwire.aio.group_client import GroupClient
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.group.deliveries import HandedOut
from rocketwire.core.group.handling import Failure, cancelled, make_workload, tell_of_waiting
from rocketwire.core.group.pauses import Pauses
from rocketwire.core.group.send_back import Retry
from rocketwire.core.group.workload import Work, Workload
from rocketwire.core.reading.pull import TagFilter
from rocketwire.stored_message import Reply, StoredMessage
from rocketwire.sync.deliveries import ReceivedDelivery
from rocketwire.sync.direct_calls import DirectCalls


class Member(GroupClient):
    """A member of a group whose messages are taken by threads."""

    def __init__(
        self,
        config: ConsumerConfig,
        subscriptions: Mapping[str, TagFilter],
        pauses: Pauses | None = None,
    ) -> None:
        super().__init__(config, pauses)
        self._subscriptions = dict(subscriptions)
        self._ready = threading.Condition(threading.Lock())

    def _make_workload(self) -> Workload:
        # A worker that need not wait takes the lock itself: the condition would cost a call.
        lock = threading.Lock()
        self._ready = threading.Condition(lock)
        self._loop_thread = threading.get_ident()
        self._is_rousing = False
        workload = make_workload(self._config, lock, self._instance.clock)
        workload.on_ready = self._wake
        return workload

    def _wake(self) -> None:
        """Wake a thread. The caller holds the lock.

        The loop does so once it has read all that came together: a thread that got up earlier would
        only wait for the interpreter, and be out of work again after a few messages.
        """
        if threading.get_ident() != self._loop_thread:
            self._ready.notify()
        elif not self._is_rousing:
            self._is_rousing = True
            self._loop.call_soon(self._rouse_now)

    def _rouse_now(self) -> None:
        with self._ready:
            self._is_rousing = False
            self._ready.notify()

    def _wake_all(self) -> None:
        super()._wake_all()
        with self._ready:
            self._ready.notify_all()

    # -- for handler threads -----------------------------------------------------------------

    def next_work(self) -> Work | None:
        """Wait for the next piece of work; None when it is time to stop."""
        return self._next_of(self._workload)

    def _next_of(self, workload: Workload, *, is_open: bool = False) -> Work | None:
        ready = self._ready
        with workload.lock:
            while not self._is_over(workload):
                work = workload.next_open() if is_open else workload.next_work()
                if work is not None:
                    return work
                ready.wait()
        return None

    def next_delivery(self) -> ReceivedDelivery | None:
        """Wait for the next message that is acknowledged by hand; None when it is time to stop."""
        workload, group = self._workload, self._group
        if group is None:
            return None
        work = self._next_of(workload, is_open=True)
        if work is None:
            return None
        return ReceivedDelivery(HandedOut(group, work), self._loop, self._loop_thread)

    def _is_over(self, workload: Workload) -> bool:
        return (
            self._stop_wanted
            or self._is_leaving
            or self._session is None
            # A thread that was left behind in its handler comes back into another membership.
            or self._workload is not workload
        )

    def handle_all(self, call: Callable[[Any], Any]) -> None:
        """Handle messages until it is time to stop."""
        workload = self._workload
        while (work := self._next_of(workload)) is not None:
            handled = self._handled(workload, work)
            given = next(handled)
            while True:
                try:
                    result = call(given)
                except Exception as error:  # noqa: BLE001 - whatever it is, the message comes again
                    result = Failure(error)
                except CancelledError as error:  # of a coroutine function; nobody else cancels here
                    result = cancelled(error)
                except BaseException:
                    workload.release(work)
                    raise
                try:
                    given = handled.send(result)
                except StopIteration:
                    break
            # The traceback of an error refers to this frame and to the handler's variables; and a worker that
            # waits must not keep messages.
            work = given = result = None

    def _reply_to(self, replies: list[tuple[StoredMessage, Reply]]) -> None:
        """On the loop."""
        if replies:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody can send it
                self._loop.call_soon_threadsafe(self._reply, replies)

    def _give_back(
        self, workload: Workload, work: Work, retry: Retry, error: Exception | None
    ) -> None:
        """On the loop."""

        def follow() -> None:
            if self._workload is workload:  # else nobody waits for it any more
                self._failed(work, retry, error)

        with contextlib.suppress(RuntimeError):  # the loop is closed: the message stays unhandled
            self._loop.call_soon_threadsafe(follow)

    def go_on(self, work: Work) -> StoredMessage | None:
        """An iterating caller is done with a message: the next one, if there is."""
        return self._go_on(work)

    def succeeded(self, work: Work) -> None:
        """An iterating caller is done with all of them."""
        self._workload.finish(work)

    def release(self, work: Work) -> None:
        """An iterating caller did not handle it."""
        self._workload.release(work)

    # -- for the consumer --------------------------------------------------------------------

    def resubscribe(self, subscriptions: Mapping[str, TagFilter]) -> None:
        """Want something else from now on. On the loop's thread."""
        self._subscriptions = dict(subscriptions)
        self._resubscribe()

    def ended(self) -> None:
        """``run`` or an iteration is over; a later one may begin."""
        self._has_stopped()
        if self._group is not None:
            self._group.call_handler = None

    def offer(self, handler: Callable[[Any], Any]) -> None:
        """Let operators have single messages handled by this handler, too. From any thread."""
        if self._group is not None:
            calls = DirectCalls(handler, self._loop, self._reply, is_batch=self._config.batch > 1)
            self._group.call_handler = calls.call

    def tell_of_waiting(self) -> None:
        """Say what leaving waits for."""
        tell_of_waiting(self._workload, self._config.shutdown_timeout, self._config.group)

    @property
    def is_member(self) -> bool:
        """Whether the group knows us."""
        return self._session is not None

    def let_go(self) -> None:
        """In a forked child: close the inherited sockets, which the parent goes on using.

        Only the child's descriptors are closed. Closing the transports would do more: their
        selector is shared with the parent.
        """
        drivers = [self._driver, self._upkeep_driver]
        if self._session is not None:
            drivers += self._session.drivers
        numbers = [number for driver in drivers for number in driver.descriptors()]
        if self._file is not None:
            numbers.append(self._file.descriptor)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in numbers:
            with contextlib.suppress(OSError):
                os.dup2(nothing, number)
        os.close(nothing)
        self._state = "closed"
