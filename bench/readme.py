"""The README's table of speed, made from what ``python -m bench`` wrote: ``python -m bench.readme``.

The figures are kept in the tree (``bench/recorded.json``), so that a test can tell whether the table
is made of them. Targets are the project's own, and those that are missed are shown as well.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "bench" / "recorded.json"
BEGIN = "<!-- made by bench.readme: begin -->"
END = "<!-- made by bench.readme: end -->"
FLOOR, JAVA, GO = "floor", "java", "go"


class Line(NamedTuple):
    """One line of the table, and the target of its ratios."""

    words: str
    contest: str
    path: str
    measure: str
    #: At least this times Java's rate (of latencies: at most), and at most this times the floor's.
    java: float
    floor: float | None = None


LINES = (
    Line("one at a time, p50", "broker: one at a time", "Producer.send", "p50", 1.0, 1.25),
    Line("`await send()`", "broker: many in flight", "await send, 1024 at once", "rate", 1.1),
    Line("`submit()`, asyncio", "broker: many in flight", "AsyncProducer.submit", "rate", 1.1),
    Line("auto-batch", "broker: auto-batch", "AsyncProducer.submit, auto_batch", "rate", 1.0),
    Line("batches of 50", "broker: batches of 50", "batches of 50", "rate", 1.3),
    Line("batches of 500", "broker: batches of 500", "batches of 500", "rate", 1.3),
    Line("Arrow columns", "broker: batches of 500", "send_table (columns)", "rate", 1.5),
)
HEAD = "| on one broker, 200-byte bodies | Rocketwire | bare sockets | Java | Go | over Java | target | CPU µs, ours / Java |"


class Figures:
    """What was recorded, by contest and path."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.machine: dict[str, Any] = content["machine"]
        self.command: str = content["command"]
        self._paths = {(row["contest"], row["path"]): row for row in content["paths"]}

    def find(self, line: Line, path: str) -> dict[str, Any] | None:
        """A path of a line's contest."""
        return self._paths.get((line.contest, path))


def written(row: dict[str, Any] | None, measure: str) -> str:
    if row is None:
        return ""
    if measure == "p50":
        return f"{row['p50'] * 1e6:,.0f} µs"
    return f"{row['messages_per_second'] / 1000:,.0f} k/s"


def verdict(line: Line, ours: dict[str, Any]) -> tuple[str, str]:
    """The ratio to Java, and the target with whether it is held."""
    against = ours["ratios"].get(JAVA)
    if against is None:
        return "", ""
    ratio = against["median"]
    is_time = line.measure == "p50"
    held = ratio < line.java if is_time else ratio >= line.java
    target = f"below {line.java:.1f}" if is_time else f"{line.java:.1f}"
    if line.floor is not None:
        over = ours["ratios"][FLOOR]["median"]
        held = held and over <= line.floor
        target += f", and {line.floor}x bare sockets ({over:.2f})"
    shown = f"{ratio:.2f} ({against['low']:.2f} to {against['high']:.2f})"
    return shown, f"{target}: {'held' if held else '**missed**'}"


def cpu(ours: dict[str, Any], java: dict[str, Any] | None) -> str:
    mine = f"{ours['cpu_seconds_per_message'] * 1e6:,.1f}"
    return mine if java is None else f"{mine} / {java['cpu_seconds_per_message'] * 1e6:,.1f}"


def table(content: dict[str, Any]) -> str:
    """The table with where, when and how it was taken."""
    figures = Figures(content)
    machine = figures.machine
    lines = [HEAD, "|---|---:|---:|---:|---:|---:|---|---:|"]
    for line in LINES:
        ours = figures.find(line, line.path)
        if ours is None:
            continue
        java = figures.find(line, JAVA)
        ratio, target = verdict(line, ours)
        cells = [written(figures.find(line, path), line.measure) for path in (FLOOR, JAVA, GO)]
        mine = written(ours, line.measure)
        lines.append(
            f"| {line.words} | {mine} | {' | '.join(cells)} | {ratio} | {target} | {cpu(ours, java)} |"
        )
    lines += [
        "",
        (
            f"Taken on {machine['at'][:10]} by `{figures.command}` on {machine['cores']} cores "
            f"({machine['processor']}), Python {machine['python']}, Apache RocketMQ 5.3.3: broker and all clients on "
            "this one machine, interleaved in rounds. Ratios are medians over the rounds, with their spread."
        ),
    ]
    return "\n".join(lines)


def put(text: str, made: str) -> str:
    """The page with the table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def main(words: list[str] | None = None) -> int:
    """Record figures, and show them in the README."""
    parser = argparse.ArgumentParser(prog="python -m bench.readme", description=__doc__)
    parser.add_argument("figures", type=Path, nargs="?", default=Path("bench/results/speed.json"))
    content = json.loads(parser.parse_args(words).figures.read_text())
    content = {name: content[name] for name in ("machine", "command", "paths")}
    for row in content["paths"]:
        row.pop("rounds", None)
    readme = ROOT / "README.md"
    text = put(readme.read_text(), table(content))
    RECORD.write_text(json.dumps(content, indent=1) + "\n")
    readme.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
