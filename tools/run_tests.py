"""Runs all tests in stages, and tells their number: ``python tools/run_tests.py [pytest options]``.

The first stage has all that needs no Java, on all cores. Then come those that start Apache RocketMQ
or Spark, one after another, and each part in a process of its own: an idle broker keeps a sixth of
a core busy, so that a dozen of them, left over from other parts, would slow everything down.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HEAVY = "real or interop or spark"
PARTS = ("tests/spark", "tests/conformance", "tests/interop", "tests/real")
NOTHING_SELECTED = 5


def stages() -> list[list[str]]:
    rest = [f"--ignore={part}" for part in PARTS]
    return [
        ["-n", "2", "--dist", "loadgroup", "-m", f"not ({HEAVY})"],
        *(["-m", HEAVY, part] for part in PARTS),
        ["-m", HEAVY, *rest],
    ]


def run(arguments: list[str], counts: dict[str, int]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", *arguments, f"--junitxml={report}"]
        print("$", " ".join(["pytest", *arguments]), flush=True)
        code = subprocess.run(command, check=False).returncode
        if report.exists():
            for suite in ElementTree.parse(report).getroot().iter("testsuite"):
                for name in counts:
                    counts[name] += int(suite.get(name, "0"))
    return code in {0, NOTHING_SELECTED}


def main() -> int:
    given = sys.argv[1:]
    selection = [word for word in given if Path(word.split("::")[0]).exists()]
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    plan = [[]] if selection else stages()
    outcomes = [run([*stage, *given], counts) for stage in plan]
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    print(f"{passed} passed, {failed} failed, {counts['skipped']} skipped")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
