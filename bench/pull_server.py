"""A name server and broker that hands out the same messages for ever, as fast as it can.

For measuring readers: bodies are made once, and only offsets are written into them. Where there is
a compiler the server is the program of ``pull_server.c``; else it is this one, run as a process:
``python -m bench.pull_server QUEUES ROWS MESSAGES_PER_PULL BODY_BYTES [SHAPE]`` prints ``ready PORT`` and
ends with its standard input. That takes 0.2 µs of a core for each message, which is a third of what
our reader takes, and on two cores slows what is measured.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.acker import built
from bench.shapes import body
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import RESPONSE, Command, decode_command, encode_command
from rocketwire.wire.framing import FrameBuffer
from rocketwire.wire.stored_message import encode_record

BODY_BYTES = 200
C_SOURCE = Path(__file__).with_suffix(".c")
PROPERTIES = (
    b"UNIQ_KEY\x017F000001000CF0DF35264B32A5B9%04X\x02KEYS\x01order-%06d\x02"
    b"CLUSTER\x01DefaultCluster\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
    b"user\x01abcdefgh\x02"
)


_OWN = b"UNIQ_KEY\x017F000001000CF0DF35264B32A5B9%04X\x02CLUSTER\x01DefaultCluster\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"  # fmt: skip
_KEYED = _OWN + b"KEYS\x01order-%06d\x02TAGS\x01pay\x02"
_RICH = _KEYED + b"region\x01eu-west\x02amount\x01%06d\x02trace\x01%016x\x02"
#: Properties of a stored message by its shape (``shapes.py``), and how often they tell its number.
STORED = {"body": (_OWN, 1), "key": (_KEYED, 2), "rich": (_RICH, 4)}


class Stock:
    """Records of one queue, in blocks of the most that one pull gets.

    With a shape they are what a producer of the benchmark left; without, all bodies are alike.
    """

    def __init__(self, queue: int, most: int, size: int = BODY_BYTES, shape: str = "") -> None:
        template, numbers = STORED.get(shape, (PROPERTIES, 2))
        first = queue * most
        records = [
            encode_record(
                topic="bench",
                body=body(first + i, size) if shape else b"x" * size,
                properties=template % ((i & 0xFFFF), *[i] * (numbers - 1)),
                queue_id=queue,
                queue_offset=i,
                physical_offset=i * (size + 200),
                born_ms=1_700_000_000_000,
                store_ms=1_700_000_000_100,
            )
            for i in range(most)
        ]
        self.size = len(records[0])
        self._block = np.frombuffer(b"".join(records), dtype=np.uint8).reshape(most, self.size)

    def take(self, offset: int, count: int) -> bytes:
        block = self._block[:count].copy()
        numbers = np.arange(offset, offset + count, dtype=">i8")
        block[:, 20:28] = numbers.view(np.uint8).reshape(count, 8)
        return block.tobytes()


class Server(asyncio.Protocol):
    """One connection."""

    def __init__(self, port: int, queues: int, rows: int, most: int, stock: list[Stock]) -> None:
        self._port, self._queues, self._rows, self._most = port, queues, rows, most
        self._stock = stock
        self._frames = FrameBuffer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            request = decode_command(frame)
            if not request.is_oneway:
                code, ext, body = self._answer(request)
                reply = Command(code, ext, body, opaque=request.opaque, flag=RESPONSE)
                self._transport.write(encode_command(reply))  # type: ignore[attr-defined]

    def _answer(self, request: Command) -> tuple[int, dict[str, str], bytes]:
        ext, code = request.ext, request.code
        if code == RequestCode.GET_ROUTE_BY_TOPIC:
            return ResponseCode.SUCCESS, {}, self._route()
        if code == RequestCode.GET_MAX_OFFSET:
            return ResponseCode.SUCCESS, {"offset": str(self._rows)}, b""
        if code == RequestCode.GET_MIN_OFFSET:
            return ResponseCode.SUCCESS, {"offset": "0"}, b""
        if code == RequestCode.PULL_MESSAGE:
            offset = int(ext["queueOffset"])
            count = min(int(ext["maxMsgNums"]), self._most, self._rows - offset)
            places = {
                "nextBeginOffset": offset + max(0, count),
                "minOffset": 0,
                "maxOffset": self._rows,
            }
            fields = {name: str(value) for name, value in places.items()}
            if count <= 0:
                return ResponseCode.PULL_NOT_FOUND, fields, b""
            fields["suggestWhichBrokerId"] = "0"
            return (
                ResponseCode.SUCCESS,
                fields,
                self._stock[int(ext["queueId"])].take(offset, count),
            )
        return ResponseCode.SUCCESS, {}, b'{"topicList":["bench"]}'

    def _route(self) -> bytes:
        queue = {"brokerName": "b", "readQueueNums": self._queues, "writeQueueNums": self._queues,
                 "perm": 6, "topicSysFlag": 0}  # fmt: skip
        broker = {
            "cluster": "c",
            "brokerName": "b",
            "brokerAddrs": {"0": f"127.0.0.1:{self._port}"},
        }
        return json.dumps(
            {"queueDatas": [queue], "brokerDatas": [broker], "filterServerTable": {}}
        ).encode()


async def serve(queues: int, rows: int, most: int, size: int, shape: str = "") -> None:
    stock = [Stock(queue, most, size, shape) for queue in range(queues)]
    port = 0

    def make() -> Server:
        return Server(port, queues, rows, most, stock)

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print("ready", port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@dataclass(frozen=True)
class PullServer:
    """A running one."""

    name_server: str
    pid: int


@contextmanager
def pull_server(
    rows: int, per_pull: int, *, queues: int, size: int = BODY_BYTES, shape: str = ""
) -> Iterator[PullServer]:
    """Start a server with so many rows in each queue; it ends with the block."""
    with tempfile.NamedTemporaryFile() as file:
        program = built(C_SOURCE)
        numbers = [str(number) for number in (queues, rows, per_pull)]
        if program is None:
            command = [sys.executable, "-m", "bench.pull_server", *numbers, str(size), shape]
        else:
            stock = [Stock(queue, per_pull, size, shape) for queue in range(queues)]
            file.write(b"".join(block.take(0, per_pull) for block in stock))
            file.flush()
            command = [str(program), *numbers, str(stock[0].size), file.name]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[1],
        )  # fmt: skip
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            if not line.startswith("ready"):
                raise RuntimeError(f"the pull server did not start: it said {line!r}")
            yield PullServer(f"127.0.0.1:{line.split()[1]}", process.pid)
        finally:
            process.communicate(timeout=10)


if __name__ == "__main__":
    asyncio.run(serve(*[int(text) for text in sys.argv[1:5]], *sys.argv[5:]))  # type: ignore[arg-type]
