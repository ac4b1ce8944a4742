"""Our paths against an acking server, beside bare sockets: what the client itself costs."""

from __future__ import annotations

from collections.abc import Callable

from bench import floor, ours
from bench.acker import Acker
from bench.rounds import Path
from bench.samples import Sample
from bench.shapes import BODY, maker

TOPIC = "bench"
FLOOR = "floor"


def groups(server: Acker, body: bytes, scale: float) -> dict[str, list[Path]]:
    """Contests by name; ``scale`` shortens all of them alike."""

    def times(count: int) -> int:
        return max(256, int(count * scale))

    name_server, address = server.name_server, server.addresses[0]
    make = maker(BODY, TOPIC, len(body))
    single = floor.frame(TOPIC, "broker-000", body)
    fifty = floor.frame(TOPIC, "broker-000", body, batch=50)
    many = floor.frame(TOPIC, "broker-000", body, batch=500)

    def path(name: str, run: Callable[[], Sample]) -> Path:
        return Path(name, run, "rate", (FLOOR,))

    blocking = [
        Path(FLOOR, lambda: floor.ping_pong(address, single, times(10_000)), "p50"),
        Path(
            "Producer.send",
            lambda: ours.blocking(name_server, make, times(10_000)),
            "p50",
            (FLOOR,),
        ),
    ]
    flying = [
        Path(FLOOR, lambda: floor.pipelined(address, single, times(100_000), window=1000)),
        path("await send, 1024 at once", lambda: ours.awaited(name_server, make, times(40_000))),
        path("AsyncProducer.submit", lambda: ours.submitted(name_server, make, times(40_000))),
        path("Producer.submit", lambda: ours.handed_over(name_server, make, times(40_000))),
        path("Producer.send_oneway", lambda: ours.oneway(name_server, make, times(20_000))),
    ]
    automatic = [
        Path(
            FLOOR,
            lambda: floor.pipelined(
                address, many, max(8, times(200_000) // 500), window=8, each=500
            ),
        ),
        path(
            "AsyncProducer.submit, auto_batch",
            lambda: ours.submitted(name_server, make, times(200_000), auto_batch=True),
        ),
        path(
            "Producer.submit, auto_batch",
            lambda: ours.handed_over(name_server, make, times(200_000), auto_batch=True),
        ),
        path("batches of 500", lambda: ours.batches(name_server, make, times(200_000), 500)),
    ]
    small = [
        Path(
            FLOOR,
            lambda: floor.pipelined(
                address, fifty, max(8, times(100_000) // 50), window=8, each=50
            ),
        ),
        path("batches of 50", lambda: ours.batches(name_server, make, times(100_000), 50)),
    ]
    return {
        "blocking": blocking,
        "submit": flying,
        "batch": automatic,
        "batch50": small,
    }
