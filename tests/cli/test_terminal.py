"""What came over a wire can't steer a terminal."""

import io
import logging
import os
import pty
import subprocess
import sys
import unicodedata
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from rocketwire import Message, Producer
from rocketwire.cli import failures
from rocketwire.cli.doctor.command import _show
from rocketwire.cli.doctor.findings import Finding, Verdict
from rocketwire.cli.invocation import Invocation
from rocketwire.cli.output import make_console, make_table, to_json
from rocketwire.cli.safe_text import TerminalLog, visible, visible_lines
from rocketwire.errors import SystemBusyError

TURNS = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
#: A title, a colour, a C1 introducer, a bell, a return, a turn of direction.
EVIL = "\x1b]0;owned\x07 \x1b[31m \x9b31m \r\u202egnp"
hostile = st.text(st.sampled_from(sorted(TURNS | set("\x00\t\n\r\x1b\x7f\x85\x9b\u2028a[é漢"))))


def hidden(text):
    return {c for c in text if unicodedata.category(c) in {"Cc", "Zl", "Zp"} or c in TURNS}


@given(hostile)
def test_every_control_character_is_shown_as_an_escape(text):
    assert not hidden(visible(text))
    assert hidden(visible_lines(text)) <= {"\n"}
    assert not hidden(to_json({"body": text, text: text.encode()}))


def test_what_is_no_control_character_stays():
    assert visible("é 漢 😀 \\x1b a") == "é 漢 😀 \\x1b a"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def refused():
    error = SystemBusyError(2, EVIL, "broker-a")
    error.add_note(EVIL)
    return error


SHOWN = {
    "say": lambda: Invocation().say(EVIL),
    "note": lambda: Invocation().note(EVIL),
    "print": lambda: make_console().print(Text(EVIL)),
    "print errors": lambda: make_console(stderr=True).print(EVIL, markup=False),
    "table": lambda: make_console().print(make_table(["a", "b#"], [[EVIL, EVIL]], title=EVIL)),
    "json": lambda: Invocation(as_json=True).emit({EVIL: EVIL}),
    "failure": lambda: failures.report(refused()),
    "other failure": lambda: failures.report(KeyError(EVIL)),
    "file failure": lambda: failures.report(OSError(2, "gone", EVIL)),
    "finding": lambda: _show(
        Invocation(), Finding(EVIL, Verdict.ILL, saw=EVIL, means=EVIL, remedy=(EVIL,))
    ),
    "log": lambda: TerminalLog(tracebacks=False).emit(
        logging.LogRecord("x", 30, "", 1, EVIL, (), (KeyError, KeyError(EVIL), None))
    ),
}


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("way", SHOWN)
def test_no_way_to_write_lets_control_characters_through(way, debug, monkeypatch):
    monkeypatch.setattr(failures.wishes, "debug", debug)
    monkeypatch.setattr(failures.wishes, "as_json", False)
    monkeypatch.setenv("TERM", "dumb")  # no colours of our own
    screen = Terminal()
    with redirect_stdout(screen), redirect_stderr(screen):
        SHOWN[way]()
    written = screen.getvalue()
    assert "owned" in written
    assert hidden(written) <= {"\n"}


def in_terminal(*words):
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    environ = os.environ | {"TERM": "dumb"}
    done = subprocess.Popen(
        [sys.executable, "-m", "rocketwire", *words], stdout=theirs, stderr=theirs, env=environ
    )
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as screen:
        parts = []
        try:
            while part := screen.read(65536):
                parts.append(part)
        except OSError:  # how Linux tells that the other side is closed
            pass
    done.wait(30)
    return b"".join(parts)


def test_a_terminal_sees_escapes_and_a_pipe_gets_the_bytes(cluster, rocketwire):
    cluster.create_topic("evil", queues=1)
    with Producer(cluster.name_server) as producer:
        producer.send(Message("evil", EVIL.encode(), tags="t\x1b[1m", keys="k\x1b[2m"))
    words = ("evil", "-n", cluster.name_server, "--limit", "1")
    member = ("--group", "g-evil", "--from", "earliest")
    for call in (("read", *words), ("read", *words, "--json"), ("consume", *words, *member)):
        seen = in_terminal(*call).decode().replace("\r\n", "\n")
        assert "owned" in seen
        assert not hidden(seen.split("owned")[1].split("gnp")[0])
        assert "\x1b[1m" not in seen
    assert EVIL.encode() in in_terminal("read", *words, "--raw")
    for way in ((), ("--raw",)):
        assert EVIL in rocketwire("read", *words, *way).out
