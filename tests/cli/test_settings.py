import pytest

from rocketwire.cli.invocation import Invocation, parse_options, read_settings_file
from rocketwire.config import ProducerConfig, ReaderConfig, from_mapping
from rocketwire.errors import ConfigError


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)


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


def test_the_project_file_comes_before_the_personal_one(tmp_path):
    personal = tmp_path / "xdg" / "rocketwire" / "config.toml"
    personal.parent.mkdir(parents=True)
    personal.write_text('name_servers = "personal:1"\n')
    assert read_settings_file(None) == {"name_servers": "personal:1"}
    (tmp_path / "rocketwire.toml").write_text('name_servers = "project:1"\n')
    assert read_settings_file(None) == {"name_servers": "project:1"}


def test_a_table_in_the_file_is_an_address_map(tmp_path):
    path = tmp_path / "some.toml"
    path.write_text('[address_map]\n"172.17.0.2:10911" = "127.0.0.1:10911"\n')
    here = Invocation(file=read_settings_file(path))
    config = from_mapping(ProducerConfig, here.settings(ProducerConfig))
    assert config.address_map == {"172.17.0.2:10911": "127.0.0.1:10911"}


def test_an_unknown_setting_in_the_file_names_the_file_and_the_nearest(tmp_path):
    (tmp_path / "rocketwire.toml").write_text("send_timeot = 5\n")
    with pytest.raises(ConfigError, match=r"rocketwire.toml: .*did you mean send_timeout"):
        read_settings_file(None)


def test_a_file_that_is_no_toml_is_refused(tmp_path):
    (tmp_path / "rocketwire.toml").write_text("send_timeout 5\n")
    with pytest.raises(ConfigError, match=r"rocketwire\.toml can't be read"):
        read_settings_file(None)


def test_a_given_file_that_is_missing_is_an_error(rocketwire):
    done = rocketwire("topic", "list", "--config", "nowhere.toml")
    assert done.code == 2
    assert "nowhere.toml" in done.err


def test_options_are_checked_before_anything_is_sent(rocketwire):
    done = rocketwire("send", "orders", "x", "-o", "send_timeot=5")
    assert done.code == 2
    assert "did you mean send_timeout" in done.err


def test_an_option_without_a_value_is_refused(rocketwire):
    done = rocketwire("send", "orders", "x", "-o", "send_timeout")
    assert done.code == 2
    assert "NAME=VALUE" in done.err


def test_options_may_be_written_in_any_case():
    assert parse_options(["sendTimeout=1s", "PULL_TIMEOUT=2s"]) == {
        "sendTimeout": "1s",
        "PULL_TIMEOUT": "2s",
    }
