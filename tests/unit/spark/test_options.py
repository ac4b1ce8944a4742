"""Options are parsed once, with errors that name the option as a user writes it."""

import pickle

import pytest

from rocketwire.config import ProducerConfig, ReaderConfig
from rocketwire.errors import ConfigError, RouteError
from rocketwire.message import MessageQueue
from rocketwire.spark.option_names import in_option_words
from rocketwire.spark.option_values import EARLIEST, LATEST, parse_moment
from rocketwire.spark.options import (
    ALL_OPTIONS,
    check_expected_topics,
    check_names,
    client_options,
    read_options,
    write_options,
)

NS = {"nameservers": "127.0.0.1:9876"}
TOPIC = NS | {"topic": "orders"}


def test_defaults_of_a_batch_and_of_a_stream():
    batch = read_options(TOPIC, streaming=False)
    stream = read_options(TOPIC, streaming=True)
    assert (batch.start.default, batch.end.default) == (EARLIEST, LATEST)
    assert stream.start.default == LATEST
    assert batch.choice.topics == ("orders",)
    assert (batch.join_small, batch.fail_on_data_loss, batch.read_timeout) == (True, True, 120.0)
    assert (batch.properties, batch.max_trigger_delay) == ("user", 900.0)


@pytest.mark.parametrize("name", ALL_OPTIONS)
def test_every_option_is_known_in_lower_case(name):
    check_names({name.lower(): "?"})


def test_everything_about_reading():
    options = read_options(
        NS
        | {
            "topics": "a, b,a",
            "startingoffsets": '{"a":{"broker-a":{"0":23,"1":-2}}}',
            "endingtimestamp": "2026-01-31T12:00:00Z",
            "startingtimestampstrategy": "LATEST",
            "maxoffsetspertrigger": "100",
            "minoffsetspertrigger": "10",
            "maxtriggerdelay": "2m",
            "minpartitions": "4",
            "maxrecordsperpartition": "1000",
            "joinsmallranges": "false",
            "failondataloss": "false",
            "readtimeout": "5s",
            "groupid": "reader",
            "tags": "x || y",
            "columns": "keys, body",
            "includeproperties": "all",
        },
        streaming=False,
    )
    assert options.choice.topics == ("a", "b")
    assert options.start.offsets == {
        MessageQueue("a", "broker-a", 0): 23,
        MessageQueue("a", "broker-a", 1): EARLIEST,
    }
    assert options.end.at_ms == 1769860800000
    assert options.latest_if_none_that_new
    assert (options.max_offsets, options.min_offsets, options.max_trigger_delay) == (100, 10, 120.0)
    assert (options.min_partitions, options.max_records) == (4, 1000)
    assert not options.join_small
    assert not options.fail_on_data_loss
    assert (options.read_timeout, options.group_id) == (5.0, "reader")
    assert (options.tags, options.columns) == (("x", "y"), ("keys", "body"))
    assert options.properties == "all"


def test_all_tags_mean_no_filter():
    assert read_options(TOPIC | {"tags": "*"}, streaming=False).tags is None


def test_topics_by_pattern_and_by_assignment():
    pattern = read_options(NS | {"topicpattern": "order.*"}, streaming=True).choice
    assert pattern.matches("orders")
    assert not pattern.matches("reorders")
    assigned = read_options(NS | {"assign": '{"t":{"b":[1,0]}}'}, streaming=True).choice
    assert assigned.queues == (MessageQueue("t", "b", 0), MessageQueue("t", "b", 1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "exactly one of .* none is given"),
        ({"topic": "a", "topics": "b"}, "topic and topics are given"),
        ({"topic": " , "}, "topic names no topic"),
        ({"topicpattern": "("}, "option topicPattern: .* no regular expression"),
        ({"assign": "[]"}, "option assign: .* is not JSON like"),
        ({"assign": '{"t":{"b":["0"]}}'}, "option assign"),
        ({"assign": "{}"}, "option assign: it names no queue"),
        ({"topic": "t", "startingoffset": "latest"}, "did you mean startingOffsets"),
        ({"topic": "t", "colour": "red"}, "'colour' is unknown"),
        ({"topic": "t", "startingoffsets": "now"}, "startingOffsets: 'now' is not earliest"),
        ({"topic": "t", "startingoffsets": "latest"}, "starts at latest"),
        ({"topic": "t", "startingoffsets": '{"t":{"b":{"0":-1}}}'}, "starts at latest"),
        ({"topic": "t", "startingoffsets": '{"t":{"b":{"0":-3}}}'}, "-3 is no offset"),
        ({"topic": "t", "startingoffsets": '{"t":{"0":1}}'}, "is not JSON like"),
        ({"topic": "t", "endingoffsets": "earliest"}, "earliest .-2. is no end"),
        ({"topic": "t", "startingtimestamp": "yesterday"}, "startingTimestamp: .* no moment"),
        ({"topic": "t", "startingtimestamp": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"topic": "t", "startingtimestampstrategy": "x"}, "none of error, latest"),
        ({"topic": "t", "maxoffsetspertrigger": "0"}, "maxOffsetsPerTrigger: '0' is no whole"),
        (
            {"topic": "t", "minoffsetspertrigger": "9", "maxoffsetspertrigger": "3"},
            "above maxOffsetsPerTrigger 3",
        ),
        ({"topic": "t", "maxtriggerdelay": "soon"}, "maxTriggerDelay"),
        ({"topic": "t", "readtimeout": "0"}, "readTimeout: '0' is no time above zero"),
        ({"topic": "t", "failondataloss": "maybe"}, "neither true nor false"),
        ({"topic": "t", "columns": "bodi"}, "did you mean 'body'"),
        ({"topic": "t", "includeproperties": "some"}, "none of user, all, none"),
        ({"topic": "t", "groupid": "a b"}, "groupId"),
    ],
)
def test_a_wrong_read_option_is_named(options, words):
    with pytest.raises(ConfigError, match=words):
        read_options(NS | options, streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(name):
    with pytest.raises(ConfigError, match=f"{name} ends a batch"):
        read_options(TOPIC | {name.lower(): "latest"}, streaming=True)


def test_everything_about_writing():
    options = write_options(
        TOPIC
        | {
            "stamprows": "false",
            "writeid": "load-7",
            "onbadrow": "deadLetter",
            "deadlettertopic": "bad",
            "summaryfile": "/tmp/s.jsonl",
            "deliverytimeout": "30s",
        }
    )
    assert (options.topic, options.stamp_rows, options.write_id) == ("orders", "false", "load-7")
    assert (options.on_bad_row, options.dead_letter_topic) == ("deadletter", "bad")
    assert (options.summary_file, options.delivery_timeout) == ("/tmp/s.jsonl", 30.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"onbadrow": "deadletter"}, "name the topic in deadLetterTopic"),
        ({"onbadrow": "ignore"}, "none of fail, deadletter, drop"),
        ({"writeid": "a:b"}, "writeId: 'a:b'"),
        ({"deliverytimeout": "-1"}, "deliveryTimeout"),
    ],
)
def test_a_wrong_write_option_is_named(options, words):
    with pytest.raises(ConfigError, match=words):
        write_options(TOPIC | options)


def test_sparks_own_options_are_let_through():
    more = {"path": "x", "checkpointLocation": "y", "queryName": "q", "spark.x": "1"}
    assert read_options(TOPIC | more, streaming=True).choice.topics == ("orders",)


def test_client_options_become_settings_of_each_kind_of_client():
    options = client_options(
        TOPIC | {"sendtimeout": "5s", "pulltimeout": "7", "tlscafile": "ca.pem", "fault": "java4"}
    )
    producer, reader = options.make(ProducerConfig), options.make(ReaderConfig)
    assert (producer.send_timeout, reader.pull_timeout) == (5.0, 7.0)
    assert producer.tls is not None
    assert producer.tls.ca_file == "ca.pem"
    assert producer.name_servers == ("127.0.0.1:9876",)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sendtimeout": "soon"}, "sendTimeout: 'soon'"),
        ({"accesskey": "me"}, "both accessKey and secretKey"),
        ({"credentialsfile": "/none"}, "credentialsFile '/none'"),
        ({"tlsverify": "perhaps"}, "tlsVerify: 'perhaps'"),
        ({"tlskeyfile": "key.pem"}, "tlsKeyFile without tlsCertFile"),
        # Found before any task runs, like all others.
        ({"selector": "nearest"}, "selector is 'nearest'; it is one of best_queue"),
        # Nothing that can be written as text.
        ({"middleware": "mine"}, "option 'middleware' is unknown"),
    ],
)
def test_a_wrong_client_option_is_named_in_camel_case(given, words):
    with pytest.raises(ConfigError, match=words):
        client_options(TOPIC | given)


@pytest.mark.parametrize("name", ["topic", "deadLetterTopic"])
@pytest.mark.parametrize("value", ["not a name", "a" * 128, "TBW102-é"])
def test_a_topic_that_no_broker_takes_is_refused_before_any_task_runs(name, value):
    with pytest.raises(ConfigError, match=f"^option {name}: "):
        write_options(NS | {name.lower(): value})


def test_kafkas_names_are_written_as_kafka_writes_them():
    with pytest.raises(
        ConfigError, match="option subscribePattern is Kafka's: here it is topicPattern"
    ):
        check_names({"subscribepattern": "a.*"})


def test_name_servers_may_come_from_the_drivers_environment():
    options = client_options({}, {"NAMESRV_ADDR": "127.0.0.1:1;127.0.0.1:2"})
    assert options.name_servers == ("127.0.0.1:1", "127.0.0.1:2")


@pytest.mark.parametrize(
    ("given", "words"),
    [({}, "nameServers is missing"), ({"nameservers": "here"}, "nameServers")],
)
def test_name_servers_are_required(given, words):
    with pytest.raises(ConfigError, match=words):
        client_options(given)


def test_secrets_are_in_no_text():
    secret = {"accesskey": "AK-1", "secretkey": "SK-2", "securitytoken": "ST-3"}
    options = client_options(TOPIC | secret)
    shown = f"{options!r} {options.make(ProducerConfig)!r}"
    for value in ("SK-2", "ST-3"):
        assert value not in shown
    with pytest.raises(ConfigError) as caught:
        client_options(TOPIC | secret | {"secretkeys": "SK-2"})
    assert "SK-2" not in str(caught.value)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1700000000000),
        ("2023-11-14T22:13:20Z", 1700000000000),
        ("2023-11-15T00:13:20+02:00", 1700000000000),
    ],
)
def test_moments(text, expected):
    assert parse_moment(text) == expected


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("broker-a, broker-b", {"": ("broker-a", "broker-b")}),
        ('["a", "b"]', {"": ("a", "b")}),
        ("3", {"": 3}),
        ('{"orders": ["a", "b"], "other": 2, "third": "a,c"}',
         {"orders": ("a", "b"), "other": 2, "third": ("a", "c")}),
    ],
)  # fmt: skip
def test_expected_brokers_are_names_or_a_count_for_all_topics_or_each(text, wanted):
    assert read_options(TOPIC | {"expectedbrokers": text}, streaming=True).expected == wanted


@pytest.mark.parametrize(
    "text", ["0", ",", '{"t": 0}', '{"t": []}', "{", '{"t": [1]}', "00000", "-1", "1.5", "[1]", "["]
)
def test_wrong_expected_brokers_are_refused(text):
    with pytest.raises(ConfigError, match="option expectedBrokers"):
        read_options(TOPIC | {"expectedbrokers": text}, streaming=False)


@pytest.mark.parametrize(
    "chosen", [{"topic": "a"}, {"topicpattern": "a.*"}, {"assign": '{"a":{"b":[0]}}'}]
)
def test_a_misspelt_topic_of_expected_brokers_is_refused(chosen):
    def check(said):
        check_expected_topics(read_options(NS | chosen | {"expectedbrokers": said}, streaming=None))

    check('{"a": 2}')
    check("2")
    with pytest.raises(ConfigError, match="option expectedBrokers: topic 'b' is not read here"):
        check('{"b": 2}')


def test_rows_are_stamped_left_alone_or_keep_their_ids():
    assert write_options(TOPIC).stamp_rows == "true"
    assert write_options(TOPIC | {"stamprows": "Inherit"}).stamp_rows == "inherit"
    with pytest.raises(
        ConfigError, match="option stampRows: 'yes' is none of true, false, inherit"
    ):
        write_options(TOPIC | {"stamprows": "yes"})


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("subscribe", "topics"),
        ("subscribePattern", "topicPattern"),
        ("kafka.bootstrap.servers", "nameServers"),
        ("includeHeaders", "includeProperties"),
        ("fetchOffset.numRetries", "offsetRetries"),
    ],
)
def test_names_of_kafkas_source_are_answered_with_ours(name, ours):
    with pytest.raises(ConfigError, match=f"is Kafka's: here it is {ours}$"):
        check_names({name.lower(): "x"})


def test_settings_of_kafkas_client_are_answered():
    with pytest.raises(ConfigError, match="settings of the client have no prefix here"):
        check_names({"kafka.linger.ms": "5"})


def test_an_error_of_one_option_is_not_hidden_behind_another():
    wrong = TOPIC | {"endingoffsets": "latest", "columns": "bodi"}
    with pytest.raises(ConfigError, match="option columns: 'bodi'"):
        read_options(wrong, streaming=None)
    # What only one of batch and stream refuses is no error while that is not known.
    read_options(TOPIC | {"endingoffsets": "latest"}, streaming=None)
    read_options(TOPIC | {"startingoffsets": "latest"}, streaming=None)


def test_moments_of_single_queues():
    text = '{"orders":{"a":{"0":1794800000000}}}'
    found = read_options(
        TOPIC | {"startingoffsetsbytimestamp": text, "endingoffsetsbytimestamp": text},
        streaming=False,
    )
    assert (
        found.start.moments == found.end.moments == {MessageQueue("orders", "a", 0): 1794800000000}
    )
    with pytest.raises(
        ConfigError, match="option startingOffsetsByTimestamp: orders, a, '0': -1 is no"
    ):
        read_options(
            TOPIC | {"startingoffsetsbytimestamp": '{"orders":{"a":{"0":-1}}}'}, streaming=True
        )
    with pytest.raises(ConfigError, match="endingOffsetsByTimestamp ends a batch"):
        read_options(TOPIC | {"endingoffsetsbytimestamp": text}, streaming=True)


def test_look_ups_are_repeated_as_often_as_said():
    found = read_options(
        TOPIC | {"offsetretries": "0", "offsetretryinterval": "2s"}, streaming=False
    )
    assert (found.offset_retries, found.offset_retry_interval) == (0, 2.0)


def test_errors_of_the_client_name_options_in_camel_case():
    with (
        pytest.raises(RouteError, match="check nameServers and sendTimeout") as caught,
        in_option_words(),
    ):
        raise RouteError("check name_servers and send_timeout")
    assert "name_servers" not in str(caught.value)


def test_brokers_filter_by_tags_or_by_sql():
    assert read_options(TOPIC | {"sql": "price > 10"}, streaming=True).sql == "price > 10"
    with pytest.raises(ConfigError, match="options tags and sql are both given"):
        read_options(TOPIC | {"sql": "price > 10", "tags": "a"}, streaming=False)
