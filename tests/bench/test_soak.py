"""The soak's books: what senders were told against what is stored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.soak import TOPIC, Soak

from rocketwire import Message, Outcome, Producer, SendFailedError
from rocketwire.embedded import EmbeddedCluster


@pytest.fixture
def soak() -> Iterator[Soak]:
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic(TOPIC, queues=1)
        yield Soak(cluster, seed=1)


def test_what_was_lost_made_up_or_stored_twice_is_found(soak) -> None:
    books = soak.ledger
    kept, lost, twice, refused, unknown = (books.new() for _ in range(5))
    for message in (kept, lost, twice):
        books.settle(message, None)
    books.settle(refused, SendFailedError("no", outcome=Outcome.NOT_SENT))
    books.settle(unknown, SendFailedError("?", outcome=Outcome.MAYBE_STORED))
    with Producer(soak.cluster.name_server) as producer:
        for message in (kept, twice, twice, refused, Message(TOPIC, b"made up")):
            producer.send(message)
    problems = soak.reconcile()
    assert len(problems) == 4
    for message, words in ((lost, "found 0"), (twice, "found 2"), (refused, "not stored, found 1")):
        assert any(message.body.decode() in told and words in told for told in problems)
    assert any("made up" in told for told in problems)


def test_a_message_that_may_be_stored_twice_is_no_problem_twice(soak) -> None:
    message = soak.ledger.new()
    soak.ledger.settle(message, None, twice=True)
    with Producer(soak.cluster.name_server) as producer:
        producer.send(message)
        producer.send(message)
    assert soak.reconcile() == []
