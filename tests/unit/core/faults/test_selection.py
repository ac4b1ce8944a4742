import pickle
from collections import Counter
from random import Random

import pytest
from tests.fault_lab import FaultLab, FixedRandom

from rocketwire.core.faults.positions import RoundRobinCounter
from rocketwire.core.faults.selection import (
    QueueList,
    TopicQueues,
    best_queue,
    hash_queue,
    pins,
    prefer_untried,
    resolve_selector,
)
from rocketwire.errors import ConfigError, InvalidMessageError
from rocketwire.message import Message, MessageQueue
from rocketwire.selectors import named, random_queue

MESSAGE = Message("t", b"x")


def spread(lab, sends, counters=None):
    counters = counters or RoundRobinCounter(Random(7))
    picks = Counter()
    for _ in range(sends):
        queue = lab.view.best(counters, lab.now)
        picks[queue] += 1
        attempt = lab.start(queue.broker)
        lab.wait(0.0001)
        lab.table.answered(attempt, lab.now)
    return picks


def assert_even(picks, queues, tolerance=0.01):
    share = sum(picks.values()) / len(queues)
    assert set(picks) == set(queues)
    assert all(abs(count - share) <= tolerance * share for count in picks.values())


# ---------------------------------------------------------------------------- counters


def test_positions_start_at_random_and_go_up_by_one_for_each_topic():
    counters = RoundRobinCounter(Random(1))
    first, other = counters.next("a"), counters.next("b")
    assert first != other
    assert [counters.next("a") for _ in range(3)] == [first + 1, first + 2, first + 3]
    assert counters.next("b") == other + 1


def test_two_counters_start_at_different_places():
    random = Random(2)
    assert RoundRobinCounter(random).next("a") != RoundRobinCounter(random).next("a")


def test_positions_start_anywhere_within_31_bits():
    starts = [RoundRobinCounter(FixedRandom(part)).next("a") for part in (0.0, 0.5, 1 - 1e-12)]
    assert starts[0] == 0
    assert starts[1] == pytest.approx(2**30, rel=1e-6)
    assert 2**31 - 4 < starts[2] < 2**31


def test_positions_wrap_to_zero_after_the_largest():
    counters = RoundRobinCounter(FixedRandom(0.0))
    counters._positions["a"] = 2**31 - 2
    assert [counters.next("a") for _ in range(3)] == [2**31 - 1, 0, 1]


def test_a_reset_goes_on_from_a_random_position():
    random = FixedRandom(0.0)
    counters = RoundRobinCounter(random)
    assert counters.next("a") == 0
    random.value = 0.5
    counters.reset("a")
    assert counters.next("a") == int(0.5 * 0x7FFFFFFF) + 1


# ---------------------------------------------------------------------------- best (rule 9)


def test_the_spread_is_even_over_a_hundred_thousand_sends():
    lab = FaultLab(queues=4)
    assert_even(spread(lab, 100_000), lab.queues)


def test_the_spread_is_even_over_the_rest_while_a_broker_is_out():
    lab = FaultLab(queues=4)
    lab.warm_up()
    lab.fail("broker-b")
    picks = spread(lab, 4_000)
    rest = [queue for queue in lab.queues if queue.broker != "broker-b"]
    assert_even(picks, rest)


def test_the_spread_is_even_after_an_isolation_and_return_and_there_is_no_burst():
    lab = FaultLab(queues=4)
    counters = RoundRobinCounter(Random(3))
    lab.warm_up()
    spread(lab, 1_001, counters)
    lab.fail("broker-b")
    spread(lab, 1_003, counters)
    lab.probe("broker-b")
    lab.answer("broker-b")
    lab.answer("broker-b")
    picks = spread(lab, 1_200, counters)
    assert_even(picks, lab.queues)
    assert_even(spread(lab, 12, counters), lab.queues, tolerance=0)


def test_a_choice_is_remembered_until_the_table_changes():
    lab = FaultLab()
    lab.warm_up()
    first = lab.view.choice(lab.now)
    spread(lab, 30)
    assert lab.view.choice(lab.now) is first
    lab.fail("broker-a")
    second = lab.view.choice(lab.now)
    assert second is not first
    assert second.candidates == second.trusted == {"broker-b", "broker-c"}


def test_a_trial_broker_may_be_chosen_but_is_not_trusted():
    lab = FaultLab()
    lab.warm_up()
    lab.fail("broker-a")
    lab.probe("broker-a")
    choice = lab.view.choice(lab.now)
    assert choice.candidates == {"broker-a", "broker-b", "broker-c"}
    assert choice.trusted == {"broker-b", "broker-c"}


def test_suspicion_is_seen_as_soon_as_its_time_comes_though_nothing_else_happens():
    lab = FaultLab()
    lab.warm_up()
    lab.chosen()
    lab.start("broker-a")
    lab.wait(0.1001)
    assert "broker-a" not in lab.chosen()


def test_a_retry_avoids_all_brokers_tried_before():
    lab = FaultLab()
    assert lab.chosen(20, "broker-a") == {"broker-b", "broker-c"}
    assert lab.chosen(20, "broker-a", "broker-b") == {"broker-c"}


def test_when_all_were_tried_a_retry_avoids_only_the_last():
    lab = FaultLab()
    tried = ("broker-a", "broker-b", "broker-c")
    assert lab.chosen(20, *tried) == {"broker-a", "broker-b"}


def test_a_usable_broker_is_tried_again_rather_than_an_isolated_one():
    lab = FaultLab(brokers=("a", "b"))
    lab.warm_up()
    lab.fail("b")
    assert lab.chosen(20, "a") == {"a"}


def test_another_usable_is_about_others_than_the_one_chosen():
    lab = FaultLab(brokers=("a", "b"))
    lab.warm_up()
    assert lab.view.another_usable("a", lab.now)
    lab.fail("b")
    assert not lab.view.another_usable("a", lab.now)
    assert lab.view.another_usable("b", lab.now)
    lab.fail("a")
    assert not lab.view.another_usable("a", lab.now)


def test_a_broker_on_trial_is_no_other_usable_broker():
    lab = FaultLab(brokers=("a", "b"))
    lab.warm_up()
    lab.fail("b")
    lab.probe("b")
    assert not lab.view.another_usable("a", lab.now)


def test_a_suspect_is_no_other_usable_broker():
    lab = FaultLab(brokers=("a", "b"))
    lab.warm_up()
    lab.start("b")
    lab.wait(0.11)
    assert not lab.view.another_usable("a", lab.now)


def test_a_topic_on_some_brokers_only_looks_at_those():
    lab = FaultLab()
    lab.warm_up()
    view = TopicQueues("t", [MessageQueue("t", "broker-a", 0)], lab.table)
    lab.fail("broker-a")
    assert view.best(lab.counters, lab.now).broker == "broker-a"
    assert not view.another_usable("broker-a", lab.now)
    assert view.brokers == ("broker-a",)


def test_a_topic_without_queues_is_refused():
    with pytest.raises(ValueError, match="'t' has no writable queue"):
        TopicQueues("t", [], FaultLab().table)


# ---------------------------------------------------------------------------- queue lists


def queue_list(**options):
    return QueueList([MessageQueue("t", broker, n) for broker in "ab" for n in range(2)], **options)


def test_a_queue_list_is_an_immutable_sequence():
    queues = queue_list()
    assert len(queues) == 4
    assert queues[0] == MessageQueue("t", "a", 0)
    assert queues[-1] == MessageQueue("t", "b", 1)
    assert queues[1:3] == (MessageQueue("t", "a", 1), MessageQueue("t", "b", 0))
    assert list(queues) == list(queues.all)
    assert MessageQueue("t", "b", 1) in queues
    assert MessageQueue("t", "c", 1) not in queues
    assert queues.index(MessageQueue("t", "b", 0)) == 2
    assert next(reversed(queues)) == queues[3]
    with pytest.raises(TypeError):
        queues[0] = MessageQueue("t", "x", 0)
    assert "failed=()" in repr(queues)


def test_a_queue_list_by_itself_has_all_usable_and_nothing_failed():
    queues = queue_list()
    assert queues.usable == queues.all
    assert queues.failed == ()
    assert queues.next_index() == 0


def test_usable_may_be_given_or_found_out_once_when_asked():
    asked = []

    def find():
        asked.append(1)
        return (MessageQueue("t", "a", 0),)

    queues = queue_list(usable=find)
    assert asked == []
    assert queues.usable == queues.usable == (MessageQueue("t", "a", 0),)
    assert asked == [1]
    assert queue_list(usable=[MessageQueue("t", "b", 0)]).usable == (MessageQueue("t", "b", 0),)


def test_a_selector_sees_what_the_table_allows_what_failed_and_the_counter():
    lab = FaultLab(brokers=("a", "b", "c"), queues=1, chance=0.0)
    lab.warm_up()
    lab.fail("b")
    seen = []

    def look(queues, message, argument):
        seen.append((queues.all, queues.usable, queues.failed, message, argument))
        seen.append([queues.next_index() for _ in range(3)])
        return queues[0]

    chosen = lab.view.select(look, MESSAGE, 42, lab.counters, lab.now, ["a"])
    a, b, c = lab.queues
    assert chosen == a
    assert seen[0] == ((a, b, c), (a, c), ("a",), MESSAGE, 42)
    assert seen[1] == [0, 1, 2]


def test_the_least_bad_that_a_selector_sees_is_not_the_one_that_just_failed():
    lab = FaultLab(brokers=("a", "b"), queues=1)
    lab.warm_up()
    lab.fail("a")
    lab.wait(0.01)
    lab.fail("b")
    seen = []

    def look(queues, message, argument):
        seen.append(queues.usable)
        queues.next_index()
        return queues[0]

    lab.view.select(look, MESSAGE, None, lab.counters, lab.now, ["a"])
    assert seen == [(lab.queues[1],)]
    assert set(lab.counters._positions) == {"t"}


def test_a_selector_that_is_an_object_is_named_by_its_repr():
    class Odd:
        def __call__(self, queues, message, argument):
            return None

        def __repr__(self):
            return "<odd one>"

    lab = FaultLab()
    with pytest.raises(ConfigError, match="selector <odd one> returned None"):
        lab.view.select(Odd(), MESSAGE, None, lab.counters, lab.now)


def test_usable_is_never_empty_but_the_least_bad():
    lab = FaultLab(brokers=("a", "b"), queues=1)
    lab.warm_up()
    lab.fail("a")
    lab.wait(0.01)
    lab.fail("b")
    seen = []
    lab.view.select(
        lambda queues, *_: seen.append(queues.usable) or queues[0],
        MESSAGE,
        None,
        lab.counters,
        lab.now,
    )
    assert seen == [(lab.queues[0],)]


# ---------------------------------------------------------------------------- selectors


def test_best_queue_is_the_default_strategy():
    lab = FaultLab(chance=0.0)
    lab.warm_up()
    lab.fail("broker-b")
    same = FaultLab(chance=0.0)
    same.warm_up()
    same.fail("broker-b")
    for failed in ((), ("broker-a",), ("broker-a", "broker-c")):
        direct = lab.view.best(lab.counters, lab.now, failed)
        selected = same.view.select(best_queue, MESSAGE, None, same.counters, same.now, failed)
        queues = QueueList(same.queues, usable=same.view.allowed(same.now, failed), failed=failed)
        assert direct == selected
        assert best_queue(queues, MESSAGE).broker == direct.broker


def test_best_queue_takes_usable_queues_in_turn():
    turn = iter(range(5, 100))
    usable = [MessageQueue("t", "a", n) for n in range(3)]
    queues = queue_list(usable=usable, next_index=lambda: next(turn))
    assert [best_queue(queues, MESSAGE).id for _ in range(4)] == [2, 0, 1, 2]


def test_which_selectors_pin():
    assert not pins(best_queue)
    assert pins(hash_queue)
    assert pins(lambda queues, message, argument: queues[0])

    class Wandering:
        pins = False

        def __call__(self, queues, message, argument):
            return queues[0]

    assert not pins(Wandering())


@pytest.mark.parametrize(
    ("key", "position"),
    [("order-1001", 708180863 % 6), ("polygenelubricants", 2**31 % 6), (42, 42 % 6), (-1, 1)],
)
def test_hash_queue_chooses_as_java_does(key, position):
    lab = FaultLab()
    chosen = lab.view.select(hash_queue, MESSAGE, key, lab.counters, lab.now)
    assert chosen == lab.queues[position]


def test_hash_queue_takes_the_argument_before_the_sharding_key():
    queues = queue_list()
    message = Message("t", b"x", sharding_key="order-1001")
    assert hash_queue(queues, message) == queues[708180863 % 4]
    assert hash_queue(queues, message, "TagA") == queues[2598919 % 4]
    assert hash_queue(queues, message, 0) == queues[0]


def test_hash_queue_without_a_key_says_what_to_give():
    with pytest.raises(InvalidMessageError) as caught:
        hash_queue(queue_list(), MESSAGE)
    assert str(caught.value) == (
        "there is no key to choose the queue by: give argument= to the send, "
        "or sharding_key= to the message"
    )


def test_hash_queue_ignores_what_the_table_thinks():
    lab = FaultLab()
    lab.warm_up()
    before = lab.view.select(hash_queue, MESSAGE, "k", lab.counters, lab.now)
    lab.fail(before.broker)
    assert lab.view.select(hash_queue, MESSAGE, "k", lab.counters, lab.now) == before


@pytest.mark.parametrize("wrong", [None, 3, "broker-a", ("t", "broker-a", 0), [1]])
def test_a_selector_must_return_a_queue(wrong):
    lab = FaultLab()

    def mine(queues, message, argument):
        return wrong

    with pytest.raises(ConfigError, match=r"selector .*mine returned .*: return one of the queues"):
        lab.view.select(mine, MESSAGE, None, lab.counters, lab.now)


def test_a_selector_must_return_one_of_the_queues_given():
    lab = FaultLab()

    def mine(queues, message, argument):
        return MessageQueue("t", "broker-x", 0)

    with pytest.raises(ConfigError, match=r"mine chose .*broker-x.* not among the 6 writable"):
        lab.view.select(mine, MESSAGE, None, lab.counters, lab.now)


def test_an_error_in_a_selector_is_told_with_its_cause():
    lab = FaultLab()

    def mine(queues, message, argument):
        return queues[99]

    with pytest.raises(ConfigError, match="mine raised IndexError") as caught:
        lab.view.select(mine, MESSAGE, None, lab.counters, lab.now)
    assert isinstance(caught.value.__cause__, IndexError)


def test_an_error_of_ours_in_a_selector_passes_unchanged():
    lab = FaultLab()
    with pytest.raises(InvalidMessageError, match="no key"):
        lab.view.select(hash_queue, MESSAGE, None, lab.counters, lab.now)


def test_a_selector_may_be_named():
    assert resolve_selector(None, named) is best_queue
    assert resolve_selector("hash_queue", named) is hash_queue
    assert resolve_selector("random_queue", named) is random_queue
    assert resolve_selector(hash_queue, named) is hash_queue
    with pytest.raises(ConfigError, match="best_queue, round_robin"):
        resolve_selector("fastest", named)
    with pytest.raises(ConfigError) as caught:
        resolve_selector(42, named)
    assert str(caught.value) == (
        "selector is 42: give a callable (queues, message, argument) -> MessageQueue, "
        "or the name of one in rocketwire.selectors"
    )


def test_selectors_survive_pickling():
    for selector in (best_queue, hash_queue):
        assert pickle.loads(pickle.dumps(selector)) is selector


@pytest.mark.parametrize(
    ("failed", "left"),
    [((), "abc"), (("a",), "bc"), (("a", "b"), "c"), (("a", "b", "c"), "ab"), (("x",), "abc")],
)
def test_untried_brokers_come_first(failed, left):
    queues = tuple(MessageQueue("t", broker, 0) for broker in "abc")
    assert [queue.broker for queue in prefer_untried(queues, failed)] == list(left)


def test_the_only_broker_is_tried_again():
    queues = (MessageQueue("t", "a", 0),)
    assert prefer_untried(queues, ("a",)) == queues
