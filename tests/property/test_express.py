"""The fast lane and the ordinary way: the same bytes, results, errors and lessons."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.core.world import World

from rocketwire.core.effects import Invoke, Op
from rocketwire.core.express import Parcel, express_for, settle
from rocketwire.core.faults import FaultTable
from rocketwire.core.retry import SendMode
from rocketwire.core.validate import check_batch, plain_bodies
from rocketwire.errors import InvalidMessageError, RocketMQError, SendFailedError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.message import Message, SendResult
from rocketwire.testing.simulated_network import Answer, Hang, Refuse, Reset, Slow, Unreachable
from rocketwire.wire.batch import decode_batch, encode_item
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


class ParcelRequest:
    """A parcel as a simulated broker gets it."""

    code = 310

    def __init__(self, parcel: Parcel) -> None:
        self.body = parcel.message.body
        self._parcel = parcel

    def head(self, opaque: int, flag: int = 0) -> bytes:
        assert not flag
        return self._parcel.frame(opaque)[: -len(self.body)]


class LaneWorld(World):
    """Sends by the fast lane, as the shells do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        lane = express_for(self.sender, SendMode.ASYNC)
        assert lane is not None
        self.lane = lane
        self.taken = 0

    def operation(
        self, message: Any = None, mode: SendMode = SendMode.ASYNC, **how: Any
    ) -> Op[SendResult | None]:
        parcel = self.lane.prepare(message, Parcel)
        if parcel is None:
            return super().operation(message, mode, **how)
        self.taken += 1
        return self._carry(parcel)

    def _carry(self, parcel: Parcel) -> Op[SendResult | None]:
        try:
            request: Any = ParcelRequest(parcel)
            reply = yield Invoke(parcel.stop.address, request, parcel.deadline, parcel)
        except RocketMQError as error:
            rest = self.lane.take_over(parcel)
            next(rest)
            return (yield from _go_on(rest, rest.throw, error))
        if reply.code == 0:
            parcel.answer = reply.frame
            settle([parcel], reply.arrived)
            return parcel.receipt()
        rest = self.lane.take_over(parcel)
        next(rest)
        return (yield from _go_on(rest, rest.send, reply))


def _go_on(rest: Op[SendResult | None], step: Any, value: Any) -> Op[SendResult | None]:
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


@relaxed
@given(history=steps, brokers=st.integers(1, 3), policy=policies)
def test_no_history_tells_the_fast_lane_from_the_ordinary_way(
    history: list[Any], brokers: int, policy: FaultPolicy
) -> None:
    known = {f"broker-{letter}" for letter in "abc"[:brokers]}
    history = [s for s in history if not isinstance(s, tuple) or s[0] in known]
    options = {"brokers": brokers, "fault": policy}
    ordinary, lane = World(**options), LaneWorld(**options)
    assert live(lane, history) == live(ordinary, history)


def test_plain_messages_take_the_fast_lane_once_the_route_is_known() -> None:
    world = LaneWorld()
    live(world, [Message("T", b"x")] * 5)
    assert world.taken == 4


def test_what_is_unusual_goes_the_ordinary_way() -> None:
    for option in ({"header": "json"}, {"namespace": "n"}, {"selector": "random_queue"}):
        assert express_for(World(**option).sender, SendMode.ASYNC) is None
    world = LaneWorld()
    world.send(Message("T", b"x"))
    assert world.lane.prepare(Message("T", b"x", sharding_key="k"), Parcel) is None
    assert world.lane.prepare(Message("T", b"x" * 4096), Parcel) is None
    assert world.lane.prepare(Message("T", b"x" * 4095), Parcel) is not None
    world.brokers["broker-a"].break_now(Refuse())
    for _ in range(4):
        world.send(Message("T", b"x"))
    assert {s.target.broker for s in _stops(world)} == {"broker-b", "broker-c"}


def _stops(world: LaneWorld) -> tuple[Any, ...]:
    parcel = world.lane.prepare(Message("T", b"x"), Parcel)
    assert parcel is not None
    return parcel.stop.owner.stops


def test_a_result_does_not_keep_the_body_alive() -> None:
    world = LaneWorld()
    world.send(Message("T", b"x"))
    parcel = world.lane.prepare(Message("T", b"large"), Parcel)
    assert parcel is not None
    request: Any = ParcelRequest(parcel)
    parcel.written_at = world.clock()
    parcel.answer = world.answer(request, 0).frame
    settle([parcel], world.clock())
    assert not hasattr(parcel, "message")
    assert parcel.receipt().queue == parcel.stop.target.queue


# -- several answers at once ------------------------------------------------------------------------

flights = st.lists(
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
@given(rounds=st.lists(flights, max_size=6), policy=policies)
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
            for flight in made:
                flight.written(now + at, 100)
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
def test_a_plain_batch_is_encoded_as_if_item_by_item(bodies: list[bytes]) -> None:
    world = World()
    batch = [Message("T", body) for body in bodies]
    world.send(batch)
    (_, _, command) = world.stored[0]
    items = list(decode_batch(command.body))
    assert [item.body for item in items] == bodies
    assert [item.flag for item in items] == [0] * len(bodies)
    ids = [decode_properties(item.properties_raw.decode())["UNIQ_KEY"] for item in items]
    assert len(set(ids)) == len(ids)
    encoder = world.sender.encoder
    wanted = [
        encode_item(body, encoder.properties(Message("T", body), message_id), 0)
        for body, message_id in zip(bodies, ids, strict=True)
    ]
    assert bytes(command.body) == b"".join(wanted)
    assert command.ext.get("i", "") == ""


@relaxed
@given(batch=st.lists(messages | plain, min_size=1, max_size=6))
def test_only_plain_messages_are_taken_for_plain(batch: list[Message]) -> None:
    if plain_bodies(batch, 4096) is not None:
        check_batch(batch, 4096)
        assert {m.replace(body=b"x") for m in batch} == {Message("T", b"x")}
