"""``python -m bench.guard``: the counts beside those that are kept.

``--update`` keeps these from now on, ``--add`` only those of what was not counted before.
"""

from __future__ import annotations

import argparse
import json
import sys

from bench.guard.kept import KEPT, compare, load, save
from bench.guard.paths import count_all


def main(words: list[str] | None = None) -> int:
    """Count and compare; 1 if anything costs more than before."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__)
    parser.add_argument("--update", action="store_true", help="keep these counts from now on")
    parser.add_argument("--add", action="store_true", help="keep those that have no count yet")
    parser.add_argument("--json", action="store_true", help="only print the counts")
    chosen = parser.parse_args(words)
    counts, kept = count_all(), load()
    if chosen.json:
        print(json.dumps(counts))
        return 0
    for name, count in counts.items():
        before = kept.get(name)
        print(f"{name:<50} {count:>10,.2f}" + ("" if before is None else f"  kept {before:,.2f}"))
    if chosen.update:
        save(counts)
        print(f"kept in {KEPT}")
        return 0
    if chosen.add:
        save(counts | kept)
    problems = compare(counts, kept)
    print("\n".join(problems) if problems else "nothing costs more than before")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
