"""A user's program under mypy --strict and pyright: every verdict, line by line.

``typed_program.txt`` holds it. A misspelt option, a handler of the wrong kind or a hook that would
never be called must be an error of the type checkers, and what is right must be none.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("typed_program.txt")


def marked(word: str) -> set[int]:
    lines = PROGRAM.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith(f"  # {word}")}


def disagreements(found: dict[int, str]) -> list[str]:
    lines = PROGRAM.read_text().splitlines()
    missed = [f"{n}: passes, but is wrong: {lines[n - 1]}" for n in marked("wrong") - found.keys()]
    refused = [
        f"{n}: refused, but is right: {lines[n - 1]} ({found[n]})"
        for n in found.keys() - marked("wrong")
    ]
    return sorted(missed + refused)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "typed_program.py"
    path.write_text(PROGRAM.read_text())
    return path


def test_the_program_has_thirty_right_and_thirty_wrong_lines():
    assert len(marked("right")) >= 30
    assert len(marked("wrong")) >= 30


def test_mypy_agrees_with_every_line(program):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-color-output", str(program)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=ROOT,
    )
    # A statement over several lines is blamed where it begins.
    pattern = re.compile(r"typed_program\.py:(\d+): error: (.*)")
    found = {int(m[1]): m[2] for m in map(pattern.search, done.stdout.splitlines()) if m}
    assert "Found" in done.stdout, done.stdout + done.stderr
    assert disagreements(found) == []


def test_pyright_agrees_with_every_line(program):
    pyright = shutil.which("pyright", path=str(Path(sys.executable).parent)) or shutil.which(
        "pyright"
    )
    if pyright is None:
        pytest.skip("pyright is not installed here: pip install 'pyright[nodejs]'")
    settings = {
        "include": [program.name],
        "typeCheckingMode": "standard",
        "reportAttributeAccessIssue": "error",
        "extraPaths": [str(ROOT / "src")],
        "pythonVersion": "3.11",
    }
    (program.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [pyright, "--outputjson", "--pythonpath", sys.executable, "-p", str(program.parent)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=program.parent,
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        pytest.skip(f"pyright can't run here, its Node.js is missing: {done.stderr[-300:]}")
    found = {
        item["range"]["start"]["line"] + 1: item["message"]
        for item in report["generalDiagnostics"]
        if item["severity"] == "error"
    }
    assert report["summary"]["filesAnalyzed"] == 1
    assert disagreements(found) == []
