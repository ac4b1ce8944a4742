"""The two clients of the demo, the threads that send through them, and what they saw."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketwire.cli.demo.orders import ledger_entries, orders
from rocketwire.errors import Outcome, SendFailedError
from rocketwire.message import Message
from rocketwire.sync.producer import Producer

THREADS: Final = 4
_PATIENCE: Final = 0.25
_LOOK: Final = 0.05
ACCOUNTS: Final = 6


class Sample(NamedTuple):
    """One send: when it ended (seconds since the story began), how long it took, who stored it."""

    at: float
    latency: float
    broker: str
    ok: bool


class Client:
    """A producer, its threads and its record.

    Args:
        name: as the screen shows it.
        topic: of its own.
        producer: not yet started.
        began: when the story began, on the monotonic clock.
    """

    def __init__(self, name: str, topic: str, producer: Producer, began: float) -> None:
        self.name: Final = name
        self.topic: Final = topic
        self.producer: Final = producer
        self._began = began
        self.samples: list[Sample] = []
        self.acknowledged: set[str] = set()
        #: Orders of which a result or an error said that they may be there twice, or at all.
        self.doubtful: Counter[str] = Counter()
        self.failures: list[str] = []
        self.retries = 0
        self._threads: list[threading.Thread] = []
        #: Messages a second and thread, while nothing is wrong.
        self.pace = 50.0

    def start(self, stop: threading.Event, seed: int) -> None:
        """Begin to send, from several threads."""
        for number in range(THREADS):
            stream = orders(self.topic, f"{self.topic}-{number}", seed + number)
            self._begin(lambda s=stream: self._send_all(s, stop), f"{self.name}-{number}")  # type: ignore[misc]

    def _begin(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=f"demo-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the threads after ``stop`` was set."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _send_all(self, stream: Iterator[Message], stop: threading.Event) -> None:
        pause = 1.0 / self.pace
        due = time.monotonic()
        for message in stream:
            due = max(due + pause, time.monotonic())
            if stop.wait(max(0.0, due - time.monotonic())):
                return
            self._send(message)

    def _send(self, message: Message) -> None:
        key = str(message.keys)
        begun = time.monotonic()
        try:
            result = self.producer.send(message)
        except SendFailedError as error:
            ended = time.monotonic()
            self.samples.append(Sample(ended - self._began, ended - begun, "", ok=False))
            self.failures.append(str(error))
            if error.outcome is Outcome.MAYBE_STORED:
                self.doubtful[key] += 1
            return
        ended = time.monotonic()
        broker = result.queue.broker
        self.samples.append(Sample(ended - self._began, ended - begun, broker, ok=True))
        self.acknowledged.add(key)
        self.retries += result.attempt_count - 1
        if result.maybe_duplicate:
            self.doubtful[key] += 1


class LedgerClient(Client):
    """Sends ordered messages, and does not go on with an account before its entry is stored."""

    def start(self, stop: threading.Event, seed: int) -> None:
        """Begin to send, each account from one thread, so that only its own broker delays it."""
        self._stop = stop
        self.pace = 10.0
        for account in range(ACCOUNTS):
            stream = ledger_entries(self.topic, f"account-{account}")
            self._begin(lambda s=stream: self._send_all(s, stop), f"{self.name}-{account}")  # type: ignore[misc]

    def last_acknowledged(self) -> dict[str, int]:
        """The last entry of each account that was acknowledged."""
        last: dict[str, int] = {}
        for key in self.acknowledged:
            account, _, place = key.rpartition("-")
            last[account] = max(last.get(account, 0), int(place))
        return last

    def _send(self, message: Message) -> None:
        """Try until it is stored: an entry that is left out would spoil all later ones."""
        while not self._stop.is_set():
            super()._send(message)
            if str(message.keys) in self.acknowledged:
                return
            self._stop.wait(_PATIENCE)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A stretch of time in which a broker was not fully used, and why."""

    broker: str
    begin: float
    end: float
    why: str


class VerdictLog:
    """Looks at a producer's fault table again and again, in a thread of its own."""

    def __init__(self, producer: Producer, began: float) -> None:
        self._producer = producer
        self._began = began
        self._out: dict[str, tuple[float, str]] = {}
        self._seen: set[str] = set()
        self._periods: list[LeftOut] = []

    def start(self, stop: threading.Event) -> threading.Thread:
        """Begin to look, until ``stop`` is set."""
        thread = threading.Thread(
            target=self._watch, args=(stop,), name="demo-verdicts", daemon=True
        )
        thread.start()
        return thread

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(_LOOK):
            self._look()

    def _look(self) -> None:
        now = time.monotonic() - self._began
        health = {entry.broker: entry for entry in self._producer.health()}
        self._seen |= set(health)
        for broker in self._seen:
            entry = health.get(broker)
            if entry is not None and entry.state == "usable":
                if broker in self._out:
                    begin, why = self._out.pop(broker)
                    self._periods.append(LeftOut(broker, begin, now, why))
            elif broker not in self._out:
                why = entry.why if entry is not None else "the name server no longer has it"
                self._out[broker] = (now, why)

    def periods(self, end: float) -> list[LeftOut]:
        """Each time that a broker was left out, oldest first per broker."""
        still = [LeftOut(broker, begin, end, why) for broker, (begin, why) in self._out.items()]
        return sorted([*self._periods, *still], key=lambda period: (period.broker, period.begin))


def quantile(values: list[float], part: float) -> float | None:
    """A quantile of some values; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
