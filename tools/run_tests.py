"""Runs all tests in stages, and tells their number: ``python tools/run_tests.py [pytest options]``.

The first stage has all that needs no Java, on all cores. Then come those that start Apache RocketMQ
or Spark, one part after another in processes of its own, so that no part is slowed by the idle brokers
of another. A part that waits most of the time is split in two halves, which run side by side: each has
other clusters, so nothing is started twice.

With ``--compatibility`` the numbers for the README's table are recorded, if everything passed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HEAVY = "real or interop or spark"
#: Folders, and what tells the first half of their tests from the second.
PARTS = {
    "tests/spark": "",
    "tests/conformance": "4.9.7",
    "tests/interop": "embedded",
    "tests/real": "4.9.7 or test_faults",
}
NOTHING_SELECTED = 5
RECORDING = "--compatibility"


def stages() -> list[list[list[str]]]:
    """The arguments of the runs of each stage."""
    rest = [f"--ignore={part}" for part in PARTS]
    return [
        [["-n", "2", "-m", f"not ({HEAVY})"]],
        *([[*half, "-m", HEAVY, part] for half in halves(what)] for part, what in PARTS.items()),
        [[*half, "-m", HEAVY, *rest] for half in halves("docs")],
    ]


def halves(what: str) -> list[list[str]]:
    return [["-k", what], ["-k", f"not ({what})"]] if what else [[]]


def run(stage: list[list[str]], folder: Path, reports: list[Path]) -> bool:
    """Run a stage; one that is alone shows what it does, others when they are done."""
    started = []
    for arguments in stage:
        report, output = folder / f"{len(reports)}.xml", folder / f"{len(reports)}.txt"
        reports.append(report)
        command = [sys.executable, "-m", "pytest", *arguments, f"--junitxml={report}"]
        print("$", " ".join(["pytest", *arguments]), flush=True)
        with output.open("wb") as file:
            where = None if len(stage) == 1 else file
            process = subprocess.Popen(command, stdout=where, stderr=where)
        started.append((process, output))
    codes = []
    for process, output in started:
        codes.append(process.wait())
        print(output.read_text(errors="replace"), end="", flush=True)
    return all(code in {0, NOTHING_SELECTED} for code in codes)


def add_up(reports: list[Path]) -> dict[str, int]:
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for report in reports:
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            for name in counts:
                counts[name] += int(suite.get(name, "0"))
    return counts


def record(reports: list[Path]) -> None:
    tool = Path(__file__).with_name("compatibility.py")
    subprocess.run([sys.executable, str(tool), *map(str, reports)], check=True)


def main() -> int:
    given = [word for word in sys.argv[1:] if word != RECORDING]
    selection = [word for word in given if Path(word.split("::")[0]).exists()]
    if selection and RECORDING in sys.argv:
        print(f"{RECORDING} records a run of all tests: leave out {' '.join(selection)}")
        return 2
    plan = [[[]]] if selection else stages()
    with tempfile.TemporaryDirectory() as folder:
        reports: list[Path] = []
        outcomes = [
            run([[*arguments, *given] for arguments in stage], Path(folder), reports)
            for stage in plan
        ]
        made = [report for report in reports if report.exists()]
        counts = add_up(made)
        if all(outcomes) and RECORDING in sys.argv:
            record(made)
    failed = counts["failures"] + counts["errors"]
    passed = counts["tests"] - failed - counts["skipped"]
    print(f"{passed} passed, {failed} failed, {counts['skipped']} skipped")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
