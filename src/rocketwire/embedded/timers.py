"""Messages with a delivery time of their own (5.x), to the second.

They are parked in one queue, and kept in memory by their time. ``config/timers.json`` says how
far the queue is done with, and which messages behind that were delivered; the rest is read again
at the start. Apache keeps a wheel in a file instead, which this is not compatible with.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketwire.embedded.call import Refusal
from rocketwire.embedded.json_file import JsonFile
from rocketwire.embedded.parked import REAL_TOPIC, park_in, read_parked
from rocketwire.embedded.store import Draft, StoreError
from rocketwire.embedded.topics import TIMER_TOPIC
from rocketwire.wire.codes import ResponseCode

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

_log: Final = logging.getLogger("rocketwire.embedded")
#: The properties that ask for a time, in order of precedence, and their unit in ms; the last one
#: is a moment, the others are delays.
ASKING: Final = {"TIMER_DELAY_SEC": 1000, "TIMER_DELAY_MS": 1, "TIMER_DELIVER_MS": 1}
_PRECISION_MS: Final = 1000
_LONGEST_MS: Final = 3 * 24 * 3600 * 1000
_AT_ONCE: Final = 100


class TimerWheel:
    """Parks timed messages of one broker and delivers them."""

    topic: Final = TIMER_TOPIC

    def __init__(self, broker: Broker, path: Path) -> None:
        self._broker = broker
        self._file = JsonFile(path)
        data = self._file.load()
        stored = data if isinstance(data, dict) else {}
        done = stored.get("done")
        self._done: set[int] = {o for o in done if type(o) is int} if done else set()
        start = stored.get("start", 0)
        #: Everything before this offset of the queue was delivered.
        self._start: int = start if type(start) is int else 0
        self._read = self._start
        self._heap: list[tuple[int, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._dirty = False
        self._running = False

    def park(self, draft: Draft, properties: dict[str, str]) -> None:
        """Bind a message for the wheel, unless its time has passed.

        Raises:
            Refusal: the time is too far away, or is no time.
        """
        now = self._broker.clock_ms()
        due = _due(properties, now, self._broker.ahead.seconds)
        if due <= now:
            return
        if due - now > _LONGEST_MS and not properties.get("DELAY"):
            raise _illegal()
        # Rounded down; a whole second goes one step earlier. That is Apache's arithmetic.
        due = (due - 1) // _PRECISION_MS * _PRECISION_MS
        properties["TIMER_OUT_MS"] = str(due)
        park_in(draft, properties, TIMER_TOPIC, 0)
        self._broker.loop.call_soon(self._look)

    def check_recall(self, deliver_ms: int) -> None:
        """Whether a message that is due at a moment may be called back now.

        Raises:
            Refusal: its time has come, or there is no such time.
        """
        left = deliver_ms - self._broker.clock_ms()
        if not 0 < left < _LONGEST_MS:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")

    def recall(self, topic: str, message_id: str, due: int) -> None:
        """Deliver a message never; one that is not there is no failure, as with Apache."""
        self._look()
        for moment, offset in self._heap:
            if moment == due and self._is(offset, topic, message_id):
                self._settle(offset)
                # At once: a broker that is killed must not deliver it after all.
                self.save()

    def _is(self, offset: int, topic: str, message_id: str) -> bool:
        record = self._record(offset)
        if record is None or offset in self._done:
            return False
        found = read_parked(record).properties
        return found.get(REAL_TOPIC) == topic and found.get("UNIQ_KEY") == message_id

    def start(self) -> None:
        """Read what is waiting, and begin to deliver."""
        self._running = True
        self._look()

    def stop(self) -> None:
        """Deliver nothing more."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Read the parked messages that are new, and set the alarm."""
        queue = self._broker.store.queues.get(TIMER_TOPIC, 0) if self._running else None
        if queue is None:
            return
        self._read = max(self._read, queue.minimum)
        while self._read < queue.maximum:
            if self._read not in self._done:
                self._remember(self._read)
            self._read += 1
        self._arm()

    def _remember(self, offset: int) -> None:
        record = self._record(offset)
        if record is None:
            return
        text = read_parked(record).properties.get("TIMER_OUT_MS", "0")
        heapq.heappush(
            self._heap, (int(text) if text.isdecimal() and len(text) < 20 else 0, offset)
        )

    def _record(self, offset: int) -> memoryview | None:
        unit = self._broker.store.queues.need(TIMER_TOPIC, 0).unit(offset)
        return self._broker.store.record_at(unit[0]) if unit is not None else None

    def _arm(self, at_least: float = 0.0) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap and self._running:
            left = (self._heap[0][0] - self._broker.clock_ms()) / 1000
            self._timer = self._broker.loop.call_later(max(left, at_least), self._deliver)

    def seconds_left(self) -> float | None:
        """Until a timed message is due; None when there is none."""
        self._look()
        if not self._heap:
            return None
        return max((self._heap[0][0] - self._broker.clock_ms()) / 1000, 0.0)

    def do_due(self) -> int:
        """Deliver all that is due, and set the alarm anew; returns how many there were."""
        self._look()
        return self._deliver(len(self._heap))

    def _deliver(self, most: int = _AT_ONCE) -> int:
        done = 0
        try:
            while done < most and self._heap and self._heap[0][0] <= self._broker.clock_ms():
                self._deliver_one(self._heap[0][1])
                heapq.heappop(self._heap)
                done += 1
        except StoreError as error:
            _log.warning("%s: a timed message has to wait: %s", self._broker.name, error)
            self._arm(1.0)
            return done
        self._arm()
        return done

    def _deliver_one(self, offset: int) -> None:
        if offset < self._start or offset in self._done:
            # It was called back.
            return
        broker = self._broker
        record = self._record(offset)
        if record is not None:
            parked = read_parked(record)
            parked.note("TIMER_DEQUEUE_MS", str(broker.clock_ms()))
            draft = parked.to_real_place()
            if draft is not None:
                broker.put(draft)
        self._settle(offset)

    def _settle(self, offset: int) -> None:
        """A parked message is done with."""
        self._done.add(offset)
        while self._start in self._done:
            self._done.discard(self._start)
            self._start += 1
        self._dirty = True

    def save(self) -> None:
        """Write the file if anything was delivered."""
        if self._dirty:
            self._file.save({"done": sorted(self._done), "start": self._start})
            self._dirty = False


def _due(properties: dict[str, str], now: int, ahead: float) -> int:
    """When a message is due by the broker's clock.

    Clients name moments by the real time. When a test has put the clock forward, such a moment is
    as far away as the client thinks that it is.
    """
    for name, unit in ASKING.items():
        text = properties.get(name)
        if text is None:
            continue
        if not text.isdecimal() or len(text) > 18:
            raise _illegal()
        if name == "TIMER_DELIVER_MS":
            return int(text) + int(ahead * 1000)
        return now + int(text) * unit
    return 0


def _illegal() -> Refusal:
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay "
        f"{_LONGEST_MS}ms, and it must be a number",
    )
