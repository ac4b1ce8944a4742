from __future__ import annotations

import contextlib
import gc
import itertools
import random
import threading
import weakref
from collections import Counter
from typing import Any

import pytest
from tests.unit.core.world import World, route_of
from tests.unit.sync.moments import Moments

from rocketwire.config import AutoBatch
from rocketwire.core.sending.collect import Accumulator
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.open_batch import OpenBatch
from rocketwire.errors import InvalidMessageError, Outcome, SendFailedError
from rocketwire.message import Message, MessageQueue, SendResult
from rocketwire.testing.simulated_network import Hang, with_pauses
from rocketwire.testing.simulation import Task
from rocketwire.wire.batch import decode_batch
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import Command
from rocketwire.wire.java_hash import hash_index
from rocketwire.wire.properties import decode_properties_bytes


class Handle:
    """A submitted message."""

    def __init__(self, batch: OpenBatch, place: int) -> None:
        self.batch = batch
        self.place = place

    @property
    def outcome(self) -> Any:
        assert self.batch.over.is_set
        return self.batch.outcome(self.place)


class Shop:
    """A world whose producer sends in batches."""

    def __init__(self, *, know: bool = True, batch: AutoBatch | None = None, **world: Any) -> None:
        self.world = World(**({"brokers": 1} | world))
        self.over: list[OpenBatch] = []
        self.batches = Accumulator(self.world.sender, batch or AutoBatch(), self.over.append)
        self.tasks: list[Task[None]] = []
        self.arrivals: list[float] = []
        for broker in self.world.brokers.values():
            broker.on_arrival = lambda _, now: self.arrivals.append(now)
        if know:
            self.world.send(Message("T", b"to know the route"))
            self.world.stored.clear()
            self.arrivals.clear()
        self.began = self.world.clock()

    def submit(self, message: Message, timeout: float = 3.0) -> Handle:
        fields = self.batches.accept(message)
        assert fields is not None
        batch, place, is_new = self.batches.add(message, fields, timeout)
        if is_new:
            self.tasks.append(self.world.driver.spawn(self.batches.deliver(batch)))
        return Handle(batch, place)

    def many(self, count: int, start: int = 0) -> list[Handle]:
        return [self.submit(Message("T", b"%d" % n)) for n in range(start, start + count)]

    def run(self, seconds: float = 10.0) -> None:
        self.world.clock.advance(seconds)

    def requests(self) -> list[list[bytes]]:
        """The bodies of every request that was stored, in order."""
        return [bodies_of(command) for _, _, command in self.world.stored]

    def times(self) -> list[float]:
        """When requests arrived, in ms since the start."""
        return [round((moment - self.began) * 1000, 3) for moment in self.arrivals]


def bodies_of(command: Command) -> list[bytes]:
    if command.code == RequestCode.SEND_BATCH_MESSAGE:
        return [item.body for item in decode_batch(command.body)]
    return [bytes(command.body)]


def keyed(number: int, key: str = "k") -> Message:
    return Message("T", b"%d" % number, sharding_key=key)


# -- when batches leave ------------------------------------------------------------------------


def test_a_lone_message_leaves_at_once_and_not_as_a_batch() -> None:
    shop = Shop(batch=AutoBatch(linger=5.0))
    handle = shop.submit(Message("T", b"lone"))
    shop.run(0.1)
    assert isinstance(handle.outcome, SendResult)
    assert shop.times() == [0.0]
    (stored,) = shop.world.stored
    assert stored[2].code == RequestCode.SEND_MESSAGE_V2


def test_messages_of_one_moment_travel_together() -> None:
    shop = Shop()
    shop.many(20)
    shop.run()
    assert shop.requests() == [[b"%d" % n for n in range(20)]]
    assert shop.times() == [0.0]


def test_what_comes_while_others_are_under_way_leaves_when_they_have_arrived() -> None:
    shop = Shop(batch=AutoBatch(linger=5.0), latency=0.010)
    shop.many(1)
    shop.run(0.002)
    shop.many(3, start=1)
    shop.run(0.003)
    shop.many(2, start=4)
    shop.run()
    assert shop.requests() == [[b"0"], [b"1", b"2", b"3", b"4", b"5"]]
    assert shop.times() == [0.0, 10.0]


def test_nobody_waits_longer_than_linger() -> None:
    shop = Shop(batch=AutoBatch(linger=0.005), latency=1.0)
    shop.many(1)
    shop.run(0.002)
    shop.many(1, start=1)
    shop.run(0.003)
    shop.many(1, start=2)
    shop.run()
    assert shop.requests() == [[b"0"], [b"1", b"2"]]
    assert shop.times() == [0.0, 7.0]


def test_a_batch_that_is_full_leaves_at_once() -> None:
    shop = Shop(batch=AutoBatch(linger=30.0, messages=10), latency=1.0)
    shop.many(31)
    shop.run(0.5)
    assert shop.times() == [0.0, 0.0, 0.0]
    shop.run()
    assert [len(bodies) for bodies in shop.requests()] == [10, 10, 10, 1]
    assert shop.times()[3] == 1000.0


@pytest.mark.parametrize("size", [300, 1000, 5000])
def test_a_batch_is_no_larger_than_the_setting(size: int) -> None:
    rng = random.Random(size)
    shop = Shop(batch=AutoBatch(size=size))
    bodies = [bytes(rng.randrange(1, 200)) for _ in range(200)]
    for body in bodies:
        shop.submit(
            Message("T", body, tags="some-tag", properties={"a": "ü" * rng.randrange(1, 9)})
        )
        shop.run(rng.choice([0.0, 0.0, 0.0005]))
    shop.run()
    sizes = [len(command.body) for _, _, command in shop.world.stored]
    assert max(sizes) <= size
    assert Counter(b for request in shop.requests() for b in request) == Counter(bodies)


def test_hurry_lets_everything_leave() -> None:
    shop = Shop(batch=AutoBatch(linger=30.0), latency=1.0)
    shop.many(1)
    shop.run(0.1)
    shop.many(3, start=1)
    shop.run(0.1)
    assert len(shop.times()) == 1
    shop.batches.hurry()
    shop.run(0.1)
    assert len(shop.times()) == 2


# -- what travels together -------------------------------------------------------------------


def test_only_messages_of_one_kind_travel_together() -> None:
    routes = {name: route_of({"broker-a": 4}) for name in ("T", "U")}
    shop = Shop(topics=routes)
    shop.submit(Message("T", b"1"))
    shop.submit(Message("U", b"2"))
    shop.submit(Message("T", b"3", wait_store_ok=False))
    shop.submit(Message("T", b"4"), timeout=1.0)
    shop.submit(Message("T", b"5", tags="x", keys="y", flag=7, properties={"p": "q"}))
    shop.run()
    assert sorted(shop.requests()) == [[b"1", b"5"], [b"2"], [b"3"], [b"4"]]
    (batch,) = [c for _, _, c in shop.world.stored if c.code == RequestCode.SEND_BATCH_MESSAGE]
    last = list(decode_batch(batch.body))[1]
    properties = decode_properties_bytes(last.properties_raw)
    assert (properties["TAGS"], properties["KEYS"], properties["p"], last.flag) == (
        "x", "y", "q", 7,
    )  # fmt: skip


def test_what_can_t_be_batched_or_is_better_off_alone_is_not_accepted() -> None:
    shop = Shop(batch=AutoBatch(size=1000), compress_over=500)
    accept = shop.batches.accept
    assert accept(Message("T", bytes(499))) is not None
    assert accept(Message("T", bytes(500))) is None
    assert accept(Message("T", b"x", delay_level=1)) is None
    assert accept(Message("T", b"x", deliver_at=2e9)) is None
    assert accept(Message("%RETRY%g", b"x")) is None
    with pytest.raises(InvalidMessageError, match="topic"):
        accept(Message("T?", b"x"))
    never_compressed = Shop(batch=AutoBatch(size=1000), compress_over=0)
    assert never_compressed.batches.accept(Message("T", bytes(999))) is not None
    assert never_compressed.batches.accept(Message("T", bytes(1000))) is None


def test_a_strategy_of_the_user_s_decides_for_each_message_alone() -> None:
    shop = Shop(selector="random_queue")
    assert shop.batches.accept(Message("T", b"x")) is None
    assert shop.batches.accept(keyed(1)) is not None


def test_batches_take_turns_over_queues_and_brokers() -> None:
    shop = Shop(brokers=2, queues=2, batch=AutoBatch(messages=5))
    shop.many(40)
    shop.run()
    assert Counter((b, q) for b, q, _ in shop.world.stored) == {
        (broker, queue): 2 for broker in ("broker-a", "broker-b") for queue in (0, 1)
    }


# -- results ---------------------------------------------------------------------------------


def test_every_message_gets_its_own_result() -> None:
    shop = Shop()
    place = {"msgId": "A0,A1,A2", "queueId": "2", "queueOffset": "70"}
    shop.world.extra_answer = lambda c: (
        Command(0, place) if c.code == RequestCode.SEND_BATCH_MESSAGE else None
    )
    handles = shop.many(3)
    shop.run()
    results = [handle.outcome for handle in handles]
    assert [r.offset for r in results] == [70, 71, 72]
    assert [r.offset_message_id for r in results] == ["A0", "A1", "A2"]
    assert len({r.message_id for r in results}) == 3
    assert [r.message_ids for r in results] == [(r.message_id,) for r in results]
    assert {r.queue for r in results} == {MessageQueue("T", "broker-a", 2)}
    assert results[0] == handles[0].outcome


def test_the_room_is_told_of_every_message_once() -> None:
    shop = Shop(batch=AutoBatch(messages=7))
    shop.many(30)
    shop.run()
    assert sum(batch.count for batch in shop.over) == 30
    assert sum(batch.bytes for batch in shop.over) == sum(len(b"%d" % n) for n in range(30))
    assert len(shop.over) == len(set(map(id, shop.over)))


def test_a_delivery_that_is_kept_does_not_keep_the_bodies_of_others() -> None:
    class Traced(Message):
        """Can be referred to weakly."""

    shop = Shop()
    message = Traced("T", b"x")
    gone = weakref.ref(message)
    kept = shop.submit(Message("T", b"kept"))
    shop.submit(message)
    shop.run()
    del message
    shop.world.stored.clear()
    shop.tasks.clear()
    gc.collect()
    assert gone() is None
    assert kept.outcome.offset >= 0


def test_nothing_is_left_behind_of_topics_that_had_their_messages() -> None:
    shop = Shop(topics={f"T{n}": route_of({"broker-a": 1}) for n in range(50)}, know=False)
    for n in range(50):
        shop.submit(Message(f"T{n}", b"x"))
        shop.submit(Message(f"T{n}", b"x", sharding_key="k"))
    shop.run()
    assert len(shop.world.stored) == 100
    assert not shop.batches._kinds
    assert not len(shop.world.sender.order)


# -- failure ---------------------------------------------------------------------------------


def test_a_failed_batch_is_retried_as_the_same_batch_elsewhere() -> None:
    shop = Shop(brokers=2)
    shop.world.codes = {"broker-a": [ResponseCode.SYSTEM_BUSY] * 10}
    seen: list[tuple[SendResult, ...]] = []
    for _ in range(2):
        handles = shop.many(5)
        shop.run(1.0)
        seen.append(tuple(handle.outcome for handle in handles))
    assert shop.requests() == [[b"%d" % n for n in range(5)]] * 2
    assert {r.queue.broker for results in seen for r in results} == {"broker-b"}
    tried = [{tuple(a.queue.broker for a in r.attempts) for r in results} for results in seen]
    assert {("broker-a",)} in tried
    assert not any(r.maybe_duplicate for results in seen for r in results)


def test_each_message_of_a_batch_that_failed_gets_an_error_of_its_own_with_the_outcome() -> None:
    shop = Shop()
    shop.world.brokers["broker-a"].break_now(Hang())
    handles = shop.many(4)
    shop.run(20.0)
    errors = [handle.outcome for handle in handles]
    assert {type(e).__name__ for e in errors} == {"SendTimeoutError"}
    assert {e.outcome for e in errors} == {Outcome.MAYBE_STORED}
    assert {len(e.attempts) for e in errors} == {len(errors[0].attempts)}
    assert all("gave no answer" in str(e) for e in errors)
    assert len(set(map(id, errors))) == 4
    assert all(e.__cause__ is not None for e in errors)


def test_without_a_route_nothing_was_sent_and_everybody_is_told() -> None:
    shop = Shop(topics={}, know=False)
    handles = [shop.submit(Message("T", b"1")), shop.submit(Message("T", b"2"))]
    handles += [shop.submit(keyed(3)), shop.submit(keyed(4, "other"))]
    shop.run()
    assert [handle.outcome.outcome for handle in handles] == [Outcome.NOT_SENT] * 4
    assert all("T" in str(handle.outcome) for handle in handles)
    assert not len(shop.world.sender.order)


@pytest.mark.parametrize("code", [3, 13])
def test_a_topic_that_takes_no_batches_gets_its_messages_one_by_one(code: int) -> None:
    shop = Shop()
    shop.world.extra_answer = lambda c: (
        Command(code, remark="no batches here")
        if c.code == RequestCode.SEND_BATCH_MESSAGE
        else None
    )
    handles = shop.many(3)
    shop.run()
    assert shop.requests() == [[b"0"], [b"1"], [b"2"]]
    assert len({handle.outcome.offset for handle in handles}) == 3
    assert shop.batches.accept(Message("T", b"x")) is None
    assert shop.batches.accept(Message("U", b"x")) is not None


def rich(number: int) -> Message:
    return Message(
        "T", b"body %d" % number, tags=f"täg-{number}", keys=["a", f"b{number}"], flag=-number,
        properties={"region": "eu-west", "100 %s": "ß \U0001f600", "__SHARDINGKEY": "no key of ours"},
    )  # fmt: skip


@pytest.mark.parametrize("namespace", [None, "space"])
@pytest.mark.parametrize("is_waited_for", [True, False])
@pytest.mark.parametrize("how", ["refused", "cancelled"])
def test_a_message_that_leaves_its_batch_alone_travels_as_if_it_had_been_sent_so(
    how: str, namespace: str | None, is_waited_for: bool
) -> None:
    def made(number: int) -> Message:
        return rich(number).replace(wait_store_ok=is_waited_for)

    wire_topic = "T" if namespace is None else f"{namespace}%T"
    shop = Shop(namespace=namespace, topics={wire_topic: route_of({"broker-a": 4})})
    if how == "refused":
        shop.world.extra_answer = lambda c: (
            Command(13, remark="no batches here")
            if c.code == RequestCode.SEND_BATCH_MESSAGE
            else None
        )
    handles = [shop.submit(made(number)) for number in range(3)]
    if how == "cancelled":
        assert handles[0].batch.withdraw(0)
        assert handles[1].batch.withdraw(1)
    shop.run()
    together = [command for _, _, command in shop.world.stored]
    assert len(together) == (3 if how == "refused" else 1)
    shop.world.stored.clear()
    for number in range(3 - len(together), 3):
        shop.world.send(made(number))
    for batched, (_, _, single) in zip(together, shop.world.stored, strict=True):
        assert bytes(batched.body) == bytes(single.body)
        assert own_properties(batched) == own_properties(single)
        assert batched.ext["h"] == single.ext["h"]  # the flag


def own_properties(command: Command) -> dict[str, str]:
    found = decode_properties_bytes(command.ext["i"].encode())
    assert found.pop("UNIQ_KEY")
    return found


def test_a_batch_that_was_opened_in_vain_knows_its_first_message() -> None:
    shop = Shop()
    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:

        def interrupted(_: OpenBatch) -> None:
            raise KeyboardInterrupt

        patch.setattr(shop.batches, "_on_new", interrupted)
        add(shop.batches, Message("T", b"never"), 3.0)
    (left,) = shop.batches.not_begun()
    batch, place, is_new = add(shop.batches, Message("T", b"first", tags="t"), 3.0)
    assert (batch, place, is_new) == (left, 0, False)
    assert batch.message(0).body == b"first"


def test_a_batch_that_nobody_began_is_found_also_when_another_thread_has_filled_it() -> None:
    shop = Shop(batch=AutoBatch(messages=2, linger=0.1))
    interrupted, *_ = add(shop.batches, Message("T", b"1"), 3.0)
    add(shop.batches, Message("T", b"2"), 3.0)
    begun, _, is_new = add(shop.batches, Message("T", b"3"), 3.0)
    assert is_new
    shop.tasks.append(shop.world.driver.spawn(shop.batches.deliver(begun)))
    for left in shop.batches.not_begun():
        shop.tasks.append(shop.world.driver.spawn(shop.batches.deliver(left)))
    shop.run()
    assert [batch.over.is_set for batch in (interrupted, begun)] == [True, True]
    assert not shop.batches.not_begun()


def test_a_full_batch_leaves_at_once_whenever_closing_it_was_interrupted() -> None:
    for at in itertools.count():
        shop = Shop(batch=AutoBatch(messages=2, linger=30.0))
        shop.batches._lock = threading.RLock()  # an interrupt leaves the simulated one taken
        first, *_ = add(shop.batches, Message("T", b"0"), 3.0)
        add(shop.batches, Message("T", b"1"), 3.0)
        moments = Moments(at, interrupt, raises=True)
        with contextlib.suppress(KeyboardInterrupt), moments:
            add(shop.batches, Message("T", b"2"), 3.0)
        assert first.ready.is_set or not first.is_closed, moments.where
        if not moments.is_done:
            assert first.is_closed
            break


def test_a_batch_that_is_closed_takes_no_message_whenever_closing_it_was_interrupted() -> None:
    """It remained the open one: what joined it was never sent, and had no outcome."""
    for at in itertools.count():
        shop = Shop(batch=AutoBatch(messages=2, linger=0.1), latency=0.010)
        shop.batches._lock = threading.RLock()  # an interrupt leaves the simulated one taken
        handles = shop.many(2)
        moments = Moments(at, interrupt, raises=True)
        with contextlib.suppress(KeyboardInterrupt), moments:
            add(shop.batches, Message("T", b"2"), 3.0)
        for batch in shop.batches.not_begun():
            shop.tasks.append(shop.world.driver.spawn(shop.batches.deliver(batch)))
        shop.run()
        handles += shop.many(2, start=3)
        shop.run()
        assert [handle.outcome.offset >= 0 for handle in handles] == [True] * 4, moments.where
        if not moments.is_done:
            assert at > 20
            return


def interrupt() -> None:
    raise KeyboardInterrupt


def test_only_messages_that_are_looked_at_again_live_until_their_answer() -> None:
    shop = Shop()
    batch, _, _ = add(shop.batches, Message("T", b"first"), 3.0)
    add(shop.batches, Message("T", b"second", tags="t"), 3.0)
    assert [type(part) for part in batch.parts] == [bytes, bytes, int] * 2
    ordered, _, _ = add(shop.batches, keyed(1), 3.0)
    assert [type(part) for part in ordered.parts] == [Message, bytes, int]


def add(batches: Accumulator, message: Message, timeout: float) -> tuple[OpenBatch, int, bool]:
    fields = batches.accept(message)
    assert fields is not None
    return batches.add(message, fields, timeout)


def test_messages_join_the_open_batch_of_their_kind_and_only_that() -> None:
    shop = Shop(batch=AutoBatch(messages=3, linger=5.0), latency=0.010)
    batches = shop.batches
    batch, place, is_new = add(batches, Message("T", b"1"), 3.0)
    assert (place, is_new) == (0, True)
    others = [
        add(batches, Message("U", b"x"), 3.0),
        add(batches, Message("T", b"x", wait_store_ok=False), 3.0),
        add(batches, Message("T", b"x"), 2.0),
        add(batches, Message("T", b"x", sharding_key="k"), 3.0),
    ]
    assert len({batch, *(other for other, _, _ in others)}) == 5
    assert add(batches, Message("T", b"2", tags="t", keys="k"), 3.0) == (batch, 1, False)
    assert add(batches, Message("T", b"3", properties={"a": "b"}), 3.0) == (batch, 2, False)
    after, place, is_new = add(batches, Message("T", b"4"), 3.0)  # the first one is full
    assert (after is not batch, place, is_new) == (True, 0, True)
    shop.world.driver.spawn(batches.deliver(batch))
    shop.run()
    assert shop.requests() == [[b"1", b"2", b"3"]]


def test_a_topic_that_takes_no_batches_is_joined_by_no_message() -> None:
    shop = Shop(batch=AutoBatch(messages=2, linger=5.0))
    shop.world.extra_answer = lambda c: (
        Command(13, remark="no batches here") if c.code == RequestCode.SEND_BATCH_MESSAGE else None
    )
    batches, message = shop.batches, Message("T", b"x")
    assert batches.accept(message) is not None
    found = [add(batches, message, 3.0)[0] for _ in range(3)]
    shop.world.driver.spawn(batches.deliver(found[0]))
    shop.run(1.0)
    assert found[0] is found[1] is not found[2]
    assert not found[2].is_closed
    assert batches.accept(message) is None


def test_another_refusal_is_not_repeated_one_by_one() -> None:
    shop = Shop()
    shop.world.codes = {"broker-a": [777]}
    handles = shop.many(3)
    shop.run()
    assert [handle.outcome.outcome for handle in handles] == [Outcome.REJECTED] * 3
    assert len(shop.times()) == 1


@pytest.mark.parametrize("key", [None, "k"])
def test_a_batch_that_is_given_up_tells_whether_it_may_be_stored(key: str | None) -> None:
    shop = Shop(latency=1.0)
    early = shop.submit(Message("T", b"x", sharding_key=key))
    shop.tasks[-1].cancel()
    late = shop.submit(Message("T", b"y", sharding_key=key))
    shop.run(0.5)
    shop.tasks[-1].cancel()
    assert (early.outcome.outcome, late.outcome.outcome) == (
        Outcome.NOT_SENT,
        Outcome.MAYBE_STORED,
    )
    assert not len(shop.world.sender.order)
    again = shop.submit(Message("T", b"z", sharding_key=key))
    shop.run()
    assert isinstance(again.outcome, SendResult)


def test_a_batch_that_nobody_will_deliver_is_refused_as_a_whole() -> None:
    shop = Shop()
    batch, place, is_new = add(shop.batches, keyed(1), 3.0)
    assert is_new
    shop.batches.refuse(batch, SendFailedError("not sent: the client is not running"))
    shop.batches.refuse(batch, SendFailedError("again"))
    assert "not running" in str(batch.outcome(place))
    assert shop.over == [batch]
    assert not len(shop.world.sender.order)


def test_a_message_that_is_taken_back_in_time_is_not_sent() -> None:
    shop = Shop()
    first, second, third = shop.many(3)
    assert second.batch.withdraw(second.place)
    shop.run()
    assert shop.requests() == [[b"0", b"2"]]
    assert third.outcome.offset == first.outcome.offset + 1
    assert not second.batch.withdraw(second.place)
    alone = shop.submit(Message("T", b"alone"))
    assert alone.batch.withdraw(alone.place)
    shop.run()
    assert len(shop.requests()) == 1
    assert alone.batch.over.is_set


def test_a_place_that_does_not_exist_is_an_error() -> None:
    shop = Shop()
    handle = shop.submit(Message("T", b"x"))
    shop.run()
    with pytest.raises(LookupError):
        handle.batch.outcome(1)


# -- order -----------------------------------------------------------------------------------


def test_keys_stay_in_order_and_are_never_in_flight_twice() -> None:
    pauses = with_pauses(0.002, share=0.3, shortest=0.01, longest=0.1)
    shop = Shop(brokers=3, queues=2, latency=pauses, batch=AutoBatch(messages=6, linger=0.004))
    together: list[list[str]] = []

    def keys_of(request: Any) -> set[str]:
        command = Command(request.code, {}, request.body)
        return {body.split(b":")[0].decode() for body in bodies_of(command)}

    def arrived(request: Any, now: float) -> None:
        calls = [c for b in shop.world.brokers.values() for c in b.under_way]
        together.append([key for call in calls for key in keys_of(call.request)])

    for broker in shop.world.brokers.values():
        broker.on_arrival = arrived
    rng = random.Random(11)
    handles = []
    for number in range(400):
        key = f"k{rng.randrange(12)}"
        handles.append(shop.submit(Message("T", f"{key}:{number}", sharding_key=key)))
        shop.run(rng.choice([0.0, 0.0, 0.0003, 0.002]))
    shop.run(60.0)
    assert all(isinstance(handle.outcome, SendResult) for handle in handles)
    assert all(len(keys) == len(set(keys)) for keys in together)
    assert max(len(keys) for keys in together) > 4
    order: dict[bytes, list[int]] = {}
    where: dict[bytes, set[tuple[str, int]]] = {}
    for broker_name, queue, command in shop.world.stored:
        for body in bodies_of(command):
            key_of_body, number_of_body = body.split(b":")
            order.setdefault(key_of_body, []).append(int(number_of_body))
            where.setdefault(key_of_body, set()).add((broker_name, queue))
    assert sum(map(len, order.values())) == 400
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert all(len(places) == 1 for places in where.values())
    assert len(shop.world.stored) < 350
    assert not len(shop.world.sender.order)


def test_a_failure_fails_what_was_accepted_behind_it_and_nothing_else() -> None:
    shop = Shop(queues=1, batch=AutoBatch(messages=2, linger=30.0))
    shop.world.codes = {"broker-a": [ResponseCode.NO_PERMISSION]}
    first, beside = shop.submit(keyed(1, "a")), shop.submit(keyed(2, "b"))
    behind, free = shop.submit(keyed(3, "a")), shop.submit(keyed(4, "c"))
    shop.run()
    assert [first.outcome.outcome, beside.outcome.outcome] == [Outcome.REJECTED] * 2
    assert behind.outcome.outcome is Outcome.NOT_SENT
    assert "earlier message of its sharding key failed" in str(behind.outcome)
    assert isinstance(free.outcome, SendResult)
    later = shop.submit(keyed(5, "a"))
    shop.run()
    assert isinstance(later.outcome, SendResult)
    assert shop.requests() == [[b"4"], [b"5"]]


def test_a_send_between_two_submitted_messages_of_its_key_keeps_its_place() -> None:
    shop = Shop(latency=0.01)
    shop.submit(keyed(0))
    shop.run(0.001)
    shop.submit(keyed(1))
    attempt = shop.world.sender.start(keyed(2), SendMode.ASYNC, is_accepted=True)
    between = shop.world.driver.spawn(attempt.operation())
    shop.submit(keyed(3))
    shop.submit(keyed(4))
    shop.run()
    assert isinstance(between.result(), SendResult)
    assert [body for request in shop.requests() for body in request] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]


def test_keys_of_a_topic_whose_route_is_not_known_yet_find_their_queues() -> None:
    shop = Shop(brokers=2, queues=3, know=False)
    handles = {f"k{n}": shop.submit(keyed(n, f"k{n}")) for n in range(30)}
    shop.run()
    alone = Shop(brokers=2, queues=3)
    for key, handle in handles.items():
        assert handle.outcome.queue == alone.world.send(keyed(1, key)).queue
    assert len(shop.world.stored) == len({handle.outcome.queue for handle in handles.values()})


def test_keys_of_one_queue_share_a_batch_and_those_of_others_do_not() -> None:
    shop = Shop(queues=2)
    handles: dict[int, list[Handle]] = {}
    for number in range(8):
        place = hash_index(f"k{number}", 2)
        handles.setdefault(place, []).append(shop.submit(keyed(number, f"k{number}")))
    batches = [{handle.batch for handle in found} for found in handles.values()]
    assert [len(found) for found in batches] == [1, 1]
    assert batches[0] != batches[1]
    shop.run()
    assert len(shop.requests()) == 2


def test_keys_move_with_the_route_while_they_wait() -> None:
    shop = Shop(brokers=1, queues=4, latency=0.5, batch=AutoBatch(linger=0.2))
    before = [shop.submit(keyed(n, f"k{n}")) for n in range(8)]
    shop.run(0.1)
    behind = [shop.submit(keyed(n, f"k{n}")) for n in range(8)]
    shop.world.instance.learned(shop.world.instance.routes.update("T", route_of({"broker-a": 1})))
    shop.run()
    assert all(isinstance(handle.outcome, SendResult) for handle in before)
    assert {handle.outcome.queue.id for handle in behind} == {0}


# -- hooks -----------------------------------------------------------------------------------


def test_hooks_are_told_before_and_after_as_for_every_send() -> None:
    class Hook:
        def __init__(self) -> None:
            self.before: list[bytes] = []
            self.after: list[tuple[int, bool]] = []

        def before_send(self, message: Message) -> None:
            self.before.append(message.body)

        def after_send(self, event: Any) -> None:
            self.after.append((len(event.messages), event.error is None))

    hook = Hook()
    shop = Shop(hooks=(hook,), know=False)
    shop.many(3)
    shop.run()
    assert hook.before == [b"0", b"1", b"2"]
    assert hook.after == [(3, True)]
    assert shop.world.sender.counters.snapshot().messages == 3
