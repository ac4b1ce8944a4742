"""A cluster in a process of its own, and frames from bare sockets: our client is not in the way."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocketwire.wire.command import Command, encode_command

BODY = b"x" * 200
PROPERTIES = (
    "KEYS\x01order-{0:06d}\x02UNIQ_KEY\x017F0000010001000200030004{0:08d}\x02TAGS\x01TagA\x02"
)
BATCH = 500
PULL = 32
#: Messages that a broker looks at for one pull, at most, when a filter leaves them all out.
SCAN = 800
_CHUNK = 65536


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is removed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="rocketwire-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class ClusterProcess:
    """An embedded cluster in a process of its own."""

    def __init__(self, folder: Path, *, numpy: bool = True, brokers: int = 1) -> None:
        ready = folder / f"ready-{time.monotonic_ns()}"
        environment = dict(os.environ)
        source = Path(__file__).parents[1] / "src"
        hidden = [] if numpy else [str(_without_numpy(folder))]
        environment["PYTHONPATH"] = os.pathsep.join([*hidden, str(source)])
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rocketwire.embedded", "cluster", "--brokers", str(brokers),
             "--folder", str(folder / "store"), "--ready-file", str(ready)],
            env=environment,
        )  # fmt: skip
        while not ready.exists():
            if self.process.poll() is not None:
                raise RuntimeError("the cluster did not start")
            time.sleep(0.002)
        host, _, port = json.loads(ready.read_text())["broker-a"].rpartition(":")
        self.address = (host, int(port))

    def cpu(self) -> float:
        """Seconds of CPU that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Bytes that it holds now."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def stop(self, limit: float = 60.0) -> float:
        """End it properly; how long that took."""
        began = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)
            raise
        if code:
            raise RuntimeError(f"the cluster ended with {code}")
        return time.perf_counter() - began


@contextmanager
def running(folder: Path, *, numpy: bool = True, brokers: int = 1) -> Iterator[ClusterProcess]:
    """Start one, and end it."""
    cluster = ClusterProcess(folder, numpy=numpy, brokers=brokers)
    try:
        yield cluster
    finally:
        if cluster.process.poll() is None:
            cluster.stop()


def _without_numpy(folder: Path) -> Path:
    """A folder which, on the path, makes numpy look as if it were not installed."""
    path = folder / "hidden" / "numpy"
    path.mkdir(parents=True, exist_ok=True)
    (path / "__init__.py").write_text("raise ImportError('hidden for a benchmark')\n")
    return path.parent


# Frames


def send_ext(topic: str, queue: int, properties: str, *, batch: bool = False) -> dict[str, str]:
    """The header of a send."""
    ext = {
        "a": "bench", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0",
        "g": "1700000000000", "h": "0", "i": properties, "j": "0", "k": "false",
    }  # fmt: skip
    return ext | {"m": "true"} if batch else ext


def single_frames(topic: str, count: int) -> list[bytes]:
    """Sends of one message each, over four queues."""
    return [
        encode_command(Command(310, send_ext(topic, n % 4, PROPERTIES.format(n)), BODY, None, n))
        for n in range(count)
    ]


def batch_frames(topic: str, count: int, *, equal: bool = True) -> list[bytes]:
    """Sends of 500 messages each, of one size or of many with the same mean."""
    body = _batch_body(equal=equal)
    ext = send_ext(topic, 0, "", batch=True)
    return [encode_command(Command(320, ext, body, None, n)) for n in range(count)]


def _batch_body(*, equal: bool) -> bytes:
    chance = random.Random(1)
    parts = []
    for number in range(BATCH):
        body = BODY if equal else b"x" * chance.randrange(100, 301)
        text = PROPERTIES.format(number if equal else number**3).encode()
        parts.append(struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, 0, len(body)))
        parts.append(body + struct.pack(">h", len(text)) + text)
    return b"".join(parts)


def pull_frames(
    topic: str, first: int, count: int, *, sql: str | None = None, each: int = PULL
) -> list[bytes]:
    """Pulls one after the other, of 32 messages; with a filter each begins so much further on."""
    chosen = {} if sql is None else {"subscription": sql, "expressionType": "SQL92"}
    return [
        encode_command(Command(11, pull_ext(topic, 0, first + each * n) | chosen, b"", None, n))
        for n in range(count)
    ]


def pull_ext(topic: str, queue: int, offset: int) -> dict[str, str]:
    """The header of a pull of 32 messages."""
    return {
        "consumerGroup": "bench", "topic": topic, "queueId": str(queue),
        "queueOffset": str(offset), "maxMsgNums": str(PULL), "sysFlag": "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip


# Traffic


@dataclass(frozen=True)
class Pace:
    """Messages per second: by the clock, and by the CPU time of the cluster."""

    by_clock: float
    by_cpu: float


def connect(cluster: ClusterProcess) -> socket.socket:
    """A bare connection to the broker."""
    plain = socket.create_connection(cluster.address)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain


def read_answers(plain: socket.socket, count: int) -> int:
    """Read so many answers and look only at their lengths; how many came before the end."""
    buffer, seen = b"", 0
    while seen < count:
        data = plain.recv(1 << 20)
        if not data:
            break
        buffer += data
        position = 0
        while len(buffer) - position >= 4:
            size = int.from_bytes(buffer[position : position + 4], "big")
            if len(buffer) - position < 4 + size:
                break
            position += 4 + size
            seen += 1
        buffer = buffer[position:]
    return seen


def pipelined(cluster: ClusterProcess, frames: Sequence[bytes], each: int) -> Pace:
    """Send all frames without waiting for answers."""
    with connect(cluster) as plain:
        cpu, began = cluster.cpu(), time.perf_counter()
        reader = threading.Thread(target=read_answers, args=(plain, len(frames)))
        reader.start()
        step = max(1, _CHUNK // len(frames[0]))
        for position in range(0, len(frames), step):
            plain.sendall(b"".join(frames[position : position + step]))
        reader.join()
        seconds, used = time.perf_counter() - began, cluster.cpu() - cpu
    total = len(frames) * each
    return Pace(total / seconds, total / max(used, 0.01))


def ping_pong(cluster: ClusterProcess, topic: str, count: int) -> list[float]:
    """One send after another: seconds of each."""
    times = []
    with connect(cluster) as plain:
        for frame in single_frames(topic, count):
            began = time.perf_counter()
            plain.sendall(frame)
            read_answers(plain, 1)
            times.append(time.perf_counter() - began)
    return times
