"""A worker of Spark does not look through its modules for garbage after every task."""

from __future__ import annotations

import gc
import subprocess
import sys
import types

import pytest

from rocketwire.spark import settled_worker

PROGRAM = """
import gc, sys, weakref
sys.modules["__main__"].__spec__ = type("Spec", (), {"name": "pyspark.daemon"})
from rocketwire.spark.settled_worker import settle
class Node: pass
def cycle():
    node = Node(); node.me = node
    return weakref.ref(node)
before = cycle()
settle()
frozen = gc.get_freeze_count()
settle()
after = cycle()
gc.collect()
print(frozen > 1000, gc.get_freeze_count() <= frozen, before() is None, after() is None)
"""


def test_a_worker_freezes_its_modules_once_and_no_garbage() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["True"] * 4


def test_no_other_process_is_touched() -> None:
    before = gc.get_freeze_count()
    settled_worker.settle()
    assert gc.get_freeze_count() == before


@pytest.mark.parametrize(
    ("name", "expected"), [("pyspark.daemon", True), ("pytest.__main__", False), (None, False)]
)
def test_workers_are_known_by_the_program_that_forked_them(
    name: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = types.ModuleType("__main__")
    program.__spec__ = None if name is None else types.SimpleNamespace(name=name)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", program)
    assert settled_worker.is_worker() is expected
