"""The README's table of speed, made from what ``python -m bench`` wrote: ``python -m bench.readme``.

It shows messages with a tag and a key, as those of RocketMQ's own quick start. The figures are kept in
the tree (``bench/recorded.json``), so that a test can tell whether the table is made of them; they may
come from several runs, each of some parts. Goals are the project's own (``goals.py``), and those that are
missed are shown as well.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from bench import goals
from bench.broker import AUTO, FLYING, LISTS, ONE, PAUSE, PAUSED, SMALL
from bench.goals import FLOOR, GO, JAVA, LOOKING, MAKING, READS, Figures
from bench.shapes import KEY, RICH, USUAL, title

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "bench" / "recorded.json"
BEGIN = "<!-- made by bench.readme: begin -->"
END = "<!-- made by bench.readme: end -->"


class Line(NamedTuple):
    """One line of the table."""

    words: str
    contest: str
    path: str
    measure: str = "rate"


LINES = (
    Line("`send()`, one at a time, p50", title(ONE, KEY, USUAL), "send", "p50"),
    Line("`await send()`, 1024 at once", title(FLYING, KEY, USUAL), "await send, 1024 at once"),
    Line("`submit()`", title(FLYING, KEY, USUAL), "submit"),
    Line("`submit()`, asyncio", title(FLYING, KEY, USUAL), "await submit"),
    Line("`submit()`, auto-batch", title(AUTO, KEY, USUAL), "submit, auto_batch"),
    Line("the same, asyncio", title(AUTO, KEY, USUAL), "await submit, auto_batch"),
    Line("lists of 50, asyncio", title(SMALL, KEY, USUAL), "await submit of 50"),
    Line("`send([...])` of 500, one after another", title(LISTS, KEY, USUAL), "send of 500"),
    Line("`send_many()`", title(LISTS, KEY, USUAL), "send_many"),
    Line("Arrow columns", title(LISTS, KEY, USUAL), "send_table"),
    Line("a handler that looks at its messages", LOOKING, "handler"),
    Line("the same, asyncio", LOOKING, "await handler"),
    Line("`Reader.read()`", READS, "read, looked at"),
)
HEAD = "| on one broker, 200-byte bodies, tag + key | Rocketwire | bare sockets | Java | Go | over Java | CPU µs, ours / Java | the broker's CPU |"
Row = Mapping[str, Any]


def written(row: Row | None, measure: str) -> str:
    """A rate or a latency, for people."""
    if row is None:
        return ""
    if measure == "p50":
        return f"{row['p50'] * 1e6:,.0f} µs"
    return f"{row['messages_per_second'] / 1000:,.0f} k/s"


def ratio(ours: Row, goal: float, dream: float = 0.0, bound: str = "") -> str:
    """How many times Java's, with its spread, and the goal with whether it is held."""
    against = ours["ratios"].get(JAVA)
    if against is None:
        return ""
    shown = f"{against['median']:.2f} ({against['low']:.2f} to {against['high']:.2f})"
    if not goal:
        return shown
    wish = f", dream {dream}" if dream else ""
    word = "held" if against["median"] >= goal else bound or "**missed**"
    return f"{shown}; goal {goal}{wish}: {word}"


def cpu(ours: Row, java: Row | None, goal: float) -> str:
    """CPU of one message, its making not counted for us; Java counts it."""
    found = ours["sending_cost"] * 1e6
    shown = f"{found:,.1f}" + ("" if java is None else f" / {java['cost'] * 1e6:,.1f}")
    if not goal:
        return shown
    return f"{shown}; goal {goal:g}: {'held' if found <= goal else '**missed**'}"


def shown(figures: Figures, line: Line) -> str | None:
    """One line of the table; None where its path was not measured."""
    ours = figures.find(line.contest, line.path)
    if ours is None:
        return None
    java = figures.find(line.contest, JAVA)
    goal = next(
        (
            goal
            for goal in (*goals.SENDING, *goals.READING)
            if goal.path == line.path and line.contest.startswith(goal.contest)
        ),
        goals.Goal("", ""),
    )
    others = [written(figures.find(line.contest, name), line.measure) for name in (FLOOR, JAVA, GO)]
    bound = "the broker is the limit" if figures.is_bound(ours) else ""
    beside = ratio(ours, goal.rate, goal.dream, bound)
    if line.measure == "p50" and FLOOR in ours["ratios"]:
        over = ours["ratios"][FLOOR]["median"]
        word = "held" if over <= goals.BLOCKING else "**missed**"
        beside += f"; {over:.2f} of bare sockets, goal {goals.BLOCKING}: {word}"
        if PAUSED in ours["ratios"]:
            over, pause = ours["ratios"][PAUSED]["median"], f"{PAUSE * 1e6:.0f} µs"
            beside += f" ({over:.2f} of some that pause for {pause} between)"
    share = ours.get("server_share")
    cells = [
        line.words,
        written(ours, line.measure),
        *others,
        beside,
        cpu(ours, java, goal.cpu),
        "" if share is None else f"{share:.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def made(figures: Figures) -> str:
    """What ``Message(...)`` takes, in a sentence."""
    parts = []
    for shape in (KEY, RICH):
        row = figures.find(title(MAKING, shape, USUAL), "Message(...)")
        if row is not None:
            found, goal = row["cost"] * 1e6, goals.MADE[shape]
            word = "held" if found <= goal else "**missed**"
            parts.append(f"{found:.1f} µs with {shape.name} (goal {goal}: {word})")
    return f"Making a message takes {' and '.join(parts)}." if parts else ""


def table(content: dict[str, Any]) -> str:
    """The table with where, when and how it was taken."""
    figures, machine = Figures(content["paths"]), content["machine"]
    rows = [row for line in LINES if (row := shown(figures, line)) is not None]
    took = (
        f"Taken on {machine['at'][:10]} by `{content['command']}` on {machine['cores']} cores "
        f"({machine['processor']}, load {machine['load'][0]}), Python {machine['python']}, Apache RocketMQ 5.3.3: broker and all clients on "
        "this one machine, interleaved in rounds. Every message has a tag, a key and a body of its own (those that "
        "are read have three properties, too); Java writes its binary headers. Rates and Java's CPU include the "
        "making of the messages, our CPU does not, and is told at the usual pace of the machine. Ratios are medians "
        "over the rounds, with their spread; `100%` is one core."
    )
    return "\n".join(
        [
            HEAD,
            "|---|---:|---:|---:|---:|---|---|---:|",
            *rows,
            "",
            f"{made(figures)} {took}".strip(),
        ]
    )


def merged(contents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One record of runs that each measured a part; of what was measured twice, the last counts."""
    paths = {
        (row["contest"], row["path"]): {name: row[name] for name in row if name != "rounds"}
        for content in contents
        for row in content["paths"]
    }
    return {
        "machine": contents[-1]["machine"],
        "command": "`, `".join(dict.fromkeys(content["command"] for content in contents)),
        "paths": list(paths.values()),
        "goals": [asdict(verdict) for verdict in goals.judge(list(paths.values()))],
    }


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
    parser.add_argument("figures", type=Path, nargs="*", default=[Path("bench/results/speed.json")])
    files = parser.parse_args(words).figures
    content = merged([json.loads(file.read_text()) for file in files])
    readme = ROOT / "README.md"
    text = put(readme.read_text(), table(content))
    RECORD.write_text(json.dumps(content, indent=1) + "\n")
    readme.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
