"""Members come, go and are killed, a broker dies and returns: ``python -m bench.consumer_storm``.

Messages of many keys are sent all the while. In the end every acknowledged one must have been handled;
in order, a queue may only go back, to what was not committed yet, and never ahead. Handlers run in
processes of their own and note what they do, so that any of them can be killed at any moment.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rocketwire import Message, Producer, SendFailedError
from rocketwire.embedded import EmbeddedCluster

RELEASES = ("embedded", "4.9.7", "5.3.3")
SHELLS = ("blocking", "asyncio", "mixed")
KINDS = ("concurrent", "ordered")
_EATER = str(Path(__file__).parents[1] / "tests" / "conformance" / "eater.py")
_TOPIC = "orders"
_KEYS = 40
_FEEDERS = 4
#: Locks of members that were killed are held by the broker for a minute.
_LIMIT = 300.0


class Handled(NamedTuple):
    """A call of a handler."""

    broker: str
    queue: int
    offset: int
    body: str


@dataclass(frozen=True)
class Outcome:
    """What came of it: figures for people and programs.

    ``skipped`` are calls that came before an earlier message of their queue had been handled;
    only an ordered run forbids them.
    """

    release: str
    shell: str
    kind: str
    sent: int
    handled: int
    again: int
    missed: int
    skipped: int
    stepped_back: int
    joined: int
    left: int
    killed: int
    broker_restarts: int
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether every promise was kept."""
        return not self.missed and (self.kind != "ordered" or not self.skipped)


class Crowd:
    """Processes that are members of one group."""

    def __init__(self, name_server: str, notes: Path, shell: str, kind: str, seed: int) -> None:
        group = f"storm-{os.getpid()}-{seed}"
        self._command = [sys.executable, _EATER, name_server, group, _TOPIC, str(notes)]
        self._shells = ("blocking", "asyncio") if shell == "mixed" else (shell,)
        self._kind = kind
        self._notes = notes
        self._random = random.Random(seed)
        self.members: list[subprocess.Popen[bytes]] = []
        self.joined = self.left = self.killed = 0

    def join(self) -> None:
        """One more."""
        shell = self._shells[self.joined % len(self._shells)]
        member = subprocess.Popen([*self._command, shell, self._kind], stdout=subprocess.PIPE)
        self.members.append(member)
        self.joined += 1
        if member.stdout is None or member.stdout.readline() != b"ready\n":
            raise RuntimeError("a member did not start")

    def leave(self) -> None:
        """One stops in order, if another stays."""
        if len(self.members) > 1:
            self._end(signal.SIGTERM)
            self.left += 1

    def kill(self) -> None:
        """One is gone in the middle of its work, if another stays."""
        if len(self.members) > 1:
            self._end(signal.SIGKILL)
            self.killed += 1

    def _end(self, how: signal.Signals) -> None:
        member = self.members.pop(self._random.randrange(len(self.members)))
        member.send_signal(how)
        code = member.wait(60)
        if member.stdout is not None:
            member.stdout.close()
        if code not in {0, -signal.SIGKILL}:
            raise RuntimeError(f"a member ended with {code}")

    def end(self) -> None:
        """All stop."""
        while self.members:
            self._end(signal.SIGTERM)

    def abandon(self) -> None:
        """Leave no process behind, whatever happened."""
        for member in self.members:
            member.kill()
            member.wait(30)
            if member.stdout is not None:
                member.stdout.close()

    def handled(self) -> list[Handled]:
        """Every call of a handler, in order."""
        if not self._notes.exists():
            return []
        lines = self._notes.read_text().splitlines()
        found = [line.split(" ", 4)[1:] for line in lines]
        return [Handled(broker, int(queue), int(at), body) for broker, queue, at, body in found]


class Feeders:
    """Threads that send numbered messages; what is not acknowledged is sent again."""

    def __init__(self, name_server: str, count: int, spread: float) -> None:
        self._name_server = name_server
        self._rounds = count // _KEYS
        self._spread = spread
        self.sent: set[str] = set()
        self.failure: BaseException | None = None
        self.done = threading.Event()
        self._threads = [
            threading.Thread(target=self._feed, args=(range(n, _KEYS, _FEEDERS),), daemon=True)
            for n in range(_FEEDERS)
        ]
        self._running = len(self._threads)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def _feed(self, keys: Sequence[int]) -> None:
        try:
            began = time.monotonic()
            with Producer(
                self._name_server, group="feeder", ordered_retries=5, send_timeout=10.0
            ) as producer:
                for number in range(self._rounds):
                    # Spread over time, so that something can happen in between.
                    due = began + self._spread * number / self._rounds
                    self.done.wait(max(0.0, due - time.monotonic()))
                    for key in keys:
                        self._send(producer, key, number)
        except BaseException as error:  # raised where the run waits
            self.failure = error
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self.done.set()

    def _send(self, producer: Producer, key: int, number: int) -> None:
        message = Message(_TOPIC, f"{key}:{number}", sharding_key=f"key-{key}")
        for _ in range(50):
            try:
                producer.send(message)
            except SendFailedError:
                time.sleep(0.2)
            else:
                with self._lock:
                    self.sent.add(message.body.decode())
                return
        raise RuntimeError(f"{message.body!r} could not be sent")


def open_cluster(release: str) -> Any:
    """Two brokers of our own: one of them will be killed."""
    if release == "embedded":
        return EmbeddedCluster(brokers=2)
    from tests.real.apache import QUICK_JVM, ApacheCluster

    # How long a lock of an ordered queue outlives a killed member: a minute, unless told.
    lock = "-Drocketmq.broker.rebalance.lockMaxLiveTime=15000"
    return ApacheCluster(release, brokers=2, jvm=[*QUICK_JVM, lock])


def _restart(cluster: Any, name: str) -> None:
    broker = cluster.broker(name)
    if isinstance(cluster, EmbeddedCluster):
        broker.restart()
    else:
        cluster.restart(broker)


class _Weather:
    """What happens, one thing after another, until everything is sent."""

    def __init__(self, cluster: Any, crowd: Crowd, seed: int) -> None:
        self._cluster = cluster
        self._crowd = crowd
        self._random = random.Random(seed)
        self.broker_restarts = 0

    def blow(self, done: threading.Event, pause: float) -> None:
        """Let each thing happen once, then any of them."""
        crowd = self._crowd
        for action in (crowd.join, crowd.leave, crowd.join, crowd.kill, self._break_broker):
            done.wait(pause)
            action()
        members = (crowd.join, crowd.join, crowd.leave, crowd.kill)
        while not done.wait(2 * pause):
            if self._random.random() < 0.1:
                self._break_broker()
            elif len(crowd.members) > 5:
                crowd.kill()
            else:
                self._random.choice(members)()
        while len(crowd.members) < 2:
            crowd.join()

    def _break_broker(self) -> None:
        self._cluster.broker("broker-b").kill()
        time.sleep(1.5)
        _restart(self._cluster, "broker-b")
        self.broker_restarts += 1


def run_storm(
    release: str, shell: str, kind: str, *, count: int, spread: float, folder: Path, seed: int = 4
) -> Outcome:
    """One storm on one cluster; raises where it can't come to an end."""
    began = time.monotonic()
    with open_cluster(release) as cluster:
        cluster.create_topic(_TOPIC, 4)
        crowd = Crowd(cluster.name_server, folder / "notes", shell, kind, seed)
        feeders = Feeders(cluster.name_server, count, spread)
        weather = _Weather(cluster, crowd, seed)
        try:
            crowd.join()
            crowd.join()
            feeders.start()
            weather.blow(feeders.done, 1.5)
            if feeders.failure is not None:
                raise feeders.failure
            _wait_for_all(crowd, feeders.sent)
            crowd.end()
        finally:
            crowd.abandon()
    seconds = time.monotonic() - began
    return _judge((release, shell, kind), crowd, feeders.sent, weather.broker_restarts, seconds)


def _wait_for_all(crowd: Crowd, sent: set[str]) -> None:
    """Wait until everything is handled, or nothing more happens."""
    end = time.monotonic() + _LIMIT
    while time.monotonic() < end:
        if {call.body for call in crowd.handled()} >= sent:
            return
        time.sleep(1.0)


def _judge(
    which: tuple[str, str, str], crowd: Crowd, sent: set[str], restarts: int, seconds: float
) -> Outcome:
    calls = crowd.handled()
    counts = Counter(call.body for call in calls)
    reached: dict[tuple[str, int], int] = defaultdict(lambda: -1)
    last: dict[tuple[str, int], int] = defaultdict(lambda: -1)
    skipped = stepped_back = 0
    for call in calls:
        place = (call.broker, call.queue)
        # Retries of a concurrent run come from a topic of their own, with offsets of its own.
        skipped += call.offset > reached[place] + 1
        stepped_back += call.offset <= last[place]
        last[place] = call.offset
        reached[place] = max(reached[place], call.offset)
    return Outcome(
        *which,
        sent=len(sent),
        handled=len(calls),
        again=len(calls) - len(counts),
        missed=len(sent - set(counts)),
        skipped=skipped,
        stepped_back=stepped_back,
        joined=crowd.joined,
        left=crowd.left,
        killed=crowd.killed,
        broker_restarts=restarts,
        seconds=round(seconds, 1),
    )


def main(words: list[str] | None = None) -> int:
    """Run the storms that were asked for; 1 if a promise was broken in any."""
    parser = argparse.ArgumentParser(prog="python -m bench.consumer_storm", description=__doc__)
    parser.add_argument("--cluster", choices=RELEASES, action="append", help="all by default")
    parser.add_argument("--shell", choices=SHELLS, action="append", help="blocking and asyncio")
    parser.add_argument("--kind", choices=KINDS, action="append", help="both by default")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--spread", type=float, default=45.0, help="seconds to send them in (45)")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--json", type=Path, help="a line for each storm is added to this file")
    chosen = parser.parse_args(words)
    good = True
    for release in chosen.cluster or RELEASES:
        for shell in chosen.shell or SHELLS[:2]:
            for kind in chosen.kind or KINDS:
                with tempfile.TemporaryDirectory(prefix="rocketwire-storm-") as folder:
                    outcome = run_storm(
                        release,
                        shell,
                        kind,
                        count=chosen.messages,
                        spread=chosen.spread,
                        folder=Path(folder),
                        seed=chosen.seed,
                    )
                good &= outcome.is_good
                line = json.dumps(asdict(outcome) | {"good": outcome.is_good})
                print(line, flush=True)
                if chosen.json is not None:
                    with chosen.json.open("a") as file:
                        file.write(line + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
