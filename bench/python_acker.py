"""What ``acker.c`` does, for machines without a C compiler."""

from __future__ import annotations

import asyncio
import json
import struct
import sys

from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import ONEWAY, RESPONSE, Command, decode_command
from rocketwire.wire.framing import FrameBuffer

_SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}


class Server(asyncio.Protocol):
    """One connection of any client."""

    stored = 0

    def __init__(self, header: int, route: bytes) -> None:
        self._header = header
        self._route = route
        self._frames = FrameBuffer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        out: list[bytes] = []
        for frame in self._frames.feed(data):
            request = decode_command(frame)
            if request.flag & ONEWAY:
                continue
            reply = self._answer(request)
            reply.header = self._header
            out += (reply.head(request.opaque, RESPONSE), bytes(reply.body))
        self._transport.write(b"".join(out))  # type: ignore[attr-defined]

    def _answer(self, request: Command) -> Command:
        if request.code == RequestCode.GET_ROUTE_BY_TOPIC:
            return Command(0, {}, self._route)
        if request.code not in _SENDS:
            return Command(0, {})
        count = _count(request.body) if request.code == RequestCode.SEND_BATCH_MESSAGE else 1
        first, Server.stored = Server.stored, Server.stored + count
        ids = ",".join([f"7F00000100002A9F{(first + i) * 300:016X}" for i in range(count)])
        place = {"queueId": request.ext.get("e", "0"), "msgId": ids, "queueOffset": str(first)}
        return Command(0, {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion", **place})


def _count(body: bytes | memoryview) -> int:
    position = count = 0
    while position < len(body):
        position += struct.unpack_from(">i", body, position)[0]
        count += 1
    return count


def _route(ports: list[int], queues: int) -> bytes:
    names = [f"broker-{number:03d}" for number in range(len(ports))]
    brokers = [
        {"brokerAddrs": {"0": f"127.0.0.1:{port}"}, "brokerName": name, "cluster": "Acker"}
        for name, port in zip(names, ports, strict=True)
    ]
    counts = {"readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "topicSysFlag": 0}
    return json.dumps(
        {"brokerDatas": brokers, "queueDatas": [{"brokerName": name, **counts} for name in names]}
    ).encode()


async def _serve(brokers: int, queues: int, header: str) -> None:
    loop = asyncio.get_running_loop()
    ports: list[int] = []
    route = bytearray()
    kind = 1 if header == "binary" else 0
    for _ in range(brokers):
        server = await loop.create_server(lambda: Server(kind, bytes(route)), "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
    route += _route(ports, queues)
    print("ready", *ports, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
