"""One of three real brokers goes wrong while sends go on at full speed.

For every fault: no send fails, every acknowledged message is on the brokers after healing, a message is
there twice only where the result said so, and the bad broker is left and used again. How fast all this is
belongs to the benchmarks, not here.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.real import jars, records, running
from tests.real.apache import ApacheCluster
from tests.real.proxied import BAD, FAULTS, Proxied, proxied_cluster
from tests.real.running import unique

from rocketwire import Message, Producer, SendFailedError, SendResult

VERSION = "5.3.3"
FAULT_SECONDS = 2.0
RETURN_LIMIT = 40.0


@pytest.fixture
def proxied() -> Iterator[Proxied]:
    jars.require_tools(VERSION)
    made = running.shared(f"proxied-{VERSION}", lambda: proxied_cluster(VERSION))
    yield made
    made.proxies.heal()


class Sender:
    """Sends numbered messages from some threads and remembers every outcome."""

    def __init__(self, producer: Producer, topic: str, form: str) -> None:
        self.results: dict[int, SendResult] = {}
        self.failures: list[SendFailedError] = []
        self._producer = producer
        self._topic = topic
        self._form = form
        self._numbers = itertools.count()
        self._last_use = 0.0
        self._over = threading.Event()
        count = 4 if form == "send-4" else 1
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]

    def __enter__(self) -> "Sender":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        self._producer.flush(60)

    def used_since(self, moment: float) -> bool:
        """Whether the bad broker has stored something that was sent after ``moment``."""
        return self._last_use > moment

    def _work(self) -> None:
        while not self._over.is_set():
            try:
                self._send(next(self._numbers), time.monotonic())
            except SendFailedError as error:
                self.failures.append(error)

    def _send(self, number: int, begun: float) -> None:
        message = Message(self._topic, b"%d" % number)
        if self._form == "submit":
            self._producer.submit(
                message,
                on_success=lambda result: self._note(number, result, begun),
                on_error=self.failures.append,
            )
        elif self._form == "batch":
            second = Message(self._topic, b"%d and more" % number)
            self._note(number, self._producer.send([message, second]), begun)
        else:
            self._note(number, self._producer.send(message), begun)

    def _note(self, number: int, result: SendResult, begun: float) -> None:
        self.results[number] = result
        if result.queue.broker == BAD:
            self._last_use = begun


CASES = [
    *(
        (fault, form)
        for fault in FAULTS
        if fault != "killed"
        for form in ("send-1", "send-4", "submit")
    ),
    # A restart takes longest of all, so it is tried with the forms that differ most.
    ("killed", "send-4"),
    ("killed", "submit"),
    ("blackhole", "batch"),
    ("flap", "batch"),
]


@pytest.mark.parametrize(("fault", "form"), CASES)
def test_nothing_is_lost_and_the_broker_comes_back(proxied: Proxied, fault: str, form: str):
    topic = unique("faults")
    proxied.cluster.create_topic(topic)
    begin, end = FAULTS[fault]
    options: dict[str, Any] = {"group": unique("ours"), "max_in_flight": 64, "route_refresh": 1.0}
    with (
        Producer(proxied.cluster.name_server, **options) as producer,
        Sender(producer, topic, form) as sender,
    ):
        wait_until(lambda: sender.used_since(0.0), "the broker was never used at all")
        begin(proxied)
        try:
            time.sleep(FAULT_SECONDS)
        finally:
            end(proxied)
        healed = time.monotonic()
        wait_until(lambda: sender.used_since(healed), f"{BAD} was not used again")
    assert sender.failures == []
    judge(proxied.cluster, topic, sender, form)


def judge(cluster: ApacheCluster, topic: str, sender: Sender, form: str) -> None:
    stored = records.bodies(cluster, topic)
    suffixes = (b"", b" and more") if form == "batch" else (b"",)
    lost, untold = [], []
    for number, result in sender.results.items():
        for suffix in suffixes:
            copies = stored[b"%d" % number + suffix]
            if copies == 0:
                lost.append(number)
            elif copies > 1 and not result.maybe_duplicate:
                untold.append(number)
    assert not lost, f"{len(lost)} of {len(sender.results)} acknowledged messages are missing"
    assert not untold, f"{len(untold)} messages are stored twice without being told"


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + RETURN_LIMIT
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)
