"""What becomes of messages whose handlers fail."""

from __future__ import annotations

import dataclasses
import logging
import pickle

import pytest
from tests.unit.core.group.group_world import GroupWorld

from rocketwire.core.group.returning import DELAYS, _fitting, check_reason, delay_level
from rocketwire.core.group.send_back import Retry, bury_work
from rocketwire.errors import ConfigError, InvalidMessageError
from rocketwire.hooks import QueueEvent, RetryEvent
from rocketwire.testing.simulated_network import Refuse
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.properties import MAX_PROPERTIES_BYTES, decode_properties

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
    # What Java's brokers have as messageDelayLevel, unless they are configured otherwise.
    text = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    units = {"s": 1, "m": 60, "h": 3600}
    assert list(DELAYS) == [int(word[:-1]) * units[word[-1]] for word in text.split()]


def test_a_retry_before_now_is_refused():
    with pytest.raises(ConfigError, match=r"Retry after is -1: seconds"):
        Retry(after=-1)
    for wrong in ("soon", float("nan"), [1], 1e300):
        with pytest.raises(ConfigError, match="Retry after is"):
            Retry(after=wrong)
    assert Retry(after="500ms") == Retry(0.5)
    assert pickle.loads(pickle.dumps(Retry("5s"))).after == 5.0


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


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    why: str


def _failure() -> BaseException:
    """One that holds others in every way that there is."""
    try:
        try:
            raise KeyError("context")
        except KeyError:
            try:
                raise OSError("in a group")
            except OSError as inner:
                group = ExceptionGroup("group", [inner])
            raise FrozenError("no") from group
    except FrozenError as error:
        return error


def test_no_error_of_a_large_message_holds_frames_whatever_it_is_made_of():
    """One that refuses attributes left its messages in nobody's hand; those of groups kept the bodies."""
    error = _failure()

    def fail(message):
        message.__dict__["body"] = bytes(2_000_000)  # as after decompressing it
        return 0.0, error

    world, _ = world_with(fail)
    (body,) = world.send(1, ONE)
    world.run(6.0)
    assert world.sent_back[0] == (body, 0)
    held = [error, error.__context__, error.__cause__, *error.__cause__.exceptions]
    assert [type(one) for one in held] == [FrozenError, KeyError, ExceptionGroup, OSError]
    assert [one.__traceback__ for one in held] == [None] * 4


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
    assert not world.sent_back
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


def test_an_ordered_message_that_can_not_be_buried_stays_first(caplog):
    world, _ = world_with(
        lambda m: (0.0, ValueError("x") if m.offset == 0 else None), ordered=True, max_attempts=1
    )
    broker = world.brokers["broker-a"]
    broker.refuse_send_back = True
    first, second = world.send(2, ONE)
    world.run(3.5)
    assert {body for _, _, _, body in world.handled} == {first}
    assert f"{first} could not be moved to the dead letters: " in caplog.text
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


# -- what a dead letter tells ------------------------------------------------------------------


def raise_one(_):
    try:
        raise LookupError("no such order: 42")
    except LookupError as error:
        return (0.0, error)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_dead_letter_tells_its_error_its_origin_and_its_id(ordered):
    world, _ = world_with(raise_one, max_attempts=1, ordered=ordered)
    (body,) = world.send(1, ONE)
    world.run(2.0)
    broker = world.brokers["broker-a"]
    assert broker.dead_letters == [body]
    (told,) = broker.told
    assert told["ROCKETWIRE_ERROR"].startswith("LookupError: no such order: 42 (test_send_back.py")
    assert (told["RETRY_TOPIC"], told["UNIQ_KEY"]) == ("T", body)
    assert told["ORIGIN_MESSAGE_ID"]


def test_without_permission_to_send_the_ordinary_request_buries_it(caplog):
    world, member = world_with(raise_one, max_attempts=1)
    broker = world.brokers["broker-a"]
    broker.refuse_sends = True
    (body,) = world.send(1, ONE)
    world.run(2.0)
    assert broker.dead_letters == [body]
    assert world.sent_back == [(body, -1)]
    assert not broker.told
    assert member.group.counters.dead_lettered == 1
    assert "does not tell why" in caplog.text


def test_a_reason_of_any_length_and_any_characters_fits(caplog):
    # The log shows the handler's error as it is, and test workers can't pass on half a character.
    caplog.set_level(logging.CRITICAL, "rocketwire")
    text = "\x01\x02\udc80ü" * 20_000
    world, _ = world_with(lambda _: (0.0, ValueError(text)), max_attempts=1)
    (body,) = world.send(1, ONE)
    world.run(2.0)
    (told,) = world.brokers["broker-a"].told
    assert 100 < len(told["ROCKETWIRE_ERROR"]) < 3000


@pytest.mark.parametrize(("others", "left"), [(20_000, 2000), (31_500, 730), (32_500, 0)])
def test_a_reason_takes_the_room_that_other_properties_leave(others, left):
    properties = {"filling": "f" * others}
    reason = _fitting(properties, "w" * 5000)
    whole = properties | {"ROCKETWIRE_ERROR": reason}
    size = sum(len(name) + len(value) + 2 for name, value in whole.items())
    assert left - 100 <= len(reason) <= left
    # To the last byte where there is not enough; brokers add theirs to the rest.
    assert (size == MAX_PROPERTIES_BYTES - 512) is (0 < len(reason) < 2000)


@pytest.mark.parametrize("reason", [None, "", "  ", 5])
def test_a_dead_letter_wants_a_reason_in_words(reason):
    with pytest.raises(InvalidMessageError, match="say in words why"):
        check_reason(reason)


@pytest.mark.parametrize("ordered", [False, True])
def test_messages_can_be_given_up_with_a_reason(ordered):
    told = Told()
    world, member = world_with(lambda _: (0.0, None), ordered=ordered, hooks=[told])
    member.is_alive = False  # its workers take nothing more
    first, second = world.send(2, ONE)
    world.run(6.0)
    with member.workload.lock:
        work = member.workload.next_work()
    member._start(bury_work(member.group, work, "fraud"))
    world.run(1.0)
    broker = world.brokers["broker-a"]
    assert broker.dead_letters == [first]
    assert broker.told[0]["ROCKETWIRE_ERROR"] == "fraud"
    assert [(kind, e.error) for kind, e in told.events] == [("dead", None)]
    with member.workload.lock:
        assert member.workload.next_work().messages[0].text == second


@pytest.mark.parametrize("ordered", [False, True])
def test_what_can_not_be_given_up_comes_again_and_in_order(ordered):
    world, member = world_with(lambda _: (0.0, None), ordered=ordered)
    member.is_alive = False
    first, second = world.send(2, ONE)
    world.run(6.0)
    broker = world.brokers["broker-a"]
    broker.refuse_send_back = True
    with member.workload.lock:
        work = member.workload.next_work()
    member._start(bury_work(member.group, work, "fraud"))
    world.run(1.0)
    with member.workload.lock:
        other = member.workload.next_work()
    if ordered:
        assert other is None
    else:
        assert other.messages[0].text == second
    world.run(6.0)
    with member.workload.lock:
        again = member.workload.next_work()
    assert again.messages[0].text == first
    assert not broker.dead_letters


# -- when it comes again -----------------------------------------------------------------------


def test_the_log_and_the_hook_tell_the_step_that_was_taken(caplog):
    caplog.set_level("INFO")
    told = Told()
    world, _ = world_with(lambda _: (0.0, Retry(after=2)), hooks=[told])
    (body,) = world.send(1, ONE)
    world.run(2.0)
    assert world.sent_back == [(body, 2)]
    assert [e.after for _, e in told.events] == [5.0]
    assert f"{body} comes again after 5 s: the nearest longer step of brokers to 2 s" in caplog.text


@pytest.mark.parametrize("after", [0, 2, 7.5, 100])
def test_an_exact_retry_comes_to_the_second_and_never_too_early(after):
    world, _ = world_with(
        lambda m: (0.0, None if m.reconsume_times else Retry(after=after)), exact_retries=True
    )
    world.send(1, ONE)
    began = world.clock()
    while not world.handled:
        world.run(0.01)
    while len(world.handled) < 2:
        world.run(0.05)
    assert after <= world.clock() - began <= after + 1.2
    assert not world.sent_back
    copies = [c for c in world.brokers["broker-a"].seen if c.code == RequestCode.SEND_MESSAGE_V2]
    due = [decode_properties(c.ext["i"]).get("TIMER_DELIVER_MS") for c in copies]
    # Just after a whole second: timers go by these, and are early rather than late.
    assert [moment and int(moment) % 1000 for moment in due] == ([1] if after else [None])
    assert [queue.topic for _, queue, _, _ in world.handled] == ["T", "%RETRY%g"]


def test_exact_retries_count_and_end_with_the_dead_letters():
    seen = []
    world, _ = world_with(
        lambda m: (0.0, seen.append(m.reconsume_times) or Retry(after=1)),
        exact_retries=True,
        max_attempts=3,
    )
    (body,) = world.send(1, ONE)
    world.run(10.0)
    assert seen == [0, 1, 2]
    assert world.brokers["broker-a"].dead_letters == [body]


@pytest.mark.parametrize("how", ["old", "refuses"])
def test_where_a_broker_has_no_timed_messages_the_step_is_taken(how, caplog):
    world = GroupWorld(brokers=1, queues=1)
    broker = world.brokers["broker-a"]
    broker.version = 407 if how == "old" else 479
    broker.refuse_sends = how == "refuses"
    member = world.member(exact_retries=True)
    member.behave = lambda m: (0.0, None if m.reconsume_times else Retry(after=2))
    member.begin()
    world.run(1.0)
    bodies = world.send(2, ONE)
    world.run(2.0)
    assert sorted(world.sent_back) == [(body, 2) for body in bodies]
    assert caplog.text.count("has no timed messages") == (1 if how == "old" else 0)
    assert ("has no timed messages" if how == "old" else "by a step instead") in caplog.text
