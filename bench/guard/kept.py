"""The counts that are kept in the tree, by version of Python, and what counts as worse."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

KEPT: Final = Path(__file__).with_name("counts.json")
#: A change that costs less than this is lost in what it is good for.
MARGIN: Final = 0.05
_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


def load() -> dict[str, float]:
    """The counts for this version of Python; none if nobody kept any."""
    if not KEPT.exists():
        return {}
    found: dict[str, dict[str, float]] = json.loads(KEPT.read_text())
    return found.get(_VERSION, {})


def save(counts: Mapping[str, float]) -> None:
    """Keep counts for this version, beside those of others."""
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    known[_VERSION] = dict(counts)
    KEPT.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def compare(counts: Mapping[str, float], kept: Mapping[str, float]) -> list[str]:
    """What costs more than it did, beyond the margin, in words."""
    problems = [f"{name} is no longer counted" for name in kept if name not in counts]
    for name, count in counts.items():
        before = kept.get(name)
        if before is not None and count > before * (1 + MARGIN):
            problems.append(
                f"{name}: {count:,.2f}, was {before:,.2f} "
                f"({count / before - 1:+.0%}); if it is worth it, run "
                "python -m bench.guard --update and say why in the commit"
            )
    return problems
