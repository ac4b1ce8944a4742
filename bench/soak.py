"""Everything at once that goes wrong, for a while: ``python -m bench.soak --minutes 20``.

Messages are sent, submitted and sent in batches while signal handlers submit and interrupt, the process
forks and its children send, poison is stored among the messages, and brokers are slow, hang, have full
disks, are killed and come back. The room for submitted messages is small, so that it is always full. At
the end every message is reconciled: what was acknowledged is there, what was "not sent" is not, and only
what may be stored twice is there twice. Ends with an error if that is not so.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from bench.embedded_load import send_ext
from rocketwire import Message, Outcome, Producer, Reader, RocketMQError, SendFailedError
from rocketwire.embedded import EmbeddedCluster
from rocketwire.embedded.control import BrokerHandle
from rocketwire.errors import ConfigError, ProtocolError
from rocketwire.sync.delivery import Delivery
from rocketwire.wire.codes import STORED
from rocketwire.wire.command import Command, decode_command, encode_command

TOPIC: Final = "soak"
_POISON: Final = b"poison"
_OPTIONS: Final[dict[str, Any]] = {
    "send_timeout": 4.0, "max_in_flight": 200, "max_in_flight_bytes": 100_000,
}  # fmt: skip


class InterruptedHereError(Exception):
    """What the signal handler raises, anywhere."""


class Ledger:
    """What became of each message, as its sender was told.

    Args:
        owner: stands in the names of its messages. No process number: the system gives those again.
    """

    def __init__(self, owner: str = "main") -> None:
        self._owner = owner
        self.fates: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def new(self, who: str = "") -> Message:
        """A message with a body of its own, of which nothing is known yet.

        The number is taken in one step: a handler that interrupted another one between counting up and
        reading the count gave two messages the same body, which looked like one stored twice.
        """
        name = f"{who}{self._owner}-{next(self._numbers)}"
        assert name not in self.fates, name
        self.fates[name] = "maybe"
        return Message(TOPIC, name, keys=name)

    def settle(self, message: Message, error: BaseException | None, *, twice: bool = False) -> None:
        """A sender was told so."""
        name = message.body.decode()
        if error is None:
            self.fates[name] = "stored, maybe twice" if twice else "stored"
        elif isinstance(error, SendFailedError) and error.outcome is not Outcome.MAYBE_STORED:
            self.fates[name] = "not stored"


class Soak:
    """One run."""

    def __init__(self, cluster: EmbeddedCluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.ledger = Ledger()
        self.waiting: list[tuple[Message, Delivery]] = []
        self.done: Counter[str] = Counter()
        self.poisoned = 0
        self._children = 0
        self.is_over = False
        self.producer = Producer(cluster.name_server, group="soak", **_OPTIONS)

    # -- what sends -------------------------------------------------------------------------

    def send(self) -> None:
        """One message, and what became of it."""
        message = self.ledger.new()
        try:
            result = self.producer.send(message)
            self.ledger.settle(message, None, twice=result.maybe_duplicate)
        except RocketMQError as error:
            self.ledger.settle(message, error)

    def submit(self) -> None:
        """One message, whose answer is looked at later."""
        message = self.ledger.new()
        try:
            self.waiting.append((message, self.producer.submit(message)))
        except RocketMQError as error:
            self.ledger.settle(message, error)
        if len(self.waiting) > 500:
            self.collect()

    def collect(self) -> None:
        """Look at the answers to what was submitted."""
        while self.waiting:
            message, delivery = self.waiting[-1]
            error = delivery.exception(60)
            twice = error is None and delivery.result().maybe_duplicate
            self.ledger.settle(message, error, twice=twice)
            self.waiting.pop()

    def fork(self) -> None:
        """A child sends with the producer that it inherits, and tells what became of it."""
        self._children += 1
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            signal.setitimer(signal.ITIMER_REAL, 0)
            ledger = self.ledger = Ledger(f"child{self._children}")
            for _ in range(5):
                self.send()
            os.write(writing, json.dumps(ledger.fates).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            text = told.read()
        os.waitpid(child, 0)
        self.ledger.fates.update(json.loads(text or b"{}"))

    def poison(self) -> None:
        """A message that no client should have written, on a connection of its own."""
        broker = self.chance.choice(self.cluster.brokers)
        host, port = broker.address.rsplit(":", 1)
        odd = {
            "g": str(self.chance.choice((2**62, -(2**62)))),
            "f": str(self.chance.choice((0x1, 0x40, 0x301))),
        }
        command = Command(310, send_ext(TOPIC, 0, "") | odd, _POISON, None, 1)
        try:
            with socket.create_connection((host, int(port)), 1) as sock:
                sock.sendall(encode_command(command))
                sock.settimeout(1)
                answer = sock.recv(4096)
                # Nothing is read where the broker is killed before it answers.
                self.poisoned += bool(answer) and decode_command(answer[4:]).code in STORED
        except (OSError, ProtocolError):
            return  # the broker is away just now

    # -- what disturbs ----------------------------------------------------------------------

    def on_signal(self, _: int, __: FrameType | None) -> None:
        """Submit from within whatever runs, and now and then interrupt it."""
        self.done["signals"] += 1
        if self.is_over:
            return
        message = self.ledger.new("h")
        try:
            self.waiting.insert(0, (message, self.producer.submit(message)))
        except RocketMQError as error:
            self.ledger.settle(message, error)
        self.producer.stats()
        if self.chance.random() < 0.2:
            self.done["interrupts"] += 1
            raise InterruptedHereError

    def disturb(self) -> None:
        """Break a broker for a moment, again and again."""
        chance = random.Random(self.chance.random())
        while not self.is_over:
            broker = chance.choice(self.cluster.brokers)
            faults: dict[str, Callable[[], object]] = {
                "slow": lambda b=broker: b.slow(0.2), "hang": broker.hang, "busy": broker.busy,
                "disk full": broker.disk_full, "kill": broker.kill,
                "drop": broker.drop_connections,
            }  # fmt: skip
            name = chance.choice(list(faults))
            self.done[name] += 1
            faults[name]()
            time.sleep(chance.uniform(0.2, 1.5))
            self._mend(broker, is_dead=name == "kill")
            time.sleep(chance.uniform(0.2, 1.0))

    def _mend(self, broker: BrokerHandle, *, is_dead: bool) -> None:
        for _ in range(100):
            try:
                broker.restart() if is_dead else broker.heal()
            except ConfigError:  # a child that was forked just now has the port still open
                time.sleep(0.1)
            else:
                return

    def run(self, seconds: float) -> None:
        """Go on for so long."""
        self.producer.start()
        signal.signal(signal.SIGALRM, self.on_signal)
        disturber = threading.Thread(target=self.disturb)
        disturber.start()
        end = time.monotonic() + seconds
        deeds = [self.send] * 20 + [self.submit] * 200 + [self.poison] + [self.fork]
        while time.monotonic() < end:
            deed = self.chance.choice(deeds)
            self.done[deed.__name__] += 1
            try:
                try:
                    # None while it forks: the child's own messages are told to the parent.
                    signal.setitimer(signal.ITIMER_REAL, 0 if deed == self.fork else 0.02, 0.02)
                    deed()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)  # the last one may come here
            except InterruptedHereError:
                continue
        self.is_over = True
        disturber.join()
        for broker in self.cluster.brokers:
            self._mend(broker, is_dead=True)
        self.collect()
        self.producer.flush(60)
        held = self.producer.stats().in_flight
        self.producer.shutdown()
        if held:
            raise SystemExit(f"{held} places in flight were lost")

    # -- the end ----------------------------------------------------------------------------

    def reconcile(self) -> list[str]:
        """What is there against what was told; the differences."""
        places: dict[bytes, list[str]] = {}
        with Reader(self.cluster.name_server) as reader:
            for message in reader.read(TOPIC):
                place = f"{message.queue.broker} {message.queue.id} at {message.offset}"
                places.setdefault(bytes(message.body), []).append(f"{place}, {message.message_id}")
        found = Counter({body: len(all_of_it) for body, all_of_it in places.items()})
        problems = []
        for name, fate in self.ledger.fates.items():
            count = found.pop(name.encode(), 0)
            if (
                (fate.startswith("stored") and not count)
                or (fate == "not stored" and count)
                or (fate == "stored" and count > 1)
            ):
                where = "; ".join(places.get(name.encode(), ()))
                problems.append(f"{name}: {fate}, found {count} times: {where}")
        strange = [body for body in found if body != _POISON]
        if found[_POISON] < self.poisoned:
            problems.append(f"{self.poisoned} poisoned messages stored, {found[_POISON]} read")
        return problems + [f"nobody sent {body!r}" for body in strange]


def main(words: list[str] | None = None) -> int:
    """Run and reconcile; 1 if anything was lost or made up."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(words)
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedCluster(brokers=2, flush="sync", folder=Path(folder)) as cluster,
    ):
        cluster.create_topic(TOPIC, queues=4)
        soak = Soak(cluster, chosen.seed)
        soak.run(chosen.minutes * 60)
        problems = soak.reconcile()
    print(dict(soak.done), dict(Counter(soak.ledger.fates.values())), f"poison {soak.poisoned}")
    print("\n".join(problems[:50]) or "every message is accounted for")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
