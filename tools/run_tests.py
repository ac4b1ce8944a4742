"""Runs all tests in stages, and tells their number: ``python tools/run_tests.py [pytest options]``.

The first stage has all that needs no Java, on all cores. Then come those that start Apache RocketMQ
or Spark, one part after another in processes of its own, so that no part is slowed by the idle brokers
of another. In a part, tests of different releases run side by side: most of them wait most of the time.

With ``--compatibility`` the numbers for the README's table are recorded, if everything passed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HEAVY = "real or interop or spark"
PARTS = ("tests/spark", "tests/conformance", "tests/interop", "tests/real")
SIDE_BY_SIDE = ["-n", "2", "--dist", "loadgroup"]
NOTHING_SELECTED = 5
RECORDING = "--compatibility"


def stages() -> list[list[str]]:
    rest = [f"--ignore={part}" for part in PARTS]
    return [
        [*SIDE_BY_SIDE, "-m", f"not ({HEAVY})"],
        *([*workers_of(part), "-m", HEAVY, part] for part in PARTS),
        ["-m", HEAVY, *rest],
    ]


def workers_of(part: str) -> list[str]:
    # One Spark is as much as two cores bear.
    return [] if part == "tests/spark" else SIDE_BY_SIDE


def run(arguments: list[str], counts: dict[str, int], report: Path) -> bool:
    command = [sys.executable, "-m", "pytest", *arguments, f"--junitxml={report}"]
    print("$", " ".join(["pytest", *arguments]), flush=True)
    code = subprocess.run(command, check=False).returncode
    if report.exists():
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            for name in counts:
                counts[name] += int(suite.get(name, "0"))
    return code in {0, NOTHING_SELECTED}


def record(reports: list[Path]) -> None:
    tool = Path(__file__).with_name("compatibility.py")
    subprocess.run([sys.executable, str(tool), *map(str, reports)], check=True)


def main() -> int:
    given = [word for word in sys.argv[1:] if word != RECORDING]
    selection = [word for word in given if Path(word.split("::")[0]).exists()]
    if selection and RECORDING in sys.argv:
        print(f"{RECORDING} records a run of all tests: leave out {' '.join(selection)}")
        return 2
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    plan: list[list[str]] = [[]] if selection else stages()
    with tempfile.TemporaryDirectory() as folder:
        reports = [Path(folder) / f"{number}.xml" for number in range(len(plan))]
        outcomes = [
            run([*stage, *given], counts, report)
            for stage, report in zip(plan, reports, strict=True)
        ]
        if all(outcomes) and RECORDING in sys.argv:
            record([report for report in reports if report.exists()])
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    print(f"{passed} passed, {failed} failed, {counts['skipped']} skipped")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
