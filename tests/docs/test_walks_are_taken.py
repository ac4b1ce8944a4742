"""The walks are those that messages take: each file of a step is passed.

Of a blocking send and of a submit, the page names every file that is passed: as a step, or in its first words.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.docs.test_walks import PAGE, WALKS

import rocketwire
from rocketwire import AsyncProducer, Consumer, Message, Producer, StoredMessage
from rocketwire.embedded import EmbeddedCluster

_PACKAGE = f"{Path(rocketwire.__file__).parent}/"
#: What is passed by everything and belongs to no walk: values, their rules, and words of errors.
_VALUES = re.compile(r"(?:message|errors|config|\w+_config|hooks|log_fields|fault_policy)\.py")


class Trail:
    """The files of the package whose functions were called, in the order of the first call."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.is_over = False

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function."""
        name = frame.f_code.co_filename
        if event == "call" and not self.is_over and name.startswith(_PACKAGE):
            file = name.removeprefix(_PACKAGE)
            if not file.startswith("embedded/") and not _VALUES.fullmatch(file):
                self.files.setdefault(file, frame.f_code.co_qualname)


@contextmanager
def here(trail: Trail) -> Iterator[None]:
    """Note what this thread calls."""
    before = sys.getprofile()
    sys.setprofile(trail.note)
    try:
        yield
    finally:
        sys.setprofile(before)


def files_of(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_/]+\.py)`", text))


def check(title: str, trail: Trail) -> None:
    """Every file of a step was passed."""
    steps = "".join(re.findall(r"^\d+\. (?:.*\n)(?:   .*\n)*", WALKS[title], re.MULTILINE))
    missing = files_of(steps) - trail.files.keys()
    assert not missing, f"steps of {title!r} that are not taken"


def check_all(title: str, trail: Trail, *, goes_on_as: str = "") -> None:
    """Every file that was passed is named, too."""
    check(title, trail)
    named = files_of(WALKS[title]) | files_of(PAGE.partition("\n## ")[0])
    if goes_on_as:
        named |= files_of(WALKS[goes_on_as])
    unknown = {file: by for file, by in trail.files.items() if file not in named}
    assert not unknown, f"passed, and not named in {title!r}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        with Producer(cluster.name_server, group="walks") as producer:
            producer.create_topic("walks", queues=2)
        yield cluster


def usual(number: int) -> Message:
    return Message("walks", f"body {number}", tags="paid", keys=f"order-{number}")


def test_a_blocking_send_takes_its_walk(cluster: EmbeddedCluster) -> None:
    trail = Trail()
    with Producer(cluster.name_server, group="walks") as producer:
        for number in range(10):
            producer.send(usual(number))
        message = usual(10)
        with here(trail):
            producer.send(message)
    check_all("A blocking send", trail)


def test_a_submit_takes_its_walk(cluster: EmbeddedCluster) -> None:
    trail = Trail()

    async def main() -> None:
        async with AsyncProducer(cluster.name_server, group="walks") as producer:
            for number in range(10):
                await producer.send(usual(number))
            message = usual(10)
            with here(trail):
                delivery = await producer.submit(message)
                while not delivery.done():
                    await asyncio.sleep(0)

    asyncio.run(main())
    check_all("A submit", trail, goes_on_as="A blocking send")


def test_an_ordered_send_takes_its_walk(cluster: EmbeddedCluster) -> None:
    trail = Trail()

    def ordered(number: int) -> Message:
        return Message("walks", f"step {number}", sharding_key="order-1")

    with Producer(cluster.name_server, group="walks") as producer:
        producer.send(ordered(0))
        fault = cluster.brokers[0].slow(0.3, next=1)
        first = producer.submit(ordered(1))
        message = ordered(2)
        with here(trail):
            producer.send(message)
        cluster.brokers[0].end_fault(fault)
        assert first.done()
    check("An ordered send", trail)


def with_threads(trail: Trail, work: Callable[[], None]) -> None:
    """Note what this thread calls, and all threads that begin meanwhile."""
    threading.setprofile(trail.note)
    try:
        with here(trail):
            work()
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]  # its stub lacks None


def test_an_auto_batched_send_takes_its_walk(cluster: EmbeddedCluster) -> None:
    trail = Trail()

    def work() -> None:
        with Producer(cluster.name_server, group="walks", auto_batch=True) as producer:
            for number in range(10):
                producer.send(usual(number))
            producer.submit(usual(10)).result(10)
            trail.files.clear()
            deliveries = [producer.submit(usual(number)) for number in range(11, 16)]
            for delivery in deliveries:
                delivery.result(10)
            trail.is_over = True

    with_threads(trail, work)
    check("An auto-batched send", trail)


def test_a_handled_message_takes_its_walk(cluster: EmbeddedCluster) -> None:
    trail = Trail()

    def work() -> None:
        with Consumer(cluster.name_server, group="walkers", start="earliest") as consumer:

            def handle(message: StoredMessage) -> None:
                assert message.keys
                consumer.stop()

            consumer.subscribe("walks").run(handle)
        trail.is_over = True

    with Producer(cluster.name_server, group="walks") as producer:
        producer.send(usual(20))
    with_threads(trail, work)
    check("A handled message", trail)
