"""The page of the delivery report, from findings alone: no Spark is needed to draw it."""

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from rocketwire.pages.words import GAP, THIN
from rocketwire.spark.delivery_report.figures import flow, spread
from rocketwire.spark.delivery_report.findings import (
    Avoidance,
    Counts,
    Ended,
    Findings,
    Input,
    KeyOrder,
    KeyShare,
    Named,
    Period,
    QueueShare,
    Route,
    Stretch,
    TopicSpread,
    Trouble,
    WorstKey,
)
from rocketwire.spark.delivery_report.page import make_page
from rocketwire.spark.delivery_report.summary import summarise

BEGIN = 1_760_000_400.0
VOID = {"meta", "rect", "path", "br", "link", "img"}


def counts(attempts=100, failures=0, **more):
    values = {
        "attempts": attempts,
        "sends": attempts,
        "acknowledged": attempts - failures,
        "failures": failures,
        "messages": attempts - failures,
        "bytes": attempts * 200,
        "p50": 0.0004,
        "p90": 0.001,
        "p99": 0.004,
        "p999": 0.02,
        "slowest": 0.2,
        "first_at": BEGIN,
        "last_at": BEGIN + 60,
    }
    return Counts(**(values | more))


@pytest.fixture
def found():
    names = ("broker-a", "broker-b")
    return Findings(
        input=Input("telemetry", records=20_100),
        overall=counts(20_000, 30, retries=25),
        begin=BEGIN,
        end=BEGIN + 60,
        width=0.5,
        brokers=tuple(Named(name, counts(10_000, 15)) for name in names),
        total_brokers=2,
        buckets={name: {b: counts(80, b % 7 == 0) for b in range(0, 120, 1)} for name in names},
        bars={name: dict.fromkeys(range(-40, -10), 9) for name in names},
        avoided=(Avoidance("broker-b", 3, 1, 41.2, 20.0, "302 ms, 151 times the others"),),
        stretches=(Stretch("broker-b", BEGIN + 10, BEGIN + 20, 1, 1, "302 ms, 151 times"),),
        periods=(
            Period("broker-b", "client-1", BEGIN + 10, BEGIN + 30, "302 ms, 151 times", 2, False),
            Period("broker-b", "client-1", BEGIN + 40, BEGIN + 60, "gave no answer", 1, True),
        ),
        total_periods=3,
        routes=(Route("broker-b", "broker-a", 20, 19), Route("broker-a", "broker-a", 5, 5)),
        ended=(Ended("stored", 24, 24, 7, 24), Ended("rejected", 6, 6, 0, 1)),
        spreads=(
            TopicSpread(
                "orders", tuple(QueueShare(n, q, 99, 9, 0) for n in names for q in (0, 1)), 4
            ),
        ),
        topics=(Named("orders", counts(20_000)),),
        total_topics=1,
        keys=(KeyShare("orders", "customer-1", 9_000, 1_000, 0, False),),
        order=KeyOrder(keys=10, pairs=900),
        troubles=(Trouble("broker-b", "rejected", "busy #", "busy 2", 6, BEGIN, BEGIN + 3),),
        clients=(Named("client-1", counts(20_000)),),
        total_clients=1,
    )


def page_of(found):
    return make_page(found, summarise(found), zone=UTC, made_at=datetime(2025, 10, 9, tzinfo=UTC))


class Checker(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.texts, self.attributes = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID or tag in {"rect", "path"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def checked(page):
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


def test_the_page_is_whole_html(found):
    checker = checked(page_of(found))
    assert checker.seen.count("h1") == 1
    assert checker.seen.count("svg") >= 2 * 4


def test_the_page_asks_the_network_for_nothing(found):
    page = page_of(found)
    checker = checked(page)
    assert not {"script", "link", "img", "iframe", "object", "use"} & set(checker.seen)
    assert not {"src", "href", "xlink:href", "srcset"} & {name for name, _ in checker.attributes}
    assert "url(" not in page
    assert "@import" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_both_colour_schemes_and_narrow_screens_are_provided_for(found):
    page = page_of(found)
    assert "prefers-color-scheme: dark" in page
    assert "max-width: 760px" in page
    assert 'name="viewport"' in page


def test_names_from_outside_can_not_become_markup(found):
    evil = "<script>alert('x')</script>\"&"
    hostile = replace(
        found,
        input=replace(found.input, source=evil, unreadable=1, bad_files=((evil, 1),)),
        brokers=(Named(evil, counts()),),
        buckets={evil: {0: counts()}},
        bars={evil: {-30: 4}},
        avoided=(Avoidance(evil, 1, 1, 1.0, 1.0, evil),),
        stretches=(Stretch(evil, BEGIN, BEGIN + 1, 1, 1, evil),),
        periods=(Period(evil, evil, BEGIN, BEGIN + 1, evil, 1, False),),
        routes=(Route(evil, evil + "2", 3, 3), Route(None, evil, 1, 0)),
        spreads=(TopicSpread(evil, (QueueShare(evil, 0, 5, 5, 0),), 1),),
        topics=(Named(evil, counts()),),
        keys=(KeyShare(evil, evil, 500, 3, 0, True),),
        order=KeyOrder(1, 5, 1, 1, 1, 0, 1),
        worst_keys=(WorstKey(evil, evil, evil, 5, 1, 0, 1),),
        troubles=(Trouble(evil, evil, evil, evil, 1, BEGIN, BEGIN),),
        clients=(Named(evil, counts()),),
    )
    page = page_of(hostile)
    assert "<script" not in page
    checker = checked(page)
    assert "script" not in checker.seen
    assert any(evil in text for text in checker.texts)


def test_everything_found_is_on_the_page(found):
    text = " ".join(checked(page_of(found)).texts)
    for expected in (
        "99.97" + THIN + "% of 20,000 sends acknowledged",
        "Brokers over time",
        "Latency profiles",
        "What went wrong",
        "Where retries went",
        "Isolations",
        "Spread over queues",
        "Hot sharding keys",
        "Order within keys",
        "Producers",
        "What is counted, exactly",
        "The 2 longest of 3.",
    ):
        assert expected in text


def test_sections_without_anything_to_show_are_left_out():
    bare = Findings(
        input=Input("traces", is_trace=True, records=5),
        overall=counts(5),
        begin=BEGIN,
        end=BEGIN,
        width=0.1,
        brokers=(Named("broker-a", counts(5)),),
        total_brokers=1,
        buckets={"broker-a": {0: counts(5)}},
    )
    text = " ".join(checked(page_of(bare)).texts)
    assert "All 5 sends acknowledged" in text
    assert "From traces." in text
    for heading in ("Isolations", "Where retries went", "Spread over", "Hot sharding", "profiles"):
        assert heading not in text


def test_a_warning_tells_of_lost_and_bad_lines(found):
    given = replace(
        found.input, dropped=1200, unreadable=3, foreign=2, bad_files=(("attempts-1.jsonl", 5),)
    )
    text = " ".join(checked(page_of(replace(found, input=given))).texts)
    assert "dropped 1,200 records" in text
    assert "3 lines could not be read" in text
    assert "attempts-1.jsonl (5)" in text
    assert "max_queue" in text


def test_a_full_page_stays_small(found):
    names = [f"broker-{n:02d}" for n in range(12)]
    full = replace(
        found,
        brokers=tuple(Named(name, counts()) for name in names),
        buckets={name: {b: counts(80, 3) for b in range(300)} for name in names},
        end=BEGIN + 299 * 0.5,
        stretches=tuple(
            Stretch(name, BEGIN + i, BEGIN + i + 0.4, 1, 1, "slow")
            for name in names
            for i in range(100)
        ),
    )
    assert len(page_of(full)) < 2_000_000


def test_an_attempt_that_nobody_waited_for_has_no_latency(found):
    silent = counts(50, 0, p50=None, p90=None, p99=None, p999=None, slowest=None)
    lone = replace(
        found,
        overall=silent,
        brokers=(Named("broker-a", silent),),
        buckets={"broker-a": {0: silent, 5: silent}},
        bars={"broker-a": {}},
    )
    checked(page_of(lone))
    assert not any("answered within" in sentence for sentence in summarise(lone))


# -- the summary --------------------------------------------------------------------------------


def test_the_summary_says_which_broker_was_left_how_long_and_why(found):
    text = "\n".join(summarise(found)).replace(GAP, " ").replace(THIN, "")
    assert "In 1 min, 1 producer made 20,000 sends to 2 brokers; 99.97% were acknowledged" in text
    assert (
        "broker-b was left 3 times, 41 s in all; longest because it took 302 ms, 151 times the others."
        in text
    )
    assert "25 retries saved 24 sends; most went from broker-b to broker-a (20)." in text
    assert "7 sends were stored after an attempt that may have been stored" in text
    assert "Order held in all 900 pairs" in text
    assert "The sharding key customer-1 has 45.0% of the messages of orders" in text


def test_a_reason_in_words_follows_the_name(found):
    once = replace(
        found, avoided=(Avoidance("broker-a", 1, 1, 5.0, 5.0, "refused the connection"),)
    )
    text = "\n".join(summarise(once)).replace(GAP, " ")
    assert "broker-a was left once for 5.0 s because it refused the connection." in text


def test_a_quiet_time_is_told_in_few_words(found):
    calm = replace(
        found,
        overall=counts(20_000),
        avoided=(),
        stretches=(),
        periods=(),
        routes=(),
        ended=(),
        keys=(),
        order=KeyOrder(),
    )
    sentences = summarise(calm)
    assert len(sentences) == 3
    assert sentences[0].endswith("every one was acknowledged.")
    assert sentences[2] == "No broker was left for being slow or failing."


def test_broken_order_and_an_uneven_queue_are_told(found):
    queues = (
        QueueShare("broker-a", 0, 900, 0, 0),
        *(QueueShare("b", q, 10, 0, 0) for q in range(9)),
    )
    bad = replace(
        found,
        order=KeyOrder(10, 900, 4, 2, 3, 1, 0),
        spreads=(TopicSpread("orders", queues, 10),),
    )
    text = "\n".join(summarise(bad))
    assert (
        "Order was broken 4 times among 900 pairs of messages with a sharding key, for 2 keys."
        in text
    )
    assert "Queue 0 of broker-a got 9.1 times its even share of orders." in text


def test_drawing_needs_neither_spark_nor_anything_heavy():
    code = (
        "import sys; import rocketwire.spark.delivery_report.page; "
        "import rocketwire.spark.delivery_report.summary; "
        "sys.exit(bool({'pyspark', 'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- plots ----------------------------------------------------------------------------------------


def test_retries_to_the_same_broker_are_drawn_apart():
    drawn = flow([Route("a", "b", 9, 9), Route("a", "a", 1, 1), Route(None, "b", 2, 2)])
    assert drawn.count('class="stream"') == 2
    assert drawn.count('class="stream again"') == 1
    assert "not recorded" in drawn


def test_rare_ways_of_retries_are_told_when_not_drawn():
    routes = [Route(f"b{n}", f"b{n + 1}", 40 - n, 1) for n in range(30)]
    drawn = flow(routes)
    assert drawn.count("<path") == 24
    assert "81 retries on rarer ways are not drawn." in drawn


def test_nothing_is_drawn_of_nothing():
    assert flow([]) == ""
    assert spread(TopicSpread("t", (), 0)) == ""
    assert spread(TopicSpread("t", (QueueShare("a", 0, 0, 0, 3),), 1)) == ""


def test_bars_of_queues_stay_within_the_drawing():
    queues = tuple(QueueShare(f"b{n // 8}", n % 8, n * 10, n, 0) for n in range(96))
    checker = checked(spread(TopicSpread("t", queues, 96)))
    xs = [float(value) for name, value in checker.attributes if name == "x"]
    ys = [float(value) for name, value in checker.attributes if name == "y"]
    assert min(xs) >= 0
    assert max(xs) < 1000
    assert min(ys) >= 0
