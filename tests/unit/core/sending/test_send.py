from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.unit.core.world import NAME_SERVER, World, address, on_trial, route_of

from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.validate import as_batch
from rocketwire.errors import (
    ConfigError,
    InvalidMessageError,
    Outcome,
    SendFailedError,
    SendTimeoutError,
    TopicNotFoundError,
)
from rocketwire.fault_policy import FaultPolicy
from rocketwire.message import Message, MessageQueue, SendStatus
from rocketwire.testing.simulated_network import Answer, Hang, Refuse, Reset
from rocketwire.wire.batch import decode_batch
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.properties import decode_properties
from rocketwire.wire.route import TopicRoute


def test_a_message_arrives_with_all_that_a_broker_needs() -> None:
    world = World(1)
    result = world.send(
        Message("T", b"paid", tags="pay", keys=["k1", "k2"], properties={"colour": "red"}, flag=7)
    )
    broker, queue_id, command = world.stored[0]
    assert (broker, command.ext["b"], command.ext["a"]) == ("broker-a", "T", "g")
    assert command.ext["h"] == "7"
    assert command.ext["c"] == "TBW102"
    properties = decode_properties(command.ext["i"])
    assert properties["TAGS"] == "pay"
    assert properties["KEYS"] == "k1 k2"
    assert properties["colour"] == "red"
    assert properties["UNIQ_KEY"] == result.message_id
    assert bytes(command.body) == b"paid"
    assert result.status is SendStatus.OK
    assert result.queue == MessageQueue("T", "broker-a", queue_id)
    assert result.attempts == ()
    assert not result.maybe_duplicate


def test_the_route_is_asked_for_once() -> None:
    world = World()
    for _ in range(5):
        world.send()
    assert world.asked == ["T"]


def test_many_senders_ask_for_a_new_route_once() -> None:
    world = World()
    tasks = [world.driver.spawn(world.operation()) for _ in range(20)]
    world.clock.advance(1.0)
    assert [task.result().status for task in tasks] == [SendStatus.OK] * 20
    assert world.asked == ["T"]


def test_queues_get_even_shares() -> None:
    world = World(3, 4)
    for _ in range(1200):
        world.send()
    shares = Counter((b, q) for b, q, _ in world.stored)
    assert set(shares.values()) == {100}


def test_an_unknown_topic_uses_the_default_topics_route_with_fewer_queues() -> None:
    world = World(topics={"TBW102": route_of({"broker-a": 8, "broker-b": 8}, permission=7)})
    for _ in range(16):
        world.send(Message("new", b"x"))
    assert world.asked == ["new", "TBW102"]
    queues = {(b, q) for b, q, _ in world.stored}
    assert queues == {(b, q) for b in ("broker-a", "broker-b") for q in range(4)}
    assert world.stored[0][2].ext["d"] == "4"


def test_a_topic_that_nobody_knows_is_an_error_that_says_what_to_do() -> None:
    world = World(topics={})
    with pytest.raises(SendFailedError, match="autoCreateTopicEnable") as caught:
        world.send()
    assert caught.value.outcome is Outcome.NOT_SENT
    assert isinstance(caught.value.__cause__, TopicNotFoundError)


def test_a_topic_without_write_permission_is_told_apart() -> None:
    world = World(topics={"T": route_of({"broker-a": 4}, permission=4)})
    with pytest.raises(SendFailedError, match="lets us write"):
        world.send()


def test_the_next_name_server_is_asked_when_one_is_dead() -> None:
    servers = ("10.0.0.100:9876", "10.0.0.101:9876")
    for seed in range(6):  # whichever is tried first
        world = World(name_servers=servers, seed=seed)
        world.servers[servers[0]].break_now(Refuse())
        assert world.send().status is SendStatus.OK


def test_a_hanging_name_server_gets_only_its_share_of_the_time() -> None:
    servers = ("10.0.0.100:9876", "10.0.0.101:9876")
    for seed in range(6):
        world = World(name_servers=servers, seed=seed)
        world.servers[servers[1]].break_now(Hang())
        assert world.send().status is SendStatus.OK
        assert world.clock() < 1.6


def test_no_name_server_at_all_is_told_with_each_reason() -> None:
    world = World()
    world.servers[NAME_SERVER].break_now(Refuse())
    with pytest.raises(SendFailedError, match=r"not sent: .*10.0.0.100:9876.*refused"):
        world.send()


@pytest.mark.parametrize("mode", [SendMode.BLOCKING, SendMode.ASYNC])
def test_a_retry_avoids_the_broker_that_failed(mode: SendMode) -> None:
    world = World(2)
    world.brokers["broker-a"].break_now(Refuse())
    results = [world.send(mode=mode) for _ in range(6)]
    assert world.where() == ["broker-b"] * 6
    retried = [r for r in results if r.attempts]
    assert len(retried) == 1  # after that it is isolated
    assert retried[0].attempts[0].broker == "broker-a"
    assert retried[0].attempts[0].outcome is Outcome.NOT_SENT
    assert not retried[0].maybe_duplicate


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 215])
@pytest.mark.parametrize("mode", [SendMode.BLOCKING, SendMode.ASYNC])
def test_retryable_codes_are_tried_on_another_broker(mode: SendMode, code: int) -> None:
    world = World(2, fault=FaultPolicy.off())
    world.brokers["broker-a"].break_now(Answer(code))
    for _ in range(4):
        world.send(mode=mode)
    assert world.where() == ["broker-b"] * 4


def test_other_codes_end_the_send_at_once() -> None:
    world = World(3)
    world.codes = {n: [ResponseCode.MESSAGE_ILLEGAL] for n in world.names}
    with pytest.raises(SendFailedError, match=r"rejected: broker-. answered MESSAGE_ILLEGAL") as e:
        world.send()
    assert len(e.value.attempts) == 1
    assert e.value.outcome is Outcome.REJECTED


def test_three_attempts_and_no_more() -> None:
    world = World(3)
    for broker in world.brokers.values():
        broker.break_now(Refuse())
    with pytest.raises(SendFailedError) as caught:
        world.send()
    attempts = caught.value.attempts
    assert len(attempts) == 3
    assert len({a.broker for a in attempts}) == 3
    assert caught.value.outcome is Outcome.NOT_SENT
    assert str(caught.value).count("refused the connection") == 3
    assert "(3 attempts" in str(caught.value)


def test_a_hanging_broker_costs_one_cap_and_no_failure() -> None:
    world = World(3)
    for _ in range(30):
        world.send()
    world.brokers["broker-b"].break_now(Hang())
    began = world.clock()
    results = [world.send() for _ in range(20)]
    late = [r for r in results if r.attempts]
    assert len(late) == 1
    assert late[0].maybe_duplicate
    assert late[0].attempts[0].latency == pytest.approx(1.0)
    assert world.clock() - began < 1.2


def test_the_deadline_holds_over_all_attempts() -> None:
    world = World(3)
    world.send()
    for broker in world.brokers.values():
        broker.break_now(Hang())
    began = world.clock()
    with pytest.raises(SendTimeoutError, match="maybe stored") as caught:
        world.send(timeout=2.0)
    assert world.clock() - began == pytest.approx(2.0)
    assert caught.value.outcome is Outcome.MAYBE_STORED


def test_the_lookup_counts_against_the_deadline() -> None:
    world = World()
    world.servers[NAME_SERVER].break_now(Hang())
    with pytest.raises(SendTimeoutError, match="not sent"):
        world.send(timeout=0.5)
    assert world.clock() == pytest.approx(0.5)


def test_a_lost_connection_is_maybe_stored_and_the_success_after_it_says_so() -> None:
    world = World(2)
    world.brokers["broker-a"].break_now(Reset())
    results = [world.send() for _ in range(2)]
    (moved,) = [r for r in results if r.attempts]
    assert moved.maybe_duplicate
    assert moved.queue.broker == "broker-b"
    assert world.sender.counters.maybe_duplicates == 1


def test_a_retry_goes_by_the_old_route_where_the_new_one_has_no_queues() -> None:
    """As while a master dies: others have asked again, and the name server has forgotten it."""
    world = World(1)
    world.send()
    world.brokers["broker-a"].break_now(Refuse())
    task = world.driver.spawn(world.operation())
    world.instance.routes.update("T", route_of({}), is_fallback=False)
    known = world.instance.routes.get("T")
    assert known is not None
    assert not known.queues
    world.clock.advance(10.0)
    with pytest.raises(SendFailedError) as failed:
        task.result()
    assert failed.value.outcome is Outcome.NOT_SENT
    assert [attempt.queue.broker for attempt in failed.value.attempts] == ["broker-a"] * 3


def test_a_result_that_is_not_flushed_is_returned_as_it_is() -> None:
    world = World(2)
    world.codes = {n: [ResponseCode.FLUSH_DISK_TIMEOUT] for n in world.names}
    assert world.send().status is SendStatus.FLUSH_DISK_TIMEOUT
    assert len(world.stored) == 1


def test_a_result_that_is_not_flushed_is_bettered_on_request() -> None:
    world = World(2, retry_another_broker_when_not_stored=True)
    world.codes = {n: [ResponseCode.FLUSH_DISK_TIMEOUT] for n in world.names}
    result = world.send()
    assert result.status is SendStatus.OK
    assert result.maybe_duplicate
    assert len(world.stored) == 3


def test_the_first_result_is_kept_when_bettering_fails() -> None:
    world = World(1, retry_another_broker_when_not_stored=True)
    world.codes = {"broker-a": [ResponseCode.SLAVE_NOT_AVAILABLE, 13, 13]}
    assert world.send().status is SendStatus.SLAVE_NOT_AVAILABLE


def test_oneway_is_written_once_and_never_retried() -> None:
    world = World(2)
    assert world.send(mode=SendMode.ONEWAY) is None
    world.brokers["broker-a"].break_now(Refuse())
    world.brokers["broker-b"].break_now(Refuse())
    with pytest.raises(SendFailedError) as caught:
        world.send(mode=SendMode.ONEWAY)
    assert len(caught.value.attempts) == 1


def test_a_name_server_that_hangs_takes_half_of_what_is_left_for_a_retry() -> None:
    world = World(1, send_timeout=4.0, request_timeout=3.0)
    world.send()
    world.clock.advance(5.0)  # so that the route is asked for again, and could still be used
    world.servers[NAME_SERVER].break_now(Hang())
    world.codes = {"broker-a": [ResponseCode.TOPIC_NOT_EXIST]}
    began = world.clock()
    result = world.send()
    assert len(result.attempts) == 1
    assert world.clock() - began == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("wrong", ["text", b"bytes", {"topic": "T"}, 5, None, object()])
def test_what_is_no_message_and_no_list_of_them_is_refused_by_its_kind(wrong: object) -> None:
    kind = type(wrong).__name__
    with pytest.raises(InvalidMessageError, match=f"message is a {kind}: give a Message, or a"):
        as_batch(wrong)


def test_an_attempt_at_a_given_queue_stays_current() -> None:
    world = World(3)
    world.send()
    given = MessageQueue("T", "broker-a", 2)
    attempt = world.sender.start(Message("T", b"x"), SendMode.ASYNC, queue=given)
    world.brokers["broker-a"].break_now(Refuse())
    for _ in range(9):
        world.send()
    assert world.sender.is_current(attempt)


def current_brokers(world: World, attempts: list[SendAttempt]) -> set[str]:
    """The brokers of the attempts that are current; every other one has none that is."""
    current = {attempt.where.broker for attempt in attempts if world.sender.is_current(attempt)}
    others = [attempt for attempt in attempts if not world.sender.is_current(attempt)]
    assert current.isdisjoint({attempt.where.broker for attempt in others})
    return current


@pytest.mark.parametrize(
    "policy",
    [FaultPolicy(failure_isolation=30.0), FaultPolicy.java4(), FaultPolicy.java5()],
    ids=["adaptive", "java4", "java5"],
)
def test_attempts_at_a_broker_that_was_left_are_not_current_also_when_later_ones_avoid_it(
    policy: FaultPolicy,
) -> None:
    # The later one has the plan of the topic made anew, which then was as new as the fault table.
    world = World(3, fault=policy)
    world.send()
    attempts = [world.sender.start(Message("T", b"x"), SendMode.ASYNC) for _ in range(12)]
    assert {attempt.where.broker for attempt in attempts} == set(world.names)
    faults, now = world.instance.faults, world.clock()
    faults.failed(faults.begin("broker-a", now), now, "refused the connection")
    others = {"broker-b", "broker-c"}
    assert current_brokers(world, attempts) == others
    assert world.sender.start(Message("T", b"x"), SendMode.ASYNC).where.broker in others
    assert current_brokers(world, attempts) == others


def test_attempts_at_a_broker_that_left_the_route_are_not_current() -> None:
    world = World(2)
    world.send()
    attempts = [world.sender.start(Message("T", b"x"), SendMode.ASYNC) for _ in range(8)]
    world.instance.learned(world.instance.routes.update("T", route_of({"broker-b": 4})))
    assert current_brokers(world, attempts) == {"broker-b"}


def test_attempts_at_the_old_address_of_a_broker_are_not_current() -> None:
    world = World(2)
    world.send()
    attempts = [world.sender.start(Message("T", b"x"), SendMode.ASYNC) for _ in range(8)]
    moved = route_of({"broker-a": 4, "broker-b": 4}, broker_a="10.9.9.9:10911")
    world.instance.learned(world.instance.routes.update("T", moved))
    assert current_brokers(world, attempts) == {"broker-b"}


def test_an_attempt_that_tries_out_a_broker_which_left_the_route_is_not_current() -> None:
    world = on_trial(3, "broker-c")
    attempts = [world.sender.start(Message("T", b"x"), SendMode.ASYNC) for _ in range(12)]
    rest = route_of({"broker-a": 4, "broker-b": 4})
    world.instance.learned(world.instance.routes.update("T", rest))
    assert current_brokers(world, attempts) == {"broker-a", "broker-b"}


@pytest.mark.parametrize("brokers", [1, 2])
def test_attempts_stay_current_where_every_broker_is_left(brokers: int) -> None:
    # The least bad one would be chosen again.
    world = World(brokers, fault=FaultPolicy(failure_isolation=30.0))
    world.send()
    attempts = [world.sender.start(Message("T", b"x"), SendMode.ASYNC) for _ in range(8)]
    faults, now = world.instance.faults, world.clock()
    for name in world.names:
        faults.failed(faults.begin(name, now), now, "refused the connection")
    assert [world.sender.is_current(attempt) for attempt in attempts] == [True] * 8


def test_attempts_in_line_stay_current_while_one_of_them_tries_a_broker_out() -> None:
    world = on_trial(3, "broker-c")
    faults = world.instance.faults
    attempts = [world.sender.start(Message("T", b"x"), SendMode.ASYNC) for _ in range(12)]
    assert [a.where.broker for a in attempts].count("broker-c") == 1
    assert [world.sender.is_current(attempt) for attempt in attempts] == [True] * 12
    # Nor does it matter that the only place on trial is free when another broker is left.
    world.sender.start_over(next(a for a in attempts if a.where.broker == "broker-c"))
    faults.failed(faults.begin("broker-a", world.clock()), world.clock(), "refused")
    assert current_brokers(world, [a for a in attempts if a.target]) == {"broker-b"}


def test_a_given_queue_is_the_only_one_tried() -> None:
    world = World(3)
    queue = MessageQueue("T", "broker-b", 2)
    assert world.send(queue=queue).queue == queue
    world.brokers["broker-b"].break_now(Refuse())
    with pytest.raises(SendFailedError) as caught:
        world.send(queue=queue)
    assert [a.queue for a in caught.value.attempts] == [queue]


def test_ordered_retries_stay_on_the_queue() -> None:
    world = World(3, ordered_retries=2)
    world.codes = {n: [ResponseCode.SYSTEM_BUSY] * 2 for n in world.names}
    result = world.send(Message("T", b"x", sharding_key="order-1"))
    assert {a.queue for a in result.attempts} == {result.queue}
    assert len(result.attempts) == 2


def _away(world: World, broker: str) -> None:
    """Take a broker out of an ordered topic's route, as a name server does when it dies."""
    left = route_of({name: 4 for name in world.names if name != broker})
    conf = ";".join(f"{name}:4" for name in world.names)
    world.routes["T"] = TopicRoute(left.queues, left.brokers, conf, {})
    world.instance.routes.update("T", world.routes["T"])


def test_a_key_of_an_ordered_topic_waits_for_its_broker_and_does_not_move() -> None:
    world = World(3)
    place = world.send(Message("T", b"x", sharding_key="order-1")).queue
    _away(world, place.broker)
    with pytest.raises(SendFailedError, match=f"broker {place.broker} has no master") as caught:
        world.send(Message("T", b"x", sharding_key="order-1"))
    assert caught.value.outcome is Outcome.NOT_SENT
    world.routes["T"] = route_of(dict.fromkeys(world.names, 4))
    world.instance.routes.update("T", world.routes["T"])
    assert world.send(Message("T", b"x", sharding_key="order-1")).queue == place


def test_messages_without_a_key_step_around_the_broker_that_an_ordered_topic_misses() -> None:
    world = World(3)
    _away(world, "broker-b")
    for selector in (None, "round_robin", "random_queue"):
        used = {world.send(selector=selector).queue.broker for _ in range(24)}
        assert used == {"broker-a", "broker-c"}


def test_a_sharding_key_goes_where_java_sends_it() -> None:
    world = World(2, 4)
    world.send(Message("T", b"x", sharding_key="order-1001"))  # hashes to 708180863
    broker, queue_id, command = world.stored[0]
    index = 708180863 % 8
    assert (broker, queue_id) == (world.names[index // 4], index % 4)
    assert decode_properties(command.ext["i"])["__SHARDINGKEY"] == "order-1001"


def test_a_selector_that_does_not_pin_is_asked_again_for_a_retry() -> None:
    world = World(2)
    seen: list[tuple[str, ...]] = []

    def last_queue(queues, message, argument):
        seen.append(queues.failed)
        left = [q for q in queues if q.broker not in queues.failed]
        return (left or list(queues))[-1]

    last_queue.pins = False
    world.brokers["broker-b"].break_now(Refuse())
    world.send(selector=last_queue)
    assert seen == [(), ("broker-b",)]
    assert world.where() == ["broker-a"]


def test_a_custom_selector_pins_by_default() -> None:
    world = World(2)
    world.brokers["broker-a"].break_now(Refuse())
    with pytest.raises(SendFailedError) as caught:
        world.send(selector=lambda queues, message, argument: queues[argument], argument=0)
    assert len(caught.value.attempts) == 1


def test_a_selector_that_fails_in_a_retry_does_not_hide_what_was_sent() -> None:
    world = World(2)

    def once(queues, message, argument):
        if queues.failed:
            raise LookupError("nowhere else")
        return queues[0]

    once.pins = False
    world.brokers["broker-a"].break_now(Reset())
    with pytest.raises(SendFailedError) as caught:
        world.send(selector=once)
    assert caught.value.outcome is Outcome.MAYBE_STORED
    assert [a.broker for a in caught.value.attempts] == ["broker-a"]
    assert isinstance(caught.value.__cause__, ConfigError)


def test_a_selector_that_chooses_nonsense_is_told() -> None:
    world = World()
    with pytest.raises(ConfigError, match="return one of the queues"):
        world.send(selector=lambda queues, message, argument: None)


def test_a_broker_that_moved_is_found_again_by_the_retry() -> None:
    world = World(1)
    world.send()
    world.network.brokers[address("broker-a")].break_now(Refuse())
    world.network.add_broker("10.0.0.77:10911")
    world.routes["T"] = route_of({"broker-a": 4}, broker_a="10.0.0.77:10911")
    world.clock.advance(5.0)
    result = world.send()
    assert result.attempts[0].broker == "broker-a"
    assert len(world.stored) == 2


def test_a_moved_broker_sends_the_queue_id_of_its_new_target() -> None:
    world = World(2, 1)
    world.routes["T"] = route_of({"broker-a": 8, "broker-b": 1})
    world.brokers["broker-a"].break_now(Refuse())
    for _ in range(9):
        world.send(mode=SendMode.ASYNC)
    assert {(b, q, c.ext["n"]) for b, q, c in world.stored} == {("broker-b", 0, "broker-b")}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message("", b"x"), "topic"),
        (Message("a b", b"x"), "topic"),
        (Message("t" * 128, b"x"), "127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "only brokers"),
        (Message("T", b""), "empty"),
        (Message("T", b"x" * (4 * 1024 * 1024 + 1)), "max_message_size"),
        (Message("T", b"x", properties={"KEYS": "a"}), "reserved"),
        (Message("T", b"x", properties={"a": ""}), "blank"),
        (Message("T", b"x", properties={"a": "b\x01c"}), "character 1 or 2"),
        (Message("T", b"x", tags=""), "leave it out"),
        (Message("T", b"x", keys="a\x01b"), "keys contains the character 1 or 2"),
        (Message("T", b"x", tags="a\ud800"), "lone surrogate at 1"),
        (Message("T", b"x", properties={"a": "b\ud800"}), "lone surrogate"),
        (Message("T", b"x", delay_level=19), "delay_level"),
        (Message("T", b"x", delay_level=1, deliver_at=1.0), "exclude"),
        (Message("T", b"x", flag=2**31), "32 bits"),
        (Message("T", b"x", properties={"p": "y" * 40_000}), "32767"),
        ([], "empty"),
        ([Message("T", b"x"), Message("U", b"x")], "one topic"),
        ([Message("T", b"x"), Message("T", b"x", wait_store_ok=False)], "wait_store_ok"),
        ([Message("T", b"x", delay_level=1)], "delayed"),
        ([Message("T", b"x"), Message("T", b"")], "message 1 of the batch"),
        ([Message("T", b"x" * 3_000_000)] * 2, "send_many"),
        ("text", "give a Message"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_sent(message: object, words: str) -> None:
    world = World()
    with pytest.raises(InvalidMessageError, match=words):
        world.send(message)
    assert world.asked == []


def test_queue_and_selector_exclude_one_another() -> None:
    world = World()
    queue = MessageQueue("T", "broker-a", 0)
    with pytest.raises(InvalidMessageError, match="exclude"):
        world.send(queue=queue, selector="hash_queue")
    with pytest.raises(InvalidMessageError, match="belongs to topic"):
        world.send(queue=MessageQueue("U", "broker-a", 0))


def test_a_large_body_is_compressed_once() -> None:
    world = World(2, fault=FaultPolicy.off())
    world.codes = {"broker-a": [1], "broker-b": [1]}
    body = b"abc" * 5000
    world.send(Message("T", body))
    command = world.stored[0][2]
    assert len(command.body) < 1000
    assert int(command.ext["f"]) == 0x301


def test_a_batch_is_one_request_with_an_id_for_each() -> None:
    world = World()
    result = world.send([Message("T", b"a"), Message("T", b"b", tags="t")])
    assert len(world.stored) == 1
    assert world.stored[0][2].ext["m"] == "true"
    assert "UNIQ_KEY" not in world.stored[0][2].ext.get("i", "")
    assert len(result.message_ids) == 2
    assert result.message_id == ",".join(result.message_ids)


def test_a_batch_of_more_than_the_numbers_of_one_moment_has_an_id_for_each() -> None:
    world = World(1)
    result = world.send([Message("T", b"x")] * 33_000)
    ids = [
        decode_properties(item.properties_raw.decode())["UNIQ_KEY"]
        for item in decode_batch(world.stored[0][2].body)
    ]
    assert result.message_ids == tuple(ids)
    assert len(set(ids)) == 33_000


def test_a_batch_with_keys_of_different_queues_points_to_send_many() -> None:
    world = World()
    batch = [Message("T", b"a", sharding_key=f"k{i}") for i in range(20)]
    with pytest.raises(InvalidMessageError, match="send_many"):
        world.send(batch)
    assert world.stored == []
    assert len(world.sender.order) == 0


def test_cancelling_a_send_frees_the_broker_and_tells_the_hooks() -> None:
    events = []

    class Hook:
        def after_attempt(self, event) -> None:
            events.append(event)

    world = World(1, hooks=(Hook(),))
    world.send()
    world.brokers["broker-a"].break_now(Hang())
    task = world.driver.spawn(world.operation())
    world.clock.advance(0.01)
    task.cancel()
    assert [(e.outcome, e.error) for e in events] == [
        ("stored", None),
        ("maybe stored", "cancelled"),
    ]
    (health,) = world.instance.faults.snapshot(world.clock())
    assert health.in_flight == 0


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
def test_a_hook_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture, error) -> None:
    class Bad:
        def before_send(self, message) -> None:
            raise error("before")

        def after_send(self, event) -> None:
            raise error("after")

        def after_attempt(self, event) -> None:
            raise error("attempt")

    world = World(hooks=(Bad(),))
    assert world.send().status is SendStatus.OK
    assert len(caplog.records) == 3


def test_namespace_v1_is_put_before_names_and_taken_from_results() -> None:
    world = World(1, topics={"ns%T": route_of({"broker-a": 1})}, namespace="ns")
    result = world.send()
    command = world.stored[0][2]
    assert (command.ext["b"], command.ext["a"]) == ("ns%T", "ns%g")
    assert decode_properties(command.ext["i"])["INSTANCE_ID"] == "ns"
    assert result.queue == MessageQueue("T", "broker-a", 0)


def test_namespace_v2_travels_beside_the_names() -> None:
    world = World(1, namespace_v2="n2")
    world.send()
    ext = world.stored[0][2].ext
    assert (ext["ns"], ext["nsd"], ext["b"]) == ("n2", "true", "T")


def test_json_headers_say_the_same() -> None:
    plain, as_json = World(1), World(1, header="json")
    plain.send()
    as_json.send()
    one, other = plain.stored[0][2], as_json.stored[0][2]
    assert other.header == 0
    assert {k: v for k, v in one.ext.items() if k != "i"} == {
        k: v for k, v in other.ext.items() if k != "i"
    }


@pytest.mark.parametrize("listens_to", ["before_send", "after_send"])
def test_hooks_see_each_message_of_a_batch_of_plain_ones(listens_to: str) -> None:
    seen: list[Message] = []

    class Hook:
        pass

    def look(given: Any) -> None:
        seen.extend([given] if isinstance(given, Message) else given.messages)

    setattr(Hook, listens_to, staticmethod(look))
    world = World(hooks=[Hook()])
    batch = [Message("T", bytes([number])) for number in range(1, 5)]
    world.send(batch[:2])  # the topic is new to the first one
    world.send(batch[2:])
    assert seen == batch


def test_a_batch_of_plain_messages_keeps_none_but_the_first_for_its_answer() -> None:
    world = World()
    batch = [Message("T", bytes([number])) for number in range(1, 4)]
    world.send(batch)
    attempt = world.sender.start(batch, SendMode.ASYNC)
    assert attempt.messages == (batch[0],) * 3
    assert [item.body for item in decode_batch(attempt.body)] == [b"\x01", b"\x02", b"\x03"]


def test_hooks_hear_of_an_isolation_in_the_time_of_day() -> None:
    events: list[Any] = []

    class Hook:
        def broker_isolated(self, event: Any) -> None:
            events.append(event)

    world = World(2, hooks=(Hook(),))
    world.brokers["broker-a"].break_now(Refuse())
    for _ in range(4):
        world.send()
    (event,) = events
    assert event.broker == "broker-a"
    assert 1_700_000_000.0 <= event.at < event.until < event.at + 1.0
