"""What a newcomer sees first, and options that are given before a command."""

import re
import shlex

import pytest

from rocketwire.cli.application import COMMANDS, run


def test_help_begins_with_where_to_start(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    panels = re.findall(r"^.─ (\w[\w ]*?) ─", shown, re.MULTILINE)
    assert panels[0] == "Start here"
    assert panels[-1] == "Options"
    assert "Commands" not in panels
    assert all(re.search(rf"│ {name} ", shown) for name in COMMANDS)
    assert shown.index("First steps") > shown.index("--show-completion")


@pytest.mark.parametrize(
    "words",
    [(), *((name,) for name in COMMANDS), ("topic", "list"), ("group", "reset"), ("dlq", "list")],
)
def test_a_flag_is_shown_without_a_type(rocketwire, words):
    shown = rocketwire(*words, "--help").out
    assert "--help" in shown
    assert "<bool>" not in shown
    assert "list[" not in shown


def test_common_options_may_come_before_the_command(rocketwire, cluster):
    behind = rocketwire("doctor", "-n", cluster.name_server, "--json")
    before = rocketwire("--json", "-n", cluster.name_server, "doctor")
    assert before.code == behind.code == 0
    assert [f["check"] for f in before.json["findings"]] == [
        f["check"] for f in behind.json["findings"]
    ]
    assert rocketwire("--json", "topic", "list", "-n", cluster.name_server).json is not None


def test_an_option_behind_the_command_is_the_stronger(rocketwire, cluster):
    done = rocketwire("-n", "127.0.0.1:1", "topic", "list", "-n", cluster.name_server)
    assert done.code == 0


def test_an_option_that_the_command_does_not_know_is_refused_before_it_too(rocketwire):
    done = rocketwire("-n", "127.0.0.1:1", "cluster")
    assert done.code == 2
    assert "rocketwire cluster takes no --name-server" in done.err


def test_a_wrong_call_in_json_mode_is_told_as_json(rocketwire):
    done = rocketwire("--json", "doctor", "--colour")
    assert done.code == 2
    assert done.err.startswith('{"error"')


def test_a_wrong_address_map_shows_a_right_one(rocketwire):
    done = rocketwire("doctor", "-n", "127.0.0.1:1", "-o", "address_map=172.17.0.2=127.0.0.1")
    assert done.code == 2
    assert '{"172.17.0.2:10911": "127.0.0.1:10911"}' in done.err


@pytest.mark.parametrize("name", ["doctor", "simulate", "transform"])
def test_an_example_that_is_cut_on_a_narrow_screen_can_be_copied(rocketwire, monkeypatch, name):
    def words(width):
        monkeypatch.setenv("COLUMNS", str(width))
        shown = rocketwire(name, "--help").out.replace("\\\n", "")  # as a shell reads it
        examples = shown.split("Examples:")[1].strip()
        found = re.sub(r"\s+(?=rocketwire )", "\0", examples).split("\0")
        return [[" ".join(word.split()) for word in shlex.split(line)] for line in found]

    assert words(60) == words(400)


@pytest.mark.parametrize("name", ["lab", "simulate"])
def test_what_talks_to_no_cluster_takes_no_address(rocketwire, name):
    assert "--name-server" not in rocketwire(name, "--help").out
    done = rocketwire("-n", "127.0.0.1:1", name)
    assert done.code == 2
