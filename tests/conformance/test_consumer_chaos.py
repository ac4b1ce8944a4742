"""Members come, go and are killed, a broker dies and returns: nothing is missed, order holds.

``ROCKETWIRE_CHAOS`` sets the number of messages (100000 for the long run).
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.conftest import REAL
from tests.conformance.members import unique_group
from tests.real import jars
from tests.real.apache import ApacheCluster

from rocketwire import Message, Producer, SendFailedError
from rocketwire.embedded import EmbeddedCluster

COUNT = int(os.environ.get("ROCKETWIRE_CHAOS", "4000"))
KEYS = 40
#: Seconds over which the messages are spread at least, so that something can happen among them.
SPREAD = 15.0
EATER = str(Path(__file__).parent / "eater.py")

_log = logging.getLogger("chaos")

pytestmark = pytest.mark.timeout(900)


class Crowd:
    """Processes that are members of one group."""

    def __init__(self, name_server: str, topic: str, notes: Path, kind: str) -> None:
        self._command = [sys.executable, EATER, name_server, unique_group(), topic, str(notes)]
        self._kind = kind
        self._notes = notes
        self._number = 0
        self.members: list[subprocess.Popen[bytes]] = []

    def join(self) -> None:
        shell = ("blocking", "asyncio")[self._number % 2]
        self._number += 1
        command = [*self._command, shell, self._kind]
        member = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert member.stdout is not None
        assert member.stdout.readline() == b"ready\n"
        self.members.append(member)

    def kill(self, how: signal.Signals) -> None:
        member = self.members.pop(random.randrange(len(self.members)))
        member.send_signal(how)
        code = member.wait(60)
        if member.stdout is not None:
            member.stdout.close()
        assert code in {0, -signal.SIGKILL}, f"a member ended with {code}"

    def end(self) -> None:
        while self.members:
            self.kill(signal.SIGTERM)

    def handled(self) -> list[tuple[str, int, int, str]]:
        """(broker, queue, offset, body) of every call of a handler, in order."""
        if not self._notes.exists():
            return []
        lines = self._notes.read_text().splitlines()
        found = [line.split(" ", 4)[1:] for line in lines]
        return [(broker, int(queue), int(offset), body) for broker, queue, offset, body in found]


def feed(name_server: str, topic: str, sent: dict[str, None], done: threading.Event) -> None:
    """Send numbered messages of many keys; those that were not acknowledged are sent again."""
    rounds = COUNT // KEYS
    with Producer(name_server, group="feeder", ordered_retries=5, send_timeout=10.0) as producer:
        for number in range(rounds):
            done.wait(SPREAD / rounds)
            batch = [
                Message(topic, f"{key}:{number}", sharding_key=f"key-{key}") for key in range(KEYS)
            ]
            for message in batch:
                for _ in range(20):
                    try:
                        producer.send(message)
                        break
                    except SendFailedError:
                        time.sleep(0.2)
                sent[message.body.decode()] = None
    done.set()


def open_cluster(release: str) -> Any:
    """Two brokers of our own: one of them will be killed."""
    if release == "embedded":
        return EmbeddedCluster(brokers=2)
    jars.require_tools(release)
    return ApacheCluster(release, brokers=2)


def restart(cluster: Any, name: str) -> None:
    broker = cluster.broker(name)
    if isinstance(cluster, ApacheCluster):
        cluster.restart(broker)
    else:
        broker.restart()


@pytest.mark.parametrize(
    "release", ["embedded", *(pytest.param(v, marks=pytest.mark.real) for v in REAL)]
)
@pytest.mark.parametrize("kind", ["concurrent", "ordered"])
def test_nothing_is_missed_while_members_and_brokers_come_and_go(
    kind: str, release: str, tmp_path: Path
) -> None:
    random.seed(4)
    with open_cluster(release) as cluster:
        cluster.create_topic("orders", 4)
        sent: dict[str, None] = {}
        done = threading.Event()
        crowd = Crowd(cluster.name_server, "orders", tmp_path / "notes", kind)
        feeder = threading.Thread(
            target=feed, args=(cluster.name_server, "orders", sent, done), daemon=True
        )
        crowd.join()
        crowd.join()
        feeder.start()
        storm(cluster, crowd, done)
        feeder.join(300)
        assert not feeder.is_alive()
        # Locks of killed members are held for a minute.
        wait_for(lambda: {body for *_, body in crowd.handled()} >= set(sent), 200)
        crowd.end()
    check(kind, crowd.handled(), sent)


def storm(cluster: Any, crowd: Crowd, done: threading.Event) -> None:
    """Every second or so something happens, until all is sent; then two members are left."""
    broker = cluster.broker("broker-b")
    actions = [
        crowd.join,
        lambda: len(crowd.members) > 1 and crowd.kill(signal.SIGTERM),
        crowd.join,
        lambda: len(crowd.members) > 1 and crowd.kill(signal.SIGKILL),
        broker.kill,
        lambda: restart(cluster, "broker-b"),
    ]
    for action in actions:
        done.wait(1.5)
        action()
    while not done.wait(5.0):
        actions[random.randrange(4)]()
    while len(crowd.members) < 2:
        crowd.join()


def check(kind: str, handled: list[tuple[str, int, int, str]], sent: dict[str, None]) -> None:
    counts = Counter(body for *_, body in handled)
    assert set(counts) >= set(sent), "a message was missed"
    again = len(handled) - len(counts)
    _log.info("%s: %d sent, %d handled, %d of them again", kind, len(sent), len(handled), again)
    if kind != "ordered":
        return
    reached: dict[tuple[str, int], int] = defaultdict(lambda: -1)
    for broker, queue, offset, _ in handled:
        place = (broker, queue)
        assert offset <= reached[place] + 1, f"{place}: {offset} came after {reached[place]}"
        reached[place] = max(reached[place], offset)


def wait_for(condition: Any, limit: float) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.5)
