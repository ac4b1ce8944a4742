"""Completion, installed and asked for in each shell that this machine has, as its user would."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: Half a word typed, and what a Tab makes of it.
TYPED, WANTED = "rocketwire dlq red", "redrive"
SHELLS = ("bash", "zsh", "fish")


@pytest.fixture(params=SHELLS)
def shell(request, tmp_path):
    """A shell's name and the environment of a new user who installed completion."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    scripts = Path(sys.executable).parent
    environ = {
        "HOME": str(tmp_path),
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }
    environ |= {k: v for k, v in os.environ.items() if k in {"FPATH", "PYTHONPATH"}}
    done = subprocess.run(
        [request.param, "-c", "rocketwire --install-completion; true"],
        env=environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert f"{request.param} completion installed" in done.stdout, done.stderr
    return request.param, environ


def typed_into(shell, environ, words, wanted):
    """What a terminal shows after words and a Tab; waits until the wanted is there."""
    pid, screen = pty.fork()
    if pid == 0:
        os.execvpe(shell, [shell, "-i"], environ)
    try:
        return _watched(screen, words, wanted)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(screen)


def _watched(screen, words, wanted):
    seen, limit, keys = "", time.monotonic() + 20, words
    while wanted not in seen and time.monotonic() < limit:
        if select.select([screen], [], [], 1.0)[0]:
            seen += os.read(screen, 65536).decode(errors="replace")
        else:  # it has said what it has to say, and waits; zsh's first Tab only loads the script
            os.write(screen, f"{keys}\t".encode())
            keys = ""
    return seen


def test_a_tab_completes_what_was_typed(shell):
    name, environ = shell
    assert WANTED in typed_into(name, environ, TYPED, WANTED)
