"""Our paths against an acking server, beside bare sockets: what the client itself costs."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench import floor
from bench.acker import Acker
from bench.rounds import Measure, Path
from bench.shapes import Shape, maker
from bench.worker import LIST, WINDOW, Task, perform

TOPIC: Final = "bench"
FLOOR: Final = "floor"
#: Paths of each contest, with the number of messages.
CONTESTS: Final = {
    "making": {"Message(...)": 50_000},
    "blocking": {"send": 10_000},
    "submit": {
        "await send, 1024 at once": 40_960,
        "await submit": 40_000,
        "submit": 40_000,
        "await send_oneway": 20_000,
        "send_oneway": 20_000,
    },
    "batch": {
        "await submit, auto_batch": 100_000,
        "submit, auto_batch": 100_000,
        "await submit of 500": 100_000,
        "send of 500": 100_000,
        "await send_many": 100_000,
        "send_many": 100_000,
        "send_table": 200_000,
    },
}


def scaled(count: int, scale: float, size: int) -> int:
    """Fewer messages of larger bodies, and never so few that a path has nothing to do."""
    return max(1024, int(count * scale * min(1.0, 4 * 200 / size)))


def contests(server: Acker, shape: Shape, size: int, scale: float) -> dict[str, list[Path]]:
    """Contests by name; ``scale`` shortens all of them alike."""
    address, make = server.addresses[0], maker(shape, TOPIC, size)
    single = floor.frame("broker-000", make)
    many = floor.frame("broker-000", make, batch=LIST)
    sync, flying, packed = (scaled(count, scale, size) for count in (10_000, 100_000, 200_000))
    floors = {
        "making": [],
        "blocking": [Path(FLOOR, lambda: floor.ping_pong(address, single, sync), "p50")],
        "submit": [
            Path(FLOOR, lambda: floor.pipelined(address, single, flying, window=WINDOW)),
        ],
        "batch": [
            Path(
                FLOOR,
                lambda: floor.pipelined(address, many, max(8, packed // LIST), window=8, each=LIST),
            )
        ],
    }
    found: dict[str, list[Path]] = {}
    for name, paths in CONTESTS.items():
        rivals = (FLOOR,) if floors[name] else ()
        found[name] = list(floors[name])
        for path, count in paths.items():
            task = Task(path, shape.word, scaled(count, scale, size), server.name_server, size=size)
            measure: Measure = "p50" if name == "blocking" else "rate"
            found[name].append(Path(path, partial(perform, task), measure, rivals))
    return found
