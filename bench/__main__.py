"""``python -m bench``: everything, or some of it; one table and one JSON file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bench import acking, broker, consumers, embedded, growth, plots, report
from bench.acker import acker
from bench.rounds import Row, contest

_BODY = b"x" * 200
ACKING = ("blocking", "submit", "batch", "batch50")
PARTS = (*ACKING, "broker", "consumers", "growth", "embedded")


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", default="", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=5, help="how often each path is run")
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 runs a tenth of the messages")
    parser.add_argument("--against", default="java,go", help="clients beside ours on the broker")
    parser.add_argument("--json", type=Path, default=Path("bench/results/speed.json"))
    parser.add_argument("--html", type=Path, default=Path("bench/results/speed.html"))
    chosen = parser.parse_args(words)
    chosen.parts = [part for part in chosen.only.split(",") if part] or list(PARTS)
    unknown = sorted(set(chosen.parts) - set(PARTS))
    if unknown:
        parser.error(f"--only {','.join(unknown)}: choose from {', '.join(PARTS)}")
    if chosen.rounds < 1 or chosen.scale <= 0:
        parser.error("--rounds is at least 1, --scale is above zero")
    return chosen


def _against_acker(chosen: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    with acker() as server:
        if not server.is_native:
            print("no C compiler: the acking server is in Python and may be the slower side")
        paths = acking.groups(server, _BODY, chosen.scale)
        for part in ACKING:
            if part in chosen.parts:
                rows += contest(part, paths[part], chosen.rounds)
    return rows


def _against_broker(chosen: argparse.Namespace) -> list[Row]:
    missing = broker.missing_tools()
    if missing:
        print(f"no {', '.join(missing)} on the PATH: the part with a real broker is left out")
        return []
    rows: list[Row] = []
    with broker.stage(tuple(chosen.against.split(","))) as found:
        broker.warm_up(found)
        for name, paths in broker.groups(found, _BODY, chosen.scale).items():
            rows += contest(name, paths, chosen.rounds, settle=found.settle)
    return rows


def _consumers(chosen: argparse.Namespace) -> tuple[list[Row], list[consumers.Verdict]]:
    missing = broker.missing_tools()
    if missing:
        print(f"no {', '.join(missing)} on the PATH: the part with consumers is left out")
        return [], []
    rows, costs = consumers.measure(chosen)
    return rows, consumers.verdicts(rows, costs)


def main(words: list[str] | None = None) -> int:
    """Run what was asked for; 1 if nothing could be measured."""
    chosen = _arguments(words)
    rows: list[Row] = []
    series: dict[str, Any] = {}
    if set(ACKING) & set(chosen.parts):
        rows += _against_acker(chosen)
    if "broker" in chosen.parts:
        rows += _against_broker(chosen)
    targets: list[consumers.Verdict] = []
    if "consumers" in chosen.parts:
        found, targets = _consumers(chosen)
        rows += found
    if "growth" in chosen.parts:
        series |= growth.series(min(3, chosen.rounds), chosen.scale)
    figures = embedded.figures(chosen.scale) if "embedded" in chosen.parts else {}
    if rows:
        print(report.table(rows))
    for verdict in targets:
        print(verdict.line())
    for text in (*report.series_lines(series), *report.figure_lines(figures)):
        print(text)
    report.write_json(chosen.json, rows, series, figures)
    plots.write_page(chosen.html, rows, series)
    print(f"\n{chosen.json}\n{chosen.html}")
    return 0 if rows or series or figures else 1


if __name__ == "__main__":
    sys.exit(main())
