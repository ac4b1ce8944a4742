import pickle
from collections import Counter
from itertools import count
from uuid import UUID

import pytest

from rocketwire import selectors
from rocketwire.errors import ConfigError, InvalidMessageError
from rocketwire.message import Message, MessageQueue
from rocketwire.selectors import (
    QueueList,
    best_queue,
    consistent_hash,
    hash_queue,
    java_long,
    machine_room,
    named,
    random_queue,
    round_robin,
)

MESSAGE = Message("t", b"x")
QUEUES = [MessageQueue("t", broker, n) for broker in "abc" for n in range(4)]


def queue_list(**options):
    numbers = count()
    return QueueList(QUEUES, next_index=lambda: next(numbers), **options)


def brokers(selector, times=60, **options):
    queues = queue_list(**options)
    return {selector(queues, MESSAGE, None).broker for _ in range(times)}


def usable(*names):
    return [queue for queue in QUEUES if queue.broker in names]


def test_everything_promised_is_there():
    promised = {
        "best_queue", "round_robin", "random_queue", "machine_room", "hash_queue",
        "consistent_hash", "java_long",
    }  # fmt: skip
    assert promised <= set(selectors.__all__)
    assert all(hasattr(selectors, name) for name in selectors.__all__)


@pytest.mark.parametrize(
    ("selector", "pins"),
    [
        (best_queue, False),
        (round_robin, False),
        (random_queue, False),
        (machine_room({"a": "1"}, prefer="1"), False),
        (hash_queue, True),
        (consistent_hash, True),
    ],
)
def test_which_selectors_pin(selector, pins):
    assert getattr(selector, "pins", True) == pins


def test_round_robin_takes_all_queues_in_turn_whatever_is_usable():
    queues = queue_list(usable=usable("a"))
    assert [round_robin(queues, MESSAGE) for _ in range(24)] == QUEUES + QUEUES


def test_random_queue_is_uniform_over_all_queues():
    queues = queue_list(usable=usable("a"))
    picks = Counter(random_queue(queues, MESSAGE) for _ in range(12_000))
    assert set(picks) == set(QUEUES)
    assert max(picks.values()) < 1.3 * min(picks.values())


@pytest.mark.parametrize("selector", [round_robin, random_queue])
def test_a_retry_goes_to_another_broker(selector):
    assert brokers(selector, failed=["a"]) == {"b", "c"}


def test_java_long_changes_the_hash_of_a_negative_number():
    queues = queue_list()
    assert hash_queue(queues, MESSAGE, -1) == QUEUES[1]
    assert hash_queue(queues, MESSAGE, java_long(-1)) == QUEUES[0]


# ---------------------------------------------------------------------------- consistent hash


@pytest.mark.parametrize(
    ("key", "queue"),
    [("order-1001", ("c", 2)), (b"order-1001", ("c", 2)), (42, ("b", 0)), ("42", ("b", 0))],
)
def test_consistent_hash_chooses_the_same_queue_in_every_process(key, queue):
    chosen = consistent_hash(queue_list(), MESSAGE, key)
    assert (chosen.broker, chosen.id) == queue


def test_consistent_hash_falls_back_to_the_sharding_key():
    message = Message("t", b"x", sharding_key="order-1001")
    assert consistent_hash(queue_list(), message) == consistent_hash(
        queue_list(), MESSAGE, "order-1001"
    )
    with pytest.raises(InvalidMessageError, match="sharding_key="):
        consistent_hash(queue_list(), MESSAGE)


@pytest.mark.parametrize("key", [1.5, True, object(), ["a"]])
def test_consistent_hash_refuses_keys_without_a_stable_form(key):
    with pytest.raises(InvalidMessageError, match="give a str, bytes, int or UUID"):
        consistent_hash(queue_list(), MESSAGE, key)


def test_consistent_hash_takes_a_uuid():
    key = UUID(int=7)
    assert consistent_hash(queue_list(), MESSAGE, key) == consistent_hash(
        queue_list(), MESSAGE, str(key)
    )


def test_consistent_hash_moves_only_the_keys_of_queues_that_left():
    less = QueueList([queue for queue in QUEUES if queue.broker != "b"])
    moved = 0
    for number in range(3_000):
        before = consistent_hash(queue_list(), MESSAGE, number)
        after = consistent_hash(less, MESSAGE, number)
        if before.broker == "b":
            moved += 1
        else:
            assert after == before
    assert 700 < moved < 1_300


def test_consistent_hash_spreads_keys_fairly():
    picks = Counter(consistent_hash(queue_list(), MESSAGE, number) for number in range(12_000))
    assert set(picks) == set(QUEUES)
    assert 600 < min(picks.values()) <= max(picks.values()) < 1_500


# ---------------------------------------------------------------------------- machine room

ROOMS = {"a": "room-1", "b": "room-1", "c": "room-2"}


def test_a_message_stays_in_the_preferred_room():
    near = machine_room(ROOMS, prefer="room-1")
    assert brokers(near) == {"a", "b"}
    picks = Counter(near(queues, MESSAGE) for queues in [queue_list()] for _ in range(80))
    assert set(picks.values()) == {10}


def test_it_leaves_the_room_only_when_nobody_there_is_usable():
    near = machine_room(ROOMS, prefer="room-1")
    assert brokers(near, usable=usable("b", "c")) == {"b"}
    assert brokers(near, usable=usable("c")) == {"c"}


def test_a_retry_stays_in_the_room_while_a_broker_there_is_untried():
    near = machine_room(ROOMS, prefer="room-1")
    assert brokers(near, failed=["a"]) == {"b"}
    assert brokers(near, failed=["a", "b"]) == {"c"}
    assert brokers(near, failed=["c", "a", "b"]) == {"a", "c"}


def test_brokers_of_no_room_are_others():
    assert brokers(machine_room({"a": "x"}, prefer="x"), usable=usable("b", "c")) == {"b", "c"}


def test_a_machine_room_survives_pickling_and_compares():
    near = machine_room(ROOMS, prefer="room-1")
    assert pickle.loads(pickle.dumps(near)) == near
    assert hash(near) == hash(machine_room(dict(ROOMS), prefer="room-1"))


def test_a_room_without_brokers_is_refused():
    with pytest.raises(ConfigError, match=r"prefer is 'room-9'.*room-1, room-2"):
        machine_room(ROOMS, prefer="room-9")
    with pytest.raises(ConfigError, match="rooms: none"):
        machine_room({}, prefer="room-9")


@pytest.mark.parametrize("rooms", [None, ["a"], {"a": 1}, {1: "a"}])
def test_rooms_are_text_by_text(rooms):
    with pytest.raises(ConfigError, match="give rooms by broker name"):
        machine_room(rooms, prefer="a")


def test_selectors_have_names():
    assert named("round_robin") is round_robin
    assert named("consistent_hash") is consistent_hash
    with pytest.raises(ConfigError, match="it is one of best_queue, round_robin"):
        named("nearest")
