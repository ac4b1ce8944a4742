"""Delayed messages: parked by level, delivered when their time has come.

Within a level all messages wait equally long, so each level is a queue that is read from its
front. How far each has come is kept in ``config/delayOffset.json``, on a timer: after a crash,
messages of the last seconds may be delivered twice, as with Apache. Messages with a time of their
own are in ``timers``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketwire.embedded.json_file import DataVersion, JsonFile
from rocketwire.embedded.parked import park_in, read_parked
from rocketwire.embedded.store import Draft, StoreError
from rocketwire.embedded.store.layout import SCHEDULE_TOPIC
from rocketwire.embedded.timers import ASKING, TimerWheel

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

_log: Final = logging.getLogger("rocketwire.embedded")
#: Delivered in one turn of the event loop.
_AT_ONCE: Final = 100
_TRY_AGAIN: Final = 1.0

#: Puts properties into a draft.
Finish = Callable[[Draft, dict[str, str]], Draft]


class DelaySchedule:
    """Parks delayed messages of one broker and delivers them."""

    def __init__(self, broker: Broker, path: Path) -> None:
        self._broker = broker
        self._file = JsonFile(path)
        data = self._file.load()
        stored = data if isinstance(data, dict) else {}
        self._version = DataVersion(stored.get("dataVersion"))
        table = stored.get("offsetTable")
        #: The next message to deliver, by level.
        self._offsets: dict[int, int] = {
            int(level): offset
            for level, offset in (table.items() if isinstance(table, dict) else ())
            if str(level).isdigit() and type(offset) is int
        }
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._dirty = False
        self._running = False
        self.wheel = TimerWheel(broker, path.with_name("timers.json"))

    def start(self) -> None:
        """Begin to deliver."""
        self._running = True
        for queue_id in range(len(self._broker.delays_ms)):
            self.arrived(queue_id)
        self.wheel.start()

    def stop(self) -> None:
        """Deliver nothing more."""
        self._running = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.wheel.stop()

    def park(self, draft: Draft, properties: dict[str, str], finish: Finish) -> Draft:
        """Bind a message for the schedule if it asks for a delay; finish it in any case.

        Raises:
            Refusal: it asks for a time that is too far away, or that is none.
        """
        if any(name in properties for name in ASKING):
            self.wheel.park(draft, properties)
        level = _level(properties.get("DELAY"))
        if level > 0 and draft.topic != self.wheel.topic:
            level = min(level, len(self._broker.delays_ms))
            properties["DELAY"] = str(level)
            park_in(draft, properties, SCHEDULE_TOPIC, level - 1)
        return finish(draft, properties)

    def arrived(self, queue_id: int) -> None:
        """A message was parked: deliver it in time."""
        level = queue_id + 1
        if self._running and level not in self._timers:
            self._arm(level, self._wait(level))

    def _arm(self, level: int, seconds: float | None) -> None:
        if seconds is not None:
            self._timers[level] = self._broker.loop.call_later(seconds, self._deliver, level)

    def _wait(self, level: int) -> float | None:
        """Seconds until the front message of a level is due; None when there is none."""
        queue = self._broker.store.queues.get(SCHEDULE_TOPIC, level - 1)
        if queue is None:
            return None
        unit = queue.unit(max(self._offsets.get(level, 0), queue.minimum))
        if unit is None:
            return None
        left = (unit[2] - self._broker.clock_ms()) / 1000
        # A clock that was put back must not make a message wait longer than the level says.
        return min(max(left, 0.0), self._broker.delays_ms[level - 1] / 1000)

    def seconds_left(self) -> float | None:
        """Until a delayed message is due; None when there is none."""
        levels = range(1, len(self._broker.delays_ms) + 1)
        waits = [wait for level in levels if (wait := self._wait(level)) is not None]
        return min(waits, default=None)

    def do_due(self) -> int:
        """Deliver all that is due, and set the alarms anew; returns how many there were."""
        done = 0
        for level in range(1, len(self._broker.delays_ms) + 1):
            timer = self._timers.pop(level, None)
            if timer is not None:
                timer.cancel()
            try:
                while self._wait(level) == 0:
                    self._deliver_front(level)
                    done += 1
            except StoreError as error:
                self._postpone(level, error)
            else:
                self._arm(level, self._wait(level))
        return done

    def _postpone(self, level: int, error: StoreError) -> None:
        _log.warning("%s: a delayed message has to wait: %s", self._broker.name, error)
        self._arm(level, _TRY_AGAIN)

    def _deliver(self, level: int) -> None:
        self._timers.pop(level, None)
        try:
            for _ in range(_AT_ONCE):
                wait = self._wait(level)
                if wait is None or wait > 0:
                    self._arm(level, wait)
                    return
                self._deliver_front(level)
        except StoreError as error:
            self._postpone(level, error)
            return
        self._arm(level, 0.0)

    def _deliver_front(self, level: int) -> None:
        broker = self._broker
        queue = broker.store.queues.need(SCHEDULE_TOPIC, level - 1)
        offset = max(self._offsets.get(level, 0), queue.minimum)
        unit = queue.unit(offset)
        record = broker.store.record_at(unit[0]) if unit is not None else None
        draft = read_parked(record).to_real_place() if record is not None else None
        if draft is not None:
            broker.put(draft)
        self._offsets[level] = offset + 1
        self._dirty = True

    def save(self) -> None:
        """Write the file if anything was delivered."""
        if self._dirty:
            self._version.bump()
            self._file.save(self.as_json())
            self._dirty = False
        self.wheel.save()

    def as_json(self) -> dict[str, object]:
        """As Apache writes it."""
        return {
            "dataVersion": self._version.as_json(),
            "offsetTable": {str(level): offset for level, offset in self._offsets.items()},
        }


def _level(text: str | None) -> int:
    """A delay level; anything that is not a number is none, as with Apache."""
    if text is None or not text.removeprefix("-").isdecimal():
        return 0
    return int(text[:9])
