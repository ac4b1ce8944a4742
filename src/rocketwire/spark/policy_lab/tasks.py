"""How a recording is cut into tasks, and what a worker does with one.

A task is one policy, one period and some producers: their sends, and what was seen of the brokers.
Periods begin with a warm-up, since a fault table has memory.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rocketwire.fault_policy import FaultPolicy
from rocketwire.spark.policy_lab.conditions import PER_SECOND, Incident, Sighting
from rocketwire.spark.policy_lab.figures import Tally
from rocketwire.spark.policy_lab.replay import (
    Client,
    Period,
    RecordedBrokers,
    RecordedSend,
    Replay,
)

#: Seconds before a period that are replayed and not counted, for a few brokers and for many.
_WARM_UP, _SHORT_WARM_UP = 120.0, 30.0
_FEW: Final = 40
#: Stretches that a worker holds at once, over all brokers, and sends: what bounds its memory.
_MOST_SLOTS: Final = 100_000
MOST_SENDS: Final = 100_000
_MOST_QUEUES: Final = 1024
_SHORTEST, _LONGEST = 30.0, 600.0

#: The columns of a task's rows: sends, or (where ``slot`` is not null) sightings.
COLUMNS: Final = {
    "client": "string", "topic": "string", "broker": "string", "queue": "int", "at": "double",
    "timeout": "double", "mode": "string", "size": "int", "slot": "bigint", "answers": "int",
    "latencies": "array<double>", "silent": "int", "waited": "double", "refused": "int",
    "lost": "int", "rejected": "int", "code": "int",
}  # fmt: skip
#: What tells tasks apart.
KEYS: Final = ("policy", "period", "bucket")
RESULT: Final = "policy int, is_best boolean, tally string"
_RESULT: Final = pa.schema(
    [("policy", pa.int32()), ("is_best", pa.bool_()), ("tally", pa.string())]
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a recording is cut."""

    begin: float
    end: float
    seconds: float
    buckets: int
    warm_up: float = _WARM_UP

    @property
    def periods(self) -> int:
        """How many periods there are."""
        return max(1, math.ceil((self.end - self.begin) / self.seconds))

    def start_of(self, period: int) -> float:
        """When a period begins."""
        return self.begin + period * self.seconds


def warm_up_of(brokers: int) -> float:
    """How long a warm-up is, in seconds."""
    return _WARM_UP if brokers <= _FEW else _SHORT_WARM_UP


def period_seconds(brokers: int) -> float:
    """How long a period is, so that a worker can hold what was seen of all brokers in it."""
    most = _MOST_SLOTS / PER_SECOND / max(1, brokers) - warm_up_of(brokers)
    return min(_LONGEST, max(_SHORTEST, most))


def plan_for(begin: float, end: float, *, brokers: int, clients: int, rate: float) -> Plan:
    """The cut of a recording in which no task has more than a worker can hold.

    Args:
        begin: of the recording.
        end: of it.
        brokers: how many there are.
        clients: how many producers.
        rate: sends a second in the busiest period.
    """
    seconds, warm_up = period_seconds(brokers), warm_up_of(brokers)
    whole = rate * (seconds + warm_up)
    buckets = max(1, min(clients, math.ceil(whole / MOST_SENDS)))
    # One producer is not divided; where it sends that much, its periods are shorter.
    most = MOST_SENDS * buckets / max(rate, 1e-9)
    if seconds + warm_up > most:
        warm_up = min(warm_up, most / 3)
        seconds = most - warm_up
    return Plan(begin, end, seconds, buckets, warm_up)


@dataclass(frozen=True, slots=True)
class Worker:
    """Replays tasks; travels to Spark's workers, so it holds plain values only."""

    plan: Plan
    policies: Sequence[FaultPolicy]
    clients: Mapping[str, Client]
    usual: float
    incidents: Sequence[Incident]
    chosen: Incident | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The tasks of a partition, which is sorted by ``KEYS``; what came of each policy."""
        whole: dict[tuple[int, bool], Tally] = {}
        for (number, period, _bucket), table in grouped(batches):
            is_slot = pc.is_valid(table["slot"])
            sightings = sightings_of(table.filter(is_slot))
            sends = sends_of(table.filter(pc.invert(is_slot)))
            for is_best, tally in zip(
                (True, False), self.replay(number, period, sends, sightings), strict=True
            ):
                whole.setdefault((number, is_best), Tally()).add(tally)
        rows = [
            {"policy": number, "is_best": is_best, "tally": json.dumps(tally.as_dict())}
            for (number, is_best), tally in whole.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_RESULT)

    def replay(
        self,
        number: int,
        period: int,
        sends: Mapping[str, Sequence[RecordedSend]],
        sightings: Mapping[str, Mapping[int, Sighting]],
    ) -> tuple[Tally, Tally]:
        """All producers of a task, in the best and in the worst case."""
        best, worst = Tally(), Tally()
        start = self.plan.start_of(period)
        end = min(start + self.plan.seconds, self.plan.end + 0.001)
        for client, mine in sends.items():
            told = self.clients.get(client)
            counted = [send for send in mine if send.at >= start]
            if told is None or not counted:
                continue
            names = {name for queues in told.routes.values() for name in queues}
            seen = {name: sightings.get(name, {}) for name in names}
            span = Period(
                start - self.plan.warm_up, start, end, self.usual, self.incidents, self.chosen
            )
            seed = zlib.crc32(client.encode()) + period
            cases = self._cases(told, self.policies[number], seen, span, mine, seed)
            best.add(cases[0])
            worst.add(cases[-1])
        return best, worst

    def _cases(
        self,
        client: Client,
        policy: FaultPolicy,
        seen: Mapping[str, Mapping[int, Sighting]],
        span: Period,
        sends: Sequence[RecordedSend],
        seed: int,
    ) -> list[Tally]:
        """One replay where all was seen, else one for each case."""
        found: list[Tally] = []
        for is_best in (True, False):
            brokers = RecordedBrokers(seen, span, is_best=is_best, seed=seed)
            found.append(Replay(client, policy, brokers, span, seed=seed).run(sends))
            if not brokers.is_uncertain:
                break
        return found


def sends_of(table: pa.Table) -> dict[str, list[RecordedSend]]:
    """The sends of a task by producer, in the order of their times."""
    columns = [table[name].to_pylist() for name in ("client", *RecordedSend._fields)]
    found: dict[str, list[RecordedSend]] = {}
    for client, at, topic, mode, timeout, size, broker, queue in zip(*columns, strict=True):
        limit = timeout if timeout and 0 < timeout <= 86_400 else 3.0
        kind = mode if mode in ("blocking", "async", "oneway") else "blocking"
        is_known = queue is not None and 0 <= queue < _MOST_QUEUES
        aim = broker if is_known else None
        send = RecordedSend(at, topic, kind, limit, max(0, size), aim, queue if is_known else 0)
        found.setdefault(client, []).append(send)
    for mine in found.values():
        mine.sort(key=lambda send: send.at)
    return found


def sightings_of(table: pa.Table) -> dict[str, dict[int, Sighting]]:
    """What was seen, by broker and stretch."""
    found: dict[str, dict[int, Sighting]] = {}
    # Batch by batch: rows as dictionaries take several times what is kept of them.
    for batch in table.select(["broker", "slot", *_SIGHTING]).to_batches(max_chunksize=1000):
        for row in batch.to_pylist():
            broker, slot, seen = sighting_from(row)
            found.setdefault(broker, {})[slot] = seen
    return found


_SIGHTING: Final = tuple(Sighting.__dataclass_fields__)


def sighting_from(row: Mapping[str, Any]) -> tuple[str, int, Sighting]:
    """Broker, stretch and sighting of a row."""
    values = {name: row[name] for name in _SIGHTING}
    values["latencies"] = tuple(values["latencies"] or ())
    return row["broker"], row["slot"], Sighting(**values)


def grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[tuple[int, int, int], pa.Table]]:
    """Rows that follow one another with the same ``KEYS``, as one table each."""
    key: tuple[int, int, int] | None = None
    parts: list[pa.RecordBatch] = []
    for batch in batches:
        keys = list(zip(*(batch.column(name).to_pylist() for name in KEYS), strict=True))
        start = 0
        while start < len(keys):
            if keys[start] != key:
                if parts and key is not None:
                    yield key, pa.Table.from_batches(parts)
                key, parts = keys[start], []
            end = start
            while end < len(keys) and keys[end] == key:
                end += 1
            parts.append(batch.slice(start, end - start))
            start = end
    if parts and key is not None:
        yield key, pa.Table.from_batches(parts)
