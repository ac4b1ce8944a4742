from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from tests.unit.core.world import World, route_of

from rocketwire.core.effects import Op, Sleep
from rocketwire.core.sending.send_many import CHECKED_AT_ONCE, ManySender, Part, Stream
from rocketwire.core.side_by_side import run_together
from rocketwire.errors import (
    ConfigError,
    InvalidMessageError,
    Outcome,
    SendFailedError,
    SendManyError,
)
from rocketwire.hooks import SendEvent
from rocketwire.message import Message, SendResult
from rocketwire.testing.simulated_network import Refuse
from rocketwire.wire.batch import decode_batch


def send_many(world: World, messages: Iterable[Message]) -> list:
    many = ManySender(world.sender, messages, None)
    streams = world.driver.run(many.streams())
    world.driver.run(run_together([many.run(stream) for stream in streams]))
    return many.results


def bodies(world: World) -> list[bytes]:
    found = []
    for _, _, command in world.stored:
        if command.ext.get("m") == "true":
            found += [bytes(item.body) for item in decode_batch(command.body)]
        else:
            found.append(bytes(command.body))
    return found


def test_every_message_has_its_own_result_in_the_order_given() -> None:
    world = World()
    messages = [Message("T", b"%d" % n) for n in range(2500)]
    results = send_many(world, messages)
    assert sorted(bodies(world), key=int) == [m.body for m in messages]
    assert all(isinstance(r, SendResult) for r in results)
    assert len({r.message_id for r in results}) == 2500
    assert len(world.stored) < 10


class Selector:
    """Chooses the first queue, and raises when its turn comes."""

    pins = False

    def __init__(self, *turns: int) -> None:
        self.turns = turns
        self.asked = 0

    def __call__(self, queues, message, argument):
        self.asked += 1
        if self.asked in self.turns:
            raise KeyError(f"turn {self.asked}")
        return queues[0]


def test_a_selector_that_fails_for_one_part_does_not_hide_what_became_of_the_others() -> None:
    world = World(selector=Selector(4))
    results = send_many(world, [Message("T", b"%d" % n) for n in range(12_000)])
    failed = [n for n, r in enumerate(results) if not isinstance(r, SendResult)]
    assert len(failed) == 1000
    assert isinstance(results[failed[0]], ConfigError)
    assert sorted(map(int, bodies(world))) == [n for n in range(12_000) if n not in set(failed)]


def test_a_selector_because_of_which_nothing_is_sent_is_an_error_of_the_settings() -> None:
    world = World(selector=Selector(*range(1, 5)))
    many = ManySender(world.sender, [Message("T", b"x")] * 3000, None)
    streams = world.driver.run(many.streams())
    world.driver.run(run_together([many.run(stream) for stream in streams]))
    with pytest.raises(ConfigError, match="turn 1"):
        many.finish(return_errors=True)
    assert world.stored == []


@pytest.mark.parametrize("tags", [None, "x"])
def test_messages_for_a_retry_topic_go_one_by_one(tags: str | None) -> None:
    """Brokers refuse a batch of them."""
    world = World()
    world.routes["%RETRY%g"] = route_of({"broker-a": 1})
    given = [Message(t, b"x", tags=tags) for t in ("%RETRY%g", "T", "%RETRY%g", "T", "%RETRY%g")]
    results = send_many(world, given)
    assert [result.queue.topic for result in results] == [message.topic for message in given]
    batches = [command.ext.get("m") == "true" for _, _, command in world.stored]
    assert sorted(batches) == [False] * 3 + [True]


def test_several_topics_go_at_once() -> None:
    world = World()
    world.routes["U"] = route_of({"broker-b": 2})
    results = send_many(world, [Message("T" if n % 2 else "U", b"x") for n in range(10)])
    assert {r.queue.topic for r in results} == {"T", "U"}


def test_keys_keep_their_order_and_their_queue() -> None:
    world = World()
    messages = [Message("T", b"%d" % n, sharding_key=f"k{n % 7}") for n in range(700)]
    results = send_many(world, messages)
    for key in range(7):
        own = [r for n, r in enumerate(results) if n % 7 == key]
        assert len({r.queue for r in own}) == 1
    seen = [int(b) for b in bodies(world)]
    for key in range(7):
        own_numbers = [n for n in seen if n % 7 == key]
        assert own_numbers == sorted(own_numbers)


def test_delayed_messages_travel_alone() -> None:
    world = World(1)
    send_many(world, [Message("T", b"a"), Message("T", b"b", delay_level=3), Message("T", b"c")])
    assert len(world.stored) == 3


def test_large_messages_are_split_into_requests_that_fit() -> None:
    world = World()
    send_many(world, [Message("T", b"x" * 100_000) for _ in range(20)])
    assert len(bodies(world)) == 20
    assert max(len(c.body) for _, _, c in world.stored) <= 256 * 1024


def test_a_dead_broker_fails_nobody() -> None:
    world = World(2)
    world.brokers["broker-a"].break_now(Refuse())
    results = send_many(world, [Message("T", b"x" * 1000) for _ in range(3000)])
    assert all(isinstance(r, SendResult) for r in results)


def test_a_failed_batch_fails_what_its_keys_had_behind_it() -> None:
    world = World(1, 1)
    world.codes = {"broker-a": [13]}
    messages = [Message("T", b"x" * 150_000, sharding_key="k") for _ in range(3)]
    messages.append(Message("T", b"y" * 150_000, sharding_key="other"))
    results = send_many(world, messages)
    assert results[0].outcome is Outcome.REJECTED
    assert [r.outcome for r in results[1:3]] == [Outcome.NOT_SENT] * 2
    assert "earlier message" in str(results[1])
    assert isinstance(results[3], SendResult)


@pytest.mark.parametrize("place", [0, 1])
def test_what_failed_is_told_beside_what_was_stored(place: int) -> None:
    world = World(1)
    given = [Message("T", b"stored")]
    given.insert(place, Message("nowhere", b"not sent"))
    many = ManySender(world.sender, given, None)
    streams = world.driver.run(many.streams())
    world.driver.run(run_together([many.run(stream) for stream in streams]))
    results = many.finish(return_errors=True)
    assert isinstance(results[place], SendFailedError)
    assert isinstance(results[1 - place], SendResult)
    with pytest.raises(SendManyError) as told:
        many.finish(return_errors=False)
    assert list(told.value.results) == results


def test_an_unknown_topic_fails_its_own_messages_only() -> None:
    world = World()
    results = send_many(world, [Message("T", b"x"), Message("nowhere", b"y")])
    assert isinstance(results[0], SendResult)
    assert isinstance(results[1], SendFailedError)
    assert results[1].outcome is Outcome.NOT_SENT


@pytest.mark.parametrize("before", [1, 5000])
def test_nothing_is_sent_when_one_is_wrong(before) -> None:
    world = World()
    with pytest.raises(InvalidMessageError, match=f"message {before}: body is empty"):
        send_many(world, [*[Message("T", b"x")] * before, Message("T", b"")])
    assert world.stored == []


def test_messages_with_flags_share_a_request_and_delayed_ones_never_do() -> None:
    world = World(1)
    flagged = [Message("T", b"%d" % n, flag=n) for n in range(20)]
    delayed = Message("T", b"later", delay_level=3)
    unsynced = [Message("T", b"u", wait_store_ok=False)] * 5
    results = send_many(world, [*flagged, delayed, delayed, *unsynced, Message("T", b"x")])
    assert len(world.stored) == 5
    assert len({r.message_id for r in results}) == len(results)
    (_, _, first) = next(c for c in world.stored if c[2].ext.get("m") == "true")
    assert [item.flag for item in decode_batch(first.body)] == list(range(20))


@pytest.mark.parametrize(("key", "turns"), [(None, 0), ("k", 3)])
def test_a_long_list_is_split_in_pieces_between_which_others_have_their_turn(key, turns) -> None:
    world = World(1)
    count = 3 * CHECKED_AT_ONCE + 5
    given = [Message("T", b"%d" % number, sharding_key=key) for number in range(count)]
    many = ManySender(world.sender, given, None)
    assert [many.check() for _ in range(4)] == [True, True, True, False]
    slept: list[Sleep] = []

    def watched() -> Op[list[Stream]]:
        operation, answer = many.streams(), None
        while True:
            try:
                effect = operation.send(answer)
            except StopIteration as stop:
                return stop.value
            if isinstance(effect, Sleep):
                slept.append(effect)
            answer = yield effect

    streams = world.driver.run(watched())
    assert len(slept) == turns, "messages without a key are cut when they are checked"
    parts = [part for stream in streams for part in stream.parts]
    assert sorted(index for part in parts for index in part.indexes) == list(range(len(given)))
    sizes = [len(part.indexes) for part in parts]
    assert sizes.count(1000) == len(sizes) - 1, "the end of a piece is no end of a part"


def test_free_and_keyed_messages_of_several_topics_find_their_results_in_any_mixture() -> None:
    world = World(2)
    world.routes["U"] = world.routes["T"]
    given = [
        Message(
            "TU"[number % 2], b"%d" % number, sharding_key=f"k{number % 7}" if number % 3 else None
        )
        for number in range(CHECKED_AT_ONCE + 100)
    ]
    results = send_many(world, given)
    assert all(type(result) is SendResult for result in results)
    assert [result.queue.topic for result in results] == [message.topic for message in given]
    assert sorted(bodies(world)) == sorted(message.body for message in given)


def test_streams_that_go_on_together_encode_a_share_in_each_tick(monkeypatch) -> None:
    monkeypatch.setattr("rocketwire.core.sending.send_many._AHEAD", 0)
    world = World()
    many = ManySender(world.sender, [Message("T", b"%d" % n) for n in range(16_000)], None)
    streams = world.driver.run(many.streams())
    assert len(streams) == 8
    waiting, ticks = [many.run(stream, in_turns=True) for stream in streams], []
    while waiting:
        effects = [(operation, operation.send(None)) for operation in waiting]
        waiting = [operation for operation, effect in effects if type(effect) is Sleep]
        ticks.append(len(effects) - len(waiting))
    # One part of a thousand fits into one tick.
    assert ticks == [1] * 8


def test_a_part_above_the_share_of_a_tick_goes_alone(monkeypatch) -> None:
    monkeypatch.setattr("rocketwire.core.sending.send_many.CHECKED_AT_ONCE", 10)
    monkeypatch.setattr("rocketwire.core.sending.send_many._AHEAD", 0)
    world = World()
    many = ManySender(world.sender, [Message("T", b"%d" % n) for n in range(3000)], None)
    streams = world.driver.run(many.streams())
    waiting, ticks = [many.run(stream, in_turns=True) for stream in streams], []
    while waiting:
        effects = [(operation, operation.send(None)) for operation in waiting]
        waiting = [operation for operation, effect in effects if type(effect) is Sleep]
        ticks.append(len(effects) - len(waiting))
    assert sum(ticks) == len(streams)
    assert max(ticks) == 1


def parts_of(many: ManySender, world: World) -> list[Part]:
    return [part for stream in world.driver.run(many.streams()) for part in stream.parts]


def ahead(parts: list[Part]) -> list[int]:
    """The bytes of those that are encoded."""
    return [len(part.content.body) for part in parts if part.content is not None]


def test_batches_are_encoded_when_their_messages_are_checked() -> None:
    world = World()
    given = [Message("T", b"%d" % number) for number in range(5000)]
    given += [Message("T", b"k%d" % number, sharding_key="k") for number in range(2000)]
    parts = parts_of(ManySender(world.sender, given, None), world)
    assert len(ahead(parts)) == 4, "not what has keys: those before it may fail; nor the last"
    encoded = next(part for part in parts if part.content is not None)
    assert encoded.messages == encoded.fields == [], "they are let go of"


def test_no_more_is_encoded_ahead_than_may_be(monkeypatch) -> None:
    monkeypatch.setattr("rocketwire.core.sending.send_many._AHEAD", 250_000)
    world = World()
    given = [Message("T", b"%04d" % number * 50) for number in range(5000)]
    many = ManySender(world.sender, given, None)
    parts = parts_of(many, world)
    assert 250_000 <= sum(ahead(parts)) < 250_000 + 256 * 1024
    assert len(ahead(parts)) < len(parts) - 2
    results = send_many(world, given)
    assert len({result.message_id for result in results}) == len(given)
    assert sorted(bodies(world)) == sorted(message.body for message in given)


def test_large_bodies_are_not_all_encoded_in_one_go() -> None:
    world = World()
    many = ManySender(world.sender, [Message("T", b"x" * 60_000)] * 1000, None)
    many.check()
    parts = parts_of(many, world)
    assert 2_000_000 < sum(ahead(parts)) < 2_400_000
    assert len(parts) == 250


def test_what_an_iterator_makes_is_made_as_it_is_checked() -> None:
    world, made = World(), []

    def make() -> Iterator[Message]:
        for number in range(4500):
            made.append(number)
            yield Message("T", b"%d" % number)

    many = ManySender(world.sender, make(), None)
    assert made == []
    assert many.check()
    assert len(made) == CHECKED_AT_ONCE
    assert world.asked == []
    streams = world.driver.run(many.streams())
    world.driver.run(run_together([many.run(stream) for stream in streams]))
    assert len(many.finish(return_errors=False)) == len(made) == 4500
    assert sorted(map(int, bodies(world))) == made


def test_an_iterator_that_fails_sends_nothing() -> None:
    def make() -> Iterator[Message]:
        for number in range(4500):
            yield Message("T", b"%d" % number)
        raise LookupError("no more")

    world = World()
    with pytest.raises(LookupError, match="no more"):
        send_many(world, make())
    assert world.stored == []


def test_a_list_may_be_changed_while_it_is_sent() -> None:
    world = World()
    given = [Message("T", b"%d" % number) for number in range(4500)]
    many = ManySender(world.sender, given, None)
    given.clear()
    streams = world.driver.run(many.streams())
    world.driver.run(run_together([many.run(stream) for stream in streams]))
    assert len(many.finish(return_errors=False)) == 4500


class Heard:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.before: list[Message] = []
        self.after: list[Message] = []
        self.ids: list[str] = []

    def before_send(self, message: Message) -> None:
        self.before.append(message)

    def after_send(self, event: SendEvent) -> None:
        self.after += event.messages
        self.ids += event.message_ids


@pytest.mark.parametrize(
    ("size", "count"), [(10, 2500), (150_000, 10)]
)  # in batches, and each alone
def test_hooks_hear_of_every_message_once(size, count) -> None:
    hook = Heard()
    world = World(hooks=[hook])
    given = [Message("T", b"%06d" % number * (size // 6 + 1)) for number in range(count)]
    results = send_many(world, given)
    assert all(type(result) is SendResult for result in results)
    sent = sorted(message.body for message in given)
    assert sorted(message.body for message in hook.before) == sent
    assert sorted(message.body for message in hook.after) == sent
    assert len(set(hook.ids)) == count
