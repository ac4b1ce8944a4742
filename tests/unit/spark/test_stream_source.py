"""What the driver answers Spark: the same initial offset, fair limits, patience with brokers."""

import json
import logging

import pytest

from rocketwire.columns.fetch import DataLossError
from rocketwire.errors import (
    ConfigError,
    ConnectFailedError,
    MissingQueuesError,
    NameServerUnavailableError,
)
from rocketwire.message import MessageQueue
from rocketwire.spark.client import Bounds
from rocketwire.spark.completeness import Completeness
from rocketwire.spark.local_record import LocalRecord
from rocketwire.spark.offsets import StreamOffset
from rocketwire.spark.options import read_options
from rocketwire.spark.stream_reader import StreamSource
from rocketwire.spark.topic_view import BrokerView, TopicView

A, B, C = (MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0))


class Brokers:
    """Answers as a cluster with these queues would: first and next offset of each."""

    def __init__(self, **topics):
        self.topics_known = topics or {"t": {A: (0, 0), B: (0, 0)}}
        self.silent = set()
        self.is_lost = False
        self.committed = []
        self.asked = 0
        self.ordered = {}
        self.registered = {"a", "b"}
        self.hidden = set()
        self.moments = {}

    @property
    def places(self):
        return {q: place for queues in self.topics_known.values() for q, place in queues.items()}

    def put(self, queue, first, end):
        self.topics_known.setdefault(queue.topic, {})[queue] = (first, end)

    def topics(self, choice):
        if self.is_lost:
            raise NameServerUnavailableError("no name server answered")
        if choice.pattern is None:
            return choice.topics
        return tuple(topic for topic in sorted(self.topics_known) if choice.matches(topic))

    def has_any(self, brokers):
        return not self.registered.isdisjoint(brokers)

    def queues(self, choice):
        return tuple(q for t in self.topics(choice) for q in sorted(self.topics_known[t]))

    def queues_of(self, topic):
        if self.is_lost:
            raise NameServerUnavailableError("no name server answered")
        found = self.topics_known.get(topic)
        return None if found is None else tuple(sorted(set(found) - self.hidden))

    def view_of(self, topic):
        queues = self.queues_of(topic)
        if queues is None:
            return None
        ids = {}
        for queue in queues:
            ids.setdefault(queue.broker, []).append(queue.id)
        brokers = {name: BrokerView("c", f"{name}:1", tuple(i)) for name, i in ids.items()}
        return TopicView(brokers, self.ordered)

    def bounds(self, queues):
        self.asked += 1
        heard = [q for q in queues if q not in self.silent and q in self.places]
        silent = {q: ConnectFailedError("refused") for q in queues if q in self.silent}
        return Bounds(
            {q: self.places[q][0] for q in heard}, {q: self.places[q][1] for q in heard}, silent
        )

    def offsets_at(self, moments):
        return {
            q: self.moments.get((q, moment), self.places[q][1]) for q, moment in moments.items()
        }

    def commit(self, group, offsets):
        self.committed.append((group, dict(offsets)))


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def source(clock):
    def make(brokers, **options):
        given = {"nameservers": "127.0.0.1:9876", "startingoffsets": "earliest"}
        given |= {} if "topicpattern" in options else {"topic": "t"}
        return StreamSource(
            brokers, read_options(given | options, streaming=True), clock=clock, sleep=clock.sleep
        )

    return make


def recorded(brokers, clock, folder, **options):
    """A stream over a pattern that remembers what it saw."""
    given = {"nameservers": "127.0.0.1:9876", "startingoffsets": "earliest", "topicpattern": "t.*"}
    chosen = read_options(given | options, streaming=True)
    record = LocalRecord(str(folder), ("n:1",), clock)
    return StreamSource(
        brokers, chosen, Completeness(chosen, record), clock=clock, sleep=clock.sleep
    )


def test_a_topic_of_a_pattern_that_vanished_with_its_broker_is_missed(clock, tmp_path):
    other = MessageQueue("t2", "b", 0)
    brokers = Brokers(t={A: (0, 5)}, t2={other: (0, 5)})
    assert set(recorded(brokers, clock, tmp_path).initial().offsets) == {A, other}
    kept = brokers.topics_known.pop("t2")
    brokers.registered = {"a"}
    with pytest.raises(MissingQueuesError, match="topic t2, broker b, queue 0: it was there"):
        recorded(brokers, clock, tmp_path, readtimeout="5s").initial()
    # A broker that is there without it: the topic was deleted.
    brokers.registered = {"a", "b"}
    assert set(recorded(brokers, clock, tmp_path, readtimeout="5s").initial().offsets) == {A}
    brokers.registered = {"a"}
    clock.now += 700
    assert set(recorded(brokers, clock, tmp_path, readtimeout="5s").initial().offsets) == {A}
    brokers.topics_known["t2"] = kept


def step(source, clock, start, limit=None):
    clock.now += 1
    return source.latest(start, limit)


def test_the_initial_offset_is_asked_for_once(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    stream = source(brokers, startingoffsets="latest")
    first = stream.initial()
    brokers.put(A, 0, 99)
    assert stream.initial() is first
    assert first.offsets == {A: 5}
    assert first.is_initial


def test_nothing_new_returns_the_start_itself(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    stream = source(brokers)
    end = step(stream, clock, stream.initial())
    assert end.offsets == {A: 5}
    assert step(stream, clock, end) is end


def test_brokers_are_not_asked_every_few_milliseconds(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    stream = source(brokers)
    start = stream.initial()
    before = brokers.asked
    for _ in range(50):
        stream.latest(start, None)
        stream.true_ends()
        clock.now += 0.001
    assert brokers.asked - before == 1


def test_a_limit_is_shared_by_what_waits(source, clock):
    stream = source(Brokers(t={A: (0, 90), B: (0, 10)}))
    assert step(stream, clock, stream.initial(), 10).offsets == {A: 9, B: 1}


def test_available_now_takes_nothing_that_comes_later(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    stream = source(brokers)
    stream.stop_at_present_end()
    start = stream.initial()
    brokers.put(A, 0, 50)
    brokers.put(C, 0, 7)
    end = step(stream, clock, start)
    assert end.offsets == {A: 5}
    assert stream.true_ends().offsets == {A: 50, C: 7}


def test_a_batch_waits_for_enough_messages_but_not_for_ever(source, clock):
    brokers = Brokers(t={A: (0, 3)})
    stream = source(brokers, minoffsetspertrigger="10", maxtriggerdelay="60s")
    start = stream.initial()
    assert step(stream, clock, start) is start
    clock.now += 30
    assert step(stream, clock, start) is start
    clock.now += 60
    end = step(stream, clock, start)
    assert end.offsets == {A: 3}
    brokers.put(A, 0, 20)
    assert step(stream, clock, end).offsets == {A: 20}


def test_new_topics_of_a_pattern_start_at_their_beginning(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    stream = source(brokers, topicpattern="t.*", startingoffsets="latest")
    start = stream.initial()
    new = MessageQueue("t2", "a", 0)
    brokers.put(new, 3, 9)
    end = step(stream, clock, start)
    assert end.offsets == {A: 5, new: 9}
    assert {(r.queue, r.start, r.end) for r in stream.ranges(start, end)} == {
        (A, 5, 5),
        (new, 3, 9),
    }


def test_a_topic_of_a_pattern_must_be_there_when_the_user_says_which_brokers_it_has(source, clock):
    """A topic whose brokers are all away is on no name server's list."""
    brokers = Brokers(t={A: (0, 5)})
    for said in ('{"t2": 1}', '{"t2": ["b"]}'):
        stream = source(brokers, topicpattern="t.*", expectedbrokers=said, readtimeout="5s")
        with pytest.raises(MissingQueuesError, match="topic t2, "):
            stream.initial()
        stream.stop_at_present_end()
        with pytest.raises(MissingQueuesError, match="topic t2, "):
            step(stream, clock, StreamOffset({A: 5}))


def test_a_silent_broker_keeps_its_place_and_is_told_once_a_minute(source, clock, caplog):
    brokers = Brokers(t={A: (0, 5), C: (0, 5)})
    stream = source(brokers)
    start = step(stream, clock, stream.initial())
    brokers.silent = {C}
    brokers.put(A, 0, 8)
    with caplog.at_level(logging.WARNING):
        end = step(stream, clock, start)
        for _ in range(20):
            step(stream, clock, end)
    assert end.offsets == {A: 8, C: 5}
    assert [r.getMessage() for r in caplog.records] == [
        "queues are skipped until they return: topic t, broker b, queue 0: refused"
    ]
    brokers.silent = set()
    brokers.put(C, 0, 9)
    assert step(stream, clock, end).offsets == {A: 8, C: 9}


def test_a_broker_that_left_the_route_keeps_its_place(source, clock, caplog):
    brokers = Brokers(t={A: (0, 5), C: (0, 5)})
    stream = source(brokers)
    start = step(stream, clock, stream.initial())
    del brokers.topics_known["t"][C]
    with caplog.at_level(logging.WARNING):
        assert step(stream, clock, start).offsets == {A: 5, C: 5}
    assert "topic t, broker b, queue 0: it is in the checkpoint, and its broker left" in caplog.text


@pytest.mark.parametrize("fault", ["silent", "unregistered"])
def test_available_now_fails_before_it_would_report_success(source, clock, fault):
    brokers = Brokers(t={A: (0, 5), C: (0, 5)})
    stream = source(brokers, readtimeout="30s")
    stream.stop_at_present_end()
    first = step(stream, clock, stream.initial())
    brokers.put(A, 0, 8)
    if fault == "silent":
        brokers.silent = {C}
    else:
        del brokers.topics_known["t"][C]
    again = source(brokers, readtimeout="30s")
    again.stop_at_present_end()
    end = step(again, clock, first)
    assert end.offsets == {A: 8, C: 5}  # the others first
    before = clock.now
    with pytest.raises(MissingQueuesError, match="topic t, broker b, queue 0") as caught:
        step(again, clock, end)
    assert 28 <= clock.now - before <= 32
    assert caught.value.queues == (C,)


def test_available_now_reads_a_queue_that_returns_in_time(source, clock):
    brokers = Brokers(t={A: (0, 5), C: (0, 5)})
    start = source(brokers).initial()
    brokers.silent = {C}
    stream = source(brokers, readtimeout="30s")
    stream.stop_at_present_end()
    end = step(stream, clock, start)
    assert end.offsets == {A: 5, C: 0}
    sleep, naps = stream._sleep, []

    def nap(seconds):
        naps.append(seconds)
        sleep(seconds)
        if len(naps) == 20:
            brokers.silent = set()

    stream._sleep = nap
    end = step(stream, clock, end)
    assert end.offsets == {A: 5, C: 5}
    assert step(stream, clock, end) is end
    assert len(naps) == 20


def test_available_now_heeds_the_checkpoint_however_soon_it_is_told_of_it(source, clock):
    """Spark has the end taken first, and says where the checkpoint is some milliseconds later."""
    start = StreamOffset({A: 5, C: 5})
    stream = source(Brokers(t={A: (0, 5)}), readtimeout="30s")
    stream.stop_at_present_end()
    with pytest.raises(MissingQueuesError, match="broker b, queue 0: it is in the checkpoint"):
        stream.latest(start, None)


@pytest.mark.parametrize("naps", [0, 20])
def test_available_now_reads_a_registered_broker_that_only_the_checkpoint_knew(source, clock, naps):
    brokers = Brokers(t={A: (0, 5)})
    stream = source(brokers, readtimeout="30s")
    stream.stop_at_present_end()
    when(stream, naps, lambda: brokers.put(C, 0, 9))
    end = stream.latest(StreamOffset({A: 5, C: 5}), None)
    assert end.offsets == {A: 5, C: 9}
    brokers.put(C, 0, 12)  # later than the end that was taken
    assert step(stream, clock, end) is end


def test_available_now_reads_the_rest_of_a_queue_that_the_broker_offers_no_more(source, clock):
    brokers = Brokers(t={A: (0, 5), B: (0, 5)})
    brokers.hidden = {B}
    stream = source(brokers)
    stream.stop_at_present_end()
    assert stream.latest(StreamOffset({A: 5, B: 2}), None).offsets == {A: 5, B: 5}


def when(stream, naps, do):
    """Do something once the stream has slept so often; at once for 0."""
    sleep, slept = stream._sleep, []

    def nap(seconds):
        sleep(seconds)
        slept.append(seconds)
        if len(slept) == naps:
            do()

    stream._sleep = nap
    if not naps:
        do()


@pytest.mark.parametrize("chosen", [{}, {"topicpattern": "t.*"}])
def test_available_now_does_not_take_silent_name_servers_for_an_empty_cluster(
    source, clock, chosen
):
    brokers = Brokers(t={A: (0, 5)})
    brokers.is_lost = True
    stream = source(brokers, readtimeout="30s", **chosen)

    def answer():
        brokers.is_lost = False

    when(stream, 5, answer)
    stream.stop_at_present_end()
    assert stream.latest(StreamOffset({A: 2}), None).offsets == {A: 5}

    brokers.is_lost = True
    lost = source(brokers, readtimeout="30s", **chosen)
    with pytest.raises(NameServerUnavailableError):
        lost.stop_at_present_end()


def test_a_run_does_not_end_before_queues_that_name_servers_hide_for_a_moment(source):
    """Queues that came after the checkpoint were known at the beginning, and left out."""
    brokers = Brokers(t={A: (0, 5), C: (0, 4)})
    stream = source(brokers, readtimeout="30s")
    stream.stop_at_present_end()
    brokers.is_lost = True

    def answer():
        brokers.is_lost = False

    when(stream, 5, answer)
    assert stream.latest(StreamOffset({A: 5}), None).offsets == {A: 5, C: 4}

    for start in (StreamOffset({A: 5, C: 4}), StreamOffset({A: 5})):
        lost = source(brokers, readtimeout="30s")
        lost.stop_at_present_end()
        brokers.is_lost = True
        if C in start.offsets:
            assert lost.latest(start, None) is start
        else:
            with pytest.raises(NameServerUnavailableError):
                lost.latest(start, None)
        brokers.is_lost = False


def test_a_stream_goes_on_with_the_others_and_fails_after_the_timeout(source, clock):
    brokers = Brokers(t={A: (0, 5), C: (0, 5)})
    stream = source(brokers, readtimeout="30s")
    end = step(stream, clock, stream.initial())
    del brokers.topics_known["t"][C]
    for number in range(6, 20):
        brokers.put(A, 0, number)
        end = step(stream, clock, end)
        assert end.offsets == {A: number, C: 5}
    assert stream.true_ends().missing == (C,)
    clock.now += 30
    with pytest.raises(MissingQueuesError, match="expectedBrokers"):
        step(stream, clock, end)


def test_what_is_missing_is_a_figure_when_it_does_not_matter(source, clock, caplog):
    brokers = Brokers(t={A: (0, 5), C: (0, 5)})
    stream = source(brokers, failondataloss="false", readtimeout="5s")
    start = step(stream, clock, stream.initial())
    del brokers.topics_known["t"][C]
    stream.stop_at_present_end()
    with caplog.at_level(logging.WARNING):
        clock.now += 60
        assert step(stream, clock, start) is start
    assert stream.true_ends().missing == (C,)
    assert "queue 0" in caplog.text


def test_expected_brokers_beat_the_checkpoint(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    start = StreamOffset({A: 5, C: 5})
    stream = source(brokers, readtimeout="5s", expectedbrokers="a")
    stream.stop_at_present_end()
    assert step(stream, clock, start) is start
    named = source(brokers, readtimeout="5s", expectedbrokers="a,z")
    named.stop_at_present_end()
    with pytest.raises(MissingQueuesError, match="broker z, all queues"):
        step(named, clock, StreamOffset({A: 5}))


def test_a_new_query_waits_for_expected_brokers(source, clock):
    stream = source(Brokers(t={A: (0, 5)}), readtimeout="5s", expectedbrokers="2")
    with pytest.raises(MissingQueuesError, match="1 more broker: expectedBrokers is 2"):
        stream.initial()


def test_the_order_configuration_names_brokers_that_must_be_there(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    brokers.ordered = {"a": 1, "b": 2}
    with pytest.raises(MissingQueuesError, match="broker b, queues 0, 1: the topic's order"):
        source(brokers, readtimeout="5s").initial()


def test_a_topic_made_anew_is_told_as_deleted(source, clock):
    with pytest.raises(DataLossError, match="the topic was deleted, or made anew"):
        step(source(Brokers(t={A: (0, 0)})), clock, StreamOffset({A: 20}))


def test_available_now_fails_when_the_topic_is_gone(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    start = step(source(brokers), clock, StreamOffset({A: 2}))
    del brokers.topics_known["t"]
    stream = source(brokers)
    stream.stop_at_present_end()
    with pytest.raises(DataLossError, match="topic t was deleted"):
        step(stream, clock, start)


def test_an_unreachable_name_server_does_not_end_the_query(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    stream = source(brokers)
    start = step(stream, clock, stream.initial())
    brokers.is_lost = True
    brokers.put(A, 0, 9)
    assert step(stream, clock, start).offsets == {A: 9}


def test_expired_messages_are_data_loss_or_skipped(source, clock, caplog):
    brokers = Brokers(t={A: (0, 10)})
    strict, lenient = source(brokers), source(brokers, failondataloss="false")
    start = StreamOffset({A: 2})
    brokers.put(A, 6, 10)
    with pytest.raises(DataLossError, match="offsets 2 to 5 are not there; the broker has 6 to 9"):
        step(strict, clock, start)
    with caplog.at_level(logging.WARNING):
        end = step(lenient, clock, start)
    assert end == StreamOffset({A: 10}, {A: 6})
    assert "going on without them" in caplog.text
    assert [(r.start, r.end) for r in lenient.ranges(start, end)] == [(6, 10)]


def test_a_queue_that_went_back_is_data_loss_or_goes_on_at_its_end(source, clock):
    brokers = Brokers(t={A: (0, 3)})
    with pytest.raises(DataLossError, match="offsets 3 to 19 are not there"):
        step(source(brokers), clock, StreamOffset({A: 20}))
    lenient = source(brokers, failondataloss="false")
    end = step(lenient, clock, StreamOffset({A: 20}))
    assert end.offsets == {A: 3}
    assert [(r.start, r.end) for r in lenient.ranges(StreamOffset({A: 20}), end)] == [(3, 3)]
    assert step(lenient, clock, end) is end


def test_a_topic_is_deleted_only_when_it_stays_away(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    stream = source(brokers)
    start = step(stream, clock, stream.initial())
    del brokers.topics_known["t"]
    assert step(stream, clock, start) is start  # a name server that was just restarted
    clock.now += 100
    with pytest.raises(DataLossError, match="topic t was deleted"):
        step(stream, clock, start)
    lenient = source(brokers, failondataloss="false")
    step(lenient, clock, start)
    clock.now += 100
    assert step(lenient, clock, start) is start


def test_a_topic_whose_brokers_are_all_away_is_waited_for(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    stream = source(brokers, readtimeout="120s")
    start = step(stream, clock, stream.initial())
    del brokers.topics_known["t"]
    brokers.registered = set()
    assert step(stream, clock, start) is start
    clock.now += 100
    assert step(stream, clock, start) is start
    clock.now += 30
    with pytest.raises(MissingQueuesError, match="in the checkpoint, and its broker left"):
        step(stream, clock, start)


def test_progress_is_reported_when_it_is_committed(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    stream = source(brokers, groupid="g")
    start = stream.initial()
    end = step(stream, clock, start)
    assert brokers.committed == []  # nothing is processed yet
    step(stream, clock, end)
    step(stream, clock, end)
    assert brokers.committed == [("g", {A: 5})]


def test_a_start_by_time_that_nothing_is_new_enough_for(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    with pytest.raises(ConfigError, match="no message is as new as 7"):
        source(brokers, startingtimestamp="7").initial()
    latest = source(brokers, startingtimestamp="7", startingtimestampstrategy="latest")
    assert latest.initial().offsets == {A: 5}


def test_offsets_of_queues_that_do_not_exist_are_refused(source, clock):
    text = '{"t":{"z":{"0":1}}}'
    with pytest.raises(ConfigError, match="no queue 0 of topic t on broker z"):
        source(Brokers(), startingoffsets=text).initial()


# -- a Spark before 4.2, which does not say where a batch starts ---------------------------------


def test_a_restart_goes_on_where_the_checkpoint_is_though_it_is_not_told(source, clock):
    brokers = Brokers(t={A: (2, 9), B: (3, 4)})
    stream = source(brokers)
    end = stream.latest_without_start()
    assert end.offsets == {A: 9, B: 4}
    start = StreamOffset({A: 5})  # B is new: it is read from its first message
    assert {(r.queue, r.start, r.end) for r in stream.ranges(start, end)} == {(A, 5, 9), (B, 3, 4)}
    assert StreamOffset.from_json(end.to_json()) == end
    stream.begun(start, end)
    clock.now += 1
    assert stream.latest_without_start() is end
    brokers.put(A, 2, 11)
    clock.now += 1
    assert stream.latest_without_start().offsets == {A: 11, B: 4}


def test_a_new_query_without_a_start_begins_at_its_initial_offset(source, clock):
    brokers = Brokers(t={A: (0, 5)})
    stream = source(brokers, startingoffsets="latest")
    start = stream.initial()
    assert stream.latest_without_start() is start
    brokers.put(A, 0, 7)
    clock.now += 1
    end = stream.latest_without_start()
    assert [(r.start, r.end) for r in stream.ranges(start, end)] == [(5, 7)]


def test_without_a_start_queues_that_are_away_are_waited_for(source, clock):
    brokers = Brokers(t={A: (0, 5), C: (0, 5)})
    stream = source(brokers, readtimeout="20s")
    stream.initial()
    brokers.silent = {C}
    clock.now += 1
    before = clock.now
    with pytest.raises(MissingQueuesError):
        stream.latest_without_start()
    assert 18 <= clock.now - before <= 22


def test_queues_of_the_checkpoint_that_are_away_fail_the_batch_and_keep_their_place(source, clock):
    brokers = Brokers(t={A: (0, 9)})
    start = StreamOffset({A: 5, C: 5})
    stream = source(brokers, readtimeout="20s")
    end = stream.latest_without_start()
    with pytest.raises(MissingQueuesError, match="broker b, queue 0: it is in the checkpoint"):
        stream.begun(start, end)
    # The batch is in Spark's log without the queue; when it is back, the next one goes on there.
    brokers.put(C, 0, 8)
    again = source(brokers, readtimeout="20s")
    again.begun(start, end)
    clock.now += 1
    after = again.latest_without_start()
    assert {(r.queue, r.start, r.end) for r in again.ranges(end, after)} == {(A, 9, 9), (C, 5, 8)}


def test_a_pipeline_says_where_its_checkpoint_is(source, clock):
    text = json.dumps(StreamOffset({A: 5, C: 5}).to_json())
    stream = source(Brokers(t={A: (0, 9)}), failondataloss="false", _reachedoffset=text)
    assert stream.latest_without_start().offsets == {A: 9, C: 5}


def test_limits_hold_before_42_only_when_asked_for(source, clock):
    brokers = Brokers(t={A: (0, 90)})
    free = source(brokers, maxoffsetspertrigger="10")
    free.initial()
    assert free.latest_without_start().offsets == {A: 90}
    bound = source(brokers, maxoffsetspertrigger="10", limitbefore42="true")
    bound.initial()
    assert bound.latest_without_start().offsets == {A: 10}


def test_single_queues_start_by_time_and_the_others_as_startingoffsets_says(source, clock):
    brokers = Brokers(t={A: (0, 9), B: (0, 9)})
    brokers.moments = {(A, 1000): 4}
    text = '{"t":{"a":{"0":1000}}}'
    stream = source(brokers, startingoffsets="latest", startingoffsetsbytimestamp=text)
    assert stream.initial().offsets == {A: 4, B: 9}
    late = source(brokers, startingoffsetsbytimestamp='{"t":{"a":{"0":2000}}}')
    with pytest.raises(
        ConfigError, match="option startingOffsetsByTimestamp: no message is as new"
    ):
        late.initial()
    both = source(brokers, startingtimestamp="1000", startingoffsetsbytimestamp=text,
                  startingtimestampstrategy="latest")  # fmt: skip
    assert both.initial().offsets == {A: 4, B: 9}
    with pytest.raises(ConfigError, match="option startingOffsetsByTimestamp: there is no queue 7"):
        source(brokers, startingoffsetsbytimestamp='{"t":{"a":{"7":1}}}').initial()
