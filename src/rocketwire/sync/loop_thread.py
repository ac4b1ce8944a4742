"""A thread with an event loop, for a blocking client whose work goes on while nobody waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocketwire.errors import ClientClosedError
from rocketwire.sync.background import _loop_factory
from rocketwire.system.latch import Latch
from rocketwire.system.lone_thread import LoneThread

T = TypeVar("T")


class LoopThread:
    """Runs coroutines on a thread of its own, for callers that wait on theirs."""

    def __init__(
        self,
        name: str,
        on_failure: Callable[[BaseException], Coroutine[Any, Any, object] | None] | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            name: of the thread.
            on_failure: called on the thread if its loop ends by an error: nothing that runs there
                ends then, and callers that wait for it should know. What it gives is run
                as the last thing, to close what is open.
        """
        self._on_failure = on_failure
        self._ready = Latch()
        self._failure: BaseException | None = None
        #: Whether it has ended, or will soon.
        self.is_ending = False
        self._end: asyncio.Event | None = None
        #: Where callers wait for the end of what they run.
        self._callers: set[Latch] = set()
        self._is_over = False
        self._thread = LoneThread(name)

    def start(self) -> None:
        """Start the thread; returns when its loop runs.

        Raises:
            OSError: no loop could be made.
        """
        try:
            self._thread.start(self._main)
            self._ready.wait()
        except BaseException:  # an interrupt may come at any moment
            self.stop()
            raise
        if self._failure is not None:
            raise self._failure

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine there, which is made there, too, and wait for its end.

        Raises:
            ClientClosedError: the loop ended before.
        """
        tasks: list[asyncio.Task[T]] = []
        over = Latch()
        self._callers.add(over)
        try:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._begin(work, tasks, over.open)
            if not self._is_over:
                over.wait()
        finally:
            self._callers.discard(over)
        with contextlib.suppress(asyncio.CancelledError):
            if tasks and tasks[0].done():
                return tasks[0].result()
        raise ClientClosedError("the client was shut down meanwhile")

    def _begin(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        tasks: list[asyncio.Task[T]],
        at_the_end: Callable[[], object],
    ) -> None:
        async def made() -> T:
            return await work()

        # Made on the loop: an interrupt here would take along one that nobody awaits.
        def begin() -> None:
            task = self.loop.create_task(made())
            tasks.append(task)
            task.add_done_callback(lambda _: at_the_end())

        self.loop.call_soon_threadsafe(begin)

    def is_current(self) -> bool:
        """Whether the caller is on this very thread, and can't wait for what runs there."""
        return self._thread.is_current()

    def finish(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run one last coroutine there, and end without being waited for."""
        self._begin(work, [], self._ask_to_end)

    def close(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run one last coroutine there, if the loop runs, and end; on the thread itself not waiting."""
        if self.is_current():
            self.finish(last)
            return
        try:
            if not self.is_ending:
                self.run(last)
        except BaseException:  # an interrupt, before it has begun, or in the midst of it
            if not self.is_ending:
                self.finish(last)
            raise
        finally:
            self.stop()

    def stop(self) -> None:
        """End the loop and the thread, which may have ended, or not have begun, by an interrupt."""
        self._ask_to_end()
        self._thread.retire()
        self._thread.join()

    def _ask_to_end(self) -> None:
        self.is_ending = True
        if self._end is not None:  # else the loop looks when it runs
            with contextlib.suppress(RuntimeError):  # it is closed
                self.loop.call_soon_threadsafe(self._end.set)

    def _main(self) -> None:
        try:
            self._live()
        finally:
            # What came too late for the loop never runs, or not to its end.
            self._is_over = True
            for over in list(self._callers):
                over.open()

    def _live(self) -> None:
        try:
            runner = asyncio.Runner(loop_factory=_loop_factory())
            runner.get_loop()
        except BaseException as error:  # noqa: BLE001 - the thread that started us raises it
            self._failure = error
            self._ready.open()
            return
        with runner:
            try:
                runner.run(self._serve())
            except BaseException as error:  # noqa: BLE001 - a thread has nobody else to tell
                self.is_ending = True
                last = None if self._on_failure is None else self._on_failure(error)
                if last is not None:
                    runner.run(last)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        end = self._end = asyncio.Event()
        self._ready.open()
        if not self.is_ending:
            await end.wait()
