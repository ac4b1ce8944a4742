from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from rocketwire.config import (
    AUTO,
    AutoBatch,
    ClientConfig,
    Credentials,
    ProducerConfig,
    ReaderConfig,
    Tls,
    from_mapping,
)
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.errors import ConfigError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.java_settings import JAVA_NAMES
from rocketwire.setting_values import name_servers, seconds, size

SOURCE = Path(__file__).parents[2] / "src" / "rocketwire"


def load(**sources) -> ProducerConfig:
    return from_mapping(ProducerConfig, **sources)


def test_defaults_are_java_s_where_java_has_them() -> None:
    config = ProducerConfig()
    assert (config.send_timeout, config.retries, config.async_retries) == (3.0, 2, 2)
    assert (config.compress_over, config.max_message_size) == (4096, 4 * 1024 * 1024)
    assert (config.route_refresh, config.heartbeat_interval) == (30.0, 30.0)
    assert (config.default_topic, config.default_topic_queues) == ("TBW102", 4)
    assert config.ordered_retries == 0
    assert config.fault == FaultPolicy()


def test_the_stronger_source_wins() -> None:
    environ = {"ROCKETWIRE_NAME_SERVERS": "c:1", "NAMESRV_ADDR": "d:1", "ROCKETWIRE_RETRIES": "7"}
    file = {"nameServers": "e:1", "group": "from-file"}
    config = load(
        arguments={"name_servers": "a:1"},
        mapping={"nameServers": "b:1"},
        environ=environ,
        file=file,
    )
    assert config.name_servers == ("a:1",)
    assert (config.retries, config.group) == (7, "from-file")
    config = load(mapping={"nameServers": "b:1"}, environ=environ, file=file)
    assert config.name_servers == ("b:1",)
    assert load(environ=environ, file=file).name_servers == ("c:1",)
    del environ["ROCKETWIRE_NAME_SERVERS"]
    assert load(environ=environ, file=file).name_servers == ("d:1",)
    assert load(environ={}, file=file).name_servers == ("e:1",)


@pytest.mark.parametrize("name", ["sendTimeout", "send_timeout", "SEND-TIMEOUT", "sendtimeout"])
def test_names_are_compared_without_case_and_separators(name: str) -> None:
    assert load(mapping={name: "500ms"}).send_timeout == 0.5


def test_an_unknown_name_is_told_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'retrys'; did you mean retries"):
        load(arguments={"retrys": 1})


def test_other_programs_variables_with_our_prefix_are_ignored() -> None:
    assert load(environ={"ROCKETWIRE_HOME": "x"}).group == "rocketwire"


@pytest.mark.parametrize(
    ("text", "expected"), [("3", 3.0), ("3s", 3.0), ("500ms", 0.5), ("15m", 900.0), (2, 2.0)]
)
def test_spans_of_time(text: object, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("64k", 65536), ("4 MiB", 4194304), (5, 5)])
def test_sizes(text: object, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["a:1;b:2", "a:1,b:2", "a:1; b:2;", ["a:1", "b:2"]])
def test_name_servers_come_as_text_or_as_a_list(text: object) -> None:
    assert name_servers(text) == ("a:1", "b:2")


def test_a_list_may_hold_several_addresses_in_one_text_and_none_counts_twice() -> None:
    assert name_servers(["a:1;b:2", "a:1"]) == ("a:1", "b:2")


def test_groups_of_settings_may_be_mappings() -> None:
    assert load(arguments={"tls": {"ca_file": "ca.pem"}}).tls == Tls(ca_file="ca.pem")
    assert load(arguments={"auto_batch": {"linger": 0.1}}).auto_batch == AutoBatch(linger=0.1)


def test_ipv6_literals_are_addresses() -> None:
    assert name_servers("[::1]:9876") == ("[::1]:9876",)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name_servers": "host"}, "host:port"),
        ({"name_servers": "host:0"}, "host:port"),
        ({"name_servers": "host:99999"}, "host:port"),
        ({"name_servers": [5]}, "every address is text"),
        ({"group": ""}, "group"),
        ({"group": "a b"}, "letters, digits"),
        ({"group": "g" * 121}, "at most 120"),
        ({"group": "DEFAULT_PRODUCER"}, "reserved"),
        ({"send_timeout": 0}, "send_timeout is 0"),
        ({"send_timeout": "soon"}, "send_timeout: 'soon' is no span"),
        ({"retries": -1}, "can't be negative"),
        ({"retries": "two"}, "no whole number"),
        ({"retries": True}, "no number"),
        ({"attempt_timeout": -3}, "attempt_timeout"),
        ({"header": "xml"}, "header: 'xml' is none of binary, json"),
        ({"compression": "gzip"}, "zlib, lz4, zstd"),
        ({"fault": "java6"}, "default, java4, java5, java5-detector, off"),
        ({"tls": "maybe"}, "neither true nor false"),
        ({"credentials": "ak:sk"}, "give a Credentials"),
        ({"address_map": "x"}, "JSON"),
        ({"address_map": 5}, "mapping of addresses"),
        ({"address_map": "172.17.0.2=127.0.0.1"}, 'e.g. {"172.17.0.2:10911": "127.0.0.1:10911"}'),
        ({"address_map": ["a:1"]}, 'e.g. {"172.17.0.2:10911": "127.0.0.1:10911"}'),
        ({"address_map": {"a:1": "b"}}, "like {\"172.17.0.2:10911\": .* contains 'b'"),
        ({"address_map": {"a": "b:1"}}, "like {\"172.17.0.2:10911\": .* contains 'a'"),
        ({"route_refresh": 0}, "above zero"),
        ({"max_in_flight": 0}, "above zero"),
        ({"max_message_size": "many"}, "no size"),
        ({"auto_batch": {"linger": 31}}, "linger"),
        ({"auto_batch": {"size": 0}}, "size"),
        ({"auto_batch": {"messages": 0}}, "messages"),
        ({"auto_batch": {"lingr": 1}}, "auto_batch: 'lingr' is none of linger, size, messages"),
        ({"tls": {"ca": "x"}}, "tls: 'ca' is none of ca_file"),
        ({"name_servers": ["a:1;b"]}, "name_servers contains 'b'"),
        ({"hooks": None}, "hooks: None is no list"),
        ({"hooks": object()}, "hooks: .* give a list of objects"),
        ({"namespace": "a b"}, "namespace: 'a b' is no name"),
        ({"trace": "no topic!"}, "trace: 'no topic!' is no name"),
        ({"shutdown_timeout": -1}, "shutdown_timeout is -1.0: it can't be negative"),
        ({"max_in_flight_bytes": 0}, "max_in_flight_bytes is 0: it must be above zero"),
        ({"max_frame": 0}, "max_frame is 0: it must be above zero"),
        ({"send_timeout": float("nan")}, "send_timeout: nan is no span of time"),
        ({"route_refresh": float("inf")}, "route_refresh: inf is no span of time"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(values: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(arguments=values)


def test_text_options_become_one_setting() -> None:
    config = load(
        mapping={"accessKey": "ak", "secretKey": "sk", "tlsCaFile": "ca.pem", "tlsVerify": "false"}
    )
    assert config.credentials == Credentials("ak", "sk")
    assert config.tls == Tls(ca_file="ca.pem", verify=False)


def test_credentials_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"accessKey": "ak", "secretKey": "sk", "securityToken": "st"}')
    config = load(mapping={"credentialsFile": str(path)})
    assert config.credentials == Credentials("ak", "sk", "st")
    with pytest.raises(ConfigError, match="can't be read"):
        load(mapping={"credentialsFile": str(tmp_path / "none.json")})


def test_secrets_are_in_no_repr() -> None:
    config = load(mapping={"accessKey": "ak", "secretKey": "hidden", "securityToken": "token"})
    assert "hidden" not in repr(config)
    assert "token" not in repr(config.credentials)
    assert "pass" not in repr(Tls(cert_file="c", key_file="k", key_password="pass"))


def test_both_keys_are_needed() -> None:
    with pytest.raises(ConfigError, match="both"):
        load(mapping={"accessKey": "ak"})
    with pytest.raises(ConfigError, match="key_file without cert_file"):
        Tls(key_file="k")


def test_presets_have_names() -> None:
    assert load(mapping={"fault": "java4"}).fault == FaultPolicy.java4()
    assert load(mapping={"fault": "OFF"}).fault == FaultPolicy.off()


def test_switches_may_be_settings() -> None:
    assert load(mapping={"trace": "true"}).trace == "RMQ_SYS_TRACE_TOPIC"
    assert load(arguments={"trace": False}).trace is None
    assert load(arguments={"trace": "my_trace"}).trace == "my_trace"
    assert load(mapping={"autoBatch": "true"}).auto_batch == AutoBatch()
    assert load(mapping={"attemptTimeout": "none"}).attempt_timeout is None
    assert load(mapping={"attemptTimeout": "auto"}).attempt_timeout == AUTO
    assert load(mapping={"tls": "true"}).tls == Tls()


def test_an_address_map_may_be_json_or_a_function() -> None:
    assert load(mapping={"addressMap": '{"a:1": "b:2"}'}).address_map == {"a:1": "b:2"}
    assert load(arguments={"address_map": str.upper}).address_map is str.upper


@pytest.mark.parametrize("cls", [ClientConfig, ProducerConfig, ReaderConfig])
def test_every_setting_has_words_for_the_reference(cls: type) -> None:
    for spec in dataclasses.fields(cls):
        assert spec.metadata["help"], spec.name


@pytest.mark.parametrize("cls", [ProducerConfig, ReaderConfig])
def test_every_setting_is_read_somewhere(cls: type) -> None:
    """A setting that nothing reads is a lie to whoever sets it."""
    read: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        if path.name == "config.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                read.add(node.attr)
    unread = {spec.name for spec in dataclasses.fields(cls)} - read
    assert unread - {"auto_batch", "telemetry", "trace", "status"} == set()


def test_what_javas_names_are_answered_with_is_there():
    known = {
        field.name
        for kind in (ProducerConfig, ConsumerConfig, ReaderConfig, FaultPolicy, AutoBatch)
        for field in dataclasses.fields(kind)
    }
    for java, ours in JAVA_NAMES.items():
        words = re.findall(r"[a-z]+(?:_[a-z]+)+", ours)
        assert set(words) <= known | {"call_next"}, java


@pytest.mark.parametrize(
    "setting", ["request_timeout", "heartbeat_interval", "shutdown_timeout", "attempt_timeout"]
)
def test_every_time_that_looks_like_milliseconds_is_warned_about(setting, caplog):
    ProducerConfig(name_servers=("127.0.0.1:1",), **{setting: 30})
    assert not caplog.records
    ProducerConfig(name_servers=("127.0.0.1:1",), **{setting: 3000})
    assert f"{setting} is 3000 seconds: times are seconds" in caplog.text


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ("sendLatencyFaultEnable", "fault"),
        ("retryTimesWhenSendFailed", "retries"),
        ("producerGroup", "group"),
        ("enableMsgTrace", "trace=True"),
        ("createTopicKey", "default_topic"),
        ("namesrvAddr", "name_servers"),
        ("consumeTimeout", "handler_timeout"),
        ("vipChannelEnabled", "not needed"),
    ],
)
def test_a_setting_by_its_name_in_java_is_answered_with_ours(java, ours):
    with pytest.raises(ConfigError, match=rf"{java}.*is Java's name: here it is {ours}\b"):
        from_mapping(ProducerConfig, {java: "1"})


@pytest.mark.parametrize(("value", "warns"), [(3, False), (3000, True), ("3000ms", False)])
def test_a_time_that_looks_like_milliseconds_is_warned_about(value, warns, caplog):
    ProducerConfig(name_servers="a:1", send_timeout=value)
    assert ("times are seconds" in caplog.text) == warns


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("default", "adaptive"),
        ("java4", "java4"),
        ("java5", "java5"),
        ("java5-detector", "java5"),
        ("off", "off"),
    ],
)
def test_one_list_of_fault_policies_holds_for_code_text_and_environment(name, mode):
    for given in (
        ProducerConfig(name_servers="a:1", fault=name),
        from_mapping(ProducerConfig, {"fault": name}),
        from_mapping(ProducerConfig, environ={"ROCKETWIRE_FAULT": name.upper()}),
    ):
        assert (given.fault.mode, given.fault.detector) == (mode, name == "java5-detector")
    with pytest.raises(ConfigError, match="default, java4, java5, java5-detector, off"):
        ProducerConfig(name_servers="a:1", fault="java6")
