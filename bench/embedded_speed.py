"""How fast the embedded cluster is, against its targets: ``python -m bench.embedded_speed``.

The cluster runs in a process of its own, and frames come from bare sockets. Rates are judged by the
CPU time of the cluster: that is what one core can do, whatever else the machine has to do; the clock
is told beside it. Latency, start and end are judged by the clock, so a busy machine may miss them.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import report
from bench.embedded_load import (
    BATCH,
    PULL,
    SCAN,
    ClusterProcess,
    batch_frames,
    connect,
    ping_pong,
    pipelined,
    pull_frames,
    read_answers,
    running,
    scratch,
    single_frames,
)
from rocketwire import Reader
from rocketwire.embedded import EmbeddedCluster

MILLION = 1_000_000
#: How often a cost is measured when it is compared.
_RUNS = 5


@dataclass(frozen=True)
class Line:
    """One figure, and the target that it has."""

    name: str
    value: float
    unit: str
    target: float
    at_least: bool = True
    note: str = ""

    @property
    def held(self) -> bool:
        """Whether the target is met."""
        return self.value >= self.target if self.at_least else self.value <= self.target

    def text(self) -> str:
        """For people."""
        word = "held  " if self.held else "MISSED"
        bound = "at least" if self.at_least else "at most"
        told = f"{word} {self.name:<46} {self.value:>12,.2f} {self.unit:<5}"
        return f"{told} {bound} {self.target:,.2f}  {self.note}".rstrip()


def rates(folder: Path, scale: float, *, numpy: bool) -> Iterator[Line]:
    """Sends and pulls of one broker."""
    with running(folder, numpy=numpy) as cluster:
        label = "" if numpy else ", no numpy"
        singles, batches = max(200, int(20_000 * scale)), max(4, int(400 * scale))
        # The first ones make topics and load numpy.
        pipelined(cluster, single_frames("s", 200) + batch_frames("b", 4), 1)
        pipelined(cluster, batch_frames("u", 4, equal=False), 1)
        if numpy:
            pace = pipelined(cluster, single_frames("s", singles), 1)
            yield _rate("single sends, pipelined", pace.by_cpu, pace.by_clock, 25_000)
        for topic, equal in (("b", True), ("u", False)):
            pace = pipelined(cluster, batch_frames(topic, batches, equal=equal), BATCH)
            name = f"messages in batches of {BATCH}, {'equal' if equal else 'unequal'}{label}"
            yield _rate(name, pace.by_cpu, pace.by_clock, 400_000 if numpy else 100_000)
        if numpy:
            pulls = pull_frames("b", 0, batches * BATCH // PULL)
            pace = pipelined(cluster, pulls, PULL)
            yield _rate(f"messages in pulls of {PULL}, joined", pace.by_cpu, pace.by_clock, 500_000)
            yield from filtered(cluster, batches * BATCH)
            times = ping_pong(cluster, "one", max(200, int(4_000 * scale)))
            yield Line(
                "a send on an idle cluster, p50", statistics.median(times) * 1e6, "µs", 150,
                at_least=False,
            )  # fmt: skip


def filtered(cluster: ClusterProcess, stored: int) -> Iterator[Line]:
    """Pulls with an SQL92 filter over two properties: one that leaves all out, one that none."""
    for name, sql, each in (
        ("left out", "TAGS = 'TagB' OR (KEYS STARTSWITH 'bill-' AND price > 10)", SCAN),
        ("let through", "TAGS = 'TagA' AND KEYS STARTSWITH 'order-' AND price IS NULL", PULL),
    ):
        frames = pull_frames("b", 0, max(1, stored // each), sql=sql, each=each)
        pace = pipelined(cluster, frames, each)
        yield _rate(f"messages {name} by SQL92", pace.by_cpu, pace.by_clock, 50_000)


def _rate(name: str, by_cpu: float, by_clock: float, target: float) -> Line:
    return Line(name, by_cpu, "/s", target, note=f"({by_clock:,.0f}/s on the clock)")


def start_and_size() -> Iterator[Line]:
    """From nothing to the first message, and three brokers that do nothing."""
    seconds = []
    for _ in range(3):
        with scratch() as folder, running(folder) as cluster:
            ping_pong(cluster, "first", 1)
            seconds.append(time.perf_counter() - cluster.began)
    yield Line("start to first message", statistics.median(seconds), "s", 1.0, at_least=False)
    with scratch() as folder, running(folder, brokers=3) as cluster:
        time.sleep(2.0)
        yield Line("memory, 3 brokers, idle", cluster.memory() / 1e6, "MB", 60, at_least=False)


def growth(folder: Path, stored: int) -> Iterator[Line]:
    """What a message costs with few and with many stored."""
    with running(folder) as cluster:
        pipelined(cluster, batch_frames("b", 4), BATCH)
        few = _costs(cluster, stored // 10)
        many = _costs(cluster, stored)
    for name, cost in few.items():
        yield Line(
            f"{name} with {stored / MILLION:g} M stored over that with a tenth",
            many[name] / cost, "x", 1.3, at_least=False,
            note=f"({cost * 1e6:.2f} and {many[name] * 1e6:.2f} µs of CPU)",
        )  # fmt: skip


def _costs(cluster: ClusterProcess, stored: int) -> dict[str, float]:
    """Seconds of CPU per message, measured when so many are stored: medians of some runs."""
    chunk, singles = batch_frames("b", 200), single_frames("s", 5_000)
    taken: dict[str, list[float]] = {}
    with connect(cluster) as plain:
        while _count(plain) < stored - (_RUNS + 1) * len(chunk) * BATCH:
            pipelined(cluster, chunk, BATCH)
        for number in range(_RUNS):
            # Neither the first ones nor the last, and others in each run.
            first = _count(plain) // 2 + number * 2_000 * PULL
            for name, frames, each in (
                ("a message in a batch", chunk, BATCH),
                ("a single message", singles, 1),
                ("a message in a pull", pull_frames("b", first, 2_000), PULL),
            ):
                pace = pipelined(cluster, frames, each)
                taken.setdefault(name, []).append(1 / pace.by_cpu)
    return {name: statistics.median(values) for name, values in taken.items()}


def _count(plain: socket.socket) -> int:
    """How many messages the topic has."""
    from rocketwire.wire.command import Command, decode_command, encode_command

    plain.sendall(encode_command(Command(30, {"topic": "b", "queueId": "0"}, b"", None, 1)))
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        data += plain.recv(65536)
    return int(decode_command(data[4:]).ext["offset"])


def end_while_busy(folder: Path) -> Iterator[Line]:
    """SIGTERM in the middle of sends; then everything that was acknowledged must be there."""
    cluster = ClusterProcess(folder)
    counted: list[int] = []
    busy = [threading.Thread(target=_keep_busy, args=(cluster, counted)) for _ in range(2)]
    for thread in busy:
        thread.start()
    time.sleep(3.0)
    try:
        seconds = cluster.stop()
    except subprocess.TimeoutExpired:
        seconds = 60.0
    for thread in busy:
        thread.join(30)
    yield Line("SIGTERM to the end, busy", seconds, "s", 2.0, at_least=False)
    with EmbeddedCluster(folder=folder / "store") as again, Reader(again.name_server) as reader:
        kept = sum(reader.max_offset(queue) for queue in reader.queues("b"))
    acknowledged = sum(counted)
    note = f"({acknowledged:,} were acknowledged, {kept:,} kept)"
    yield Line(
        "acknowledged and lost", max(0, acknowledged - kept), "", 0, at_least=False, note=note
    )


def _keep_busy(cluster: ClusterProcess, counted: list[int]) -> None:
    frame = batch_frames("b", 1)[0]
    seen = 0
    try:
        with connect(cluster) as plain:
            plain.sendall(frame * 2)
            while read_answers(plain, 1):
                seen += 1
                plain.sendall(frame)
    except OSError:
        pass
    finally:
        # Two are under way: at most one answer is not counted.
        counted.append(seen * BATCH)


def lines(chosen: argparse.Namespace) -> Iterator[Line]:
    """Everything that was asked for, as it is found."""
    for numpy in (True, False):
        with scratch() as folder:
            yield from rates(folder, chosen.scale, numpy=numpy)
    yield from start_and_size()
    with scratch() as folder:
        yield from end_while_busy(folder)
    if chosen.stored:
        with scratch() as folder:
            yield from growth(folder, chosen.stored)


def main(words: list[str] | None = None) -> int:
    """Measure and print; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.embedded_speed", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 sends a tenth")
    parser.add_argument(
        "--stored", type=int, default=10 * MILLION, help="how many are stored for growth; 0: none"
    )
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    chosen = parser.parse_args(words)
    found = []
    for line in lines(chosen):
        found.append(line)
        print(line.text(), flush=True)
    if chosen.json is not None:
        targets = [asdict(line) | {"held": line.held} for line in found]
        content = {"machine": report.machine(), "targets": targets}
        chosen.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if all(line.held for line in found) else 1


if __name__ == "__main__":
    sys.exit(main())
