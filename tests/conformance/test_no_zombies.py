"""Whatever runs for a consumer and dies is started again, or ends ``run`` with its error."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import unique_group

from rocketwire import AsyncConsumer, Consumer, Message, Producer
from rocketwire.aio import group_session
from rocketwire.core.group import pull_loop
from rocketwire.core.group.workload import Workload
from rocketwire.embedded import EmbeddedCluster

LIMIT = 30.0


class KilledError(Exception):
    """What a test throws into something that runs."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        yield running


@pytest.fixture
def send(cluster: EmbeddedCluster) -> Iterator[Callable[..., str]]:
    topic = unique_group().replace("group", "topic")
    cluster.create_topic(topic, 1)
    with Producer(cluster.name_server, group="feeder") as producer:

        def send_all(*bodies: str) -> str:
            for body in bodies:
                producer.send(Message(topic, body))
            return topic

        yield send_all


@pytest.fixture
def quick(monkeypatch) -> None:
    """What failed is started again soon."""
    monkeypatch.setattr(group_session, "_PAUSE", 0.01)


def make(kind: type, cluster: EmbeddedCluster, topic: str, **options: Any) -> Any:
    options = {"start": "earliest", "retry_pause": 0.01, "shutdown_timeout": 0.5} | options
    return kind(cluster.name_server, group=unique_group(), **options).subscribe(topic)


def run_async(one: AsyncConsumer, handle: Callable[[Any], object]) -> None:
    asyncio.run(asyncio.wait_for(one.run(handle), LIMIT))


def run_blocking(one: Consumer, handle: Callable[[Any], object]) -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            one.run(handle)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "run() goes on, and nobody works"
    if failed:
        raise failed[0]


SHELLS = {"asyncio": (AsyncConsumer, run_async), "blocking": (Consumer, run_blocking)}


@pytest.fixture(params=SHELLS)
def shell(request) -> tuple[type, Callable[..., None]]:
    return SHELLS[request.param]


@pytest.mark.parametrize("method", ["go_on", "finish"])
def test_a_worker_that_dies_ends_run_with_its_error(monkeypatch, cluster, send, shell, method):
    def die(*_: object) -> None:
        raise KilledError

    topic = send("a", "b")
    kind, run = shell
    one = make(kind, cluster, topic, workers=2)
    monkeypatch.setattr(Workload, method, die)
    with pytest.raises(KilledError):
        run(one, lambda _: None)


class BrokenLog(logging.Handler):
    """Raises instead of writing, as no handler should."""

    def emit(self, _: logging.LogRecord) -> None:
        raise KilledError("the log is broken, too")


STEPS = [(Workload, "full"), (Workload, "put")] + [
    (pull_loop, name)
    for name in ("_wait_for_leave", "_pull", "_calls", "_address", "_request", "_read", "_take")
]


@pytest.mark.parametrize(("owner", "name"), STEPS, ids=[name for _, name in STEPS])
def test_a_pull_loop_goes_on_whatever_happens_in_it(monkeypatch, cluster, send, shell, owner, name):
    true, calls = getattr(owner, name), []

    def die_twice(*given: Any, **more: Any) -> Any:
        calls.append(name)
        if len(calls) < 3:
            raise KilledError
        return true(*given, **more)

    topic = send("a")
    kind, run = shell
    one = make(kind, cluster, topic)
    monkeypatch.setattr(pull_loop, "_LONG_REST", 0.1)
    monkeypatch.setattr(owner, name, die_twice)
    run(one, lambda _: one.stop())
    assert len(calls) >= 3
    assert one.stats().pull_errors >= 2


def test_a_pull_loop_goes_on_when_not_even_the_log_takes_its_trouble(
    monkeypatch, cluster, send, shell
):
    handler = BrokenLog()
    monkeypatch.setattr(logging.getLogger("rocketwire.consumer"), "handlers", [handler])
    test_a_pull_loop_goes_on_whatever_happens_in_it(
        monkeypatch, cluster, send, shell, Workload, "full"
    )


KEPT = ["keep_heartbeats", "keep_rebalancing", "keep_commits", "keep_watch", "keep_locks"]


@pytest.mark.parametrize("name", KEPT)
def test_a_part_of_the_membership_that_dies_is_started_again(
    monkeypatch, cluster, send, shell, name, quick, caplog
):
    true, started = getattr(group_session, name), []

    def die_once(group: Any) -> Any:
        started.append(name)
        if len(started) == 1:
            raise KilledError
        yield from true(group)

    topic = send("a")
    kind, run = shell
    one = make(kind, cluster, topic, ordered=True)
    monkeypatch.setattr(group_session, name, die_once)
    again = threading.Event()

    def handle(message: Any) -> None:
        if len(started) < 2:
            raise ValueError("not yet")
        again.set()
        one.stop()

    run(one, handle)
    assert again.is_set()
    assert "started again" in caplog.text


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"broadcast": True}], ids=str)
def test_messages_are_handed_out_again_if_returning_them_fails(
    monkeypatch, cluster, send, shell, options, tmp_path, caplog
):
    calls = []

    def die_once(*_: Any, **__: Any) -> Any:
        calls.append(1)
        raise KilledError

    topic = send("a")
    kind, run = shell
    more = {"offsets_folder": str(tmp_path)} if options.get("broadcast") else {}
    one = make(kind, cluster, topic, **options, **more)
    seen = []

    def handle(message: Any) -> None:
        seen.append(message.text)
        if len(seen) == 1:
            step = "_tell" if options else "give_back"
            monkeypatch.setattr(f"rocketwire.core.group.send_back.{step}", die_once)
            raise ValueError("the first time")
        one.stop()

    run(one, handle)
    assert (seen, calls) == (["a", "a"], [1])
    assert "handed out again" in caplog.text


def test_a_handler_that_is_cancelled_from_within_has_failed(cluster, send, shell):
    topic = send("a")
    kind, run = shell
    one = make(kind, cluster, topic, ordered=True)
    seen = []

    async def handle(message: Any) -> None:
        seen.append(message.text)
        if len(seen) == 1:
            lost = asyncio.get_running_loop().create_future()
            lost.cancel()
            await lost
        one.stop()

    run(one, handle)
    assert seen == ["a", "a"]
    assert one.stats().failed == 1


def test_a_handler_that_cancels_its_own_task_gets_another(cluster, send):
    topic = send("a")
    one = make(AsyncConsumer, cluster, topic, workers=1)
    seen = []

    async def handle(message: Any) -> None:
        seen.append(message.text)
        if len(seen) == 1:
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        one.stop()

    run_async(one, handle)
    assert seen == ["a", "a"]


def test_run_ends_when_the_loop_of_a_blocking_consumer_dies(cluster, send):
    topic = send("a")
    one = make(Consumer, cluster, topic)

    def die() -> None:
        raise SystemExit("the loop is over")

    def handle(_: Any) -> None:
        one._thread.loop.call_soon_threadsafe(die)

    with pytest.raises(SystemExit, match="the loop is over"):
        run_blocking(one, handle)
