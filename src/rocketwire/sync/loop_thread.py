"""A thread with an event loop, for a blocking client whose work goes on while nobody waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocketwire.sync.background import _loop_factory

T = TypeVar("T")


class LoopThread:
    """Runs coroutines on a thread of its own, for those who wait on theirs."""

    def __init__(
        self,
        name: str,
        on_failure: Callable[[BaseException], Coroutine[Any, Any, object] | None] | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            name: of the thread.
            on_failure: called on the thread if its loop ends by an error: nothing that runs there
                comes to its end then, and whoever waits for it should know. What it gives is run
                as the last thing, to close what is open.
        """
        self._on_failure = on_failure
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; returns when its loop runs.

        Raises:
            OSError: no loop could be made.
        """
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for its end."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def is_current(self) -> bool:
        """Whether the caller is on this very thread, and can't wait for what runs there."""
        return threading.current_thread() is self._thread

    def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Run one last coroutine there, and end without being waited for."""
        last = asyncio.run_coroutine_threadsafe(work, self.loop)
        last.add_done_callback(lambda _: self.loop.call_soon_threadsafe(self._end.set))

    def stop(self) -> None:
        """End the loop and the thread."""
        self.loop.call_soon_threadsafe(self._end.set)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _main(self) -> None:
        try:
            runner = asyncio.Runner(loop_factory=_loop_factory())
            runner.get_loop()
        except BaseException as error:  # noqa: BLE001 - the one who started us raises it
            self._failure = error
            self._ready.set()
            return
        with runner:
            try:
                runner.run(self._serve())
            except BaseException as error:  # noqa: BLE001 - a thread has nobody else to tell
                last = None if self._on_failure is None else self._on_failure(error)
                if last is not None:
                    runner.run(last)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._ready.set()
        await self._end.wait()
