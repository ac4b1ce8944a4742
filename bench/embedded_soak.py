"""Kill a broker process again and again while it is sent to: ``python -m bench.embedded_soak``.

Every message that was acknowledged, by a broker that flushes synchronously, must be found exactly
where its answer said, once. Ends with an error if one is not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.embedded_load import pull_ext, send_ext
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.command import Command, decode_command, encode_command
from rocketwire.wire.lazy_message import messages_in

QUEUES = 4
#: Queue and offset of a message, and its body.
Acknowledged = dict[tuple[int, int], bytes]


class Broker:
    """One broker process, on one port and one folder over all its lives."""

    def __init__(self, name_server: str, folder: Path) -> None:
        self._name_server = name_server
        self._folder = folder
        self._lives = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def start(self) -> None:
        """Start it and wait until it serves."""
        self._lives += 1
        ready = self._folder / f"ready-{self._lives}"
        source = Path(__file__).parents[1] / "src"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rocketwire.embedded", "broker", "--name", "soaked",
             "--name-server", self._name_server, "--folder", str(self._folder / "store"),
             "--flush", "sync", "--port", str(self.port), "--ready-file", str(ready)],
            env=dict(os.environ, PYTHONPATH=str(source)),
        )  # fmt: skip
        while not ready.exists():
            if self._process.poll() is not None:
                raise SystemExit("the broker did not start")
            time.sleep(0.005)
        self.port = int(json.loads(ready.read_text())["soaked"].rpartition(":")[2])

    def end(self, number: int) -> None:
        """End it by a signal."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)

    def connect(self) -> socket.socket:
        """A connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), 10)


def read_reply(plain: socket.socket) -> Command:
    """One answer, blocking."""
    size = int.from_bytes(_exactly(plain, 4), "big")
    return decode_command(_exactly(plain, size))


def _exactly(plain: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = plain.recv(size - len(data))
        if not part:
            raise ConnectionResetError("closed")
        data += part
    return data


def send_until_killed(broker: Broker, sender: int, found: Acknowledged, stop: float) -> None:
    """Send one message after another until the connection breaks; note what was acknowledged."""
    number = 0
    while time.monotonic() < stop:
        try:
            with broker.connect() as plain:
                while time.monotonic() < stop:
                    body = f"{sender}-{time.time_ns()}-{number}".encode() + b"." * (number % 700)
                    ext = send_ext("soak", number % QUEUES, f"KEYS\x01k{number}\x02")
                    plain.sendall(encode_command(Command(310, ext, body, None, number)))
                    reply = read_reply(plain)
                    if reply.code == 0:
                        place = int(reply.ext["queueId"]), int(reply.ext["queueOffset"])
                        if found.setdefault(place, body) is not body:
                            raise SystemExit(f"two messages were acknowledged at {place}")
                    number += 1
        except OSError:
            time.sleep(0.01)


def read_back(broker: Broker) -> Acknowledged:
    """Everything that the broker has."""
    found: Acknowledged = {}
    with broker.connect() as plain:
        for queue in range(QUEUES):
            offset = 0
            while True:
                ext = pull_ext("soak", queue, offset)
                plain.sendall(encode_command(Command(11, ext)))
                reply = read_reply(plain)
                if reply.code != 0:
                    break
                for message in messages_in(reply.body, broker="broker-a"):
                    found[queue, message.offset] = message.body
                offset = int(reply.ext["nextBeginOffset"])
    return found


def soak(folder: Path, seconds: float, senders: int, seed: int) -> None:
    """Send, kill and restart for a time, then compare."""
    chance = random.Random(seed)
    acknowledged: Acknowledged = {}
    with EmbeddedCluster(brokers=0) as cluster:
        broker = Broker(cluster.name_server, folder)
        broker.start()
        stop, kills = time.monotonic() + seconds, 0
        threads = [
            threading.Thread(target=send_until_killed, args=(broker, n, acknowledged, stop))
            for n in range(senders)
        ]
        for thread in threads:
            thread.start()
        while time.monotonic() < stop:
            time.sleep(chance.uniform(0.2, 1.5))
            broker.end(signal.SIGKILL)
            broker.start()
            kills += 1
        for thread in threads:
            thread.join()
        found = read_back(broker)
        broker.end(signal.SIGTERM)
    lost = [place for place, body in acknowledged.items() if found.get(place) != body]
    bodies = list(found.values())
    print(
        f"{len(acknowledged):,} acknowledged, {len(found):,} stored, {kills} kills, "
        f"{len(lost)} lost or elsewhere, {len(bodies) - len(set(bodies))} stored twice"
    )
    if lost or len(bodies) != len(set(bodies)):
        raise SystemExit("the soak has failed")


def main() -> None:
    """Run it for ten minutes, or as long as you say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rocketwire-soak-"))
    try:
        soak(folder, given.seconds, given.senders, given.seed)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
