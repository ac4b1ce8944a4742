"""Runs all tests in stages, and tells their number: ``python tools/run_tests.py [pytest options]``.

The first stage has all that needs no Java, on all cores. Then come those that start Apache RocketMQ
or Spark, one part after another in processes of its own, so that no part is slowed by the idle brokers
of another. A part that waits most of the time is split in two halves, which run side by side: each has
other clusters, so nothing is started twice.

With ``--compatibility`` the slow tests with replicas and guarded proxies run, too, and the numbers for the README's
table are recorded, if everything passed.

With ``--again=3`` up to three tests that failed are run three times more, alone. One that passes each time is told as
unsteady at the end, with what it said when it failed above, and does not fail the run: clusters of several JVMs
on two cores have moments that no test can foresee. More failures than that, or one that comes again, do.
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
#: What ``make test`` leaves out because it takes minutes, one after another: each has many Java processes.
SLOW = (
    "tests/real/test_replicas.py",
    "tests/real/test_controller.py",
    "tests/real/test_secured_proxy.py",
)
TESTS_FAILED = 1
NOTHING_SELECTED = 5
RECORDING = "--compatibility"
AGAIN = "--again="
TIMES_AGAIN = 3


def stages(*, slow: bool) -> list[list[list[str]]]:
    """The arguments of the runs of each stage."""
    rest = [f"--ignore={part}" for part in PARTS]
    return [
        [["-n", "2", "-m", f"not ({HEAVY})"]],
        *([[*half, "-m", HEAVY, part] for half in halves(what)] for part, what in PARTS.items()),
        [[*half, "-m", HEAVY, *rest] for half in halves("docs")],
        *([[["--timeout=3600", *SLOW]]] if slow else []),
    ]


def halves(what: str) -> list[list[str]]:
    return [["-k", what], ["-k", f"not ({what})"]] if what else [[]]


def run(stage: list[list[str]], folder: Path, reports: list[Path]) -> int:
    """Run a stage; one that is alone shows what it does, others when they are done. Returns the worst exit code."""
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
    return max(code if code != NOTHING_SELECTED else 0 for code in map(abs, codes))


def add_up(reports: list[Path]) -> dict[str, int]:
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for report in reports:
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            for name in counts:
                counts[name] += int(suite.get(name, "0"))
    return counts


def failed_tests(reports: list[Path]) -> list[str]:
    """The ids of all tests that failed, or whose fixtures did."""
    found = {
        node_id(case.get("classname", ""), case.get("name", ""))
        for report in reports
        for case in ElementTree.parse(report).getroot().iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    }
    return sorted(found)


def node_id(dotted: str, name: str) -> str:
    """How pytest is asked for a test: the file, the classes in it, the name."""
    words = dotted.split(".")
    for count in range(len(words), 0, -1):
        file = Path(*words[:count]).with_suffix(".py")
        if file.exists():
            return "::".join([file.as_posix(), *words[count:], name])
    return name  # what could not be collected has no file; asking for it fails again


def steady(test: str) -> bool:
    """Whether a test that failed passes each time, alone."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    return all(subprocess.run(command, check=False).returncode == 0 for _ in range(TIMES_AGAIN))


def unsteady_tests(failed: list[str], most: int) -> list[str]:
    """Those that failed and do not again; none if there are too many to be a matter of chance."""
    if len(failed) > most:
        return []
    print(f"again, {TIMES_AGAIN} times each, alone:", *failed, sep="\n  ", flush=True)
    return [test for test in failed if steady(test)]


def record(reports: list[Path]) -> int:
    tool = Path(__file__).with_name("compatibility.py")
    return subprocess.run([sys.executable, str(tool), *map(str, reports)], check=False).returncode


def main() -> int:
    own = [word for word in sys.argv[1:] if word == RECORDING or word.startswith(AGAIN)]
    given = [word for word in sys.argv[1:] if word not in own]
    most_again = max(
        (int(word.removeprefix(AGAIN)) for word in own if word != RECORDING), default=0
    )
    selection = [word for word in given if Path(word.split("::")[0]).exists()]
    if selection and RECORDING in own:
        print(f"{RECORDING} records a run of all tests: leave out {' '.join(selection)}")
        return 2
    plan = [[[]]] if selection else stages(slow=RECORDING in own)
    with tempfile.TemporaryDirectory() as folder:
        reports: list[Path] = []
        worst = max(
            run([[*arguments, *given] for arguments in stage], Path(folder), reports)
            for stage in plan
        )
        made = [report for report in reports if report.exists()]
        counts = add_up(made)
        failed = failed_tests(made)
        if worst == 0 and RECORDING in own:
            worst = record(made)
    # A run that crashed or was interrupted has tests of which nothing is known.
    unsteady = unsteady_tests(failed, most_again) if worst == TESTS_FAILED else []
    for test in unsteady:
        print(f"UNSTEADY: {test} failed once and passed {TIMES_AGAIN} times alone")
    passed = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
    remaining = len(failed) - len(unsteady)
    print(f"{passed + len(unsteady)} passed, {remaining} failed, {counts['skipped']} skipped")
    return 0 if worst == 0 or (worst == TESTS_FAILED and not remaining) else 1


if __name__ == "__main__":
    sys.exit(main())
