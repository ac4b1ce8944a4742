"""What was measured, as a table and as a JSON file."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.rounds import Ratio, Row


def machine() -> dict[str, Any]:
    """Where and when, and how busy the machine was."""
    load = os.getloadavg() if hasattr(os, "getloadavg") else (0.0, 0.0, 0.0)
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": [round(value, 1) for value in load],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.median:.2f}x {ratio.against} ({ratio.low:.2f} to {ratio.high:.2f})"


def _micro(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.1f}"


def table(rows: Sequence[Row]) -> str:
    """All rows under their contests.

    CPU is told with the making of messages and, under "sending", without it; "server" is the share of
    one core that a broker took.
    """
    head = (
        "path", "messages/s", "p50 µs", "CPU µs", "sending", "server",
        "ratios (spread over the rounds)",
    )  # fmt: skip
    lines: list[tuple[str, ...]] = [head]
    last = ""
    for row in rows:
        if row.contest != last:
            lines.append((f"-- {row.contest}", *[""] * (len(head) - 1)))
            last = row.contest
        ratios = ", ".join(_ratio(ratio) for ratio in row.ratios)
        share = "" if row.server_share is None else f"{row.server_share:.0%}"
        costs = (_micro(row.cost), _micro(row.sending_cost))
        lines.append((row.name, f"{row.rate:,.0f}", _micro(row.p50), *costs, share, ratios))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    return "\n".join(
        "  ".join(
            [
                f"{line[0]:<{widths[0]}}",
                *[f"{cell:>{width}}" for cell, width in zip(line[1:-1], widths[1:], strict=True)],
                line[-1],
            ]
        ).rstrip()
        for line in lines
    )


def series_lines(series: Mapping[str, Any]) -> list[str]:
    """Each series in a line."""
    return [
        f"{found['title']}: "
        + ", ".join(f"{point['x']:,} {point['y']:,.1f}" for point in found["points"])
        for found in series.values()
    ]


def figure_lines(figures: Mapping[str, float]) -> list[str]:
    """Each figure of the embedded cluster in a line."""
    return [f"embedded: {name} {value:,.1f}" for name, value in figures.items()]


def command(words: Sequence[str]) -> str:
    """How to measure the same again; where the results went is nobody's business."""
    kept, told = [], iter(words)
    for word in told:
        if word in {"--json", "--html"}:
            next(told, None)
        elif not word.startswith(("--json=", "--html=")):
            kept.append(word)
    return " ".join(["python", "-m", "bench", *kept])


def write_json(
    path: Path,
    rows: Sequence[Row],
    series: Mapping[str, Any],
    figures: Mapping[str, float],
    **more: Any,
) -> None:
    """Everything, for other programs."""
    content = {
        "machine": machine(),
        "command": command(sys.argv[1:]),
        "paths": [row.as_json() for row in rows],
        "series": dict(series),
        "embedded": dict(figures),
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
