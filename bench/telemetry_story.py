"""Telemetry of producers that never were, with a story in it, as many lines as wanted.

Some producers send to a few brokers for some hours. Now and then a broker is slow, hangs or is
busy: messages that are free to go elsewhere leave it soon, those with a sharding key can't. What was
written is counted, so that a report on it can be checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np

BROKERS: Final = ("broker-a", "broker-b", "broker-c", "broker-d")
TOPICS: Final = {"orders": 8, "clicks": 16, "audit": 4}
#: Part of the whole time when it begins and ends, which broker, and what is wrong with it.
EPISODES: Final = (
    (0.12, 0.17, 1, "slow"),
    (0.31, 0.33, 2, "hang"),
    (0.48, 0.60, 1, "slow"),
    (0.71, 0.72, 0, "busy"),
    (0.84, 0.87, 3, "hang"),
)
KEYED: Final = 0.4
_ROWS: Final = 50_000
_FILE_BYTES: Final = 64 * 1024 * 1024
_EPOCH: Final = 1_760_000_400.0
_MEDIANS: Final = np.array([0.00062, 0.00071, 0.00058, 0.00083])


@dataclass
class Truth:
    """What was written."""

    attempts: int = 0
    sends: int = 0
    failed_sends: int = 0
    retries: int = 0
    maybe_duplicates: int = 0
    isolations: int = 0
    bytes_written: int = 0

    def __add__(self, other: Truth) -> Truth:
        mine, theirs = asdict(self), asdict(other)
        return Truth(**{spec.name: mine[spec.name] + theirs[spec.name] for spec in fields(Truth)})


class Client:
    """One producer: its lines, in order of time."""

    def __init__(self, number: int, sends: int, seconds: float, clients: int) -> None:
        self.name = f"10.1.0.{number + 1}@{4000 + number}#{7_000_000_000 + number * 31}"
        self.truth = Truth()
        self._random = np.random.default_rng(number)
        self._number, self._clients = number, clients
        self._sends, self._seconds = sends, seconds
        self._offsets: dict[tuple[int, int, int], int] = {}
        self._last_of_key: dict[int, float] = {}
        self._away = [
            (
                begin * seconds + self._random.uniform(0.5, 6.0),
                end * seconds + self._random.uniform(0.3, 0.02 * seconds * (end - begin) + 2.0),
                broker,
                kind,
            )
            for begin, end, broker, kind in EPISODES
        ]

    def lines(self) -> Iterator[tuple[float, str]]:
        """Moments and lines."""
        done = 0
        while done < self._sends:
            count = min(_ROWS, self._sends - done)
            rows = self._chunk(done, count)
            rows += list(self._events(done, count))
            rows.sort(key=lambda row: row[0])
            yield from rows
            done += count

    def _between(self, done: int, count: int) -> tuple[float, float]:
        return done / self._sends * self._seconds, (done + count) / self._sends * self._seconds

    def _events(self, done: int, count: int) -> Iterator[tuple[float, str]]:
        first, end = self._between(done, count)
        is_last = done + count == self._sends
        for begin, back, broker, kind in self._away:
            why = {
                "slow": "248 ms, 310 times the others",
                "hang": "gave no answer in 1.0 s",
                "busy": "answered SYSTEM_BUSY (2): broker busy",
            }[kind]
            if first <= begin < end:
                self.truth.isolations += 1
                yield begin, self._event("isolated", begin, broker, why, begin + 30)
            if first <= back < end or (is_last and back >= end):
                yield back, self._event("returned", back, broker, f"was out for: {why}", None)

    def _event(self, kind: str, at: float, broker: int, why: str, until: float | None) -> str:
        moment = None if until is None else round(_EPOCH + until, 3)
        return json.dumps(
            {
                "kind": kind,
                "time": round(_EPOCH + at, 6),
                "clientId": self.name,
                "broker": BROKERS[broker],
                "reason": why,
                "until": moment,
            },
            separators=(",", ":"),
        )

    def _chunk(self, done: int, count: int) -> list[tuple[float, str]]:
        random = self._random
        first, end = self._between(done, count)
        began = np.sort(random.uniform(first, end, count))
        topics = random.choice(3, count, p=[KEYED, 0.5, 0.6 - 0.5])
        keys = random.zipf(1.1, count) % 1_000_003
        sizes = random.integers(60, 900, count)
        rows: list[tuple[float, str]] = []
        away = self._brokers_away(began)
        targets = self._targets(topics, keys, away)
        latency = np.exp(random.normal(0, 0.55, count)) * _MEDIANS[targets]
        latency += np.where(random.random(count) < 0.003, random.exponential(0.04, count), 0)
        trouble = self._trouble(began, targets)
        spare = random.integers(1, len(BROKERS), count)
        columns = zip(
            began.tolist(), topics.tolist(), keys.tolist(), sizes.tolist(), targets.tolist(),
            latency.tolist(), trouble.tolist(), spare.tolist(), away.tolist(), strict=True,
        )  # fmt: skip
        for number, column in enumerate(columns):
            self._send(rows, done + number, column)
        return rows

    def _brokers_away(self, began: Any) -> Any:
        """A bit for each broker that is avoided at each moment."""
        mask = np.zeros(len(began), dtype=np.int64)
        for begin, back, broker, _ in self._away:
            mask |= np.where((began >= begin) & (began < back), 1 << broker, 0)
        return mask

    def _targets(self, topics: Any, keys: Any, away: Any) -> Any:
        chosen = self._random.integers(0, len(BROKERS), len(topics))
        for _ in range(6):
            is_bad = (away >> chosen) & 1 == 1
            chosen = np.where(is_bad, (chosen + 1) % len(BROKERS), chosen)
        return np.where(topics == 0, keys * 2_654_435_761 % 2**32 // 8 % len(BROKERS), chosen)

    def _trouble(self, began: Any, targets: Any) -> Any:
        """1 slow, 2 hanging, 3 busy, 4 a connection lost by chance, 0 well."""
        found = np.where(self._random.random(len(began)) < 0.0005, 4, 0)
        for begin, end, broker, kind in EPISODES:
            inside = (began >= begin * self._seconds) & (began < end * self._seconds)
            code = ("", "slow", "hang", "busy").index(kind)
            found = np.where(inside & (targets == broker), code, found)
        return found

    def _send(self, rows: list[tuple[float, str]], number: int, column: tuple[Any, ...]) -> None:
        began, topic, key, size, broker, latency, trouble, spare, away = column
        truth = self.truth
        truth.sends += 1
        message = f"0A010001{self._number:04X}{number:020X}"
        if topic == 0:
            # A producer has never two messages of a key in flight, and does not wait for ever.
            free = self._last_of_key.get(key, 0.0) + 0.0001
            began, topic = (max(began, free), 0) if free < began + 1 else (began, 2)
        failure = self._failure(trouble, BROKERS[broker], latency)
        if failure is not None:
            latency, outcome, error = failure
            ended = began + latency
            place = (ended, topic, broker, key)
            rows.append(
                (ended, self._attempt(*place, message, size, latency, 1, outcome, error, away))
            )
            began = ended
            if topic == 0:
                self._last_of_key[key] = began
                truth.failed_sends += 1
                return
            truth.retries += 1
            truth.maybe_duplicates += outcome == "maybe stored"
            broker, latency = (broker + spare) % len(BROKERS), 0.0009
        elif trouble == 1:
            latency += 0.25
        ended = began + latency
        place = (ended, topic, broker, key)
        attempt = 1 if failure is None else 2
        rows.append(
            (ended, self._attempt(*place, message, size, latency, attempt, "stored", None, away))
        )
        if topic == 0:
            self._last_of_key[key] = ended

    @staticmethod
    def _failure(trouble: int, broker: str, latency: float) -> tuple[float, str, str] | None:
        """Latency, outcome and error; None when all is well."""
        if trouble == 2:
            return 1.0 + latency / 100, "maybe stored", "127.0.0.1:10911 gave no answer"
        if trouble == 3:
            return latency, "rejected", f"{broker} answered SYSTEM_BUSY 2: broker busy"
        if trouble == 4:
            return latency, "not sent", "127.0.0.1:10911 closed the connection at once"
        return None

    def _attempt(  # noqa: PLR0917 - a row
        self, at: float, topic: int, broker: int, key: int, message: str, size: int,
        latency: float, attempt: int, outcome: str, error: str | None, away: int,
    ) -> str:  # fmt: skip
        self.truth.attempts += 1
        name = tuple(TOPICS)[topic]
        # Free messages go round; some queues of a topic get a little more, as in life.
        seed = key * 40_503 % 65_536 // 4 if topic == 0 else int(message[-4:], 16) + self._number
        queue = seed % TOPICS[name]
        place = (topic, broker, queue)
        offset = "null"
        if outcome == "stored":
            at_queue = self._offsets[place] = self._offsets.get(place, -1) + 1
            offset = str(at_queue * self._clients + self._number)
        return (
            f'{{"kind":"attempt","time":{_EPOCH + at:.6f},"clientId":"{self.name}",'
            f'"topic":"{name}","broker":"{BROKERS[broker]}","queueId":{queue},"offset":{offset},'
            f'"messageId":"{message}","shardingKey":{f"{chr(34)}customer-{key}{chr(34)}" if topic == 0 else "null"},'
            f'"bytes":{size},"latency":{latency:.6f},"outcome":"{outcome}",'
            f'"error":{"null" if error is None else json.dumps(error)},"attempt":{attempt},'
            f'"messages":1,"state":"{"isolated" if away >> broker & 1 else "usable"}"}}'
        )


def write_client(folder: str, number: int, sends: int, seconds: float, clients: int) -> Truth:
    """Write the files of one producer."""
    client = Client(number, sends, seconds, clients)
    stem = f"attempts-10.1.0.{number + 1}_{4000 + number}_{7_000_000_000 + number * 31}"
    count, size, lines = 1, 0, []
    truth = client.truth
    for _, line in client.lines():
        lines.append(line)
        size += len(line) + 1
        if size >= _FILE_BYTES:
            _write(Path(folder) / f"{stem}-{count:04d}.jsonl", lines)
            truth.bytes_written += size
            count, size, lines = count + 1, 0, []
    if lines:
        _write(Path(folder) / f"{stem}-{count:04d}.jsonl", lines)
        truth.bytes_written += size
    return truth


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


def write_story(folder: str, sends: int, *, seconds: float = 7200.0, clients: int = 4) -> Truth:
    """Write the files of all producers, in two processes; returns what is in them."""
    from concurrent.futures import ProcessPoolExecutor

    Path(folder).mkdir(parents=True, exist_ok=True)
    share = sends // clients
    with ProcessPoolExecutor(2) as pool:
        parts = [
            pool.submit(write_client, folder, number, share, seconds, clients)
            for number in range(clients)
        ]
        return sum((part.result() for part in parts), Truth())
