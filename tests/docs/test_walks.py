"""The walks through the code name files and functions that exist, and few enough of them.

In a step, a file in backticks is one of the package, and every other word in backticks a function or class of the file
before it. ``test_walks_are_taken.py`` looks whether they are called, and in this order.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "design" / "walks.md").read_text(encoding="utf-8")
PREAMBLE, *_PARTS = PAGE.split("\n## ")
WALKS = {title: text for title, _, text in (part.partition("\n") for part in _PARTS)}
_FILE = re.compile(r"`([a-z_/]+\.py)`")
_WORD = re.compile(r"`([A-Za-z_/]+\.py|[A-Za-z_][A-Za-z_.]*)`")
_ITEM = re.compile(r"^\d+\. .*\n(?:    ?.+\n?)*", re.MULTILINE)


class Step(NamedTuple):
    """A function that a walk names; of a class, its constructor is meant."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file} {self.name}"


@cache
def names_in(file: str) -> dict[str, str]:
    """What can be named of a file, and the name of the code that is run when it is called."""
    found = {}
    for node in ast.parse((ROOT / "src" / "rocketwire" / file).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node.name
        elif isinstance(node, ast.ClassDef):
            found[node.name] = f"{node.name}.__init__"
            for part in node.body:
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[f"{node.name}.{part.name}"] = f"{node.name}.{part.name}"
    return found


def files_of(text: str) -> set[str]:
    return set(_FILE.findall(text))


def list_of(walk: str) -> str:
    """The numbered steps of a walk, without what is said before and after them."""
    return "".join(_ITEM.findall(WALKS[walk]))


def rest_of(walk: str) -> str:
    """What is said after the last step."""
    return _ITEM.split(WALKS[walk])[-1]


def steps(text: str) -> list[Step]:
    """The functions that are named; one without a file belongs to the file before it."""
    found, file = [], ""
    for word in _WORD.findall(text):
        if word.endswith(".py"):
            file = word
        else:
            found.append(Step(file, word))
    return found


@pytest.mark.parametrize("walk", WALKS)
def test_everything_that_a_walk_names_exists(walk: str) -> None:
    named = steps(list_of(walk)) + steps(rest_of(walk))
    assert [str(step) for step in named if step.name not in names_in(step.file)] == []


@pytest.mark.parametrize("walk", WALKS)
def test_every_step_names_what_is_called(walk: str) -> None:
    items = _ITEM.findall(WALKS[walk])
    assert len(items) >= 8
    assert [item for item in items if not files_of(item) or not steps(item)] == []
    assert [int(item.partition(".")[0]) for item in items] == list(range(1, len(items) + 1))


@pytest.mark.parametrize("walk", WALKS)
def test_the_steps_of_a_walk_name_at_most_twelve_files(walk: str) -> None:
    assert len(files_of(list_of(walk))) <= 12


def test_there_are_seven_walks() -> None:
    assert len(WALKS) == 7


def test_the_architecture_names_every_part_of_the_package() -> None:
    page = (ROOT / "docs" / "design" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## The parts of the package")[2].partition("\n## ")[0]
    source = ROOT / "src" / "rocketwire"
    parts = {path.parent.name for path in source.glob("*/__init__.py")}
    parts |= {path.stem for path in source.glob("*.py")} - {"__init__", "__main__", "version"}
    assert sorted(parts - set(re.findall(r"`(\w+)`", table))) == []


def test_the_recipes_name_files_and_tables_that_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    recipes = page.partition("## Recipes")[2].partition("\n## ")[0].split("\n**")[1:]
    assert len(recipes) == 5
    missing = []
    for recipe in recipes:
        text = ""
        for name in re.findall(r"`([\w/-]+\.(?:py|md))`", recipe):
            places = [ROOT / "src" / "rocketwire" / name, ROOT / name]
            places += (ROOT / "tests").rglob(name) if "/" not in name else []
            found = [place for place in places if place.is_file()]
            text += "".join(place.read_text(encoding="utf-8") for place in found)
            missing += [] if found else [name]
        tables = re.findall(r"`(?:\w+\.)?(_?\w+)(?:\(\))?`", recipe)
        missing += [name for name in tables if not re.search(rf"\b{name}\b", text)]
    assert missing == []
