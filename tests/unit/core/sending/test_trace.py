from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.core.world import World, address, route_of

from rocketwire.config import Credentials, ProducerConfig
from rocketwire.core.sending import trace
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.trace import Tracer, message_type, pack, ship_traces, trace_settings
from rocketwire.errors import SendFailedError
from rocketwire.hooks import HookSet
from rocketwire.message import Message
from rocketwire.testing.simulated_network import Hang
from rocketwire.wire.command import Command
from rocketwire.wire.compression import decompress
from rocketwire.wire.properties import decode_properties
from rocketwire.wire.trace_record import TRACE_TOPIC, PubRecord, decode_trace


class TracedWorld(World):
    """A producer with a tracer, and the sender of its traces."""

    def __init__(self, brokers: int = 1, **options: Any) -> None:
        super().__init__(brokers, **options)
        self.routes.setdefault(TRACE_TOPIC, route_of(dict.fromkeys(self.names, 1)))
        self.tracer = Tracer(
            TRACE_TOPIC,
            self.config.group,
            clock=self.clock,
            make_lock=self.driver.make_lock,
        )
        positions = self.sender.positions
        self.sender = Sender(self.instance, self.config, positions, HookSet((self.tracer,)))
        self.trace_sender = Sender(self.instance, trace_settings(self.config, 1), positions)
        self.pump = self.driver.spawn(ship_traces(self.tracer, self.trace_sender))

    def traces(self) -> list[Command]:
        return [command for _, _, command in self.stored if command.ext["b"] == TRACE_TOPIC]

    def records(self) -> list[Any]:
        return [record for command in self.traces() for record in decode_trace(body_of(command))]

    def keys(self) -> list[list[str]]:
        return [decode_properties(c.ext["i"])["KEYS"].split(" ") for c in self.traces()]


def body_of(command: Command) -> bytes:
    flag = int(command.ext["f"])
    body = bytes(command.body)
    return decompress(body, flag, 4 * 1024 * 1024) if flag & 1 else body


def test_a_send_is_recorded_with_javas_fields() -> None:
    world = TracedWorld(latency=0.25)
    world.send(Message("T", b"hello", tags="pay", keys=["k1", "k2"]))
    began = 1_700_000_000.0 + world.clock()
    result = world.send(Message("T", b"hello", tags="pay", keys=["k1", "k2"]))
    world.clock.advance(trace.LINGER + 1)
    record = world.records()[1]
    assert record == PubRecord(
        start_ms=int(began * 1000),
        region="DefaultRegion",
        group="g",
        topic="T",
        message_id=result.message_id,
        tags="pay",
        keys="k1 k2",
        store_host=address("broker-a"),
        body_length=5,
        cost_ms=250,
        message_type=0,
        offset_message_id=result.offset_message_id,
        success=True,
    )
    assert world.keys() == [[world.records()[0].message_id, "k1", "k2", result.message_id]]


def test_records_wait_for_one_another_no_longer_than_the_linger() -> None:
    world = TracedWorld()
    for _ in range(trace.BATCH - 1):
        world.send()
    world.clock.advance(trace.LINGER - 0.5)
    assert world.traces() == []
    world.clock.advance(1.0)
    assert len(world.traces()) == 1
    assert len(world.records()) == trace.BATCH - 1


def test_a_full_batch_is_sent_at_once() -> None:
    world = TracedWorld()
    for _ in range(trace.BATCH):
        world.send()
    world.clock.advance(0.1)
    assert len(world.records()) == trace.BATCH


def test_full_batches_in_a_row_are_each_sent_at_once() -> None:
    world = TracedWorld()
    for count in (1, 2, 3):
        for _ in range(trace.BATCH):
            world.send()
        world.clock.advance(0.1)
        assert len(world.records()) == count * trace.BATCH


def test_a_tracer_tells_whether_its_records_are_sent() -> None:
    world = TracedWorld()
    new = Tracer(TRACE_TOPIC, "g", clock=world.clock, make_lock=world.driver.make_lock)
    assert (new.is_shipping, world.tracer.is_shipping) == (False, True)


def test_a_failed_send_is_recorded_as_such() -> None:
    world = TracedWorld(retries=0)
    world.codes = {"broker-a": [1]}
    with pytest.raises(SendFailedError):
        world.send(Message("T", b"x", keys="order-1"))
    world.clock.advance(trace.LINGER + 1)
    (record,) = world.records()
    assert not record.success
    assert record.offset_message_id is None
    assert record.region is None
    assert record.store_host == address("broker-a")
    assert world.keys() == [[record.message_id, "order-1"]]


def test_a_send_that_found_no_route_is_recorded_without_a_broker() -> None:
    world = TracedWorld()
    with pytest.raises(SendFailedError):
        world.send(Message("nowhere", b"x"))
    world.clock.advance(trace.LINGER + 1)
    (record,) = world.records()
    assert (record.topic, record.success, record.store_host) == ("nowhere", False, None)


def test_a_cancelled_send_is_recorded_as_failed() -> None:
    world = TracedWorld(2)
    world.send()
    for broker in world.brokers.values():
        broker.break_now(Hang())
    task = world.driver.spawn(world.operation())
    world.clock.advance(0.01)
    task.cancel()
    for broker in world.brokers.values():
        broker.heal()
    world.clock.advance(trace.LINGER + 1)
    assert [record.success for record in world.records()] == [True, False]


def test_a_oneway_message_is_recorded_only_when_it_failed() -> None:
    world = TracedWorld()
    world.send(mode=SendMode.ONEWAY)
    with pytest.raises(SendFailedError):
        world.send(Message("nowhere", b"x"), SendMode.ONEWAY)
    world.clock.advance(trace.LINGER + 1)
    assert [record.topic for record in world.records()] == ["nowhere"]


def test_nothing_is_recorded_where_the_broker_wants_no_traces() -> None:
    world = TracedWorld()

    def without_trace(command: Command) -> Command | None:
        if command.ext.get("b") != "T":
            return None
        place = {"msgId": "0A" * 16, "queueId": command.ext["e"], "queueOffset": "1"}
        return Command(0, place | {"TRACE_ON": "false"})

    world.extra_answer = without_trace
    world.send()
    world.clock.advance(trace.LINGER + 1)
    assert world.traces() == []


def test_traces_and_messages_to_the_trace_topic_are_not_traced() -> None:
    world = TracedWorld()
    for _ in range(trace.BATCH * 3):
        world.send(Message(TRACE_TOPIC, b"mine"))
    world.clock.advance(60.0)
    assert len(world.traces()) == trace.BATCH * 3
    for _ in range(trace.BATCH):
        world.send()
    world.clock.advance(60.0)
    assert len(world.traces()) == trace.BATCH * 3 + 1


def test_each_message_of_a_batch_has_its_own_record() -> None:
    world = TracedWorld()

    def answer(command: Command) -> Command | None:
        if command.ext.get("b") != "T":
            return None
        place = {"msgId": "P1,P2", "queueId": command.ext["e"], "queueOffset": "1"}
        return Command(0, place)

    world.extra_answer = answer
    result = world.send([Message("T", b"one", tags="a"), Message("T", b"three", keys="k")])
    world.clock.advance(trace.LINGER + 1)
    found = [
        (r.message_id, r.offset_message_id, r.tags, r.keys, r.body_length) for r in world.records()
    ]
    assert found == [
        (result.message_ids[0], "P1", "a", None, 3),
        (result.message_ids[1], "P2", None, "k", 5),
    ]


def test_the_length_is_that_of_the_body_as_it_travelled() -> None:
    world = TracedWorld(compress_over=100)
    world.send(Message("T", b"x" * 1000))
    world.clock.advance(trace.LINGER + 1)
    (record,) = world.records()
    assert record.body_length == len(world.stored[0][2].body) < 100


def test_records_of_different_topics_travel_apart() -> None:
    world = TracedWorld()
    world.routes["U"] = world.routes["T"]
    for topic in ("T", "U", "T"):
        world.send(Message(topic, b"x"))
    world.clock.advance(trace.LINGER + 1)
    topics = [[r.topic for r in decode_trace(body_of(c))] for c in world.traces()]
    assert topics == [["T", "T"], ["U"]]


def test_names_are_recorded_without_the_namespace() -> None:
    world = TracedWorld(namespace="ns", topics={"ns%T": route_of({"broker-a": 1})})
    world.send()
    world.clock.advance(trace.LINGER + 1)
    (record,) = world.records()
    assert (record.topic, record.group) == ("T", "g")
    assert world.traces()[0].ext["a"] == "_INNER_TRACE_PRODUCER-g-PRODUCE-1"


def test_what_finds_no_room_is_dropped_and_counted() -> None:
    world = TracedWorld()
    world.pump.cancel()
    for _ in range(trace.QUEUE - 1):
        world.send()
    world.send([Message("T", b"1"), Message("T", b"2"), Message("T", b"3")])
    world.send()
    assert world.tracer.dropped == 3
    world.tracer.finish()
    assert world.tracer.dropped == trace.QUEUE + 3


def test_traces_that_can_not_be_sent_are_counted_and_rarely_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = TracedWorld()
    world.routes[TRACE_TOPIC] = None
    count = 0
    until = world.clock() + 10.0
    while world.clock() < until:
        world.send()
        count += 1
    world.clock.advance(trace.LINGER + 1)
    assert world.tracer.dropped == count
    assert world.asked.count(TRACE_TOPIC) < 30
    assert sum(r.name == "rocketwire.trace" for r in caplog.records) == 1


def test_a_moment_without_keys_costs_the_traces_of_that_moment_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The operation ended with the error, and nothing was traced any more, without a sign."""
    is_sealed = False

    def credentials() -> Credentials:
        if is_sealed:
            raise OSError("the vault is sealed")
        return Credentials("key", "secret")

    world = TracedWorld(credentials=credentials)
    world.send()
    is_sealed = True
    world.clock.advance(trace.LINGER + 0.1)
    is_sealed = False
    assert world.tracer.dropped == 1
    for _ in range(3):
        world.send()
    world.clock.advance(trace.LINGER + trace.PAUSE)
    assert len(world.records()) == 3
    assert "traces are lost, messages are not: the vault is sealed" in caplog.text


def test_records_that_can_t_be_put_together_are_counted_and_later_ones_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> Iterator[Any]:
        raise ValueError("no")

    world = TracedWorld()
    for _ in range(3):
        world.send()
    with monkeypatch.context() as patch:
        patch.setattr(trace, "pack", fail)
        world.clock.advance(trace.LINGER + 0.1)
    assert world.tracer.dropped == 3
    world.send()
    world.clock.advance(trace.LINGER + trace.PAUSE)
    world.tracer.finish()
    assert (len(world.records()), world.tracer.dropped) == (1, 3)


def test_closing_sends_what_is_in_line_and_ends_the_operation() -> None:
    world = TracedWorld()
    for _ in range(3):
        world.send()
    world.tracer.close(world.clock() + 1.0)
    world.clock.advance(0.5)
    assert world.pump.done
    assert len(world.records()) == 3
    world.send()
    assert world.tracer.dropped == 1


def test_closing_ends_in_time_whatever_the_cluster_does() -> None:
    world = TracedWorld(2)
    world.routes["U"] = world.routes["T"]
    for _ in range(3):
        world.send()
        world.send(Message("U", b"x"))
    for broker in world.brokers.values():
        broker.break_now(Hang())
    world.tracer.close(world.clock() + 1.0)
    world.clock.advance(1.01)
    assert world.pump.done
    world.tracer.finish()
    assert world.tracer.dropped == 6


def test_closing_cuts_a_pause_short() -> None:
    world = TracedWorld()
    world.routes[TRACE_TOPIC] = None
    world.send()
    world.clock.advance(trace.LINGER + 0.1)
    assert world.tracer.dropped == 1
    world.routes[TRACE_TOPIC] = route_of({"broker-a": 1})
    world.send()
    world.tracer.close(world.clock() + 0.5)
    world.clock.advance(0.1)
    assert world.pump.done
    assert len(world.records()) == 1


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (Message("T", b""), "Normal"),
        (Message("T", b"", delay_level=3), "Delay_Msg"),
        (Message("T", b"", deliver_at=1.8e9), "Delay_Msg"),
        (Message("T", b"", sharding_key="k"), "Order_Msg"),
        (Message("T", b"", sharding_key="k", delay_level=1), "Delay_Msg"),
    ],
)
def test_the_kind_of_a_message_is_javas_number(message: Message, name: str) -> None:
    names = ["Normal", "Trans_Msg_Half", "Trans_msg_Commit", "Delay_Msg", "Order_Msg"]
    assert names[message_type(message)] == name


def record(number: int, **fields: Any) -> PubRecord:
    given = {"keys": None, "topic": "T"} | fields
    return PubRecord(
        start_ms=1, region=None, group="g", message_id=f"{number:032d}", store_host="h", **given
    )


def test_a_trace_message_is_never_larger_than_javas() -> None:
    records = [record(number, tags="é" * 5000) for number in range(60)]
    parcels = list(pack("trace", records))
    assert len(parcels) > 1
    assert all(len(parcel.message.body) <= trace.MAX_BYTES for parcel in parcels)
    assert [r for p in parcels for r in decode_trace(p.message.body)] == records
    assert sum(parcel.records for parcel in parcels) == 60


def test_the_keys_of_a_trace_message_fit_into_its_properties() -> None:
    records = [record(number, keys=f"key-{number}-" + "ü" * 300) for number in range(200)]
    parcels = list(pack("trace", records))
    assert len(parcels) > 1
    assert all(len((p.message.keys or "").encode()) <= trace.MAX_KEYS for p in parcels)
    found = [word for p in parcels for word in (p.message.keys or "").split(" ")]
    assert found == [word for r in records for word in (r.message_id, r.keys)]


def test_keys_that_are_too_long_leave_the_message_findable_by_its_id() -> None:
    (parcel,) = pack("trace", [record(1, keys="k" * 20_000)])
    assert parcel.message.keys == record(1).message_id


def test_the_group_of_the_tracing_producer_is_named_as_in_java_and_fits() -> None:
    config = ProducerConfig(name_servers="127.0.0.1:9876", group="orders", max_message_size=10)
    assert trace_settings(config, 7).group == "_INNER_TRACE_PRODUCER-orders-PRODUCE-7"
    long = ProducerConfig(name_servers="127.0.0.1:9876", group="g" * 120)
    assert trace_settings(long, 123).group.endswith("g-PRODUCE-123")
    assert len(trace_settings(long, 123).group) == 120
    assert trace_settings(config, 1).max_message_size >= trace.MAX_BYTES
