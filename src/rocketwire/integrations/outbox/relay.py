"""The relay: sends the rows of its shards, marks them, and does it again.

A row is marked after it was stored, so a relay that dies in between sends it again, under the same
``outboxId``. Rows of one topic and sharding key are sent in order; when one fails, those behind it wait. A topic that fails is left alone for a while, so that it does not keep the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from rocketwire import ClientClosedError, InvalidMessageError, Message, Producer, SendFailedError
from rocketwire.integrations.outbox.leases import Leases
from rocketwire.integrations.outbox.rows import FAILED, SENT, WAITING, Row
from rocketwire.integrations.outbox.store import Database, Store

_log: Final = logging.getLogger("rocketwire.outbox")

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
#: Seconds between two times at which old rows are deleted.
_CLEANING: Final = 10.0


@dataclass(frozen=True)
class RelayStats:
    """What a relay did, and what there is to do in the whole outbox."""

    sent: int
    failed: int
    shards: int
    waiting: int
    put_aside: int
    kept: int


@dataclass
class _Pause:
    until: float
    length: float


class Relay:
    """Sends what is in an outbox; any number of relays share the work.

    Args:
        database: ``Outbox.database(engine)``, or ``outbox.django.database()``.
        producer: what to send with; it is started here, and shut down by its owner.
        lease: seconds after which the shards of a relay that died are taken by others.
        poll: seconds between two looks when there is nothing to do.
        batch: rows that are read at once.
        keep: seconds for which rows that were sent are kept.
    """

    def __init__(
        self,
        database: Database,
        producer: Producer,
        *,
        lease: float = 15.0,
        poll: float = 0.2,
        batch: int = 500,
        keep: float = 86400.0,
    ) -> None:
        for name, value, least in (("lease", lease, 1.0), ("poll", poll, 0.001), ("keep", keep, 0)):
            if not value >= least:
                raise ValueError(f"{name} is {value!r}: seconds, at least {least:g}")
        if not 1 <= batch <= 10_000:
            raise ValueError(f"batch is {batch!r}: 1 to 10000 rows")
        self._store = Store(database)
        self._producer = producer
        self._poll, self._batch, self._keep = poll, batch, keep
        self._leases = Leases(self._store, lease, time.monotonic)
        self._pauses: dict[str, _Pause] = {}
        self._cleaned = float("-inf")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._sent = self._failed = 0

    # Running

    def run(self) -> None:
        """Relay until ``stop()``; trouble with the database is logged, and tried again."""
        self._producer.start()
        pause = self._poll
        while not self._stop.is_set():
            try:
                idle = self.run_once() == 0
                pause = self._poll
            except ClientClosedError:
                _log.error("the relay ends: its producer was shut down")
                break
            except Exception:  # noqa: BLE001 - whatever the database's library raises
                _log.exception("the outbox can't be read or marked just now; trying again")
                idle, pause = True, min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
            if idle:
                self._stop.wait(pause)
        try:
            self.give_back()
        except Exception:  # noqa: BLE001 - whatever the database's library raises
            _log.warning("the shards could not be given back: others take them later")

    def give_back(self) -> None:
        """Give the shards back, after ``run_once()``; ``run()`` does it by itself."""
        self._leases.release()

    def start(self) -> Self:
        """Relay in a thread of this process."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self.run, name="rocketwire-outbox", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Finish what is being sent, give the shards back, and end."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run_once(self) -> int:
        """Send what waits in this relay's shards now, one batch; returns how many were sent."""
        self._producer.start()
        if self._leases.is_due:
            self._leases.refresh()
        self._clean()
        shards = self._leases.shards
        if not shards:
            return 0
        now = time.monotonic()
        paused = [topic for topic, pause in self._pauses.items() if pause.until > now]
        return self._send(self._store.waiting(sorted(shards), paused, self._batch))

    def stats(self) -> RelayStats:
        """What was done, and what is left."""
        counts = self._store.counts()
        return RelayStats(
            self._sent,
            self._failed,
            len(self._leases.shards),
            counts.get(WAITING, 0),
            counts.get(FAILED, 0),
            counts.get(SENT, 0),
        )

    def retry_failed(self) -> int:
        """Let rows wait again that were put aside; returns how many."""
        return self._store.retry_failed()

    # Sending

    def _send(self, rows: Sequence[Row]) -> int:
        pairs = []
        for row in rows:
            try:
                pairs.append((row, row.message()))
            except InvalidMessageError as error:
                self._put_aside(row, error)
        stored: list[Row] = []
        for (row, _), answer in zip(pairs, self._answers(pairs), strict=True):
            if not isinstance(answer, Exception):
                stored.append(row)
            elif isinstance(answer, InvalidMessageError):
                self._put_aside(row, answer)
            else:
                self._wait_with(row, answer)
        if stored:
            self._store.mark_sent(stored)
            self._sent += len(stored)
            for topic in {row.topic for row in stored} & self._pauses.keys():
                # Some of it works: no longer pauses.
                self._pauses[topic].length = _FIRST_PAUSE
        return len(stored)

    def _answers(self, pairs: Sequence[tuple[Row, Message]]) -> list[Any]:
        """A result or an error for each message; behind one that failed, none of its key is sent."""
        try:
            return list(self._producer.send_many([m for _, m in pairs], return_errors=True))
        except InvalidMessageError:
            # One of them is wrong, and none was sent: find out which.
            return self._one_by_one(pairs)

    def _one_by_one(self, pairs: Sequence[tuple[Row, Message]]) -> list[Any]:
        answers: list[Any] = []
        behind: dict[tuple[str, str], Exception] = {}
        for row, message in pairs:
            if row.order_key not in behind:
                try:
                    answers.append(self._producer.send(message))
                except InvalidMessageError as error:
                    answers.append(error)
                except SendFailedError as error:
                    behind[row.order_key] = error
                    answers.append(error)
            else:
                answers.append(behind[row.order_key])
        return answers

    def _put_aside(self, row: Row, error: Exception) -> None:
        self._failed += 1
        self._store.mark_failed(row, str(error))
        _log.error("row %s of the outbox is put aside, it can never be sent: %s", row.id, error)

    def _wait_with(self, row: Row, error: Exception) -> None:
        now = time.monotonic()
        known = self._pauses.get(row.topic)
        if known is None or known.until <= now:
            length = _FIRST_PAUSE if known is None else min(known.length * 2, _LONGEST_PAUSE)
            self._pauses[row.topic] = _Pause(now + length, length)
            self._store.note_error(row, str(error))
            _log.warning("topic %s waits %.1f s: %s", row.topic, length, error)

    def _clean(self) -> None:
        now = time.monotonic()
        if now - self._cleaned < _CLEANING:
            return
        if self._store.delete_sent(time.time() - self._keep, self._batch) < self._batch:
            self._cleaned = now
