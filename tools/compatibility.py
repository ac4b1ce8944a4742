"""Which areas are tested with which release: ``python tools/compatibility.py REPORT.xml ...``.

Reads pytest's reports, counts the tests that passed by area and release, keeps the numbers in
``tests/compatibility.json`` and writes them as a table into the README. ``make compatibility`` runs all
tests and does both. Without a report the table is written from the numbers that are kept. Nothing is
kept of a run in which a test failed, or in which nothing passed of an area or with a release. An area that
is younger than the numbers is not in the table.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "compatibility.json"
README = ROOT / "README.md"
BEGIN = "<!-- made by tools/compatibility.py: begin -->"
END = "<!-- made by tools/compatibility.py: end -->"

EMBEDDED = "embedded"
COLUMNS = ("4.9.7", "5.3.3", "5.5.0", EMBEDDED)

#: An area, and the tests that belong to it. The first that fits counts, so each test counts once.
AREAS = (
    ("Java's and Go's clients", r"^interop\."),
    ("Spark source and pipelines", r"^spark\."),
    ("doctor", r"^real\.test_doctor"),
    ("replicas: masters that die, a controller", r"^real\.test_(replicas|controller)"),
    ("through a proxy of 5.x", r"^real\.test_(through_a_proxy|secured_proxy)"),
    ("dead letters and replay", r"test_dead_letters|test_replay"),
    ("administration and rights", r"test_admin|^real\.test_(rights|exporter|operators_walk)"),
    ("recalling timed messages", r"test_recall"),
    ("transactions", r"transaction"),
    ("request and reply", r"test_requests|java_asks|we_ask"),
    ("receive and acknowledge", r"test_receiv"),
    ("consumer groups", r"test_consumer|consum|test_control|test_deliveries|test_direct"),
    ("TLS", r"tls|certificate|authority|wrong_host_name|encrypted|verification"),
    ("ACL", r"signed|_key_is_said|credentials|without_rights|secrets"),
    ("namespaces", r"namespace"),
    ("JSON and binary headers", r"header"),
    ("message trace", r"trace"),
    ("delayed and timed messages", r"delayed|timed"),
    ("broken brokers", r"test_faults|test_broken_brokers"),
    ("changing routes", r"test_routes|created_on_first_use|created_and_grow"),
    ("ordering by sharding key", r"sharding_key|test_ordered_topics|per_key|java_s_queue"),
    ("batches", r"batch|send_many"),
    (
        "reader, by offset, time, id, key, tag",
        r"found_by|offsets_and_times|tags_filter|position_that|waiting_fetch|reader_has|test_sql",
    ),
    ("sends, every form", r"^(conformance|real)\."),
)
#: Tests of the harness itself, and Apache's own clients on Apache's own brokers: they say nothing of us.
_NOT_OURS = r"^real\.test_(harness|proxy)\b|^interop\..*\[(\d\.\d\.\d)-"
#: Where the name of a test does not tell its release.
_UNTOLD = (
    (r"^conformance\.|^spark\.", EMBEDDED),
    (r"^real\.test_faults|^real\.test_(doctor|receiving)::test_(a|the_ports_of_a)_proxy", "5.3.3"),
    (r"^real\.test_dead_letters::test_the_newest", "5.5.0"),
)
_SOME = r"^(conformance|interop|real|spark)\."


@dataclass(frozen=True)
class Case:
    """One test of a report, named as in ``real.test_doctor::test_a_healthy_cluster_is_well[4.9.7]``."""

    name: str
    passed: bool
    failed: bool


def cases(report: Path) -> Iterator[Case]:
    """The tests of one report that could belong to an area."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        module = case.get("classname", "").removeprefix("tests.")
        name = f"{module}::{case.get('name', '')}"
        if re.search(_SOME, name):
            outcomes = {child.tag for child in case}
            failed = bool(outcomes & {"failure", "error"})
            yield Case(name, not failed and "skipped" not in outcomes, failed)


def area_of(name: str) -> str | None:
    """The first area that fits."""
    return next((area for area, pattern in AREAS if re.search(pattern, name)), None)


def place(name: str) -> tuple[str, str] | None:
    """Area and release of a test; None where it says nothing of a release."""
    if re.search(_NOT_OURS, name):
        return None
    told = re.search(r"\[(.*)\]$", name, re.DOTALL)
    words = re.findall(r"\d+\.\d+\.\d+|embedded|apache", told[1] if told else "")
    releases = [{"apache": "5.3.3"}.get(word, word) for word in words]
    release = next((word for word in releases if word in COLUMNS), None)
    release = release or next((r for pattern, r in _UNTOLD if re.search(pattern, name)), None)
    area = area_of(name)
    return (area, release) if area and release else None


def count(found: Iterable[Case]) -> dict[str, dict[str, int]]:
    """Tests that passed, by area and release.

    Raises:
        ValueError: one failed.
    """
    table: dict[str, dict[str, int]] = {}
    for case in found:
        if case.failed:
            raise ValueError(f"{case.name} failed: nothing is recorded")
        where = place(case.name)
        if where is not None and case.passed:
            row = table.setdefault(where[0], {})
            row[where[1]] = row.get(where[1], 0) + 1
    return table


def missing(table: dict[str, dict[str, int]]) -> list[str]:
    """Areas and releases of which nothing passed: such a run was not one of all tests."""
    areas = [area for area, _ in AREAS if area not in table]
    return areas + [c for c in COLUMNS if not any(c in row for row in table.values())]


def render(record: dict[str, object]) -> str:
    """The table as Markdown."""
    table: dict[str, dict[str, int]] = record["passed"]  # type: ignore[assignment]
    lines = [
        f"| Tests passed on {record['taken']} | {' | '.join(COLUMNS)} |",
        "|---" + "|---:" * len(COLUMNS) + "|",
    ]
    for area, _ in reversed(AREAS):
        if row := table.get(area):
            cells = [str(row[column]) if column in row else "" for column in COLUMNS]
            lines.append(f"| {area} | {' | '.join(cells)} |")
    return "\n".join(lines)


def shown(page: str) -> str:
    """What stands between the marks of a page.

    Raises:
        ValueError: there are no marks.
    """
    _, begin, rest = page.partition(BEGIN)
    table, end, _ = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no place for the table: put in {BEGIN} and {END}")
    return table.strip()


def put_into(page: str, table: str) -> str:
    """The page with another table between its marks."""
    shown(page)
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def main(reports: Sequence[str]) -> int:
    """Record the reports, if any, and write the table into the README."""
    if reports:
        try:
            passed = count(case for report in reports for case in cases(Path(report)))
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
        if untried := missing(passed):
            print(f"nothing passed of {', '.join(untried)}: nothing is recorded", file=sys.stderr)
            return 1
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        RECORD.write_text(json.dumps({"taken": today, "passed": passed}, indent=1) + "\n")
    table = render(json.loads(RECORD.read_text()))
    README.write_text(put_into(README.read_text(), table))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
