"""Ten million hostile inputs over all decoders, on all cores: ``python -m bench.hostile``.

Inputs are those of ``tests/property/test_hostile_bytes.py``: random bytes, and sound ones changed in the ways
that break parsers. A decoder gives a value or our protocol error; anything else ends the run with an error
that holds the decoder, the seed and the input. The table says how many inputs each decoder had, how many it
took and how many it refused.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

from tests.property.test_hostile_bytes import DECODERS, inputs

from rocketwire.errors import ProtocolError

#: Inputs of one piece of work; each has a seed of its own.
_PIECE: Final = 10_000


@dataclass
class Count:
    """What became of the inputs of one decoder."""

    inputs: int = 0
    taken: int = 0
    refused: int = 0


class HostileInputError(Exception):
    """A decoder let something else through than a value or our error."""


def run_piece(piece: tuple[str, int, int]) -> tuple[str, Count]:
    """So many inputs for one decoder, from one seed.

    Raises:
        HostileInputError: one of them was too much for it.
    """
    name, number, seed = piece
    decode, seeds = DECODERS[name]
    count = Count()
    for data in inputs(random.Random(seed), seeds, number):
        count.inputs += 1
        try:
            decode(data)
        except ProtocolError:
            count.refused += 1
        except Exception as error:
            raise HostileInputError(f"{name}, seed {seed}: {error!r} for {data.hex()}") from None
        else:
            count.taken += 1
    return name, count


def pieces(total: int, seed: int) -> list[tuple[str, int, int]]:
    """The work, dealt out evenly over the decoders."""
    chooser, found = random.Random(seed), []
    each, more = divmod(total, len(DECODERS))
    for place, name in enumerate(DECODERS):
        left = each + (place < more)
        while left > 0:
            found.append((name, min(left, _PIECE), chooser.getrandbits(64)))
            left -= _PIECE
    return found


def run(total: int, seed: int, processes: int) -> dict[str, Count]:
    """All of it, on several processes."""
    counts = {name: Count() for name in DECODERS}
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for name, part in pool.imap_unordered(run_piece, pieces(total, seed)):
            count = counts[name]
            count.inputs += part.inputs
            count.taken += part.taken
            count.refused += part.refused
    return counts


def main(words: list[str] | None = None) -> int:
    """Run, and print the table; 1 if a decoder failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    parser.add_argument("--total", type=int, default=10_000_000, help="inputs over all decoders")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same inputs")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(words)
    began = time.monotonic()
    try:
        counts = run(chosen.total, chosen.seed, chosen.processes)
    except HostileInputError as error:
        print(error, file=sys.stderr)
        return 1
    if chosen.json:
        print(json.dumps({name: asdict(count) for name, count in counts.items()}))
        return 0
    for name, count in counts.items():
        print(
            f"{name:<22} {count.inputs:>10,}  taken {count.taken:>10,}  refused {count.refused:>10,}"
        )
    total = sum(count.inputs for count in counts.values())
    print(f"{total:,} inputs in {time.monotonic() - began:.0f} s, seed {chosen.seed}: all are well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
