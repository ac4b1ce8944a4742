"""Sockets are made so that no interrupt takes one along."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.sync.moments import Moments

from rocketwire.system.socket_tuning import make_socket

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors")


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def interrupt() -> None:
    raise KeyboardInterrupt


def interrupt_at_every_moment() -> None:
    before, at = open_files(), 0
    while True:
        # Python's own code is part of it: the socket is open before it is whole.
        moments = Moments(at, interrupt, raises=True, modules=("socket",))
        made = None
        try:
            with moments:
                made = make_socket(socket.AF_INET)
        except KeyboardInterrupt:
            assert made is None
        if made is not None:
            made.close()
        assert open_files() == before, moments.where
        if not moments.is_done:
            break
        at += 1
    assert at > 3


def ask_for_no_family() -> None:
    before = open_files()
    with pytest.raises(OSError, match="not supported"):
        make_socket(9999)
    assert open_files() == before


def run_apart(function: Callable[[], None]) -> None:
    """In a process of its own: clusters of other tests open and close files in this one."""
    call = f"from {__name__} import {function.__name__} as run; run()"
    command = [sys.executable, "-c", call]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_interrupt_at_any_moment_leaves_no_socket_open() -> None:
    run_apart(interrupt_at_every_moment)


def test_a_family_that_there_is_not_is_an_error_and_leaves_nothing() -> None:
    run_apart(ask_for_no_family)
