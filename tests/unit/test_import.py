"""What importing the package costs, needs and does: nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import rocketwire

SOURCE = Path(rocketwire.__file__).parents[1]
CORE = ["wire", "core", "sync", "aio", "message", "errors", "config", "hooks"]


def python(code: str, *flags: str) -> str:
    command = [sys.executable, *flags, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, cwd="/"
    ).stdout


def test_the_client_core_needs_nothing_but_the_standard_library() -> None:
    """In an isolated interpreter with no site-packages every module of it can be imported."""
    code = f"""
import sys, pkgutil, importlib
sys.path.insert(0, {str(SOURCE)!r})
import rocketwire
names = []
for name in {CORE!r}:
    module = importlib.import_module("rocketwire." + name)
    names.append(module.__name__)
    for info in pkgutil.walk_packages(getattr(module, "__path__", []), module.__name__ + "."):
        names.append(importlib.import_module(info.name).__name__)
foreign = sorted(
    name for name in {{n.split(".")[0] for n in sys.modules}}
    if name not in sys.stdlib_module_names and name not in ("rocketwire", "__main__")
)
print(len(names), foreign)
"""
    count, foreign = python(code, "-I", "-S").split(" ", 1)
    assert int(count) > 50
    assert foreign.strip() == "[]"


def test_importing_starts_nothing_and_loads_nothing_heavy() -> None:
    code = f"""
import sys, threading, json
sys.path.insert(0, {str(SOURCE)!r})
import rocketwire
from rocketwire import Producer, Message
heavy = [n for n in ("asyncio", "ssl", "uvloop", "numpy", "pyarrow", "pyspark", "typer") if n in sys.modules]
print(json.dumps({{"threads": threading.active_count(), "heavy": heavy}}))
"""
    assert json.loads(python(code, "-I", "-S")) == {"threads": 1, "heavy": []}


def test_importing_prints_and_logs_nothing() -> None:
    code = f"""
import sys, logging
sys.path.insert(0, {str(SOURCE)!r})
import rocketwire
assert logging.getLogger().handlers == []
assert logging.getLogger("rocketwire").handlers == []
assert logging.getLogger("rocketwire").level == 0
"""
    assert python(code, "-I", "-S", "-W", "error") == ""


def test_every_public_name_is_there() -> None:
    for name in rocketwire.__all__:
        assert getattr(rocketwire, name) is not None
    assert sorted(rocketwire.__all__) == rocketwire.__all__
    assert set(dir(rocketwire)) == set(rocketwire.__all__)
