"""What a producer counts."""

from __future__ import annotations

from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.world import World

from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.stats import BrokerCounters, Counters
from rocketwire.message import Message


def test_a_new_producer_has_counted_nothing() -> None:
    numbers = asdict(Counters("g").snapshot())
    assert numbers.pop("group") == "g"
    assert not any(numbers.values()), numbers


@given(
    st.lists(
        st.floats(0, 300)
        | st.sampled_from([2**n / 1_000_000 for n in range(30)])
        | st.sampled_from([(2**n - 1) / 1_000_000 for n in range(30)])
    )
)
def test_answers_that_were_read_together_count_as_one_by_one(latencies: list[float]) -> None:
    together, single = BrokerCounters(), BrokerCounters()
    together.answered_all(latencies)
    for latency in latencies:
        single.answered(latency)
    assert together.counts == single.counts
    assert together.answers == single.answers == sum(single.counts) == len(latencies)
    assert abs(together.seconds - single.seconds) <= 1e-9 * single.seconds


def test_every_kind_of_send_is_counted_once() -> None:
    world = World(1)
    world.send(Message("T", b"12345"))
    world.send([Message("T", b"1"), Message("T", b"2")])
    world.send(mode=SendMode.ONEWAY)
    world.send(mode=SendMode.ONEWAY)
    stats = world.sender.counters.snapshot()
    assert (stats.sent, stats.messages, stats.oneway) == (2, 3, 2)
    assert (stats.failed, stats.retries, stats.maybe_duplicates) == (0, 0, 0)
    (broker,) = stats.brokers
    assert (broker.broker, broker.answers, broker.failures) == ("broker-a", 2, 0)
    assert sum(broker.histogram.values()) == 2
