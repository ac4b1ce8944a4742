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
    """All rows under their contests."""
    head = ("path", "messages/s", "p50 µs", "CPU µs", "ratios (spread over the rounds)")
    lines: list[tuple[str, ...]] = [head]
    last = ""
    for row in rows:
        if row.contest != last:
            lines.append((f"-- {row.contest}", "", "", "", ""))
            last = row.contest
        ratios = ", ".join(_ratio(ratio) for ratio in row.ratios)
        cells = (f"{row.rate:,.0f}", _micro(row.p50), _micro(row.cpu_each), ratios)
        lines.append((row.name, *cells))
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join(
        f"{line[0]:<{widths[0]}}  {line[1]:>{widths[1]}}  {line[2]:>{widths[2]}}  "
        f"{line[3]:>{widths[3]}}  {line[4]}".rstrip()
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


def write_json(
    path: Path, rows: Sequence[Row], series: Mapping[str, Any], figures: Mapping[str, float]
) -> None:
    """Everything, for other programs."""
    content = {
        "machine": machine(),
        "command": " ".join(["python", "-m", "bench", *sys.argv[1:]]),
        "paths": [row.as_json() for row in rows],
        "series": dict(series),
        "embedded": dict(figures),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
