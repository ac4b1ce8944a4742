"""Delivery reports: telemetry of producers in, tables and a page out."""

import json
import time
from datetime import UTC, datetime

import pytest
from tests.wire_tools import encode_trace

from rocketwire.embedded.cluster import EmbeddedCluster
from rocketwire.errors import ConfigError, SendFailedError
from rocketwire.message import Message
from rocketwire.pages.words import GAP, THIN
from rocketwire.spark import ReportResult, report
from rocketwire.spark.delivery_report import table_folder, trace_topic
from rocketwire.spark.delivery_report.records import ATTEMPT, FOREIGN, UNREADABLE
from rocketwire.spark.delivery_report.table_folder import TableFolder
from rocketwire.sync.producer import Producer
from rocketwire.wire.trace_record import PubRecord, SubAfterRecord, decode_trace

BEGIN = 1_760_000_400.0  # 2025-10-09 09:00 UTC


class Story:
    """Writes lines as producers do, of things that are known."""

    def __init__(self):
        self.lines = {"one": [], "two": []}
        self._ids = 0

    def add(self, line, client="one"):
        self.lines[client].append(line if isinstance(line, str) else json.dumps(line))

    def attempt(self, at, broker, *, client="one", message=None, **fields):
        if message is None:
            self._ids += 1
            message = f"{self._ids:032X}"
        values = {
            "kind": "attempt", "time": BEGIN + at, "clientId": client, "topic": "orders",
            "broker": broker, "queueId": 0, "offset": None, "messageId": message,
            "shardingKey": None, "bytes": 100, "latency": 0.001, "outcome": "stored",
            "error": None, "attempt": 1, "messages": 1, "state": "usable",
        }  # fmt: skip
        self.add(values | fields, client)
        return message

    def event(self, kind, at, broker, reason="slow", *, client="one", until=None):
        moment = None if until is None else BEGIN + until
        self.add(
            {
                "kind": kind,
                "time": BEGIN + at,
                "clientId": client,
                "broker": broker,
                "reason": reason,
                "until": moment,
            },
            client,
        )

    def write(self, folder):
        folder.mkdir(parents=True)
        for client, lines in self.lines.items():
            (folder / f"attempts-{client}-0001.jsonl").write_text("\n".join(lines) + "\n")
        return folder


def make_story():
    story = Story()
    # Producer one writes version 2, producer two the version before it.
    common = {"time": BEGIN, "clientId": "one"}
    story.add(common | {"kind": "header", "version": 2, "policy": {"floor": 0.02}, "retries": 2})
    story.add(common | {"kind": "route", "topic": "orders", "queues": {"a": 8, "b": 8}})
    probe = {"kind": "probe", "broker": "b", "latency": None, "good": False, "reason": "refused"}
    story.add(common | probe)
    for second in range(120):  # two minutes of plain traffic, 240 sends
        story.attempt(second, "a", queueId=second % 4, latency=0.001, bytes=200)
        story.attempt(second + 0.5, "b", queueId=second % 4, latency=0.004, client="two")
    # Retries: b fails, a takes it; once it may be stored twice, once all fails.
    first = story.attempt(10, "b", outcome="rejected", error="b answered SYSTEM_BUSY 2")
    story.attempt(10.1, "a", message=first, attempt=2)
    first = story.attempt(11, "b", outcome="maybe stored", error="10.0.0.1:10911 gave no answer")
    story.attempt(11.1, "a", message=first, attempt=2, outcome="rejected", error="code 17 #1")
    story.attempt(11.2, "b", message=first, attempt=3)
    first = story.attempt(12, "b", outcome="not sent", error="refused", messages=5)
    story.attempt(12.1, "b", message=first, attempt=2, outcome="maybe stored", error="gone")
    # Stored less safely than asked for, and then again: nothing marks the first attempt.
    first = story.attempt(13, "b", client="two")
    story.attempt(13.1, "a", client="two", message=first, attempt=2)
    story.attempt(14, "a", outcome="oneway", latency=0.0)
    # Isolations: prolonged once, open at the end, and one whose beginning is not recorded.
    story.event("isolated", 20, "b", "250 ms, 100 times the others", until=25)
    story.event("isolated", 24, "b", "260 ms, 110 times the others", until=40)
    story.event("returned", 31, "b")
    story.event("isolated", 28, "b", "gave no answer in 1.0 s", client="two", until=29)
    story.event("returned", 35, "b", client="two")
    story.event("isolated", 100, "a", "closed the connection", client="two", until=5000)
    story.event("returned", 3, "a")
    # Keys: in order; backwards; overlapping; moved; a batch that holds two offsets.
    for number, at in enumerate((40, 41, 42)):
        story.attempt(at, "a", shardingKey="good", offset=number, queueId=7)
    story.attempt(43, "a", shardingKey="back", offset=9, queueId=7)
    story.attempt(44, "a", shardingKey="back", offset=8, queueId=7)
    story.attempt(45, "a", shardingKey="over", offset=20, queueId=7)
    story.attempt(45.5, "a", shardingKey="over", offset=21, queueId=7, latency=0.9)
    story.attempt(46, "a", shardingKey="moved", offset=30, queueId=7)
    story.attempt(47, "b", shardingKey="moved", offset=2, queueId=7)
    story.attempt(48, "a", shardingKey="batch", offset=40, queueId=7, messages=2)
    story.attempt(49, "a", shardingKey="batch", offset=41, queueId=7)
    # Another producer's messages of a key have no order with these.
    story.attempt(41.5, "a", client="two", shardingKey="good", offset=0, queueId=7)
    return story


def spoil(story):
    story.add('{"kind":"attempt","time":1760000410.1,"clientId":"on', "two")
    story.add('{"kind":"attempt","time":"soon","clientId":"one"}', "two")
    story.add("\x00\x00\x00", "two")
    # A whole record of ours, but for its length.
    story.add(
        json.dumps(
            {
                "kind": "dropped",
                "time": BEGIN,
                "clientId": "two",
                "dropped": 1,
                "reason": "x" * 70_000,
            }
        ),
        "two",
    )
    story.add({"level": "info", "message": "not ours"}, "two")
    story.add({"kind": "attempt", "time": 12.0, "clientId": "one", "broker": "a"}, "two")
    story.add("", "two")
    story.add({"kind": "dropped", "time": BEGIN + 50, "clientId": "two", "dropped": 42}, "two")
    return story


@pytest.fixture(scope="module")
def told(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    source = spoil(make_story()).write(folder / "telemetry {odd} [name]")
    return report(spark, source, folder / "out" / "page.html", time_zone="UTC")


def rows(spark, result, table, *columns, order=None):
    frame = spark.read.parquet(result.tables[table])
    found = frame.select(*columns) if columns else frame
    return [tuple(row) for row in (found.orderBy(order) if order else found).collect()]


def test_everything_is_counted(told):
    assert isinstance(told, ReportResult)
    assert told.attempts == 240 + 10 + 12
    assert told.sends == 240 + 5 + 12
    assert told.failed_sends == 1
    assert told.retries == 5
    assert told.maybe_duplicates == 2
    assert told.isolations == 3
    assert told.order_violations == 3
    assert told.seconds > 0


def test_bad_lines_are_counted_and_told_and_stop_nothing(told):
    assert (told.unreadable, told.foreign, told.dropped) == (4, 2, 42)
    page = told.page.read_text()
    assert "4 lines could not be read" in page
    assert "attempts-two-0001.jsonl (6)" in page
    assert "dropped 42 records" in page


def test_tables_are_written_and_staged_records_are_gone(spark, told):
    assert set(told.tables) == {
        "brokers", "minutes", "latencies", "isolations", "retries", "eventful_sends", "topics",
        "queues", "keys", "order", "producers", "errors",
    }  # fmt: skip
    folder = told.page.parent / "page-tables"
    assert {p.name for p in folder.iterdir() if p.is_dir()} == set(told.tables)


def test_minutes_have_counts_and_quantiles_for_each_broker(spark, told):
    found = rows(
        spark, told, "minutes", "broker", "minute", "attempts", "failures", "p50", "p99",
        order=["broker", "minute"],
    )  # fmt: skip
    at = datetime(2025, 10, 9, 9, 0)
    assert [(r[0], r[1].replace(tzinfo=None).minute, r[2]) for r in found] == [
        ("a", 0, 60 + 4 + 11),
        ("a", 1, 60),
        ("b", 0, 60 + 6 + 1),
        ("b", 1, 60),
    ]
    assert [r[3] for r in found] == [1, 0, 4, 0]
    assert found[0][1].replace(tzinfo=None) == at
    assert found[1][4] == 0.001
    assert found[3][5] == 0.004


def test_latencies_are_those_of_attempts_that_waited(spark, told):
    (row,) = rows(spark, told, "brokers", "broker", "slowest", "not_sent", "bytes", order="broker")[
        :1
    ]
    assert row == ("a", 0.9, 0, 120 * 200 + 100 * (3 + 11))


def test_retries_are_followed_from_broker_to_broker(spark, told):
    found = rows(spark, told, "retries", "origin", "target", "retries", "acknowledged")
    assert sorted(found) == [("a", "b", 1, 1), ("b", "a", 3, 2), ("b", "b", 1, 0)]


def test_whole_sends_tell_how_they_ended(spark, told):
    found = rows(
        spark, told, "eventful_sends", "outcome", "maybe_duplicate", "attempts", "messages", "error"
    )
    assert sorted(found, key=str) == sorted(
        [
            ("stored", False, 2, 1, None),
            ("stored", True, 3, 1, None),
            ("maybe stored", False, 2, 5, "gone"),
            ("stored", True, 2, 1, None),
        ],
        key=str,
    )


def test_isolations_are_joined_prolonged_and_ended(spark, told):
    found = rows(
        spark, told, "isolations", "broker", "client", "seconds", "verdicts", "is_open", "reason",
        order=["broker", "client"],
    )  # fmt: skip
    assert [(r[0], r[1], round(r[2], 3), *r[3:]) for r in found] == [
        ("a", "two", 19.5, 1, True, "closed the connection"),
        ("b", "one", 11.0, 2, False, "250 ms, 100 times the others"),
        ("b", "two", 7.0, 1, False, "gave no answer in 1.0 s"),
    ]


def test_times_of_several_producers_are_not_added_up(told):
    text = "\n".join(told.summary).replace(GAP, " ").replace(THIN, "")
    assert (
        "b was left twice by 2 producers, 15 s in all; "
        "longest because it took 250 ms, 100 times the others." in text
    )
    assert "a was left once by 1 producer for 20 s because it closed the connection." in text
    assert "Order was broken 3 times" in text


def test_order_is_judged_by_pairs_of_one_key_and_producer(spark, told):
    found = rows(
        spark, told, "order", "key", "pairs", "backwards", "overlapping", "moved", order="key"
    )
    assert found == [
        ("back", 1, 1, 0, 0),
        ("batch", 1, 1, 0, 0),
        ("moved", 1, 0, 0, 1),
        ("over", 1, 0, 1, 0),
    ]


def test_keys_are_ranked_and_those_that_moved_are_marked(spark, told):
    found = rows(spark, told, "keys", "key", "messages", "moved")
    assert found[0] == ("good", 4, False)
    assert {key: moved for key, _, moved in found}["moved"] is True


def test_queues_have_what_was_acknowledged(spark, told):
    found = rows(
        spark, told, "queues", "broker", "queue", "messages", "keyed", order=["broker", "queue"]
    )
    assert found[4] == ("a", 7, 12, 12)
    assert found[1] == ("a", 1, 30, 0)
    assert [row[0] for row in found].count("b") == 5


def test_errors_that_differ_in_numbers_only_are_one(spark, told):
    found = {row[0]: row[1] for row in rows(spark, told, "errors", "error", "attempts")}
    assert found["(address) gave no answer"] == 1
    assert found["b answered SYSTEM_BUSY 2"] == 1


@pytest.mark.parametrize(
    ("name", "column", "limit", "ties"),
    [
        ("brokers", "attempts", 1, ["broker"]),
        ("errors", "attempts", 3, ["broker", "error"]),
        ("isolations", "seconds", 10, ["begin", "client"]),
        ("retries", "retries", 2, ["target"]),
        ("order", "violations", 20, ["topic", "key"]),
    ],
)
def test_the_top_of_a_table_is_the_same_from_its_files_and_from_spark(
    spark, told, monkeypatch, name, column, limit, ties
):
    """Tables on a file system of another kind are left to Spark, which takes seconds in all."""
    store = TableFolder(spark, str(told.page.with_name("page-tables")))
    store.paths[name], store.rows[name] = told.tables[name], 1
    found = store.top(name, column, limit, *ties)
    monkeypatch.setattr(table_folder, "local_path", lambda _: None)
    assert found == store.top(name, column, limit, *ties)
    assert 0 < len(found) <= limit


# -- what else may be given -----------------------------------------------------------------------


def test_a_stretch_of_time_over_older_tables_with_records_kept(spark, tmp_path):
    source = make_story().write(tmp_path / "telemetry")
    page = tmp_path / "r.html"
    TableFolder(spark, str(tmp_path / "tables")).put("brokers", spark.range(7))
    since, until = (datetime.fromtimestamp(BEGIN + s, UTC) for s in (60, 90))
    result = report(
        spark,
        [source],
        page,
        tmp_path / "tables",
        since=since,
        until=until,
        keep_attempts=True,
    )
    assert result.attempts == 60
    assert result.failed_sends == 0
    assert [row[0] for row in rows(spark, result, "brokers", "broker", order="broker")] == [
        "a",
        "b",
    ]
    assert spark.read.parquet(result.tables["attempts"]).count() == 60
    # Of what did not happen there are tables, too, and they have their columns.
    assert rows(spark, result, "retries", "origin", "target", "retries", "acknowledged") == []
    assert rows(spark, result, "eventful_sends", "outcome", "maybe_duplicate", "message_id") == []
    assert rows(spark, result, "order", "key", "violations", "first_violation") == []
    assert "All 60 sends acknowledged" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"source": "nowhere/at/all"}, "there is no such folder here"),
        ({"source": "no-such-topic"}, "if it is a trace topic, give name_servers"),
        ({"source": []}, "give a folder of telemetry"),
        ({"out": "."}, "is a folder: give a file"),
        ({"time_zone": "Mars/Base"}, "time_zone 'Mars/Base' is unknown"),
        ({"since": datetime(2025, 1, 1)}, "since 2025-01-01 00:00:00 has no time zone"),
        (
            {
                "since": datetime(2025, 1, 2, tzinfo=UTC),
                "until": datetime(2025, 1, 1, tzinfo=UTC),
            },
            "is not before until",
        ),
    ],
)
def test_wrong_arguments_are_told_before_any_work(
    spark, tmp_path, monkeypatch, arguments, complaint
):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("ROCKETWIRE_NAME_SERVERS", raising=False)
    folder = Story().write(tmp_path / "telemetry")
    given = {"source": folder, "out": tmp_path / "r.html"} | arguments
    with pytest.raises(ConfigError) as caught:
        report(spark, **given)
    assert complaint in str(caught.value)


def test_a_folder_without_files_or_attempts_says_how_to_get_some(spark, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"has no telemetry files .* telemetry=FOLDER"):
        report(spark, tmp_path / "empty", tmp_path / "r.html")
    story = Story()
    story.add({"some": "thing"})
    folder = story.write(tmp_path / "foreign")
    with pytest.raises(ConfigError, match=r"no attempt to report on \(1 records, 1 of them"):
        report(spark, folder, tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()
    assert not (tmp_path / "r-tables" / "attempts").exists()


def test_a_folder_of_other_things_is_not_overwritten(spark, tmp_path):
    source = make_story().write(tmp_path / "telemetry")
    mine = tmp_path / "mine"
    (mine / "brokers").mkdir(parents=True)
    with pytest.raises(ConfigError, match="has other things in it"):
        report(spark, source, tmp_path / "r.html", mine)
    assert list((mine / "brokers").iterdir()) == []


# -- real producers -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    """A cluster where a broker was busy for a while, with telemetry and traces of it."""
    folder = tmp_path_factory.mktemp("lived") / "telemetry"
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("orders", queues=4)
        settings = {"telemetry": str(folder), "trace": True}
        with (
            Producer(cluster.name_server, group="one", **settings) as one,
            Producer(cluster.name_server, group="two", **settings) as two,
        ):
            failed = send_through_trouble(cluster, (one, two))
            stats = [one.stats(), two.stats()]
        yield cluster, folder, stats, failed


def send_through_trouble(cluster, producers):
    failed = 0
    for number in range(200):
        if number == 80:
            cluster.broker("broker-b").busy()
        if number == 140:
            cluster.broker("broker-b").heal()
        for producer in producers:
            key = f"key-{number % 5}" if number % 2 else None
            try:
                producer.send(Message("orders", b"x" * 100, sharding_key=key))
            except SendFailedError:
                failed += 1
    return failed


def test_the_report_agrees_with_the_producers(spark, lived, tmp_path):
    _, folder, stats, failed = lived
    result = report(spark, folder, tmp_path / "r.html")
    assert result.sends == 400
    assert result.failed_sends == failed == sum(s.failed for s in stats)
    assert result.attempts == 400 + result.retries
    assert result.isolations >= 1
    assert result.order_violations == 0
    assert (result.unreadable, result.foreign, result.dropped) == (0, 0, 0)
    assert "SYSTEM_BUSY" in result.page.read_text()


def test_traces_are_reported_by_the_name_of_the_broker(spark, lived, tmp_path):
    cluster, _, _, failed = lived
    result = report(
        spark, "RMQ_SYS_TRACE_TOPIC", tmp_path / "r.html", name_servers=cluster.name_server
    )
    assert result.sends == 400
    assert result.failed_sends == failed
    assert result.isolations == 0
    found = rows(spark, result, "brokers", "broker", "attempts")
    assert {"broker-a", "broker-b"} == {row[0] for row in found}
    assert "From traces." in result.page.read_text()


def test_a_name_that_is_neither_folder_nor_topic_is_told(spark, lived, tmp_path):
    cluster, *_ = lived
    with pytest.raises(
        ConfigError, match=r"is no folder here, and as a topic it can't be read: .*telemtry"
    ):
        report(spark, "telemtry", tmp_path / "r.html", name_servers=cluster.name_server)


def test_traces_are_read_as_our_decoder_reads_them(spark):
    now = int(time.time() * 1000)
    records = [
        PubRecord(now, "r", "g", "t", "id-1", "tag", "k", "10.0.0.1:10911", 77, 12, 0, "off", True, "h"),
        PubRecord(now, None, "g", "t", "id-2", store_host="10.0.0.2:10911", cost_ms=3, success=False),
    ]  # fmt: skip
    old = "\x01".join(
        ["Pub", str(now), "r", "g", "t", "id-3", "", "", "h:1", "5", "9", "0", "true"]
    )
    body = (
        encode_trace([*records, SubAfterRecord("q", "id", 1, success=True)])
        + (old + "\x02Pub\x01torn\x02Future\x011\x02").encode()
    )
    frame = spark.createDataFrame([(bytearray(body),)], "body binary")
    parsed = trace_topic.parse(frame).collect()
    good = [row for row in parsed if row["kind"] == ATTEMPT]
    assert sorted(row["kind"] for row in parsed if row["kind"] != ATTEMPT) == [FOREIGN, UNREADABLE]
    known = decode_trace(body.replace(b"Pub\x01torn\x02", b""))
    pubs = [record for record in known if isinstance(record, PubRecord)]
    assert [(r["broker"], r["topic"], r["bytes"], r["latency"], r["outcome"]) for r in good] == [
        (
            p.store_host,
            p.topic,
            p.body_length,
            p.cost_ms / 1000,
            "stored" if p.success else "failed",
        )
        for p in pubs
    ]
    assert [row["client"] for row in good] == [pub.client_host or pub.group for pub in pubs]
