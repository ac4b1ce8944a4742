"""Replicas under a controller: when the master dies, another one becomes the master and is found at once.

``ROCKETWIRE_REPLICAS=1`` selects these; ``make test-full`` does.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.members import MEMBERS, Seen
from tests.conformance.shells import SHELLS
from tests.real import jars
from tests.real.apache import ApacheBroker
from tests.real.replicas import Controlled
from tests.real.running import unique

from rocketwire import Admin, Message, Reader, RocketMQError, SendFailedError, SendStatus

pytestmark = pytest.mark.timeout(900)
_log = logging.getLogger("tests.controller")
PROMPT = 10.0
"""Seconds in which a new master is to be found: routes are asked for every 30 s in any case."""


@pytest.fixture(params=["5.3.3", "5.5.0"])
def version(request: pytest.FixtureRequest) -> str:
    jars.require_tools(request.param)
    return str(request.param)


@pytest.fixture
def cluster(version: str) -> Iterator[Controlled]:
    with Controlled(version) as cluster:
        yield cluster


class Sending:
    """Sends numbers all the time, notes those that are stored, and when."""

    def __init__(self, shell: Any, topic: str, *, ordered: bool) -> None:
        self.stored: list[int] = []
        self.times: list[float] = []
        self.failures: list[str] = []
        self._shell, self._topic, self._ordered = shell, topic, ordered
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main)

    def _main(self) -> None:
        number = 0
        while not self._over.is_set():
            key = f"key {number % 8}" if self._ordered else None
            try:
                result = self._shell.send(Message(self._topic, str(number), sharding_key=key))
            except (SendFailedError, RocketMQError) as error:
                self.failures.append(str(error))
            else:
                if result.status is SendStatus.OK:
                    self.stored.append(number)
                    self.times.append(time.monotonic())
            number += 1
            self._over.wait(0.005)

    def __enter__(self) -> "Sending":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def wait_for(self, count: int, limit: float = 60.0) -> None:
        end = time.monotonic() + limit
        wanted = len(self.stored) + count
        while len(self.stored) < wanted:
            assert time.monotonic() < end, (len(self.stored), self.failures[-3:])
            time.sleep(0.02)


def wait_for_another(cluster: Controlled, dead: ApacheBroker) -> float:
    """When the name server tells of a new master."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError):
            if cluster.master not in {None, dead}:
                return time.monotonic()
        time.sleep(0.02)
    raise AssertionError("no other replica became the master")


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@pytest.mark.parametrize("kind", list(SHELLS))
def test_a_slave_that_becomes_master_is_found_at_once(
    cluster: Controlled, kind: str, ordered: bool
):
    topic, group = unique("topic"), unique("group")
    cluster.create_topic(topic, 4, brokers=[cluster.master])
    seen = Seen()
    member = MEMBERS[kind](
        cluster.name_server, group, topic, seen=seen, start="earliest", ordered=ordered
    ).start()
    with (
        SHELLS[kind](cluster.name_server, group=unique("ours")) as shell,
        Sending(shell, topic, ordered=ordered) as sending,
    ):
        sending.wait_for(200)
        dead = cluster.master
        assert dead is not None
        dead.kill()
        killed = time.monotonic()
        told = wait_for_another(cluster, dead)
        sending.wait_for(200)
        first = next(moment for moment in sending.times if moment > told)
        handled = len(seen.all)
        seen.wait(lambda seen: len(seen.all) > handled + 100)
        # The one that died comes back as a slave, catches up, and takes over when the other dies.
        cluster.restart(dead)
        cluster.wait_in_step()
        other = cluster.master
        assert other is not None
        other.kill()
        assert wait_for_another(cluster, other)
        sending.wait_for(200)
    _log.info(
        "%s %s: a new master %.1f s after the kill, sent to %.2f s later, %d failed sends",
        cluster.version,
        kind,
        told - killed,
        first - told,
        len(sending.failures),
    )
    assert first - told < PROMPT
    seen.wait_for_bodies({str(number) for number in sending.stored}, 120)
    member.stop()
    if ordered:
        check_order(seen)
    with Reader(cluster.name_server) as reader:
        assert {str(n) for n in sending.stored} <= {m.text for m in reader.read(topic)}
    with Admin(cluster.name_server) as admin:
        assert sum(n for q, n in admin.group(group).lag.items() if q.topic == topic) == 0


def check_order(seen: Seen) -> None:
    """Per key, a message is first handled after all those before it."""
    last: dict[str | None, int] = {}
    handled: set[str] = set()
    for message in seen.messages():
        if message.text in handled:  # it comes again, and so do all that follow it
            continue
        handled.add(message.text)
        number, before = int(message.text), last.get(message.sharding_key, -1)
        assert number > before, (message.sharding_key, before, number)
        last[message.sharding_key] = number
