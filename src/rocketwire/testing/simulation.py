"""A driver that runs operations over a simulated network, in virtual time.

It does what the drivers of the two shells do, and checks what they rely on: that an operation
never waits while it holds a lock, and never inside ``finally``.

>>> from rocketwire.core.effects import invoke
>>> network = SimulatedNetwork()
>>> broker = network.add_broker("10.0.0.1:10911", latency=0.002)
>>> driver = SimulatedDriver(network)
>>> driver.run(invoke("10.0.0.1:10911", Command(10), deadline=3.0)).code
0
>>> network.clock()
0.002
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from types import CodeType, GeneratorType, TracebackType
from typing import Any, Final, Generic, Protocol, TypeVar, assert_never

from rocketwire.core.effects import Effect, Invoke, InvokeAll, Oneway, Op, Send, Sleep, Wait
from rocketwire.message import SendResult
from rocketwire.testing.simulated_network import Call, SimulatedBroker, SimulatedNetwork
from rocketwire.testing.virtual_clock import VirtualClock
from rocketwire.wire.command import Command

__all__ = [
    "Command",
    "OperationRuleError",
    "SimulatedBroker",
    "SimulatedDriver",
    "SimulatedLock",
    "SimulatedNetwork",
    "Task",
    "VirtualClock",
]

T = TypeVar("T")


class OperationRuleError(AssertionError):
    """An operation broke a rule that real drivers rely on."""


class SimulatedLock:
    """A lock for one thread: it only notices who takes it twice, or waits while holding it."""

    def __init__(self, name: str = "the lock") -> None:
        self.name: Final = name
        self.held = False

    def __enter__(self) -> bool:
        if self.held:
            raise OperationRuleError(f"{self.name} is taken twice: a real lock would wait for ever")
        self.held = True
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.held = False


class UnderWay(Protocol):
    """What an operation waits for."""

    def abandon(self) -> None:
        """Nobody waits for it any more."""


class Task(Generic[T]):
    """An operation under way."""

    def __init__(self, driver: SimulatedDriver, operation: Op[T]) -> None:
        self._driver = driver
        self._operation = operation
        self._result: T | None = None
        self._calls: Sequence[UnderWay] = ()
        self._turn = 0
        self.done = False
        self.error: Exception | None = None
        self.on_done: Callable[[Task[T]], None] | None = None

    def result(self) -> T:
        """What the operation returned; raises what it raised."""
        if not self.done:
            raise OperationRuleError("the operation is still under way")
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]  # None only where T has it

    def cancel(self) -> None:
        """Close the operation where it waits, as a shell does when its caller is cancelled."""
        if self.done:
            return
        self._turn += 1
        for call in self._calls:
            call.abandon()
        try:
            self._operation.close()
        except RuntimeError as error:
            raise OperationRuleError(f"the operation waited while being closed: {error}") from error
        self._driver.check_locks("when it was closed")
        self._end()

    abandon = cancel

    def start(self) -> None:
        """Run to the first thing that it waits for."""
        self._go(lambda: next(self._operation))

    def _resume(self, turn: int, value: object) -> None:
        if turn != self._turn or self.done:
            return
        self._calls = ()
        if isinstance(value, Exception):
            error = value
            self._go(lambda: self._operation.throw(error))
        else:
            self._go(lambda: self._operation.send(value))

    def _go(self, step: Callable[[], Effect]) -> None:
        self._turn += 1
        turn = self._turn
        try:
            effect = step()
        except StopIteration as stop:
            self._result = stop.value
            self._end()
        except OperationRuleError:
            raise
        except Exception as error:  # noqa: BLE001  the operation's error is its result
            self.error = error
            self._end()
        else:
            self._check(effect)
            calls = self._driver.do(effect, lambda value: self._resume(turn, value))
            if turn == self._turn:  # else a send has ended at once, and something else begun
                self._calls = calls

    def _check(self, effect: Effect) -> None:
        try:
            self._driver.check(self._operation, effect)
        except OperationRuleError:
            # It may wait once more while it is closed, which Python reports as RuntimeError.
            with suppress(RuntimeError):
                self._operation.close()
            raise

    def _end(self) -> None:
        self.done = True
        self._driver.check_locks("at its end")
        if self.on_done is not None:
            self.on_done(self)


class SimulatedDriver:
    """Interprets effects over a simulated network.

    Args:
        network: where requests go.
        record: whether to keep every effect in ``effects``, with its moment.
    """

    def __init__(self, network: SimulatedNetwork, *, record: bool = False) -> None:
        self.network: Final = network
        self.clock: Final = network.clock
        self.effects: list[tuple[float, Effect]] = []
        self._record = record
        self._locks: list[SimulatedLock] = []

    def make_lock(self, name: str = "the lock") -> SimulatedLock:
        """A lock that operations must not hold while they wait."""
        lock = SimulatedLock(name)
        self._locks.append(lock)
        return lock

    def spawn(self, operation: Op[T]) -> Task[T]:
        """Start an operation; it goes on while the clock runs."""
        task = Task(self, operation)
        task.start()
        return task

    def run(self, operation: Op[T]) -> T:
        """Run an operation to its end, and let virtual time pass for it.

        Raises:
            OperationRuleError: it broke a rule, or waits for something that never comes.
        """
        task = self.spawn(operation)
        self.clock.run_while(lambda: not task.done)
        if not task.done:
            raise OperationRuleError("the operation waits for something that never comes")
        return task.result()

    def do(self, effect: Effect, resume: Callable[[object], None]) -> Sequence[UnderWay]:
        """Begin what an operation asked for; what it may have to abandon."""
        if type(effect) is Invoke:
            return [self._call(effect, resume)]
        if type(effect) is Oneway:
            return [self._call(effect, resume)]
        if type(effect) is Send:
            return [self._send(effect, resume)]
        if type(effect) is Sleep:
            self.clock.call_at(effect.until, lambda: resume(None), pausable=True)
            return []
        if type(effect) is Wait:
            return self._wait(effect, resume)
        if type(effect) is InvokeAll:
            return self._invoke_all(effect, resume)
        assert_never(effect)

    def _call(self, effect: Invoke | Oneway, resume: Callable[[object], None]) -> Call:
        call = Call(effect.request, effect.observer, resume, is_oneway=type(effect) is Oneway)
        self.network.start(call, effect.address, effect.deadline)
        return call

    def _send(self, effect: Send, resume: Callable[[object], None]) -> Task[SendResult]:
        task = Task(self, effect.attempt.operation())
        task.on_done = lambda _: resume(task.result() if task.error is None else task.error)
        task.start()
        return task

    def _invoke_all(self, effect: InvokeAll, resume: Callable[[object], None]) -> list[Call]:
        outcomes: list[object] = [None] * len(effect.invokes)
        missing = set(range(len(effect.invokes)))

        def finished(position: int, outcome: object) -> None:
            outcomes[position] = outcome
            missing.discard(position)
            if not missing:
                resume(outcomes)

        if not missing:
            self.clock.call_at(self.clock(), lambda: resume(outcomes), pausable=True)
        return [
            self._call(invoke, lambda outcome, at=position: finished(at, outcome))  # type: ignore[misc]
            for position, invoke in enumerate(effect.invokes)
        ]

    def _wait(self, effect: Wait, resume: Callable[[object], None]) -> list[Call]:
        # Through the clock: the operation that sets the event goes on first.
        clock = self.clock

        def wake() -> None:
            clock.call_at(clock(), lambda: resume(effect.event.is_set), pausable=True)

        clock.call_at(effect.deadline, lambda: resume(effect.event.is_set), pausable=True)
        effect.event.add_waiter(wake)
        return []

    def check(self, operation: Op[Any], effect: Effect) -> None:
        """See that an operation may wait where it does."""
        if self._record:
            self.effects.append((self.clock(), effect))
        self.check_locks("while waiting for", effect)
        inner: object = operation
        while isinstance(inner, GeneratorType):
            _check_source(inner.gi_code)
            inner = inner.gi_yieldfrom

    def check_locks(self, when: str, effect: Effect | None = None) -> None:
        """See that no lock is held."""
        for lock in self._locks:
            if lock.held:
                what = "" if effect is None else f" {effect!r}"
                raise OperationRuleError(f"the operation holds {lock.name} {when}{what}")


@lru_cache(maxsize=1024)
def _check_source(code: CodeType) -> None:
    """Refuse a ``yield`` in a ``finally``: a driver that closes an operation could not resume it."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):  # made without a file, or a lambda within a line
        return
    for node in ast.walk(tree):
        for statement in node.finalbody if isinstance(node, ast.Try) else ():
            if any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(statement)):
                raise OperationRuleError(
                    f"{code.co_qualname} waits inside finally, line {statement.lineno} of it"
                )
