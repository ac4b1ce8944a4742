import subprocess
import sys
from pathlib import Path

import pytest

from rocketwire.cli.application import COMMANDS
from rocketwire.version import __version__

SOURCES = str(Path(__file__).parents[2] / "src")


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": SOURCES, "PATH": "/usr/bin:/bin", **environment},
        check=False,
    )


def test_without_its_extra_the_command_prints_the_pip_line_and_no_traceback():
    # -S hides site-packages, and with them typer and rich.
    done = python("-S", "-m", "rocketwire", "send", "orders", "hello")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "the rocketwire command needs typer and rich: pip install 'rocketwire[cli]'"
    ]


def test_python_m_rocketwire_shows_every_command_with_a_summary():
    done = python("-m", "rocketwire", "--help", COLUMNS="100")
    assert done.returncode == 0
    for name in COMMANDS:
        assert name in done.stdout


def test_help_imports_neither_the_embedded_cluster_nor_pyspark_nor_asyncio():
    code = (
        "import sys; from rocketwire.cli.application import run; run(['--help']);"
        "print([m for m in ('rocketwire.embedded', 'pyspark', 'pyarrow', 'asyncio')"
        " if m in sys.modules])"
    )
    done = python("-c", code)
    assert done.stdout.splitlines()[-1] == "[]"


def test_without_a_command_help_is_shown(rocketwire):
    done = rocketwire()
    assert done.code == 0
    assert "Usage: rocketwire" in done.out


def test_version(rocketwire):
    done = rocketwire("--version")
    assert (done.code, done.out) == (0, f"rocketwire {__version__}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_an_example(rocketwire, name):
    done = rocketwire(name, "--help")
    assert done.code == 0
    if name in {"topic", "group", "dlq"}:
        assert "Commands" in done.out
    else:
        assert "Examples" in done.out
        assert f"rocketwire {name}" in done.out


@pytest.mark.parametrize("name", ["", *COMMANDS])
@pytest.mark.parametrize("width", [60, 100])
def test_no_help_cuts_off_a_name(rocketwire, monkeypatch, name, width):
    monkeypatch.setenv("COLUMNS", str(width))
    done = rocketwire(*name.split(), "--help")
    assert done.code == 0
    assert "…" not in done.out
    assert "--help" in done.out
    assert max(map(len, done.out.splitlines())) <= width


def test_a_misspelt_command_names_the_nearest(rocketwire):
    done = rocketwire("sned")
    assert done.code == 2
    assert done.err == "rocketwire: there is no command 'sned': did you mean send?\n"


def test_a_wrong_option_is_one_line_and_exit_code_2(rocketwire):
    done = rocketwire("send", "orders", "x", "--colour")
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert "rocketwire send --help" in done.err


def test_a_failure_is_one_line_and_exit_code_1(rocketwire):
    done = rocketwire("topic", "list", "-n", "127.0.0.1:1")
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert "127.0.0.1:1" in done.err


def test_debug_shows_the_traceback(rocketwire):
    done = rocketwire("topic", "list", "-n", "127.0.0.1:1", "--debug")
    assert done.code == 1
    assert "Traceback" in done.err


def test_in_json_mode_a_failure_is_json_on_standard_error(rocketwire):
    done = rocketwire("topic", "list", "-n", "127.0.0.1:1", "--json")
    assert done.code == 1
    assert done.out == ""
    assert '"error": "NameServerUnavailableError"' in done.err


def test_a_pipe_gets_no_colour(rocketwire, cluster):
    rocketwire("send", "plain", "x", cluster=cluster)
    done = rocketwire("topic", "show", "plain", cluster=cluster)
    assert "\x1b[" not in done.out


def test_a_closed_pipe_ends_quietly(cluster):
    done = subprocess.run(
        f"{sys.executable} -m rocketwire topic list --all | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": SOURCES, "PATH": "/usr/bin:/bin", "NAMESRV_ADDR": cluster.name_server},
        check=False,
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rocketwire fa", "fault"),
        ("rocketwire fault broker-a sl", "slow"),
        ("rocketwire send --prop", "--property"),
        ("rocketwire topic cr", "create"),
    ],
)
def test_the_shell_completes_commands_options_and_faults(words, expected):
    done = python(
        *("-c", "from rocketwire.cli.application import run; run([])"),
        _ROCKETWIRE_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
    )
    assert done.stdout.split() == [expected]
