"""Where an attempt goes, and how long it may take."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.world import World

from rocketwire.config import ProducerConfig
from rocketwire.core.routes import TopicEntry
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.choosing import Chooser
from rocketwire.core.sending.mode import SendMode
from rocketwire.errors import InvalidMessageError, SendFailedError
from rocketwire.message import Message, MessageQueue
from rocketwire.testing.simulated_network import Refuse


def known(brokers: int = 3, **options: Any) -> tuple[World, Chooser, TopicEntry]:
    """A world whose route is known; nothing was sent in it."""
    world = World(brokers, **options)
    world.send(Message("T", b"the first"))
    world.stored.clear()
    entry = world.instance.routes.get("T")
    assert entry is not None
    return world, world.sender.chooser, entry


def isolate(world: World, *brokers: str) -> None:
    now = world.clock()
    for broker in brokers:
        attempt = world.instance.faults.begin(broker, now)
        world.instance.faults.failed(attempt, now, "refused the connection")


# -- what is made once -----------------------------------------------------------------------


def test_the_queues_of_a_route_are_put_together_once() -> None:
    world, chooser, entry = known()
    queues = chooser.queues_of(entry)
    assert queues.topic == "T"
    assert chooser.queues_of(entry) is queues
    assert entry.derived["queues"] is queues
    assert world.sender.queues_of(entry) is queues


def test_an_attempt_uses_the_queues_that_were_put_together() -> None:
    world, chooser, entry = known(2)
    attempt = world.sender.start(Message("T", b"x"), SendMode.BLOCKING)
    elsewhere = World(2)
    elsewhere.send()
    other = elsewhere.instance.routes.get("T")
    assert other is not None
    queues = elsewhere.sender.queues_of(other)
    entry.derived["queues"] = queues
    isolate(elsewhere, "broker-a")
    where = set()
    for _ in range(8):
        chooser.aim(attempt, entry, elsewhere.clock(), [])
        where.add(attempt.where.broker)
    assert where == {"broker-b"}


def test_the_target_of_a_queue_is_made_once_for_each_group_and_kind() -> None:
    world, chooser, entry = known()
    queue = entry.queues[0]
    single = chooser.target_of(entry, queue, is_batch=False)
    assert chooser.target_of(entry, queue, is_batch=False) is single
    assert chooser.target_of(entry, queue, is_batch=True) is not single
    assert chooser.target_of(entry, entry.queues[1], is_batch=False) is not single
    instance, config = world.instance, world.config
    other = Chooser(instance, config, world.sender.positions, "another group")
    assert other.target_of(entry, queue, is_batch=False) is not single


# -- selectors ---------------------------------------------------------------------------------


def test_a_selector_sees_what_is_usable_at_the_moment() -> None:
    world, _, _ = known(2)
    seen: list[set[str]] = []

    def look(queues: Any, message: Message, argument: Any) -> MessageQueue:
        seen.append({queue.broker for queue in queues.usable})
        return queues[0]

    isolate(world, "broker-b")
    world.send(selector=look)
    assert seen == [{"broker-a"}]
    world.clock.advance(60.0)  # without a background a message is let through
    world.send(selector=look)
    assert seen[1] == {"broker-a", "broker-b"}


def test_a_selector_that_pins_is_asked_once_for_all_attempts() -> None:
    world, _, _ = known(ordered_retries=2)
    asked: list[str] = []

    def first(queues: Any, message: Message, argument: Any) -> MessageQueue:
        asked.append(queues.failed)
        return queues[len(asked) - 1]

    world.brokers["broker-a"].break_now(Refuse())
    with pytest.raises(SendFailedError) as caught:
        world.send(selector=first)
    assert asked == [()]
    assert len({attempt.queue for attempt in caught.value.attempts}) == 1
    assert len(caught.value.attempts) == 3


def keys_by_queue(world: World) -> dict[int, list[str]]:
    """Keys by the place of the queue that they belong to."""
    found: dict[int, list[str]] = {}
    for n in range(200):
        result = world.send(Message("T", b"x", sharding_key=f"k{n}"))
        place = world.names.index(result.queue.broker) * 4 + result.queue.id
        found.setdefault(place, []).append(f"k{n}")
    world.stored.clear()
    return found


def keyed(*keys: str | None) -> list[Message]:
    return [Message("T", b"x", sharding_key=key) for key in keys]


def test_a_batch_with_several_keys_of_one_queue_goes_there() -> None:
    world, _, _ = known()
    one, two, three, *_ = keys_by_queue(world)[5]
    world.send(keyed(one, two))
    world.send(keyed(one, None, two, three))
    assert [(broker, queue) for broker, queue, _ in world.stored] == [("broker-b", 1)] * 2


@pytest.mark.parametrize("between", [False, True])
def test_a_batch_with_keys_of_several_queues_is_refused_by_name(between) -> None:
    world, _, _ = known()
    found = keys_by_queue(world)
    first, second = found[5][0], found[2][0]
    batch = keyed(first, None, second) if between else keyed(first, second)
    with pytest.raises(InvalidMessageError) as caught:
        world.send(batch)
    assert str(caught.value) == (
        f"the batch has sharding keys of different queues ({first!r} and {second!r}): "
        "use send_many, which splits by queue"
    )
    assert world.stored == []


def test_an_argument_decides_for_all_keys_of_a_batch() -> None:
    world, _, _ = known()
    found = keys_by_queue(world)
    world.send(keyed(found[5][0], found[2][0]), argument="same for all")
    assert len(world.stored) == 1


def test_a_selector_is_asked_for_each_key_with_what_it_needs() -> None:
    world, _, _ = known()
    isolate(world, "broker-b")
    asked: list[tuple[Any, ...]] = []

    def look(queues: Any, message: Message, argument: Any) -> MessageQueue:
        usable = {queue.broker for queue in queues.usable}
        asked.append((message.sharding_key, argument, usable, queues.next_index() > 0))
        return queues[0]

    world.send(keyed("one", "two"), selector=look)
    usable = {"broker-a", "broker-c"}
    assert asked == [(key, None, usable, True) for key in ("one", "one", "two")]


def test_one_key_or_none_needs_no_second_look() -> None:
    world, _, _ = known()
    asked: list[str | None] = []

    def look(queues: Any, message: Message, argument: Any) -> MessageQueue:
        asked.append(message.sharding_key)
        return queues[0]

    world.send(keyed("one", "one"), selector=look)
    world.send(keyed(None, None), selector=look)
    assert asked == ["one", None]


def test_keys_of_a_batch_are_compared_for_the_same_attempt() -> None:
    world, _, _ = known(ordered_retries=1)

    def after_failures(queues: Any, message: Message, argument: Any) -> MessageQueue:
        return queues[4 * len(queues.failed)]

    after_failures.pins = False  # type: ignore[attr-defined]
    attempt = world.sender.start(keyed("one", "two"), SendMode.BLOCKING, selector=after_failures)
    assert attempt.place is not None
    attempt.place.is_pinned = False
    entry = world.instance.routes.get("T")
    assert entry is not None
    world.sender.chooser.aim(attempt, entry, world.clock(), ["broker-a"])
    assert attempt.where.broker == "broker-b"


# -- time limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("brokers", "out", "options", "mode", "limit"),
    [
        (3, 0, {}, SendMode.BLOCKING, 1.0),
        (2, 0, {}, SendMode.ASYNC, 1.0),
        (3, 1, {}, SendMode.ASYNC, 1.0),
        (3, 0, {"send_timeout": 6.0, "async_retries": 1}, SendMode.ASYNC, 3.0),
        (3, 0, {"attempt_timeout": 0.25}, SendMode.BLOCKING, 0.25),
        (3, 0, {"attempt_timeout": 9.0}, SendMode.BLOCKING, 3.0),
        (3, 0, {"attempt_timeout": None}, SendMode.BLOCKING, None),
        (3, 0, {"retries": 0}, SendMode.BLOCKING, None),
        (3, 0, {"retries": 0}, SendMode.ASYNC, 1.0),
        (3, 0, {}, SendMode.ONEWAY, None),
        (1, 0, {}, SendMode.BLOCKING, None),
        (3, 2, {}, SendMode.BLOCKING, None),
    ],
)
def test_the_first_of_several_attempts_has_a_limit_where_others_may_do_better(
    brokers: int, out: int, options: dict[str, Any], mode: SendMode, limit: float | None
) -> None:
    world, _, _ = known(brokers, **options)
    isolate(world, *world.names[:out])
    attempt = world.sender.start(Message("T", b"x"), mode)
    timeout = world.config.send_timeout if limit is None else limit
    assert attempt.deadline == attempt.began + timeout


def attempt_of(world: World, **how: Any) -> SendAttempt:
    return world.sender.start(Message("T", b"x"), SendMode.BLOCKING, **how)


def test_an_attempt_that_another_broker_may_better_ends_at_its_cap() -> None:
    world, chooser, entry = known()
    limits = [
        chooser.limit(attempt_of(world), entry, 10.0, 13.0, 1),
        chooser.limit(attempt_of(world, timeout=6.0), entry, 10.0, 16.0, 1),
        chooser.limit(attempt_of(world), entry, 12.5, 13.0, 1),
        chooser.limit(attempt_of(world), entry, 10.0, 13.0, 0),
    ]
    assert limits == [11.0, 12.0, 13.0, 13.0]


def test_an_attempt_that_nobody_can_better_has_all_the_time_there_is() -> None:
    world, chooser, entry = known()
    pinned = attempt_of(world, queue=entry.queues[0])
    assert chooser.limit(pinned, entry, 10.0, 13.0, 1) == 13.0
    isolate(world, "broker-b", "broker-c")
    now = world.clock()
    assert chooser.limit(attempt_of(world), entry, now, now + 3.0, 1) == now + 3.0
    world, chooser, entry = known(1)
    assert chooser.limit(attempt_of(world), entry, 10.0, 13.0, 1) == 13.0


def test_two_brokers_are_enough_for_a_cap() -> None:
    world, chooser, entry = known(2, attempt_timeout=0.5)
    assert chooser.limit(attempt_of(world), entry, 10.0, 13.0, 1) == 10.5


def test_tries_are_counted_by_mode_and_by_whether_the_queue_is_fixed() -> None:
    config = ProducerConfig(
        name_servers=("a:1",), retries=4, async_retries=6, ordered_retries=1, background=False
    )
    world = World()
    tries = Chooser(world.instance, config, world.sender.positions, "g").tries
    assert [tries[mode, False] for mode in SendMode] == [5, 7, 1]
    assert [tries[mode, True] for mode in SendMode] == [2, 2, 1]


@pytest.mark.parametrize("fault", ["java4", "java5"])
@pytest.mark.parametrize(("given", "ends"), [({}, 13.0), ({"attempt_timeout": 0.5}, 10.5)])
def test_javas_presets_cap_an_attempt_only_where_the_user_does(
    fault: str, given: dict[str, Any], ends: float
) -> None:
    world, chooser, entry = known(2, fault=fault, **given)
    assert chooser.limit(attempt_of(world), entry, 10.0, 13.0, 1) == ends
    plan = chooser.plan(entry, SendMode.BLOCKING, 10.0)
    assert 10.0 + chooser.first_limit(plan, SendMode.BLOCKING, 3.0) == ends


@pytest.mark.parametrize(
    ("brokers", "given", "limit"),
    [(2, {}, 1.0), (1, {}, 3.0), (2, {"attempt_timeout": 0.5}, 0.5), (2, {"retries": 0}, 3.0)],
)
def test_a_first_attempt_that_a_plan_aims_has_its_share_if_another_may_follow(
    brokers: int, given: dict[str, Any], limit: float
) -> None:
    _, chooser, entry = known(brokers, **given)
    plan = chooser.plan(entry, SendMode.BLOCKING, 10.0)
    assert chooser.first_limit(plan, SendMode.BLOCKING, 3.0) == limit
    assert plan.first_limits == {3.0: limit}


def test_a_plan_remembers_the_limits_of_few_timeouts() -> None:
    _, chooser, entry = known(2)
    plan = chooser.plan(entry, SendMode.ASYNC, 10.0)
    for number in range(1, 1000):
        assert chooser.first_limit(plan, SendMode.ASYNC, float(number)) == number / 3
    assert len(plan.first_limits) <= 100
