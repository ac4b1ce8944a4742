"""Routes change while both shells send: queues are added, brokers join, leave, move and are closed.

Nothing fails, everything acknowledged is there, and what the new route says is what is done. One cluster
per release serves all scenarios; each brings it into the state that it starts from.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from tests.conformance.conftest import REAL
from tests.conformance.shells import SHELLS
from tests.real import frames, jars, running
from tests.real.apache import ApacheCluster, free_port

from rocketwire import Message, SendFailedError, SendResult
from rocketwire.embedded import EmbeddedCluster

LIMIT = 60.0
REFRESH = 0.5
GUEST = "broker-c"
"""The broker that joins and leaves; two others are always there."""

_WIPE, _ALLOW = 205, 327
_READ_ONLY = 4
_names = itertools.count(1)


class Grid(Protocol):
    """A cluster whose routes can be changed."""

    name_server: str

    def grow(self, topic: str, queues: int) -> None:
        """Make the topic, or give it more queues, on all brokers that run."""

    def join(self) -> None:
        """The guest is there."""

    def leave(self) -> None:
        """The guest has shut down in an orderly way."""

    def move(self) -> None:
        """``broker-b`` restarts under another port."""


class EmbeddedGrid:
    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.name_server = cluster.name_server

    def grow(self, topic: str, queues: int) -> None:
        running_ones = [broker.name for broker in self._cluster.brokers if broker.running]
        self._cluster.create_topic(topic, queues, brokers=running_ones)

    def join(self) -> None:
        known = {broker.name: broker for broker in self._cluster.brokers}
        if GUEST not in known:
            self._cluster.add_broker(GUEST)
        elif not known[GUEST].running:
            known[GUEST].restart()

    def leave(self) -> None:
        self._cluster.broker(GUEST).stop()

    def move(self) -> None:
        broker = self._cluster.broker("broker-b")
        broker.stop()
        # Nobody moves an embedded broker but this test: it gives its port back and takes any other.
        server = broker._broker
        held = [server._reserved, server._fast]
        server._reserved, server._fast, server.port = None, None, 0
        broker.restart()
        for port in held:
            if port is not None:
                port.close()


class ApacheGrid:
    def __init__(self, cluster: ApacheCluster) -> None:
        self._cluster = cluster
        self.name_server = cluster.name_server

    def grow(self, topic: str, queues: int) -> None:
        alive = [broker for broker in self._cluster.brokers if broker.alive]
        self._cluster.create_topic(topic, queues, brokers=alive)

    def join(self) -> None:
        known = {broker.name: broker for broker in self._cluster.brokers}
        if GUEST not in known:
            self._cluster.add_broker(GUEST)
        elif not known[GUEST].alive:
            self._cluster.restart(known[GUEST])

    def leave(self) -> None:
        broker = self._cluster.broker(GUEST)
        broker.terminate()
        self._cluster.wait_unregistered(broker)

    def move(self) -> None:
        broker = self._cluster.broker("broker-b")
        broker.terminate()
        broker.settle(free_port("127.0.0.1", also=(-2,)))
        self._cluster.restart(broker)


@pytest.fixture(params=["embedded", *(pytest.param(v, marks=pytest.mark.real) for v in REAL)])
def grid(request: pytest.FixtureRequest) -> Grid:
    release = request.param
    if release == "embedded":
        return EmbeddedGrid(running.shared("routes", lambda: EmbeddedCluster(brokers=2)))
    jars.require_tools(release)
    key = f"routes-{release}"
    # The guest is away for a while, so not everything that is shared must be alive.
    cluster = running.shared(key, lambda: ApacheCluster(release, brokers=2), revive=False)
    return ApacheGrid(cluster)


class Senders:
    """Both shells send to one topic, each from a thread of its own, until the end."""

    def __init__(self, grid: Grid, topic: str) -> None:
        self.results: dict[bytes, SendResult] = {}
        self.failures: list[SendFailedError] = []
        self._topic = topic
        self._over = threading.Event()
        self._stack = ExitStack()
        options = {"group": "routes", "route_refresh": REFRESH}
        self.shells = {name: make(grid.name_server, **options) for name, make in SHELLS.items()}

    def __enter__(self) -> Senders:
        threads = []
        for name, shell in self.shells.items():
            self._stack.enter_context(shell)
            threads.append(threading.Thread(target=self._work, args=(name, shell), daemon=True))
        for thread in threads:
            thread.start()
            self._stack.callback(thread.join, LIMIT)
        self._stack.callback(self._over.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _work(self, name: str, shell: Any) -> None:
        for number in itertools.count():
            if self._over.wait(0.002):
                return
            body = f"{name}-{number}".encode()
            try:
                self.results[body] = shell.send(Message(self._topic, body))
            except SendFailedError as error:
                self.failures.append(error)

    def wait_for_use(self, wanted: Callable[[SendResult], bool], what: str) -> None:
        """Wait until each shell has sent something, from now on, that is ``wanted``."""
        seen, missing = len(self.results), set(self.shells)
        deadline = time.monotonic() + LIMIT
        while missing:
            assert time.monotonic() < deadline, f"{missing}: {what}"
            time.sleep(0.02)
            fresh = list(itertools.islice(self.results.items(), seen, None))
            seen += len(fresh)
            missing -= {body.decode().split("-")[0] for body, each in fresh if wanted(each)}

    def wait_for_disuse(self, broker: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait until neither shell uses a broker any more, over some refreshes."""
        quiet, seen, deadline = 0.0, len(self.results), time.monotonic() + LIMIT
        while quiet < 3 * REFRESH:
            assert time.monotonic() < deadline, f"{broker} is still used"
            time.sleep(0.1)
            meanwhile()
            fresh = list(itertools.islice(self.results.values(), seen, None))
            seen += len(fresh)
            used = any(each.queue.broker == broker for each in fresh)
            quiet = 0.0 if used or not fresh else quiet + 0.1


@pytest.fixture
def topic(grid: Grid) -> str:
    return f"routes-{os.getpid()}-{next(_names)}"


@pytest.fixture
def senders(grid: Grid, topic: str) -> Iterator[Callable[[], Senders]]:
    with ExitStack() as stack:

        def start() -> Senders:
            made = stack.enter_context(Senders(grid, topic))
            made.wait_for_use(lambda _: True, "nothing is sent")
            return made

        yield start


def judge(senders: Senders, topic: str) -> None:
    """After healing: no failure, and all that was acknowledged is there, once unless told."""
    senders._over.set()
    assert senders.failures == []
    results = dict(senders.results)
    reader, stored = senders.shells["blocking"], Counter[bytes]()
    deadline = time.monotonic() + LIMIT
    # Brokers show messages a moment after they have acknowledged them.
    while not results.keys() <= stored.keys() and time.monotonic() < deadline:
        stored = Counter(message.body for message in reader.read(topic))
    missing = results.keys() - stored.keys()
    assert not missing, f"{len(missing)} of {len(results)} acknowledged messages are missing"
    untold = [b for b, r in results.items() if stored[b] > 1 and not r.maybe_duplicate]
    assert not untold, f"{len(untold)} messages are stored twice without being told"


def test_added_queues_are_used(grid: Grid, topic: str, senders: Any) -> None:
    grid.grow(topic, 2)
    sending = senders()
    assert {each.queue.id for each in list(sending.results.values())} <= {0, 1}
    grid.grow(topic, 5)
    for queue in (2, 3, 4):
        sending.wait_for_use(lambda r, q=queue: r.queue.id == q, f"queue {queue} is not used")
    judge(sending, topic)


def test_a_broker_that_joins_is_used(grid: Grid, topic: str, senders: Any) -> None:
    if GUEST in frames.read_route(frames.ask(grid.name_server, 105, {"topic": "TBW102"})):
        grid.leave()
    grid.grow(topic, 2)
    sending = senders()
    grid.join()
    grid.grow(topic, 2)
    sending.wait_for_use(lambda r: r.queue.broker == GUEST, f"{GUEST} is not used")
    judge(sending, topic)


def test_a_broker_that_leaves_is_missed_by_nobody(grid: Grid, topic: str, senders: Any) -> None:
    grid.join()
    grid.grow(topic, 2)
    sending = senders()
    sending.wait_for_use(lambda r: r.queue.broker == GUEST, f"{GUEST} is not used")
    grid.leave()
    sending.wait_for_disuse(GUEST)
    assert not any(
        queue.broker == GUEST for queue in sending.shells["asyncio"].publish_queues(topic)
    )
    grid.join()  # what it had acknowledged is still there
    sending.wait_for_use(lambda r: r.queue.broker == GUEST, f"{GUEST} is not used again")
    judge(sending, topic)


def test_a_broker_that_changes_its_address_is_found(grid: Grid, topic: str, senders: Any) -> None:
    grid.grow(topic, 2)
    sending = senders()
    sending.wait_for_use(lambda r: r.queue.broker == "broker-b", "broker-b is not used")
    before = address_of(grid, "broker-b")
    grid.move()
    assert address_of(grid, "broker-b") != before
    sending.wait_for_use(lambda r: r.queue.broker == "broker-b", "broker-b was not found again")
    judge(sending, topic)


def address_of(grid: Grid, broker: str) -> str:
    shown = frames.ask(grid.name_server, 106).body.decode()
    start = shown.index(f'"brokerName":"{broker}"')
    near = shown[max(0, start - 120) : start]
    return near[near.rindex("brokerAddrs") :]


def test_a_broker_without_write_permission_is_left_and_used_again(
    grid: Grid, topic: str, senders: Any
) -> None:
    grid.grow(topic, 2)
    sending = senders()
    sending.wait_for_use(lambda r: r.queue.broker == "broker-b", "broker-b is not used")

    def forbid() -> None:
        # A registration that is on its way when a topic has just been made undoes it.
        route = frames.read_route(frames.ask(grid.name_server, 105, {"topic": topic}))
        if route["broker-b"][1] != _READ_ONLY:
            assert frames.ask(grid.name_server, _WIPE, {"brokerName": "broker-b"}).code == 0

    try:
        sending.wait_for_disuse("broker-b", meanwhile=forbid)
    finally:
        assert frames.ask(grid.name_server, _ALLOW, {"brokerName": "broker-b"}).code == 0
    sending.wait_for_use(lambda r: r.queue.broker == "broker-b", "broker-b is not used again")
    judge(sending, topic)
