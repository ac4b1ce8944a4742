"""The walks through the code name files and functions that exist, and few enough of them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "design" / "walks.md").read_text(encoding="utf-8")
WALKS = {title: text for title, _, text in (w.partition("\n") for w in PAGE.split("\n## ")[1:])}
_FILE = re.compile(r"`([a-z_/]+\.py)`")
_WORD = re.compile(r"`([A-Za-z_]+\.py|[a-z_/]+\.py|[A-Za-z_][A-Za-z_.]*)`")
#: Public things and values that are named beside the steps.
_NOT_STEPS = {"hash_queue", "Producer.submit", "SingleDelivery.relay"}


@cache
def names_in(file: str) -> frozenset[str]:
    found = set()
    for node in ast.parse((ROOT / "src" / "rocketwire" / file).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found.add(node.name)
            found |= {
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(found)


def steps(text: str) -> list[tuple[str, str]]:
    """File and name of each step; a name without a file belongs to the file before it.

    What a walk says before its first step is the call of a user.
    """
    found, file = [], ""
    for word in _WORD.findall(text[text.index("\n1. ") :]):
        if word.endswith(".py"):
            file = word
        elif word not in _NOT_STEPS:
            found.append((file, word))
    return found


@pytest.mark.parametrize("title", WALKS)
def test_every_step_of_a_walk_exists(title: str) -> None:
    walk = steps(WALKS[title])
    assert len(walk) >= 8
    missing = [f"{file} {name}" for file, name in walk if name not in names_in(file)]
    assert not missing


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_passes_at_most_twelve_files(title: str) -> None:
    assert len(set(_FILE.findall(WALKS[title]))) <= 12


def test_there_are_seven_walks() -> None:
    assert len(WALKS) == 7
