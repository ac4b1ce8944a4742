import dataclasses
import json
import re

import pytest

from rocketwire.cli.invocation import (
    Invocation,
    parse_options,
    read_folder_file,
    read_settings_file,
)
from rocketwire.config import ProducerConfig, ReaderConfig, from_mapping
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.errors import ConfigError
from rocketwire.simple_consumer_config import SimpleConsumerConfig


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def rocketwire_here(rocketwire, monkeypatch, tmp_path):
    """Runs a command line in the folder of the test, with its personal settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    return rocketwire


def servers(invocation):
    return invocation.name_servers


def test_without_any_setting_the_name_server_is_that_of_rocketwire_cluster():
    assert servers(Invocation()) == "127.0.0.1:9876"


def test_the_command_line_beats_the_environment_beats_the_file(monkeypatch):
    here = Invocation(file={"name_servers": "a:1"})
    assert servers(here) == "a:1"
    monkeypatch.setenv("NAMESRV_ADDR", "b:2")
    assert servers(here) == "b:2"
    monkeypatch.setenv("ROCKETWIRE_NAME_SERVERS", "c:3")
    assert servers(here) == "c:3"
    here.given = {"name_servers": "d:4"}
    assert servers(here) == "d:4"


def test_settings_of_a_producer_do_not_disturb_a_reader():
    here = Invocation(given={"send_timeout": "5s", "pull_timeout": "7s"})
    assert from_mapping(ProducerConfig, here.settings(ProducerConfig)).send_timeout == 5.0
    assert from_mapping(ReaderConfig, here.settings(ReaderConfig)).pull_timeout == 7.0


def test_the_project_file_comes_before_the_personal_one(tmp_path, rocketwire_here):
    personal = tmp_path / "xdg" / "rocketwire" / "config.toml"
    personal.parent.mkdir(parents=True)
    personal.write_text('name_servers = "127.0.0.1:1"\n')
    assert "127.0.0.1:1" in rocketwire_here("topic", "list").err
    (tmp_path / "rocketwire.toml").write_text('name_servers = "127.0.0.1:2"\n')
    assert "127.0.0.1:2" in rocketwire_here("topic", "list").err


def test_a_table_in_the_file_is_an_address_map(tmp_path):
    path = tmp_path / "some.toml"
    path.write_text('[address_map]\n"172.17.0.2:10911" = "127.0.0.1:10911"\n')
    here = Invocation(file=read_settings_file(path))
    config = from_mapping(ProducerConfig, here.settings(ProducerConfig))
    assert config.address_map == {"172.17.0.2:10911": "127.0.0.1:10911"}


def test_an_unknown_setting_in_the_file_names_the_file_and_the_nearest(tmp_path):
    (tmp_path / "rocketwire.toml").write_text("send_timeot = 5\n")
    with pytest.raises(ConfigError, match=r"rocketwire.toml: .*did you mean send_timeout"):
        read_folder_file()


def test_a_file_that_is_no_toml_is_refused(tmp_path):
    (tmp_path / "rocketwire.toml").write_text("send_timeout 5\n")
    with pytest.raises(ConfigError, match=r"rocketwire\.toml can't be read"):
        read_folder_file()


def test_a_given_file_that_is_missing_is_an_error(rocketwire):
    done = rocketwire("topic", "list", "--config", "nowhere.toml")
    assert done.code == 2
    assert "nowhere.toml" in done.err


def test_options_are_checked_before_anything_is_sent(rocketwire):
    done = rocketwire("send", "orders", "x", "-o", "send_timeot=5")
    assert done.code == 2
    assert "did you mean send_timeout" in done.err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("pull_timeot=5", "did you mean pull_timeout"),
        ("max_atempts=5", "did you mean max_attempts"),
        ("accesKey=x", "did you mean accesskey"),
    ],
)
def test_the_settings_of_every_client_are_suggested(rocketwire, given, meant):
    done = rocketwire("send", "orders", "x", "-o", given)
    assert done.code == 2
    assert meant in done.err


def test_an_option_without_a_value_is_refused(rocketwire):
    done = rocketwire("send", "orders", "x", "-o", "send_timeout")
    assert done.code == 2
    assert "NAME=VALUE" in done.err


def test_options_may_be_written_in_any_case():
    assert parse_options(["sendTimeout=1s", "PULL_TIMEOUT=2s"]) == {
        "sendTimeout": "1s",
        "PULL_TIMEOUT": "2s",
    }


UNTRUSTED = {
    "status": '"/tmp/x"',
    "telemetry": '"/tmp/x"',
    "offsets_folder": '"/tmp/x"',
    "offsetsFolder": '"/tmp/x"',
    "credentials_file": '"keys.json"',
    "credentials": '"x"',
    "access_key": '"x"',
    "ACCESS-KEY": '"x"',
    "secret_key": '"x"',
    "security_token": '"x"',
    "tls": "false",
    "tls_verify": "false",
    "tls_ca_file": '"ca.pem"',
    "tls_cert_file": '"c.pem"',
    "tls_key_file": '"k.pem"',
    "tls_key_password": '"x"',
    "tls_server_name": '"x"',
}


@pytest.mark.parametrize("name", UNTRUSTED)
def test_paths_tls_and_credentials_are_not_taken_from_the_current_folder(
    name, tmp_path, rocketwire_here
):
    (tmp_path / "rocketwire.toml").write_text(f"{name} = {UNTRUSTED[name]}\n")
    done = rocketwire_here("send", "orders", "x")
    assert done.code == 2
    assert str(tmp_path / "rocketwire.toml") in done.err
    assert name in done.err
    assert "--config rocketwire.toml" in done.err


def test_a_file_that_the_user_names_may_hold_them(tmp_path):
    path = tmp_path / "rocketwire.toml"
    path.write_text('access_key = "a"\nsecret_key = "b"\nstatus = "s.json"\ntls_verify = false\n')
    settings = Invocation(file=read_settings_file(path)).settings(ProducerConfig)
    config = from_mapping(ProducerConfig, settings)
    assert config.credentials.access_key == "a"
    assert config.status == "s.json"
    assert not config.tls.verify


def test_every_setting_that_needs_trust_is_in_the_table():
    kinds = (ProducerConfig, ReaderConfig, ConsumerConfig, SimpleConsumerConfig)
    marked = {s.name for k in kinds for s in dataclasses.fields(k) if s.metadata.get("trusted")}
    assert marked <= set(UNTRUSTED)
    for kind in kinds:
        for spec in dataclasses.fields(kind):
            words = {"file", "folder", "keys", "encrypt", "path"} & set(
                re.findall("[a-z]+", f"{spec.name} {spec.metadata['help']}".replace("_", " "))
            )
            # A switch names no place: broadcast keeps its offsets in the folder of the user.
            is_safe = not words or spec.type == "bool" or spec.metadata.get("trusted")
            assert is_safe, f"{spec.name}: {words}"


def test_the_commands_say_that_they_read_the_current_folders_file(tmp_path, rocketwire_here):
    path = tmp_path / "rocketwire.toml"
    path.write_text('name_servers = "127.0.0.1:1"\nsend_timeout = "1s"\n')
    said = f"settings from {path}"
    assert said in rocketwire_here("topic", "list").err.splitlines()
    as_json = rocketwire_here("topic", "list", "--json").err.splitlines()
    assert json.loads(as_json[0]) == {"settings_file": said}
    assert said not in rocketwire_here("topic", "list", "--config", str(path)).err
