"""Hooks run on the thread that sends. What they may do there, and what is refused."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from rocketwire import ClientClosedError, Message, Producer
from rocketwire.embedded import EmbeddedCluster

#: Only who waits in vain takes this long.
LONG = 60.0


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        running.create_topic("T", queues=2)
        yield running


class Once:
    """Does something at the first event of one kind, and keeps what came of it."""

    def __init__(self, kind: str, deed: Callable[[], Any]) -> None:
        self.over = threading.Event()
        self.thread = ""
        self.raised: Exception | None = None
        self.value: Any = None
        self._deed = deed
        setattr(self, kind, self._event)

    def _event(self, _: object) -> None:
        if self.thread:
            return
        self.thread = threading.current_thread().name
        try:
            self.value = self._deed()
        except Exception as error:
            self.raised = error
        self.over.set()


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("kind", ["after_attempt", "after_send"])
@pytest.mark.parametrize("form", ["send", "send_oneway", "send_many"])
def test_a_shutdown_in_a_hook_does_not_wait_for_the_send_that_it_is_part_of(
    cluster, form, kind, key
) -> None:
    hook = Once(kind, lambda: producer.shutdown())  # noqa: PLW0108 - made below
    producer = Producer(cluster.name_server, hooks=[hook], shutdown_timeout=LONG).start()
    message = Message("T", b"x", sharding_key=key)
    worker = threading.Thread(
        target=getattr(producer, form),
        args=([message] if form == "send_many" else message,),
        daemon=True,
    )
    worker.start()
    worker.join(LONG / 2)
    assert not worker.is_alive()
    assert hook.raised is None
    with pytest.raises(ClientClosedError):
        producer.send(message)


@pytest.mark.parametrize("auto_batch", [None, True])
@pytest.mark.parametrize("key", [None, "k"])
def test_a_shutdown_in_a_hook_of_a_submitted_message_loses_none(cluster, key, auto_batch) -> None:
    others = threading.enumerate()  # what earlier tests have left behind
    hook = Once("after_attempt", lambda: producer.shutdown())  # noqa: PLW0108 - made below
    options = {"shutdown_timeout": LONG, "auto_batch": auto_batch, "hooks": [hook]}
    producer = Producer(cluster.name_server, **options).start()
    producer.publish_queues("T")
    for broker in cluster.brokers:
        broker.slow(0.3)
    deliveries = [
        producer.submit(Message("T", b"%d" % n, sharding_key=key and f"{key}{n}"))
        for n in range(20)
    ]
    assert hook.over.wait(LONG / 2)
    assert hook.thread == "rocketwire-background"
    assert hook.raised is None
    assert [delivery.exception(LONG / 2) for delivery in deliveries] == [None] * 20
    ours = [
        thread
        for thread in threading.enumerate()
        if thread.name in ("rocketwire-shutdown", "rocketwire-background") and thread not in others
    ]
    for thread in ours:
        thread.join(LONG / 2)
    assert not any(thread.is_alive() for thread in ours)


@pytest.mark.parametrize("auto_batch", [None, True])
def test_a_hook_of_a_submitted_message_never_waits_for_room(cluster, auto_batch) -> None:
    hook = Once("after_attempt", lambda: producer.submit(Message("T", b"second")))
    options = {"max_in_flight": 1, "send_timeout": LONG, "auto_batch": auto_batch}
    with Producer(cluster.name_server, hooks=[hook], **options) as producer:
        assert producer.submit(Message("T", b"first")).exception(LONG / 2) is None
        assert hook.over.wait(LONG / 2)
        assert hook.value.exception(LONG / 2) is None


def test_a_flush_in_a_hook_of_a_submitted_message_is_refused(cluster) -> None:
    hook = Once("after_attempt", lambda: producer.flush())  # noqa: PLW0108 - made below
    with Producer(cluster.name_server, hooks=[hook]) as producer:
        assert producer.submit(Message("T", b"first")).exception(LONG / 2) is None
        assert isinstance(hook.raised, RuntimeError)
        assert "answers come on this thread" in str(hook.raised)


class Wrapped(Producer):
    """As a program that measures its sends may have it."""

    @functools.wraps(Producer.send)
    def send(*given: Any, **named: Any) -> Any:
        return Producer.send(*given, **named)


def test_a_shutdown_in_a_hook_of_a_wrapped_send_does_not_wait_for_it(cluster) -> None:
    hook = Once("after_attempt", lambda: producer.shutdown())  # noqa: PLW0108 - made below
    producer = Wrapped(cluster.name_server, hooks=[hook], shutdown_timeout=LONG).start()
    message = Message("T", b"x", sharding_key="k")
    worker = threading.Thread(target=producer.send, args=(message,), daemon=True)
    worker.start()
    worker.join(LONG / 3)
    assert not worker.is_alive()
    assert hook.raised is None


def test_a_producer_whose_methods_a_test_replaces_shuts_down(cluster) -> None:
    with (
        mock.patch.object(Producer, "send") as send,
        mock.patch.object(Producer, "submit"),
        Producer(cluster.name_server) as producer,
    ):
        producer.send(Message("T", b"x"))
        producer.flush()
    send.assert_called_once()
