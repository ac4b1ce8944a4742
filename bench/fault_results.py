"""What the runs of ``bench.faults`` found: kept in a JSON file, shown as Markdown.

The file is rewritten after every run and read at the start, so that a long selection can be broken off
and gone on with, and one scenario be repeated without the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.fault_loads import CLIENTS
from bench.fault_phases import MODES, Return, Verdict, checks

BEGIN = "<!-- made by bench.faults: begin -->"
END = "<!-- made by bench.faults: end -->"

FAULT_WORDS = {
    "slow-80ms": "answers 80 ms later",
    "slow-300ms": "answers 300 ms later",
    "blackhole": "network swallows everything",
    "refuse": "refuses connections",
    "flap": "resets connections, every 0.3 s",
    "frozen": "process stopped (SIGSTOP)",
    "killed": "process killed (SIGKILL)",
}
_OURS = "| fault | sending | sends/s before | in the fault | kept | longest gap | failed | back after | promises |"
_THEIRS = "| fault | client | sends/s before | in the fault | kept | longest gap | failed |"


@dataclass(frozen=True, slots=True)
class Run:
    """One scenario: a client, a fault and a way of sending, with what came of it."""

    client: str
    fault: str
    mode: str
    verdict: Verdict
    back: Return | None
    date: str
    seconds: float

    @property
    def name(self) -> str:
        """As ``--only`` takes it."""
        return name_of(self.client, self.fault, self.mode)

    @property
    def missed(self) -> list[str]:
        """The promises that were not kept."""
        return [
            f"{each.promise}: {each.measured}"
            for each in checks(self.mode, self.verdict, self.back)
            if not each.held
        ]


def name_of(client: str, fault: str, mode: str) -> str:
    """``client/fault/mode``."""
    return f"{client}/{fault}/{mode}"


def read(path: Path) -> tuple[dict[str, Any], dict[str, Run]]:
    """What a file holds: the conditions of its runs, and the runs by name; both empty without a file."""
    if not path.exists():
        return {}, {}
    data = json.loads(path.read_text())
    runs = {}
    for each in data["runs"]:
        verdict, back = Verdict(**each.pop("verdict")), each.pop("back")
        run = Run(**each, verdict=verdict, back=Return(**back) if back else None)
        runs[run.name] = run
    return data["conditions"], runs


def write(path: Path, conditions: dict[str, Any], runs: Iterable[Run]) -> None:
    """Replace the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = [asdict(replace(run)) for run in runs]
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"conditions": conditions, "runs": shown}, indent=1) + "\n")
    partial.rename(path)


def row(run: Run) -> str:
    """One line for the terminal."""
    outcome = "held" if not run.missed else f"missed ({'; '.join(run.missed)})"
    figures = "  ".join(_figures(run))
    return f"{run.name:<28} {figures}  {outcome if run.client == 'ours' else ''}".rstrip()


def tables(conditions: dict[str, Any], runs: Sequence[Run]) -> str:
    """Two tables, ours with its promises and all clients side by side, and how they were made."""
    ours = [run for run in _in_order(runs) if run.client == "ours"]
    beside = [run for run in _in_order(runs) if run.mode == "1"]
    lines = [_OURS, "|---" * 9 + "|"]
    for run in ours:
        back = "" if run.back is None or run.back.after is None else f"{run.back.after:.2f} s"
        outcome = "held" if not run.missed else f"**missed**: {'; '.join(run.missed)}"
        cells = [FAULT_WORDS[run.fault], MODES[run.mode], *_figures(run), back, outcome]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "All clients, one thread:", "", _THEIRS, "|---" * 7 + "|"]
    for run in beside:
        cells = [FAULT_WORDS[run.fault], CLIENTS[run.client], *_figures(run)]
        lines.append(f"| {' | '.join(cells)} |")
    dates = sorted({run.date for run in runs})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    told = ", ".join(f"{name} {value}" for name, value in conditions.items() if name != "command")
    lines += ["", f"Taken on {when} with {told}, by `{conditions['command']}`."]
    return "\n".join(lines)


def _figures(run: Run) -> list[str]:
    verdict = run.verdict
    return [
        f"{verdict.rate_before:.0f}",
        f"{verdict.rate_during:.0f}",
        f"{verdict.kept:.2f}",
        f"{verdict.longest_gap:.2f} s",
        str(verdict.failures),
    ]


def _in_order(runs: Iterable[Run]) -> list[Run]:
    faults, clients, modes = list(FAULT_WORDS), list(CLIENTS), list(MODES)
    return sorted(
        runs, key=lambda r: (faults.index(r.fault), clients.index(r.client), modes.index(r.mode))
    )


def put_into(page: Path, text: str) -> None:
    """Replace what stands between the two marks of a page.

    Raises:
        ValueError: the page has no such marks.
    """
    whole = page.read_text()
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: put in {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
