"""This tree beside another commit, path by path: ``python -m bench.compare OLD``.

OLD is a folder with a checkout, or anything that git knows as a commit (``main``, ``HEAD~3``). Each side
is one process with the package of its tree; the programs that drive it are those of this tree, so
they use public names only. Every round runs every path in every shape, old and new right after one
another, against servers that only answer (``acker.c``, ``pull_server.c``) or, with ``--broker``, a real
one. Ratios are made
within such a pair; the figures beside them are told at the usual pace of the machine
(``reference.py``), so that those of two hours can be compared. A blocking send is judged by its p50, all
others by their rate. What seems to have lost is run again before it is said.

The end is 1 if anything lost more than 5 % of CPU or rate (*body only*: 10 %), or failed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import consuming
from bench.acker import acker
from bench.choices import chosen_sizes, chosen_words
from bench.pull_server import STORED, pull_server
from bench.samples import Sample
from bench.shapes import BODY, SHAPES, maker
from bench.worker import PATHS, READING, SENDING, Task, Worker, working

ROOT: Final = Path(__file__).parent.parent
#: Messages of a run, so that each takes a tenth of a second or two.
COUNTS: Final = {
    "Message(...)": 10_000,
    "send": 1_200,
    "await send, 1024 at once": 8 * 1024,
    "submit": 8_000,
    "await submit": 8_000,
    "submit, auto_batch": 12_000,
    "await submit, auto_batch": 16_000,
    "send of 500": 16_000,
    "await submit of 500": 16_000,
    "send_many": 16_000,
    "await send_many": 16_000,
    "send_oneway": 6_000,
    "await send_oneway": 8_000,
    "send_table": 50_000,
    "read": 6_000,
    "read, looked at": 6_000,
    "await read, looked at": 6_000,
    "handler": 6_000,
    "await handler": 6_000,
    "handler, batch 256": 6_000,
    "await handler, batch 256": 6_000,
}
#: Shapes of which fewer do, because each takes longer.
_FEWER: Final = {"rich": 0.7, "sharded": 0.4}
_ALLOWED, _ALLOWED_BODY = 0.05, 0.10
_ENOUGH: Final = 3
#: What a real broker gives in one pull by default.
_A_PULL: Final = 32

Place = tuple[str, str, int]


@dataclass
class Pairs:
    """What is known of a path in a shape: samples of both sides, pair by pair."""

    allowed: float
    old: list[Sample] = field(default_factory=list)
    new: list[Sample] = field(default_factory=list)
    error: str = ""

    def losses(self, figure: Callable[[Sample], float]) -> list[float]:
        """By which share new is worse than old in each pair, where less is better."""
        pairs = zip(self.old, self.new, strict=True)
        return sorted(figure(new) / figure(old) - 1 for old, new in pairs)

    def lost(self) -> list[str]:
        """In which measures the middle of the pairs is beyond what is allowed.

        Two pairs prove nothing; and where a quarter of them tell the contrary, the machine is too
        busy to know.
        """
        return [
            name
            for name, losses in (("CPU", self.losses(_cpu)), ("rate", self.losses(_seconds_each)))
            if len(losses) >= _ENOUGH
            and statistics.median(losses) > self.allowed
            and losses[len(losses) // 4] > 0
        ]

    def is_doubtful(self) -> bool:
        """Whether more pairs could change what is said of it: it lost, or it nearly did."""
        return any(
            statistics.median(losses) > self.allowed / 2
            and losses[len(losses) * 3 // 4] > self.allowed
            for losses in (self.losses(_cpu), self.losses(_seconds_each))
            if losses
        )


def _cpu(sample: Sample) -> float:
    return sample.cpu_each


def _cost(sample: Sample) -> float:
    return sample.cost


def _sending_cost(sample: Sample) -> float:
    return sample.sending_cost


def _seconds_each(sample: Sample) -> float:
    return sample.seconds / sample.messages if sample.p50 is None else sample.p50


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", help="a folder with a checkout, or a commit")
    parser.add_argument("--new", type=Path, default=ROOT, help="another tree than this one")
    parser.add_argument("--only", default="", help=f"paths that contain one of these words, of {'; '.join(PATHS)}")  # fmt: skip
    parser.add_argument("--shapes", default=",".join(SHAPES), help=f"some of {','.join(SHAPES)}")
    parser.add_argument("--bodies", default="200", help="bytes of a body: 20,200,2000")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of each (5)")
    parser.add_argument("--again", type=int, default=6, help="more pairs of what seems lost (6)")
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 sends a tenth")
    parser.add_argument("--broker", action="store_true", help="a real broker, not the acker")
    chosen = parser.parse_args(words)
    wanted = [word.strip() for word in chosen.only.split(",") if word.strip()]
    chosen.paths = [p for p in PATHS if not wanted or any(word in p for word in wanted)]
    if not chosen.paths:
        parser.error(f"--only {chosen.only}: choose from {'; '.join(PATHS)}")
    chosen.shapes = chosen_words(parser, "--shapes", chosen.shapes, tuple(SHAPES))
    chosen.bodies = chosen_sizes(parser, chosen.bodies)
    if chosen.rounds < 1 or chosen.again < 0 or chosen.scale <= 0:
        parser.error("--rounds is at least 1, --again at least 0, --scale above zero")
    return chosen


@contextmanager
def checkout(old: str) -> Iterator[Path]:
    """A folder with the package of OLD."""
    if (Path(old) / "src" / "rocketwire").is_dir():
        yield Path(old).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="rocketwire-old-") as folder:
        packed = subprocess.run(
            ["git", "archive", "--format=tar", old, "src"], cwd=ROOT, capture_output=True, check=False
        )  # fmt: skip
        if packed.returncode:
            told = packed.stderr.decode(errors="replace").strip()
            raise SystemExit(f"{old} is neither a folder with src/rocketwire nor a commit: {told}")
        subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
        yield Path(folder)


@dataclass(frozen=True)
class Servers:
    """Where each path goes, and how to wait until a server has done with what it was given."""

    tasks: Callable[[Place, int], Task]
    settle: Callable[[], None]


def compare(
    workers: tuple[Worker, Worker], servers: Servers, chosen: argparse.Namespace
) -> dict[Place, Pairs]:
    """All pairs of all paths, and more of those in doubt."""
    found: dict[Place, Pairs] = {
        (path, shape, size): Pairs(_ALLOWED_BODY if shape == BODY.word else _ALLOWED)
        for size in chosen.bodies
        for path in chosen.paths
        for shape in chosen.shapes
        if path in SENDING or shape in STORED
    }

    def task(place: Place) -> Task:
        path, shape, size = place
        fewer = _FEWER.get(shape, 1.0) * min(1.0, 4 * 200 / size)
        return servers.tasks(place, max(1024, int(COUNTS[path] * chosen.scale * fewer)))

    def go_round(places: Sequence[Place], number: int, title: str) -> None:
        for place in places:
            if found[place].error:
                continue
            if sys.stderr.isatty():
                print(f"\r{title}: {' '.join(map(str, place)):<60}", end="", file=sys.stderr)
            _pair(found[place], workers, task(place), servers.settle, old_first=number % 2 == 0)

    for number in range(chosen.rounds):
        go_round(list(found), number, f"round {number + 1}/{chosen.rounds}")
    for number in range(chosen.again):
        doubtful = [place for place, pairs in found.items() if pairs.is_doubtful()]
        go_round(doubtful, number, f"{len(doubtful)} again {number + 1}/{chosen.again}")
    if sys.stderr.isatty():
        print(f"\r{'':<90}\r", end="", file=sys.stderr)
    return found


def _pair(
    pairs: Pairs,
    workers: tuple[Worker, Worker],
    task: Task,
    settle: Callable[[], None],
    *,
    old_first: bool,
) -> None:
    """Run both sides once; a side that fails ends it for this path."""
    taken: dict[str, Sample] = {}
    for worker in workers if old_first else reversed(workers):
        try:
            settle()
            taken[worker.name] = worker.run(task)
        except RuntimeError as error:
            pairs.error = str(error)
            return
    pairs.old.append(taken[workers[0].name])
    pairs.new.append(taken[workers[1].name])


HEAD: Final = (
    f"{'path':<26}{'shape':<9}"
    f"{'CPU µs old':>11}{'new':>7}{'ratio':>7}   {'not making: old':>15}{'new':>7}   "
    f"{'k/s old':>8}{'new':>8}{'ratio':>7}"
)


def line(place: Place, pairs: Pairs) -> str:
    """One row for people."""
    path, shape, _ = place
    if pairs.error:
        return f"{path:<26}{shape:<9}FAILED: {pairs.error}"

    def middle(samples: Sequence[Sample], figure: Callable[[Sample], float]) -> float:
        return statistics.median(map(figure, samples))

    cost = [middle(side, _cost) * 1e6 for side in (pairs.old, pairs.new)]
    sending = [middle(side, _sending_cost) * 1e6 for side in (pairs.old, pairs.new)]
    rate = [1e-3 / middle(side, _seconds_each) for side in (pairs.old, pairs.new)]
    cpu = 1 + statistics.median(pairs.losses(_cpu))
    speed = 1 / (1 + statistics.median(pairs.losses(_seconds_each)))
    lost = pairs.lost()
    return (
        f"{path:<26}{shape:<9}"
        f"{cost[0]:>11.2f}{cost[1]:>7.2f}{cpu:>7.2f}   {sending[0]:>15.2f}{sending[1]:>7.2f}   "
        f"{rate[0]:>8.1f}{rate[1]:>8.1f}{speed:>7.2f}"
        + (f"  LOST {' and '.join(lost)} (allowed {pairs.allowed:.0%})" if lost else "")
    )


def report(found: dict[Place, Pairs], seconds: float) -> int:
    """The table; how many paths lost or failed."""
    for size in dict.fromkeys(size for _, _, size in found):
        print(f"\nbodies of {size} B, none alike\n{HEAD}")
        for place, pairs in found.items():
            if place[2] == size:
                print(line(place, pairs))
    bad = sum(1 for pairs in found.values() if pairs.error or pairs.lost())
    word = f"{bad} of {len(found)} lost or failed" if bad else f"none of {len(found)} lost"
    print(f"\n{word}; ratios are new / old, medians of pairs; {seconds:.0f} s")
    paces = [s.pace for pairs in found.values() for s in (*pairs.old, *pairs.new)]
    if paces:
        # Rates suffer from what else runs, CPU time hardly does.
        load = os.getloadavg()[0]
        print(
            f"the machine: load {load:.1f}, {statistics.median(paces):.2f} times as slow as usual"
        )
    return bad


@contextmanager
def _answering(chosen: argparse.Namespace) -> Iterator[Servers]:
    """Servers that store nothing, one for all that is sent and one for each shape that is read."""
    with ExitStack() as stack:
        server = stack.enter_context(acker(1, 8))
        if not server.is_native:
            print("no C compiler: the servers are in Python and may be the slower side")
        kinds = [(shape, size) for shape in STORED for size in chosen.bodies]
        pulls = {
            (shape, size): stack.enter_context(
                pull_server(10_000_000, _A_PULL, queues=8, size=size, shape=shape)
            ).name_server
            for shape, size in kinds
            if shape in chosen.shapes and READING.keys() & set(chosen.paths)
        }

        def task(place: Place, count: int) -> Task:
            path, shape, size = place
            if path in READING:
                return Task(path, shape, count, pulls[shape, size], size=size, is_alone=True)
            return Task(path, shape, count, server.name_server, size=size)

        yield Servers(task, lambda: None)


@contextmanager
def _real(chosen: argparse.Namespace) -> Iterator[Servers]:
    """A real broker, with a topic of each shape to be read."""
    from bench import broker

    if missing := broker.missing_tools():
        raise SystemExit(f"no {', '.join(missing)} on the PATH: a real broker needs them")
    with broker.stage(()) as stage:
        if READING.keys() & set(chosen.paths):
            for shape in STORED.keys() & set(chosen.shapes):
                for size in chosen.bodies:
                    topic = f"{shape}-{size}"
                    make = maker(SHAPES[shape], topic, size)
                    consuming.fill(stage.name_server, make, 20_000)
        stage.settle()

        def task(place: Place, count: int) -> Task:
            path, shape, size = place
            topic = f"{shape}-{size}" if path in READING else broker.TOPIC
            return Task(path, shape, count, stage.name_server, topic, size)

        yield Servers(task, stage.settle)


def main(words: list[str] | None = None) -> int:
    """Compare and tell; 1 if anything lost."""
    chosen = _arguments(words)
    began = time.monotonic()
    with ExitStack() as stack:
        folder = stack.enter_context(checkout(chosen.old))
        servers = stack.enter_context((_real if chosen.broker else _answering)(chosen))
        workers = (
            stack.enter_context(working("old", folder)),
            stack.enter_context(working("new", chosen.new.resolve())),
        )
        found = compare(workers, servers, chosen)
    return 1 if report(found, time.monotonic() - began) else 0


if __name__ == "__main__":
    sys.exit(main())
