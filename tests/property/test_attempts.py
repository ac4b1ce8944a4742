"""An attempt that a driver writes and finishes, and the plain operation: the same in every way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.core.world import World, route_of
from tests.wire_tools import encode_item

from rocketwire.core.effects import Invoke, Op
from rocketwire.core.faults.table import FaultTable
from rocketwire.core.sending import finish
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.results import result_later
from rocketwire.errors import InvalidMessageError, RocketMQError, SendFailedError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.message import Message, SendResult
from rocketwire.testing.simulated_network import Answer, Hang, Refuse, Reset, Slow, Unreachable
from rocketwire.wire.batch import decode_batch
from rocketwire.wire.properties import decode_properties

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=9)
messages = st.builds(
    Message,
    st.just("T"),
    st.binary(max_size=20) | st.sampled_from([b"x" * 4095, b"x" * 4096, b"x" * 5000]),
    tags=st.none() | texts,
    keys=st.none() | texts,
    properties=st.none() | st.dictionaries(texts, texts, max_size=2),
    flag=st.integers(0, 3),
    delay_level=st.sampled_from([0, 0, 3]),
    deliver_at=st.none() | st.just(1_800_000_000.0),
    wait_store_ok=st.booleans(),
    sharding_key=st.none() | st.just("k"),
)
plain = st.builds(Message, st.just("T"), st.binary(min_size=1, max_size=20))
faults = st.sampled_from(
    [
        Slow(0.2),
        Slow(0.9),
        Hang(),
        Refuse(),
        Reset(),
        Unreachable(),
        Answer(1),
        Answer(14),
        Answer(10),
    ]
)
names = st.sampled_from(["broker-a", "broker-b", "broker-c"])
steps = st.lists(
    st.one_of(
        plain,
        messages,
        st.tuples(names, faults),
        st.tuples(names, st.none()),
        st.floats(0.0, 40.0),
    ),
    max_size=25,
)
policies = st.sampled_from(
    [FaultPolicy(), FaultPolicy.java4(), FaultPolicy.java5(), FaultPolicy.off()]
)


class AttemptWorld(World):
    """Writes attempts and finishes them, as the shells do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.written = 0

    def operation(
        self, message: Any = None, mode: SendMode = SendMode.ASYNC, **how: Any
    ) -> Op[SendResult]:
        attempt = self.sender.start(message, mode, **how)
        if attempt.target is None:
            return attempt.operation()
        self.written += 1
        return self._carry(attempt)

    def _carry(self, attempt: SendAttempt) -> Op[SendResult]:
        target = attempt.where
        try:
            reply = yield Invoke(target.address, attempt, attempt.deadline, attempt)
        except RocketMQError as error:
            rest = attempt.operation()
            next(rest)
            return (yield from _go_on(rest, rest.throw, error))
        if reply.code == 0:
            finish.stored_all([attempt], reply.arrived)
            result = result_later(attempt, reply.frame)
            finish.leave_order(attempt)
            attempt.release()
            return result
        rest = attempt.operation()
        next(rest)
        return (yield from _go_on(rest, rest.send, reply))


class PlainWorld(World):
    """Runs every send as an operation that begins with nothing decided."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sender._begin = lambda attempt, now: None  # type: ignore[method-assign]


def _go_on(rest: Op[SendResult], step: Any, value: Any) -> Op[SendResult]:
    while True:
        try:
            effect = step(value)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        try:
            value = yield effect
            step = rest.send
        except RocketMQError as error:
            value, step = error, rest.throw


def told(result: SendResult | SendFailedError | InvalidMessageError) -> Any:
    """What a user could learn."""
    if isinstance(result, InvalidMessageError):
        return str(result)
    attempts = [(a.queue, a.latency, str(a.error), a.outcome) for a in result.attempts]
    if isinstance(result, SendFailedError):
        return str(result), result.outcome, attempts
    fields = {name: getattr(result, name) for name in SendResult.__annotations__}
    return fields | {"attempts": attempts}


def live(world: World, history: list[Any]) -> list[Any]:
    """Everything that can be seen of a world, step by step."""
    seen: list[Any] = []
    for step in history:
        if isinstance(step, Message):
            try:
                seen.append(told(world.send(step, SendMode.ASYNC)))
            except (SendFailedError, InvalidMessageError) as error:
                seen.append(told(error))
        elif isinstance(step, tuple):
            broker = world.brokers[step[0]]
            broker.break_now(step[1]) if step[1] is not None else broker.heal()
        else:
            world.clock.advance(step)
        seen.append((world.clock(), world.instance.faults.snapshot(world.clock())))
    seen.append([(broker, queue, c.ext, bytes(c.body)) for broker, queue, c in world.stored])
    seen.append(world.sender.counters.snapshot())
    return seen


ways = st.fixed_dictionaries(
    {},
    optional={
        "header": st.just("json"),
        "namespace": st.just("n"),
        "selector": st.just("round_robin"),
        "ordered_retries": st.just(2),
        "attempt_timeout": st.sampled_from([None, 0.25]),
        "retry_another_broker_when_not_stored": st.just(True),
    },
)


@relaxed
@given(history=steps, brokers=st.integers(1, 3), policy=policies, way=ways)
def test_no_history_tells_a_written_attempt_from_the_plain_operation(
    history: list[Any], brokers: int, policy: FaultPolicy, way: dict[str, Any]
) -> None:
    known = {f"broker-{letter}" for letter in "abc"[:brokers]}
    history = [s for s in history if not isinstance(s, tuple) or s[0] in known]
    topics = {"n%T": route_of(dict.fromkeys(sorted(known), 4))} if "namespace" in way else None
    options = {"brokers": brokers, "fault": policy, "topics": topics} | way
    plain, written = PlainWorld(**options), AttemptWorld(**options)
    assert live(written, history) == live(plain, history)


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x"),
        Message("T", b"x", tags="t", keys="k", properties={"a": "b"}),
        Message("T", b"x", sharding_key="k"),
        Message("T", b"x" * 5000),
        [Message("T", b"x"), Message("T", b"y")],
    ],
    ids=["body", "rich", "keyed", "large", "batch"],
)
def test_every_message_is_written_at_once_where_the_route_is_known(message: Any) -> None:
    world = AttemptWorld()
    for _ in range(5):
        world.send(message, SendMode.ASYNC)
    assert world.written == 4


def test_an_attempt_that_is_over_does_not_keep_the_body_alive() -> None:
    world = AttemptWorld()
    world.send(Message("T", b"x"))
    attempt = world.sender.start(Message("T", b"large"), SendMode.ASYNC)
    attempt.release()
    assert b"large" not in {attempt.body, attempt.message.body}


# -- several answers at once ------------------------------------------------------------------------

attempts = st.lists(
    st.tuples(names, st.floats(0.0, 0.5), st.floats(0.0, 0.3), st.booleans()), max_size=30
)


class _Lock:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class _Half:
    def random(self) -> float:
        return 0.5


def _table(policy: FaultPolicy, heard: list[Any]) -> FaultTable:
    return FaultTable(
        policy,
        clock=lambda: 0.0,
        lock=_Lock(),
        random=_Half(),
        on_isolated=lambda *what: heard.append(what),
        on_returned=lambda *what: heard.append(what),
    )


@relaxed
@given(rounds=st.lists(attempts, max_size=6), policy=policies)
def test_answers_that_are_told_at_once_teach_the_same_as_one_by_one(
    rounds: list[Any], policy: FaultPolicy
) -> None:
    heard: tuple[list[Any], list[Any]] = ([], [])
    one_by_one, at_once = (_table(policy, heard[n]) for n in range(2))
    now = 10.0
    for started in rounds:
        pairs = []
        for broker, at, took, stays in started:
            made = [table.begin(broker, now + at) for table in (one_by_one, at_once)]
            for attempt in made:
                attempt.written(now + at, 100)
            if not stays and took:
                pairs.append(made)
        now += 0.8
        for mine, _ in pairs:
            one_by_one.answered(mine, now)
        if pairs:
            at_once.answered_all([other for _, other in pairs], now)
        assert one_by_one.snapshot(now) == at_once.snapshot(now)
        assert heard[0] == heard[1]


# -- batches ----------------------------------------------------------------------------------------


@relaxed
@given(bodies=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=40))
def test_a_batch_of_bodies_is_encoded_as_if_item_by_item(bodies: list[bytes]) -> None:
    world = World()
    batch = [Message("T", body) for body in bodies]
    world.send(batch)
    (_, _, command) = world.stored[0]
    items = list(decode_batch(command.body))
    assert [item.body for item in items] == bodies
    assert [item.flag for item in items] == [0] * len(bodies)
    ids = [decode_properties(item.properties_raw.decode())["UNIQ_KEY"] for item in items]
    assert len(set(ids)) == len(ids)
    wanted = [
        encode_item(body, b"UNIQ_KEY\x01" + message_id.encode() + b"\x02", 0)
        for body, message_id in zip(bodies, ids, strict=True)
    ]
    assert bytes(command.body) == b"".join(wanted)
    assert command.ext.get("i", "") == ""


@relaxed
@given(batch=st.lists(messages | plain, min_size=1, max_size=6))
def test_a_batch_of_any_messages_says_of_each_what_the_message_says(batch: list[Message]) -> None:
    world = World()
    batch = [
        m.replace(delay_level=0, deliver_at=None, sharding_key=None, wait_store_ok=True)
        for m in batch
    ]
    try:
        world.send(batch)
    except InvalidMessageError:
        return
    (_, _, command) = world.stored[0]
    items = list(decode_batch(command.body))
    assert [item.body for item in items] == [m.body for m in batch]
    assert [item.flag for item in items] == [m.flag for m in batch]
    for item, message in zip(items, batch, strict=True):
        found = decode_properties(item.properties_raw.decode())
        found.pop("UNIQ_KEY")
        own = dict(message.properties)
        if message.tags is not None:
            own["TAGS"] = message.tags
        if message.keys is not None:
            own["KEYS"] = message.keys
        assert found == own
