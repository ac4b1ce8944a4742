"""A fork in the midst of a call, at any moment, where both processes go on with the call.

The call is the parent's. In the child it fails, unless nothing of it was begun; then it is a call of
the child's own. Neither reads the other's answers, and nothing is stored that no call tells of.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.unit.sync.moments import Moments

from rocketwire import Delivery, Message, Outcome, Producer, RocketMQError, SendFailedError
from rocketwire.embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
TOPIC = "orders"
LIMIT = 8.0
#: Every so many moments one is tried; a prime, so that loops are met in all of their steps.
EVERY = int(os.environ.get("ROCKETWIRE_EVERY_MOMENT", "13"))
SENT, NOT_SENT, MAYBE, WRONG = range(4)
#: Where the calls themselves stand: while the innermost frame is there, nothing is begun.
CALLS = ("sync/producer.py", "sync/many_sends.py")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        running.create_topic(TOPIC, queues=2)
        yield running


def send(producer: Producer, message: Message) -> object:
    return producer.send(message)


def submit(producer: Producer, message: Message) -> object:
    return producer.submit(message)


def send_oneway(producer: Producer, message: Message) -> object:
    return producer.send_oneway(message)


def send_many(producer: Producer, message: Message) -> object:
    return producer.send_many([message])


def told(call: Callable[[], object]) -> int:
    """What a process says of its call, as an exit code."""
    try:
        delivery = call()
        if isinstance(delivery, Delivery):
            delivery.result(LIMIT)
    except SendFailedError as error:
        return MAYBE if error.outcome is Outcome.MAYBE_STORED else NOT_SENT
    except RocketMQError:
        return NOT_SENT
    except BaseException:
        return WRONG
    return SENT


class Fork:
    """Forks once; knows in which process it is."""

    def __init__(self, producer: Producer, name: str, *, uses: bool) -> None:
        self.child = -1
        self._producer = producer
        self._name = name
        self._uses = uses

    def __call__(self) -> None:
        self.child = os.fork()
        if not self.child and self._uses:
            # As a handler that forks a worker would: with the producer that it inherits.
            self._producer.send(Message(TOPIC, f"{self._name} own"))


def in_child(producer: Producer, code: int, name: str) -> None:
    """Send something of its own, and tell both ends; never returns."""
    after = told(lambda: send(producer, Message(TOPIC, f"{name} after")))
    os._exit(code if after == SENT else WRONG)


def stored(cluster: EmbeddedCluster) -> Counter[bytes]:
    return Counter(message.body for message in cluster.messages(TOPIC))


@pytest.mark.parametrize("uses", [False, True], ids=["goes on", "sends first"])
@pytest.mark.parametrize(
    ("call", "key"),
    [
        (send, None),
        (send, "k"),
        (submit, None),
        (submit, "k"),
        (send_oneway, None),
        (send_many, None),
    ],
)
def test_both_go_on_and_nothing_is_stored_that_no_call_tells_of(cluster, call, key, uses) -> None:
    tried: dict[str, tuple[int, str]] = {}
    with Producer(cluster.name_server, send_timeout=10.0) as producer:
        call(producer, Message(TOPIC, b"warm"))
        at = len(call.__name__) % EVERY
        while True:
            name = f"{call.__name__} {key} {uses} {at}"
            fork = Fork(producer, name, uses=uses)
            moments = Moments(at, fork, raises=False)

            message = Message(TOPIC, name, sharding_key=key)

            def work(message: Message = message, moments: Moments = moments) -> object:
                with moments:
                    return call(producer, message)

            code = told(work)
            if fork.child == 0:
                in_child(producer, code, name)
            assert code == SENT, moments.where
            if not moments.is_done:
                break
            child = os.waitstatus_to_exitcode(os.waitpid(fork.child, 0)[1])
            tried[name] = (child, moments.where)
            at += EVERY
        producer.flush(LIMIT)
    found = stored(cluster)
    assert len(tried) > 5
    for name, (child, where) in tried.items():
        assert child in (SENT, NOT_SENT, MAYBE), f"the child failed after {where}"
        copies = found[name.encode()]
        assert copies == 1 or (copies == 2 and child == SENT), f"{child}, {copies} copies: {where}"
        if copies == 2 and not uses:
            # Nothing of the call was begun: the child's is a call of its own.
            assert any(file in where.splitlines()[-2] for file in CALLS), where
        assert found[f"{name} after".encode()] == 1, where
        assert found[f"{name} own".encode()] == uses, where
