"""What becomes of messages whose handlers fail."""

from __future__ import annotations

import pytest
from tests.unit.core.group.group_world import GroupWorld

from rocketwire.core.group.send_back import DELAYS, Retry, delay_level
from rocketwire.errors import ConfigError
from rocketwire.hooks import QueueEvent, RetryEvent
from rocketwire.testing.simulated_network import Refuse

ONE = ("broker-a", 0)


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, RetryEvent | QueueEvent]] = []

    def retried(self, event: RetryEvent) -> None:
        self.events.append(("retried", event))

    def dead_lettered(self, event: RetryEvent) -> None:
        self.events.append(("dead", event))

    def handler_overdue(self, event: QueueEvent) -> None:
        self.events.append(("overdue", event))


def world_with(behave, **options):
    world = GroupWorld(brokers=1, queues=1)
    member = world.member(**options)
    member.behave = behave
    member.begin()
    world.run(1.0)
    return world, member


@pytest.mark.parametrize(
    ("after", "level"),
    [(None, 0), (0, 1), (1, 1), (1.5, 2), (10, 3), (600, 14), (7200, 18), (9e9, 18)],
)
def test_the_next_longer_delay_is_taken(after, level):
    assert delay_level(after) == level


def test_delays_are_the_brokers():
    assert len(DELAYS) == 18
    assert (DELAYS[0], DELAYS[2], DELAYS[-1]) == (1, 10, 7200)


def test_a_retry_before_now_is_refused():
    with pytest.raises(ConfigError, match=r"Retry after is -1: seconds"):
        Retry(after=-1)


def test_a_failed_message_goes_back_and_its_queue_goes_on():
    told = Told()
    error = ValueError("no")
    world, member = world_with(
        lambda m: (0.01, error if not m.reconsume_times else None), hooks=[told]
    )
    bodies = world.send(3, ONE)
    world.run(6.0)
    assert sorted(world.sent_back) == sorted((body, 0) for body in bodies)
    assert world.brokers["broker-a"].offsets["T", 0] == 3
    assert member.group.counters.retried == 3
    assert [(kind, e.attempt, e.after, e.error) for kind, e in told.events] == [
        ("retried", 1, None, error)
    ] * 3
    world.run(10.0)
    assert world.bodies == set(bodies)
    again = [(queue.topic, body) for _, queue, _, body in world.handled[3:]]
    assert sorted(again) == sorted(("%RETRY%g", body) for body in bodies)


def test_a_message_is_shown_under_its_own_topic_when_it_comes_again():
    seen = []
    world, _ = world_with(lambda m: (0.0, seen.append((m.topic, m.reconsume_times)) or Retry()))
    world.send(1, ONE)
    world.run(25.0)
    assert seen[:2] == [("T", 0), ("T", 1)]


def test_the_last_try_ends_with_the_dead_letters():
    told = Told()
    world, member = world_with(lambda _: (0.0, Retry(after=1.0)), max_attempts=3, hooks=[told])
    (body,) = world.send(1, ONE)
    world.run(60.0)
    assert world.brokers["broker-a"].dead_letters == [body]
    assert [kind for kind, _ in told.events] == ["retried", "retried", "dead"]
    assert member.group.counters.dead_lettered == 1
    assert len(world.handled) == 3


def test_a_message_that_can_not_be_sent_back_is_tried_again_here_and_holds_the_offset():
    world, member = world_with(lambda m: (0.0, Retry() if m.reconsume_times < 2 else None))
    broker = world.brokers["broker-a"]
    broker.refuse_send_back = True
    world.send(2, ONE)
    world.run(4.0)
    assert len(world.handled) == 2
    world.run(2.0)
    assert len(world.handled) == 4
    assert broker.offsets.get(("T", 0), 0) == 0
    world.run(11.0)
    assert len(world.bodies) == 2
    assert broker.offsets["T", 0] == 2
    assert member.group.counters.retried_here == 4


def test_a_message_is_kept_while_its_broker_is_away():
    world, _ = world_with(lambda m: (1.0, Retry() if not m.reconsume_times else None))
    broker = world.brokers["broker-a"]
    world.send(1, ONE)
    world.run(0.5)
    broker.break_now(Refuse())
    world.run(3.0)
    broker.heal()
    world.run(30.0)
    assert len(world.bodies) == 1


def test_an_ordered_queue_rests_and_then_gets_the_same_message():
    told = Told()
    world, _ = world_with(
        lambda m: (0.0, Retry() if m.reconsume_times < 3 and m.offset == 1 else None),
        ordered=True,
        hooks=[told],
    )
    began = world.clock()
    world.send(3, ONE)
    while len(world.bodies) < 3:
        world.run(0.1)
    assert 3.0 <= world.clock() - began <= 3.5
    assert [offset for _, _, offset, _ in world.handled] == [0, 1, 1, 1, 1, 2]
    assert [e.after for _, e in told.events] == [1.0, 1.0, 1.0]
    assert not world.sent_back


@pytest.mark.parametrize(("after", "rest"), [(0.0, 0.01), (5.0, 5.0), (100.0, 30.0)])
def test_a_handler_may_choose_the_rest_within_javas_limits(after, rest):
    world, _ = world_with(
        lambda m: (0.0, Retry(after=after) if not m.reconsume_times else None), ordered=True
    )
    world.send(1, ONE)
    world.run(rest * 0.9)
    assert len(world.handled) == 1
    world.run(rest * 0.2 + 0.1)
    assert len(world.handled) == 2


def test_a_worn_out_ordered_message_makes_way():
    world, member = world_with(
        lambda m: (0.0, ValueError("x") if m.offset == 0 else None), ordered=True, max_attempts=2
    )
    first, second = world.send(2, ONE)
    world.run(5.0)
    assert [body for _, _, _, body in world.handled] == [first, first, second]
    assert world.brokers["broker-a"].dead_letters == [first]
    assert world.sent_back == [(first, -1)]
    assert member.group.counters.dead_lettered == 1


def test_poison_in_an_ordered_queue_is_tried_without_end_and_reported_loudly(caplog):
    world, _ = world_with(
        lambda m: (0.0, ValueError("no such order") if m.offset == 0 else None), ordered=True
    )
    (poison, _) = world.send(2, ONE)
    world.run(14.5)
    assert not [r for r in caplog.records if r.levelname == "ERROR"]
    world.run(60.0)
    tries = len(world.handled)
    assert {body for _, _, _, body in world.handled} == {poison}
    assert tries > 70
    told = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert ["has failed 16 times" in told[0], "has failed 32 times" in told[1]] == [True, True]
    assert len(told) == 3
    for words in ("holds up its queue", "max_attempts=16", "%DLQ%", "no such order", "offset 0"):
        assert words in told[0]


def test_poison_that_has_a_limit_is_not_reported_as_endless(caplog):
    world, _ = world_with(lambda _: (0.0, ValueError("x")), ordered=True, max_attempts=40)
    world.send(1, ONE)
    world.run(30.0)
    assert not [r for r in caplog.records if "holds up" in r.getMessage()]


def test_an_ordered_message_that_can_not_be_buried_stays_first():
    world, _ = world_with(
        lambda m: (0.0, ValueError("x") if m.offset == 0 else None), ordered=True, max_attempts=1
    )
    broker = world.brokers["broker-a"]
    broker.refuse_send_back = True
    first, second = world.send(2, ONE)
    world.run(3.5)
    assert {body for _, _, _, body in world.handled} == {first}
    broker.refuse_send_back = False
    world.run(2.0)
    assert broker.dead_letters == [first]
    assert world.handled[-1][3] == second


def test_a_handler_that_hangs_is_reported_and_its_message_sent_back():
    told = Told()
    world, member = world_with(
        lambda m: (5000.0 if not m.reconsume_times else 0.0, None), hooks=[told]
    )
    world.send(1, ONE)
    world.run(890.0)
    assert not told.events
    world.run(100.0)
    assert [kind for kind, _ in told.events] == ["overdue", "retried"]
    assert [level for _, level in world.sent_back] == [3]
    assert member.group.counters.overdue == 1
    assert world.brokers["broker-a"].offsets["T", 0] == 1
    world.run(20.0)
    assert len(world.bodies) == 1
    world.run(5000.0)
    assert len(told.events) == 2


def test_an_ordered_handler_that_hangs_is_reported_and_keeps_its_message():
    told = Told()
    world, _ = world_with(lambda _: (1000.0, None), ordered=True, hooks=[told])
    world.send(2, ONE)
    world.run(1300.0)
    assert [kind for kind, _ in told.events] == ["overdue"]
    assert not world.sent_back
    assert [offset for _, _, offset, _ in world.handled] == [0, 1]
