"""Everything a topic holds, read by hand: the judge of what was lost and what is there twice."""

import struct
from collections import Counter

from tests.real.apache import ApacheCluster
from tests.real.frames import RawConnection

_BODY_AT = 84
"""Where the length of the body stands in a stored record whose hosts have IPv4 addresses."""


def bodies(cluster: ApacheCluster, topic: str) -> Counter[bytes]:
    """How often each body is stored, asked from every broker directly."""
    found: Counter[bytes] = Counter()
    for name, (queues, _) in cluster.route(topic).items():
        with cluster.connect(cluster.broker(name).listen) as connection:
            for queue in range(queues):
                found.update(_queue(connection, topic, queue))
    return found


def _queue(connection: RawConnection, topic: str, queue: int) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    end = int(connection.call(30, {"topic": topic, "queueId": queue}).ext["offset"])
    offset = 0
    while offset < end:
        answer = connection.call(11, _pull(topic, queue, offset))
        offset = int(answer.ext["nextBeginOffset"])
        found.update(_split(answer.body))
    return found


def _pull(topic: str, queue: int, offset: int) -> dict[str, object]:
    return {
        "consumerGroup": "judge",
        "topic": topic,
        "queueId": queue,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }


def _split(records: bytes) -> list[bytes]:
    found = []
    at = 0
    while at < len(records):
        (size,) = struct.unpack_from(">I", records, at)
        (length,) = struct.unpack_from(">I", records, at + _BODY_AT)
        start = at + _BODY_AT + 4
        found.append(records[start : start + length])
        at += size
    return found
