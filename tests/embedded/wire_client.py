"""A client that writes and reads raw frames, so that the servers are tested without our client."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

from tests.wire_tools import is_response

from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import BINARY, Command, decode_command, encode_command


class WireClient:
    """One connection. Times out instead of waiting for ever."""

    def __init__(self, address: str, timeout: float = 10.0) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
        self.opaque = 0
        self._buffer = b""

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(
        self,
        code: int,
        ext: dict[str, Any] | None = None,
        body: bytes = b"",
        *,
        flag: int = 0,
        header: int = BINARY,
        version: int = 475,
    ) -> int:
        self.opaque += 1
        fields = {k: str(v) for k, v in (ext or {}).items()}
        command = Command(
            code, fields, body, None, self.opaque, flag, header=header, version=version
        )
        self.socket.sendall(encode_command(command))
        return self.opaque

    def receive(self) -> Command:
        return decode_command(self.receive_frame())

    def receive_frame(self) -> bytes:
        while True:
            if len(self._buffer) >= 4:
                (size,) = struct.unpack_from(">i", self._buffer)
                if len(self._buffer) >= 4 + size:
                    frame, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
                    return frame
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionResetError("closed by the server")
            self._buffer += data

    def call(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", **more: Any):
        opaque = self.send(code, ext, body, **more)
        reply = self.receive()
        assert reply.opaque == opaque, (reply, opaque)
        assert is_response(reply)
        return reply

    def send_message(self, topic: str, body: bytes = b"body", **more: Any) -> Command:
        return self.call(RequestCode.SEND_MESSAGE_V2, send_ext(topic, **more), body)

    def pull(self, topic: str, queue: int = 0, offset: int = 0, **more: Any) -> Command:
        return self.call(RequestCode.PULL_MESSAGE, pull_ext(topic, queue, offset, **more))


def send_ext(
    topic: str,
    *,
    queue: int = 0,
    properties: str = "",
    group: str = "g",
    system_flag: int = 0,
    **more: Any,
) -> dict[str, Any]:
    ext = {
        "a": group, "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": system_flag,
        "g": int(time.time() * 1000), "h": 0, "i": properties, "j": 0, "k": "false",
    }  # fmt: skip
    return {k: v for k, v in (ext | more).items() if v != ""}


def pull_ext(
    topic: str,
    queue: int = 0,
    offset: int = 0,
    *,
    count: int = 32,
    wait_ms: int = 0,
    tags: str = "*",
    group: str = "readers",
    flags: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    if flags is None:
        flags = 4 | (2 if wait_ms else 0)
    return {
        "consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset,
        "maxMsgNums": count, "sysFlag": flags, "commitOffset": 0,
        "suspendTimeoutMillis": wait_ms, "subscription": tags, "subVersion": 0,
        "expressionType": "TAG",
    } | more  # fmt: skip


def batch_item(body: bytes, properties: bytes = b"", flag: int = 0) -> bytes:
    size = 22 + len(body) + len(properties)
    return (
        struct.pack(">iiiii", size, 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
    )


def heartbeat(
    client: WireClient,
    client_id: str,
    group: str,
    topic: str,
    tags: str = "*",
    version: int = 1,
    model: str = "CLUSTERING",
    kind: str = "TAG",
):
    body = {
        "clientID": client_id,
        "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": model,
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [
                    {
                        "topic": topic, "subString": tags, "subVersion": version,
                        "tagsSet": [], "codeSet": [], "expressionType": kind,
                    }
                ],
            }
        ],
    }  # fmt: skip
    opaque = client.send(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())
    notices = []
    while (reply := client.receive()).opaque != opaque or not is_response(reply):
        notices.append(reply)
    assert reply.code == 0
    return reply, notices


def lock(client: WireClient, code: int, client_id: str, topic: str, queues: list[int]) -> list[int]:
    body = {
        "clientId": client_id,
        "consumerGroup": "g-lock",
        "mqSet": [{"brokerName": "broker-a", "queueId": q, "topic": topic} for q in queues],
    }
    reply = client.call(code, {}, json.dumps(body).encode())
    assert reply.code == 0
    found: dict[str, Any] = json.loads(reply.body) if reply.body else {"lockOKMQSet": []}
    return sorted(item["queueId"] for item in found["lockOKMQSet"])
