"""Events: each waiter is told once, whichever thread sets them."""

from __future__ import annotations

import sys
import threading
from functools import partial
from types import FrameType
from typing import Any

import pytest

from rocketwire.core.effects import Event


@pytest.mark.parametrize("step", range(14))
def test_each_waiter_is_told_once_whatever_runs_in_between(step) -> None:
    """A debugger lets other threads run between any two lines."""
    event, told, lines = Event(), [], 0
    own, entered, go_on = threading.get_ident(), threading.Event(), threading.Event()
    other = threading.Thread(target=event.set, daemon=True)

    def wake(name: str) -> None:
        told.append(name)
        if threading.get_ident() != own:
            entered.set()
            go_on.wait(20)

    for name in "abc":
        event.add_waiter(partial(wake, name))

    def look(frame: FrameType, happened: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code is not Event.set.__code__:
            return None
        if happened == "line":
            lines += 1
            if lines == step + 1:
                other.start()
                entered.wait(0.2 if told else 20)
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        event.set()
    finally:
        sys.settrace(before)
    go_on.set()
    if other.ident is not None:
        other.join(20)
    assert sorted(told) == ["a", "b", "c"]
