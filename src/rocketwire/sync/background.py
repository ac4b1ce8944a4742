"""The one thread behind a blocking client: upkeep, and submitted messages.

It runs the asyncio shell on connections of its own, so that a blocking send never shares a socket
with it. It starts with the client, but loads and opens nothing until there is something to do.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from rocketwire.config import ClientConfig
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.sending.broker_requests import answer
from rocketwire.errors import ClientClosedError, SendFailedError
from rocketwire.message import SendResult
from rocketwire.sync.chained_wake_ups import ChainedWakeUps
from rocketwire.system.latch import Latch
from rocketwire.system.lone_thread import LoneThread

if TYPE_CHECKING:
    import asyncio

    from rocketwire.aio.driver import Driver
    from rocketwire.sync.relayed_send import RelayedSend
    from rocketwire.sync.submit import SingleDelivery

_log = logging.getLogger("rocketwire.background")

#: A client that lives shorter than this never needs the background.
_PATIENCE = 0.3
#: Submitted messages that are begun in one go.
_AT_ONCE = 128
#: How long a thread that was interrupted waits until what it had handed over is taken back.
_WITHDRAWAL = 1.0
_Done = Callable[[Any, Exception | None], object]
T = TypeVar("T")


class _Work:
    """An operation that was handed over."""

    __slots__ = ("_done", "_operation")

    def __init__(self, operation: Op[Any], done: _Done) -> None:
        self._operation = operation
        self._done = done

    def relay(self, driver: Driver) -> None:
        """Begin it, on the background's thread."""
        driver.start(self._operation, self._done)

    def refuse(self, error: Exception) -> None:
        """The background does not run: it is not begun."""
        self._operation.close()
        self._done(None, error)


class Errand(Generic[T]):
    """What a thread waits for that the background does.

    Args:
        wake_ups: those of the background.
        delays_end: whether a shutdown waits for it.
    """

    __slots__ = ("_delays_end", "_error", "_latch", "_result", "_wake_ups")

    def __init__(self, wake_ups: ChainedWakeUps, *, delays_end: bool) -> None:
        self._wake_ups = wake_ups
        self._delays_end = delays_end
        self._latch = Latch()
        self._result: T | None = None
        self._error: Exception | None = None

    def done(self, result: T | None, error: Exception | None) -> None:
        """It has ended; only the first end counts."""
        if not self._latch.is_open:
            self._result, self._error = result, error
            self._wake_ups.let_go_on(self._latch)

    @property
    def delays_end(self) -> bool:
        """Whether a shutdown waits for it now."""
        return self._delays_end and not self._latch.is_open

    def wait(self) -> T:
        """What came of it."""
        self._latch.wait()
        self._wake_ups.pass_on()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class Background:
    """A thread with an event loop, for one client."""

    def __init__(
        self, instance: Instance, config: ClientConfig, *, on_routes: Callable[[], None]
    ) -> None:
        self._instance = instance
        self._config = config
        self._on_routes = on_routes
        self._wanted = Latch()
        self._is_over = False
        self._errands: set[Errand[Any] | RelayedSend] = set()
        self._inbox: deque[_Work | SingleDelivery | RelayedSend] = deque()
        self._is_called = False
        self._wake_ups = ChainedWakeUps(self._call_for_all)
        self._failure: Exception | None = None
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_event: asyncio.Event | None = None
        self._driver: Driver | None = None
        self._own_driver: Driver | None = None
        self._thread = LoneThread("rocketwire-background")
        self._lock = instance.surroundings.make_lock()

    def start(self) -> None:
        """Start the thread, if the settings want one."""
        if self._thread.is_begun or self._is_stopping:
            return
        with self._lock:
            self._thread.start(self._main)

    def run(self, operation: Op[Any], done: _Done) -> None:
        """Run an operation there; ``done(result, error)`` is called on that thread."""
        self._inbox.append(_Work(operation, done))
        if not self._is_called:  # else the loop was called, and has not come yet
            self.call()

    def run_for(self, operation: Op[T], *, delays_end: bool = False) -> T:
        """Run an operation there for the calling thread, which waits for its end.

        Raises:
            SendFailedError: the client is not running.
            ClientClosedError: it was shut down meanwhile.
        """
        errand: Errand[T] = Errand(self._wake_ups, delays_end=delays_end)
        try:
            self._errands.add(errand)
            self._inbox.append(_Work(operation, errand.done))
            if not self._is_called and not self._wake_ups.has_more:
                self.call()
            return errand.wait()
        finally:
            self._errands.discard(errand)

    def _call_for_all(self) -> None:
        """The last of several threads that went on one after the other has gone on."""
        if self._inbox and not self._is_called:
            self.call()

    def send_for(self, send: RelayedSend) -> SendResult:
        """Carry a send out there for the calling thread, which waits for its end.

        Raises:
            SendFailedError: its ``outcome`` tells whether the message may be stored all the same.
            ClientClosedError: the client was shut down meanwhile.
        """
        send.wake_ups = self._wake_ups
        try:
            self._errands.add(send)
            self._inbox.append(send)
            if not self._is_called and not self._wake_ups.has_more:
                self.call()
            return send.wait()
        except BaseException:
            self._give_up(send)
            raise
        finally:
            self._errands.discard(send)

    def _give_up(self, send: RelayedSend) -> None:
        """The caller was interrupted, or has its error: nothing is done for it any more."""
        loop = self._loop
        if not send.is_over and loop is not None:
            with contextlib.suppress(RuntimeError):  # it was closed: so are the connections
                loop.call_soon_threadsafe(send.withdraw)
                send.wait_for_end(_WITHDRAWAL)

    @property
    def delays_end(self) -> bool:
        """Whether threads wait for something that a shutdown should wait for, too."""
        return any(errand.delays_end for errand in list(self._errands))

    @property
    def is_ready(self) -> bool:
        """Whether what is handed over is begun at once, and the caller may wait for it."""
        return self._loop is not None and not self._is_stopping and not self.is_current()

    def call(self) -> None:
        """Let the thread come for what is in line, without waiting for it."""
        self._is_called = True
        loop = self._loop
        if loop is None and not self._is_over:
            try:
                self.start()
            except RuntimeError as error:  # the system has no thread for us now
                self._refuse_all(error)
                return
            self._wanted.open()
            loop = self._loop
        if self._is_over or (loop is None and not self._thread.is_made):
            self._refuse_all()
        elif loop is not None:
            try:
                loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # it was closed in this very moment
                self._refuse_all()
            except BaseException:  # an interrupt: others rely on this call by now
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._drain)
                raise
        # Otherwise the thread empties the inbox when its loop starts, or refuses everything if it can't.

    def post(self, delivery: SingleDelivery) -> None:
        """Send a submitted message there, as ``run`` does an operation."""
        delivery.is_posted = True
        self._inbox.append(delivery)
        if not self._is_called:
            self.call()

    def keep(self, operation: Op[Any], done: _Done) -> None:
        """Run an operation there as ``run`` does, but when the thread comes to it: no hurry."""
        self._inbox.append(_Work(operation, done))
        self.start()

    def hurry(self) -> None:
        """Begin the upkeep now, and not only when the client has lived for a while."""
        self._wanted.open()

    def stop(self, timeout: float) -> None:
        """End the thread; callers that wait for something that has not begun are told."""
        self._is_stopping = True
        self._wanted.open()
        loop, event = self._loop, self._stop_event
        if loop is not None and event is not None:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                _log.debug("the background had stopped by itself")
        if self._thread.retire():
            self._is_over = True
        self._thread.join(timeout)
        self._refuse_all()

    def is_current(self) -> bool:
        """Whether the caller runs on its thread: answers to submitted messages wait for it."""
        return self._thread.is_current()

    def let_go(self) -> None:
        """In a forked child: close the sockets here; they, and the thread, are the parent's.

        Only the numbers: closing transports would also tell the poller, which is the parent's.
        The numbers stay taken, because the transports may close them in the end.
        """
        drivers = [driver for driver in (self._driver, self._own_driver) if driver is not None]
        numbers = [number for driver in drivers for number in driver.descriptors()]
        if numbers:
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in numbers:
                with contextlib.suppress(OSError):
                    os.dup2(nothing, number)
            os.close(nothing)

    @property
    def late_replies(self) -> int:
        """Replies to submitted messages that came after their request was given up."""
        return 0 if self._driver is None else self._driver.late_replies

    def _refuse_all(self, error: Exception | None = None) -> None:
        """What was handed over will not run: tell the callers that wait for it."""
        # The loop may have been called and never have come. A caller that hands something over from
        # now on calls again, and is told the same; what came before is in the box by now.
        self._is_called = False
        error = error or self._failure
        why = f": {error}" if error is not None else ""
        while self._inbox:
            try:
                item = self._inbox.popleft()
            except IndexError:  # another thread, or a signal handler, refuses them, too
                return
            item.refuse(SendFailedError(f"not sent: the client is not running{why}"))

    def _main(self) -> None:
        self._wanted.wait(_PATIENCE)
        try:
            if not self._is_stopping:
                import asyncio

                with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                    loop = runner.get_loop()
                    serving = loop.create_task(self._serve())
                    while not serving.done():
                        _go_on(loop, serving)
        except Exception as error:  # noqa: BLE001 - nobody else would hear of it
            _log.exception("the background thread failed")
            self._failure = error
        finally:
            self._is_over = True
            self._wake_ups.end()
            self._refuse_all()
            for errand in list(self._errands):
                errand.done(None, ClientClosedError("the client was shut down meanwhile"))

    async def _serve(self) -> None:
        import asyncio

        from rocketwire.aio.driver import Driver
        from rocketwire.aio.upkeep import Upkeep

        self._loop = asyncio.get_running_loop()
        self._wake_ups.begin(self._loop)
        self._stop_event = asyncio.Event()
        driver = self._driver = Driver(self._config, clock=self._instance.clock)
        # Probes and heartbeats have connections of their own: what a busy sender queues up must
        # not make a broker look slow to them.
        own_driver = self._own_driver = Driver(
            self._config,
            clock=self._instance.clock,
            responder_of=lambda address: partial(answer, self._instance, address),
        )
        upkeep = Upkeep(self._instance, own_driver, on_routes=self._on_routes)
        if self._config.background:
            upkeep.start()
        if self._is_stopping:
            self._stop_event.set()
        self._loop.call_soon(self._drain)  # not here: what it raises would end this task
        await asyncio.sleep(0)
        await self._stop_event.wait()
        upkeep.stop()
        await own_driver.close()
        await driver.close()

    def _drain(self) -> None:
        self._is_called = False
        driver, inbox = self._driver, self._inbox
        if driver is None:
            return
        for _ in range(_AT_ONCE):
            if not inbox:
                return
            try:
                inbox.popleft().relay(driver)
            except BaseException:
                # The caller's function wants to end the program: the others in line go on all the same.
                self._is_called = True
                driver.loop.call_soon(self._drain)
                raise
        # Answers are read between two rounds: a long line must not look like a slow broker.
        self._is_called = True
        driver.loop.call_soon(self._drain)


def _go_on(loop: asyncio.AbstractEventLoop, serving: asyncio.Task[None]) -> None:
    """Run until the end, or until a function of the caller's wants to end the program."""
    try:
        loop.run_until_complete(serving)
    except (KeyboardInterrupt, SystemExit) as error:
        # A selector that is asked again for a retry, say. Here it would end no program, but the upkeep,
        # and leave whatever is in flight without an end.
        _log.error("%r would end the program, which is the main thread's to end", error)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except (ImportError, RuntimeError):  # the latter while the interpreter ends
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
