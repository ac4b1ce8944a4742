"""``for message in consumer`` with middleware: open at the yield, closed at the next message.

The body of the loop and the middleware can't both be on one stack, so a thread stands by that runs
the middleware; one of the two waits at any time.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextvars import copy_context
from typing import Any, TypeVar

from rocketwire.middleware import Call
from rocketwire.system.carried_context import CarriedContext
from rocketwire.system.iteration_results import check_result
from rocketwire.system.surrounded_handler import count_of

G = TypeVar("G")


def iterate_surrounded(
    client: object, layers: tuple[Callable[..., Any], ...], messages: Generator[G, None, None]
) -> Iterator[G]:
    """The messages, each surrounded. One whose middleware fails is not acknowledged."""
    stage = _Stage()
    try:
        for given in messages:
            visit = _Visit(client, layers, given)
            stage.open(visit)
            if not visit.is_inside:  # not passed on: going on acknowledges it
                continue
            carried = CarriedContext()
            carried.take(visit.context)
            try:
                yield visit.passed
            except BaseException:
                visit.is_left = True
                carried.give_back()
                stage.close(visit)
                raise
            carried.give_back()
            stage.close(visit)
    finally:
        stage.end()
        messages.close()


class _Visit:
    """One message, from its middleware's beginning to its end."""

    def __init__(self, client: object, layers: tuple[Callable[..., Any], ...], given: Any) -> None:
        self._given = given
        self._call = Call(client, "process", layers, self._inside, None, count_of(given))
        self.context = copy_context()
        self.passed: Any = None
        self.is_inside = False
        self.is_left = False
        self.error: BaseException | None = None
        #: Wakes the thread that iterates, and the middleware.
        self.here = threading.Semaphore(0)
        self.there = threading.Semaphore(0)

    def run(self) -> None:
        """On the stage's thread."""
        try:
            check_result(self.context.run(self._call, self._given))
        except BaseException as error:  # noqa: BLE001 - raised where it is iterated
            self.error = error
        self.here.release()

    def _inside(self, passed: Any) -> None:
        self.passed, self.is_inside = passed, True
        self.here.release()
        self.there.acquire()
        self.is_inside = False
        if self.is_left:
            raise GeneratorExit("the loop was left: the message is not acknowledged")


class _Stage:
    """The thread on which middleware runs."""

    def __init__(self) -> None:
        self._visits: queue.SimpleQueue[_Visit | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def open(self, visit: _Visit) -> None:
        """Run the middleware up to its ``call_next``, or to its end.

        Raises:
            BaseException: what it raised.
        """
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="rocketwire-middleware", daemon=True
            )
            self._thread.start()
        self._visits.put(visit)
        self._wait(visit)

    def close(self, visit: _Visit) -> None:
        """Let the middleware go on behind its ``call_next``, to its end.

        Raises:
            BaseException: what it raised.
        """
        visit.there.release()
        self._wait(visit)
        if visit.is_inside:  # it called on once more
            visit.is_left = True
            visit.there.release()
            raise RuntimeError("a middleware called on twice: in a loop a message comes once")

    @staticmethod
    def _wait(visit: _Visit) -> None:
        visit.here.acquire()
        error = visit.error
        if error is not None and not (visit.is_left and isinstance(error, GeneratorExit)):
            raise error

    def _run(self) -> None:
        while (visit := self._visits.get()) is not None:
            visit.run()

    def end(self) -> None:
        """Let the thread end."""
        self._visits.put(None)
