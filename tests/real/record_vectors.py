"""Record what real servers answer, as vectors for our codecs.

Run by hand when a release is added: ``python -m tests.real.record_vectors 4.9.7 5.3.3``. Each answer is
kept as the whole frame in ``tests/vectors/apache/<release>-<name>.bin``; ``<release>.json`` says what was
asked, and what Apache's own Java client reads from the bodies, so that the expectation is not ours either.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop.driver import JavaDriver, message
from tests.real.apache import ApacheCluster
from tests.real.frames import BINARY, JSON, Answer, RawConnection

FOLDER = Path(__file__).parents[1] / "vectors" / "apache"
TOPIC = "Vectors"
_PULL = {
    "consumerGroup": "vectors",
    "topic": TOPIC,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 0,
    "expressionType": "TAG",
}
_SEND = {
    "a": "vectors",
    "b": TOPIC,
    "c": "TBW102",
    "d": 4,
    "e": 0,
    "f": 0,
    "g": 1_700_000_000_000,
    "h": 0,
    "i": "KEYS\x01k\x02TAGS\x01T\x02",
    "j": 0,
    "k": False,
    "m": False,
}


class Recorder:
    """Asks one cluster and writes what it answers."""

    def __init__(self, cluster: ApacheCluster, java: JavaDriver) -> None:
        self._cluster = cluster
        self._java = java
        self._entries: list[dict[str, Any]] = []

    def record(
        self,
        name: str,
        connection: RawConnection,
        code: int,
        ext: dict[str, Any],
        body: bytes = b"",
        *,
        version: int = 475,
        header: int = JSON,
        records: bool = False,
    ) -> Answer:
        """Ask, write the frame, and describe it; ``records`` where the body holds messages."""
        answer = connection.call(code, ext, body, version=version, header_type=header)
        path = FOLDER / f"{self._cluster.version}-{name}.bin"
        path.write_bytes(answer.raw)
        entry = {
            "file": path.name,
            "asked": {"code": code, "ext": ext, "version": version, "header": header},
            "answer": {
                "code": answer.code,
                "remark": answer.remark,
                "ext": answer.ext,
                "opaque": answer.opaque,
                "header": answer.header_type,
            },
        }
        if records:
            entry["messages"] = self._java.call("decode", body=answer.body)
        elif answer.body:
            entry["body"] = answer.body.decode()
        self._entries.append(entry)
        return answer

    def finish(self) -> None:
        """Write the description of everything recorded."""
        path = FOLDER / f"{self._cluster.version}.json"
        text = json.dumps(self._entries, indent=1, ensure_ascii=False, sort_keys=True)
        path.write_text(text + "\n")


def messages() -> Iterator[dict[str, Any]]:
    """One of each kind that a plain send can store."""
    yield message(TOPIC, "plain")
    yield message(TOPIC, "marked", tags="TagA", keys="k1 k2", flag=7, properties={"größe": "二 😀"})
    yield message(TOPIC, b"\x00\xff" * 64, properties={"blank": " x "})
    yield message(TOPIC, "compress me " * 400)
    yield message(TOPIC, "delayed", delay_level=1)


def fill(java: JavaDriver, cluster: ApacheCluster) -> None:
    """Let the Java client write every kind of message into queue 0."""
    queue = {"topic": TOPIC, "broker": "broker-a", "queue": 0}
    options: list[dict[str, Any]] = [{}]
    if not cluster.version.startswith("4."):
        options += [{"compressType": kind} for kind in ("LZ4", "ZSTD")]
    for number, chosen in enumerate(options):
        name = f"plain-{number}"
        start(java, cluster, name, options=chosen)
        for each in messages():
            java.call("producer.send", producer=name, message=each, queue=queue)
    batch = [message(TOPIC, f"item {number}", tags="B") for number in range(3)]
    java.call("producer.batch", producer="plain-0", messages=batch, queue=queue)
    start(java, cluster, "transactional", transactional=True)
    for number in range(4):
        java.call(
            "producer.transaction",
            producer="transactional",
            message=message(TOPIC, f"transaction {number}"),
            local="COMMIT_MESSAGE",
        )


def start(java: JavaDriver, cluster: ApacheCluster, name: str, **more: Any) -> None:
    java.call("producer.start", producer=name, group=name, name_server=cluster.name_server, **more)


def record_broker(recorder: Recorder, connection: RawConnection) -> None:
    queue = {"topic": TOPIC, "queueId": 0}
    for kind, header in (("json", JSON), ("binary", BINARY)):
        recorder.record(f"send-{kind}", connection, 310, _SEND, b"hello", header=header)
        recorder.record(f"max-offset-{kind}", connection, 30, queue, header=header)
        pull = _PULL | {"queueId": 0, "queueOffset": 0}
        recorder.record(f"pull-{kind}", connection, 11, pull, header=header, records=True)
        recorder.record(
            f"pull-beyond-{kind}", connection, 11, pull | {"queueOffset": 999}, header=header
        )
        recorder.record(f"unknown-code-{kind}", connection, 9999, {}, header=header)
    for number in range(1, 4):
        pull = _PULL | {"queueId": number, "queueOffset": 0}
        recorder.record(f"pull-queue-{number}", connection, 11, pull, records=True)
    item = "0000002300000000000000000000000000000003616263000a54414753015461674102"
    sent = _SEND | {"m": True, "i": ""}
    del sent["i"]
    recorder.record("send-batch", connection, 320, sent, bytes.fromhex(item) * 2)
    recorder.record(
        "send-forbidden-topic", connection, 310, _SEND | {"b": "SCHEDULE_TOPIC_XXXX"}, b"x"
    )
    recorder.record("send-bad-queue", connection, 310, _SEND | {"e": 99}, b"x")
    recorder.record(
        "send-unknown-topic", connection, 310, _SEND | {"b": "Unknown", "c": "None"}, b"x"
    )
    recorder.record("min-offset", connection, 31, queue)
    recorder.record("search-offset", connection, 29, queue | {"timestamp": 0})
    recorder.record("earliest-time", connection, 32, queue)
    recorder.record("view", connection, 33, {"offset": 0}, records=True)
    recorder.record(
        "offset-not-found",
        connection,
        14,
        queue | {"consumerGroup": "nobody", "setZeroIfNotFound": False},
    )
    recorder.record("topic-stats", connection, 202, {"topic": TOPIC})
    beat = {
        "clientID": "vectors@1",
        "producerDataSet": [{"groupName": "vectors"}],
        "consumerDataSet": [],
    }
    recorder.record("heartbeat", connection, 34, {}, json.dumps(beat).encode())
    recorder.record("no-consumers", connection, 38, {"consumerGroup": "nobody"})


def record_name_server(recorder: Recorder, connection: RawConnection) -> None:
    for version in (317, 475):
        recorder.record(f"route-{version}", connection, 105, {"topic": TOPIC}, version=version)
    recorder.record("route-unknown", connection, 105, {"topic": "Unknown"})
    recorder.record("cluster-info", connection, 106, {})
    recorder.record("topic-list", connection, 206, {})


def main(versions: list[str]) -> None:
    """Record the releases named on the command line."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for version in versions:
        with ApacheCluster(version, brokers=1) as cluster, JavaDriver(version) as java:
            cluster.create_topic(TOPIC, queues=4)
            fill(java, cluster)
            # Long enough for delayed and committed messages to be delivered.
            time.sleep(4)
            recorder = Recorder(cluster, java)
            with cluster.connect(cluster.brokers[0].listen) as connection:
                record_broker(recorder, connection)
            with cluster.connect(cluster.name_server) as connection:
                record_name_server(recorder, connection)
            recorder.finish()


if __name__ == "__main__":
    main(sys.argv[1:] or ["4.9.7", "5.3.3"])
