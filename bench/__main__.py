"""``python -m bench``: everything, or some of it; one table, the goals, and one JSON file.

Every way to send is measured with messages of some shapes (``shapes.py``), none with the body of another.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import (
    acking,
    broker,
    consumers,
    conversations,
    embedded,
    goals,
    growth,
    pauses,
    plots,
    receiving,
    report,
)
from bench.acker import acker
from bench.choices import chosen_sizes, chosen_words
from bench.rounds import Row, contest
from bench.shapes import SHAPES, USUAL, title

ACKING = tuple(acking.CONTESTS)
#: Parts that need a real broker and a JVM, beside those that have settings of their own.
BESIDE_JAVA = {"conversations": conversations, "receiving": receiving}
PARTS = (*ACKING, "broker", "consumers", *BESIDE_JAVA, "growth", "pauses", "embedded")


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", default="", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--shapes", default=",".join(SHAPES), help=f"some of {','.join(SHAPES)}")
    parser.add_argument("--bodies", default=str(USUAL), help="bytes of a body: 20,200,2000")
    parser.add_argument("--rounds", type=int, default=5, help="how often each path is run")
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 runs a tenth of the messages")
    parser.add_argument("--against", default="java,go", help="clients beside ours on the broker")
    parser.add_argument("--json", type=Path, default=Path("bench/results/speed.json"))
    parser.add_argument("--html", type=Path, default=Path("bench/results/speed.html"))
    chosen = parser.parse_args(words)
    chosen.parts = chosen_words(parser, "--only", chosen.only or ",".join(PARTS), PARTS)
    chosen.shapes = chosen_words(parser, "--shapes", chosen.shapes, tuple(SHAPES))
    chosen.bodies = chosen_sizes(parser, chosen.bodies)
    if chosen.rounds < 1 or chosen.scale <= 0:
        parser.error("--rounds is at least 1, --scale is above zero")
    return chosen


def _against_acker(chosen: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    with acker() as server:
        if not server.is_native:
            print("no C compiler: the acking server is in Python and may be the slower side")
        for size in chosen.bodies:
            for word in chosen.shapes:
                shape = SHAPES[word]
                for part, paths in acking.contests(server, shape, size, chosen.scale).items():
                    if part in chosen.parts:
                        rows += contest(title(part, shape, size), paths, chosen.rounds)
    return rows


def _against_broker(chosen: argparse.Namespace) -> list[Row]:
    missing = broker.missing_tools()
    if missing:
        print(f"no {', '.join(missing)} on the PATH: the part with a real broker is left out")
        return []
    rows: list[Row] = []
    with broker.stage(tuple(chosen.against.split(","))) as found:
        broker.warm_up(found)
        how: dict[str, Any] = {"settle": found.settle, "server": found.cpu}
        for size in chosen.bodies:
            for word in chosen.shapes:
                shape = SHAPES[word]
                for name, paths in broker.contests(found, shape, size, chosen.scale).items():
                    rows += contest(title(name, shape, size), paths, chosen.rounds, **how)
    return rows


def _consumers(chosen: argparse.Namespace) -> tuple[list[Row], list[goals.Verdict]]:
    missing = broker.missing_tools()
    if missing:
        print(f"no {', '.join(missing)} on the PATH: the part with consumers is left out")
        return [], []
    rows, costs = consumers.measure(chosen)
    return rows, consumers.verdicts(rows, costs)


def _beside_java(chosen: argparse.Namespace) -> tuple[list[Row], list[goals.Verdict]]:
    """Transactions, requests, and receiving."""
    wanted = [part for name, part in BESIDE_JAVA.items() if name in chosen.parts]
    missing = broker.missing_tools() if wanted else []
    if missing:
        print(f"no {', '.join(missing)} on the PATH: {len(wanted)} parts beside Java are left out")
        return [], []
    rows: list[Row] = []
    verdicts: list[goals.Verdict] = []
    for part in wanted:
        found = part.measure(min(3, chosen.rounds), chosen.scale)
        rows, verdicts = rows + found, verdicts + part.verdicts(found)
    return rows, verdicts


def main(words: list[str] | None = None) -> int:
    """Run what was asked for; 1 if nothing could be measured."""
    chosen = _arguments(words)
    rows: list[Row] = []
    series: dict[str, Any] = {}
    if set(ACKING) & set(chosen.parts):
        rows += _against_acker(chosen)
    if "broker" in chosen.parts:
        rows += _against_broker(chosen)
    targets = goals.judge([row.as_json() for row in rows])
    if "consumers" in chosen.parts:
        found, more = _consumers(chosen)
        rows, targets = rows + found, targets + more
    found, more = _beside_java(chosen)
    rows, targets = rows + found, targets + more
    if "growth" in chosen.parts:
        series |= growth.series(min(3, chosen.rounds), chosen.scale)
    paused = pauses.measure(min(3, chosen.rounds)) if "pauses" in chosen.parts else {}
    figures = embedded.figures(chosen.scale) if "embedded" in chosen.parts else {}
    if rows:
        print(report.table(rows))
    for verdict in targets:
        print(verdict.line())
    told = pauses.lines(paused) if paused else []
    for text in (*told, *report.series_lines(series), *report.figure_lines(figures)):
        print(text)
    more_json = {
        "goals": [asdict(verdict) for verdict in targets],
        "pauses": {name: asdict(pause) for name, pause in paused.items()},
    }
    report.write_json(chosen.json, rows, series, figures, **more_json)
    plots.write_page(chosen.html, rows, series)
    print(f"\n{chosen.json}\n{chosen.html}")
    return 0 if rows or series or figures or paused else 1


if __name__ == "__main__":
    sys.exit(main())
