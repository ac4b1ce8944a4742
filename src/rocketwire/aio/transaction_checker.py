"""Runs the checker of a producer: a few at once, each for a limited time, never where bytes are read.

A question that is being worked on, or waits for that, is not taken a second time: brokers ask again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from rocketwire.core.sending.checks import Check, verdict
from rocketwire.errors import ConfigError
from rocketwire.log_fields import about
from rocketwire.message import TransactionState
from rocketwire.stored_message import StoredMessage

_log = logging.getLogger("rocketwire.producer")

#: What a checker may answer, and a checker.
Verdict: TypeAlias = TransactionState | bool | None
Checker: TypeAlias = Callable[[StoredMessage], Verdict | Awaitable[Verdict]]
#: Tells a broker what became of a transaction; called wherever the checker ran.
Settle: TypeAlias = Callable[[Check, TransactionState], None]

#: Checkers that run at once, and questions that wait for one.
MOST_AT_ONCE: Final = 8
MOST_WAITING: Final = 2000
#: Seconds for one question: by default a broker asks again after so many.
LIMIT: Final = 30.0
#: Seconds in which a question about a decided transaction is not answered. Brokers of 5.x note decisions in
#: batches, and ask about what is decided until then; an answer would deliver twice. If they have forgotten
#: it in a crash, they ask again later.
_ECHO: Final = 5.0
_DECISIONS: Final = (TransactionState.COMMITTED, TransactionState.ROLLED_BACK)


def check_checker(checker: object, *, background: bool) -> None:
    """Refuse what can't be a checker.

    Raises:
        ConfigError: it can't be called, or no broker could ever ask for it.
    """
    if checker is None:
        return
    if not callable(checker):
        raise ConfigError(
            f"checker is {checker!r}: give a function of the stored message that returns a "
            "TransactionState, a bool or None"
        )
    if not _takes_one(checker):
        raise ConfigError(
            f"checker is {checker!r}, which can't be called with one argument: give a function of the "
            "stored message"
        )
    if not background:
        raise ConfigError(
            "checker needs background=True: brokers ask over the connection of the heartbeats"
        )


def _takes_one(function: Callable[..., object]) -> bool:
    """Whether it can be called with one argument, as far as can be told.

    It is first called when a transaction was left open, maybe months later: too late to learn that.
    """
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not tell
        return True
    return True


def is_coroutine_function(checker: object) -> bool:
    """Whether calling it only makes a coroutine."""
    return inspect.iscoroutinefunction(checker) or inspect.iscoroutinefunction(
        getattr(checker, "__call__", None)  # noqa: B004 - an object with an asynchronous call
    )


class _CheckRunner:
    """Keeps the bounds; a subclass runs the checker."""

    def __init__(self, checker: Checker, settle: Settle, limit: float = LIMIT) -> None:
        self._checker = checker
        self._settle = settle
        self._limit = limit
        self._lock = threading.Lock()
        self._line: deque[Check] = deque()
        self._open: set[str] = set()
        #: When each that runs has begun.
        self._running: dict[str, float] = {}
        self._is_closed = False
        #: When decisions were confirmed, the oldest first.
        self._decided: dict[str, float] = {}

    def decided(self, key: str) -> None:
        """A broker has confirmed a decision."""
        with self._lock:
            self._note_decision(key)

    def undecided(self, key: str) -> None:
        """A broker has not confirmed a decision: its next question is to be answered."""
        with self._lock:
            self._decided.pop(key, None)

    def _note_decision(self, key: str) -> None:
        """Keep when a transaction was decided. The lock is held."""
        now = time.monotonic()
        self._decided.pop(key, None)
        self._decided[key] = now
        # The newest is never too old, so that this ends.
        while now - self._decided[oldest := next(iter(self._decided))] > _ECHO:
            del self._decided[oldest]

    def _is_echo(self, key: str) -> bool:
        return time.monotonic() - self._decided.get(key, -_ECHO) < _ECHO

    def post(self, check: Check) -> None:
        """Take a question."""
        with self._lock:
            if self._is_closed or check.key in self._open or self._is_echo(check.key):
                return
            if len(self._line) >= MOST_WAITING:
                _log.warning(
                    "%d transactions wait for the checker: %s is left to a later question",
                    len(self._line),
                    check.transaction_id,
                    extra=about(check.message, group=check.group),
                )
                return
            self._open.add(check.key)
            self._line.append(check)
            self._tell_of_stuck()
            if len(self._running) >= MOST_AT_ONCE:
                return
            following = self._take()
        if following is not None:
            try:
                self._start(following)
            except RuntimeError as error:  # the system has no thread for us now
                self._leave_to_next_question(following, error)

    def _leave_to_next_question(self, check: Check, error: RuntimeError) -> None:
        """A checker could not be run. Kept, it would hide every later question from it."""
        with self._lock:
            self._running.pop(check.key, None)
            self._open.discard(check.key)
        _log.warning(
            "transaction %s is left to a later question: %s",
            check.transaction_id,
            error,
            extra=about(check.message, group=check.group),
        )

    def _take(self) -> Check | None:
        """The next question, entered as running. The lock is held."""
        if self._is_closed or not self._line:
            return None
        check = self._line.popleft()
        self._running[check.key] = time.monotonic()
        return check

    def _tell_of_stuck(self) -> None:
        now = time.monotonic()
        stuck = sum(now - began > self._limit for began in self._running.values())
        if stuck >= MOST_AT_ONCE:
            _log.warning(
                "all %d checkers of transactions have run for more than %.0f s: no question is "
                "answered until one of them returns",
                stuck,
                self._limit,
            )

    def _done(self, check: Check, answer: object) -> Check | None:
        """A checker has answered; the next question, if there is one."""
        state = self._verdict(answer, check)
        with self._lock:
            elapsed = time.monotonic() - self._running.pop(check.key)
            if state in _DECISIONS and elapsed <= self._limit:
                # Before the broker has heard it: it may ask again meanwhile, and would hear it twice.
                self._note_decision(check.key)
            self._open.discard(check.key)
            following = self._take()
            is_closed = self._is_closed
        if elapsed > self._limit:
            _log.warning(
                "the checker took %.0f s for transaction %s, and %.0f are allowed: its answer does "
                "not count, the broker asks again",
                elapsed,
                check.transaction_id,
                self._limit,
                extra=about(check.message, group=check.group),
            )
        elif not is_closed:
            self._tell(check, state)
        return following

    def _verdict(self, answer: object, check: Check) -> TransactionState:
        try:
            return verdict(answer, check)
        except Exception as error:  # noqa: BLE001 - the answer is the caller's, and so is what it does
            self._failed(check, error)
            return TransactionState.UNKNOWN

    def _tell(self, check: Check, state: TransactionState) -> None:
        """Tell the broker. Nothing here may end the task that has the next question in hand."""
        try:
            self._settle(check, state)
        except Exception as error:  # noqa: BLE001 - the broker asks again
            self.undecided(check.key)
            self._failed(check, error)

    def _failed(self, check: Check, error: BaseException) -> None:
        _log.error(
            "the checker failed at transaction %s (topic %s, keys %r): unknown, the broker asks again",
            check.transaction_id,
            check.message.topic,
            check.message.keys,
            exc_info=error,
            extra=about(check.message, group=check.group),
        )

    @abstractmethod
    def _start(self, check: Check) -> None:
        """Run the checker for a question, and then for those that follow."""

    def close(self) -> None:
        """Take no more questions, and answer none."""
        with self._lock:
            self._is_closed = True
            self._line.clear()


class ThreadCheckRunner(_CheckRunner):
    """Runs a checker in threads of its own, which end when nothing is left to ask."""

    def _start(self, check: Check) -> None:
        threading.Thread(
            target=self._work, args=(check,), name="rocketwire-checker", daemon=True
        ).start()

    def _work(self, check: Check) -> None:
        following: Check | None = check
        while following is not None:
            check = following
            answer: object = None
            try:
                answer = self._ask(check.message)
            except BaseException as error:  # noqa: BLE001 - a thread has nobody else to tell
                self._failed(check, error)
            following = self._done(check, answer)

    def _ask(self, message: StoredMessage) -> object:
        answer = self._checker(message)
        if not inspect.iscoroutine(answer):
            return answer

        async def wait() -> object:
            async with asyncio.timeout(self._limit):
                return await answer

        return asyncio.run(wait())


class LoopCheckRunner(_CheckRunner):
    """Runs a coroutine function on the loop of its producer.

    Args:
        loop: the producer's.
        checker: a coroutine function.
        settle: tells a broker.
        limit: seconds for one question.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        checker: Checker,
        settle: Settle,
        limit: float = LIMIT,
    ) -> None:
        super().__init__(checker, settle, limit)
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def _start(self, check: Check) -> None:
        try:
            # The connections of a shared instance may be another loop's.
            self._loop.call_soon_threadsafe(self._begin, check)
        except RuntimeError:  # the loop is closed, and the producer was not
            self.close()

    def _begin(self, check: Check) -> None:
        task = self._loop.create_task(self._work(check))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, check: Check) -> None:
        following: Check | None = check
        while following is not None:
            check = following
            answer: object = None
            try:
                async with asyncio.timeout(self._limit):
                    found: Any = self._checker(check.message)
                    answer = await found
            except (Exception, asyncio.CancelledError) as error:
                if self._is_closed:
                    raise
                self._failed(check, error)
            following = self._done(check, answer)

    def close(self) -> None:
        """Take no more questions, and give up those that are worked on."""
        super().close()
        for task in list(self._tasks):
            task.cancel()
