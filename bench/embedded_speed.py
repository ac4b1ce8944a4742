"""How fast the embedded broker is: ``python -m bench.embedded_speed``.

The broker runs in a process of its own, and frames come from a bare socket, so that our client is
not in the way. Rates are given against the wall clock and against the broker's CPU time; the
latter is what one core can do, and does not suffer from what else the machine has to do.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from rocketwire.wire.command import Command, encode_command

BODY = b"x" * 200
PROPERTIES = (
    "KEYS\x01order-{0:06d}\x02UNIQ_KEY\x017F0000010001000200030004{0:08d}\x02TAGS\x01TagA\x02"
)


class BrokerProcess:
    """An embedded cluster of one broker in a process of its own."""

    def __init__(self, folder: Path, *, numpy: bool = True) -> None:
        ready = folder / "ready"
        environment = dict(os.environ)
        source = Path(__file__).parents[1] / "src"
        environment["PYTHONPATH"] = os.pathsep.join(
            ([] if numpy else [str(_without_numpy(folder))]) + [str(source)]
        )
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rocketwire.embedded", "cluster", "--folder",
             str(folder / "store"), "--ready-file", str(ready)],
            env=environment,
        )  # fmt: skip
        while not ready.exists():
            if self.process.poll() is not None:
                raise SystemExit("the broker did not start")
            time.sleep(0.002)
        self.start_seconds = time.perf_counter() - began
        host, _, port = json.loads(ready.read_text())["broker-a"].rpartition(":")
        self.address = (host, int(port))

    def cpu(self) -> float:
        """Seconds of CPU that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End it properly."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def _without_numpy(folder: Path) -> Path:
    """A folder which, on the path, makes numpy look as if it were not installed."""
    path = folder / "hidden" / "numpy"
    path.mkdir(parents=True, exist_ok=True)
    (path / "__init__.py").write_text("raise ImportError('hidden for a benchmark')\n")
    return path.parent


def send_ext(topic: str, queue: int, properties: str, *, batch: bool = False) -> dict[str, str]:
    """The header of a send."""
    ext = {
        "a": "bench", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0",
        "g": "1700000000000", "h": "0", "i": properties, "j": "0", "k": "false",
    }  # fmt: skip
    return ext | {"m": "true"} if batch else ext


def pull_ext(topic: str, queue: int, offset: int) -> dict[str, str]:
    """The header of a pull of 32 messages."""
    return {
        "consumerGroup": "bench", "topic": topic, "queueId": str(queue),
        "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip


def batch_body(count: int) -> bytes:
    """A batch of messages of one size."""
    parts = []
    for number in range(count):
        text = PROPERTIES.format(number).encode()
        size = 22 + len(BODY) + len(text)
        parts.append(struct.pack(">iiiii", size, 0, 0, 0, len(BODY)))
        parts.append(BODY + struct.pack(">h", len(text)) + text)
    return b"".join(parts)


def read_frames(plain: socket.socket, count: int) -> None:
    """Read so many answers and look only at their lengths."""
    buffer = b""
    while count:
        buffer += plain.recv(1 << 20)
        position = 0
        while len(buffer) - position >= 4:
            size = int.from_bytes(buffer[position : position + 4], "big")
            if len(buffer) - position < 4 + size:
                break
            position += 4 + size
            count -= 1
        buffer = buffer[position:]


def pipelined(broker: BrokerProcess, name: str, frames: list[bytes], each: int) -> None:
    """Send all frames without waiting, and print both rates."""
    with socket.create_connection(broker.address) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        cpu, began = broker.cpu(), time.perf_counter()
        reader = threading.Thread(target=read_frames, args=(plain, len(frames)))
        reader.start()
        step = max(1, 65536 // len(frames[0]))
        for position in range(0, len(frames), step):
            plain.sendall(b"".join(frames[position : position + step]))
        reader.join()
        seconds, used = time.perf_counter() - began, broker.cpu() - cpu
    total = len(frames) * each
    print(
        f"{name:34} {total / seconds:>10,.0f}/s on the clock {total / max(used, 0.01):>10,.0f}/s "
        "of the broker's CPU"
    )


def _quietly(broker: BrokerProcess, frames: list[bytes]) -> None:
    with socket.create_connection(broker.address) as plain:
        plain.sendall(b"".join(frames))
        read_frames(plain, len(frames))


def ping_pong(broker: BrokerProcess, count: int) -> None:
    """One send after another; the median."""
    times = []
    with socket.create_connection(broker.address) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(count):
            ext = send_ext("one", 0, PROPERTIES.format(number))
            frame = encode_command(Command(310, ext, BODY, None, number))
            began = time.perf_counter()
            plain.sendall(frame)
            read_frames(plain, 1)
            times.append(time.perf_counter() - began)
    print(f"{'one send, waiting':34} {statistics.median(times) * 1e6:>10,.0f} µs p50")


def measure(folder: Path, scale: int, *, numpy: bool) -> None:
    """All paths, one after the other."""
    broker = BrokerProcess(folder, numpy=numpy)
    try:
        print(f"{'process start to serving':34} {broker.start_seconds:>10.2f} s")
        singles = [
            encode_command(Command(310, send_ext("s", n % 4, PROPERTIES.format(n)), BODY, None, n))
            for n in range(200 * scale)
        ]
        body = batch_body(500)
        batches = [
            encode_command(Command(320, send_ext("b", 0, "", batch=True), body, None, n))
            for n in range(3 * scale)
        ]
        pulls = [
            encode_command(Command(11, pull_ext("b", 0, 32 * n), b"", None, n))
            for n in range(3 * scale * 500 // 32)
        ]
        # The first batch loads numpy.
        _quietly(broker, [singles[0], batches[0]])
        pipelined(broker, "single sends, pipelined", singles, 1)
        pipelined(broker, "batches of 500" + ("" if numpy else ", no numpy"), batches, 500)
        pipelined(broker, "pulls of 32, joined", pulls, 32)
        ping_pong(broker, 20 * scale)
    finally:
        broker.stop()


def main() -> None:
    """Measure with numpy and without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=100, help="how much to send (100)")
    scale = parser.parse_args().scale
    for numpy in (True, False):
        folder = Path(tempfile.mkdtemp(prefix="rocketwire-bench-"))
        try:
            print("with numpy" if numpy else "without numpy")
            measure(folder, scale, numpy=numpy)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
