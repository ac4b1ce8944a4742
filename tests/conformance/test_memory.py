"""A few kilobytes may become many megabytes: no reader holds more than a few of them at a time."""

from __future__ import annotations

import gc
import subprocess
import sys
import zlib
from collections.abc import Iterator

import pytest
from tests.conformance.members import MEMBERS, eventually, unique_group
from tests.embedded.wire_client import WireClient, send_ext

from rocketwire import Message, Producer, StoredMessage
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode

COUNT = 9
#: What Python, the client and Arrow take by themselves is in it: about 110 MB.
LIMIT_MB = 400
BODY = 60 * 1024 * 1024

READER = """
from rocketwire import Reader
with Reader(name_server) as reader:
    sizes = [len(message.body) for message in reader.read(topic)]
"""
CONSUMER = """
from rocketwire import Consumer
sizes = []
consumer = Consumer(name_server, group="memory", start="earliest", workers=1).subscribe(topic)
def handle(message):
    sizes.append(len(message.body))
    if len(sizes) == count:
        consumer.stop()
consumer.run(handle)
"""
#: Its broker takes no message back, so that all of them rest here at the same time.
FAILING = """
import logging
from rocketwire import Consumer
logging.disable()
sizes, seen = [], set()
consumer = Consumer(name_server, group="failing", start="earliest", workers=1).subscribe(topic)
def handle(message):
    body = message.body
    if message.offset not in seen:
        seen.add(message.offset)
        sizes.append(len(body))
    if len(sizes) == count:
        consumer.stop()
    raise ValueError("no")
consumer.run(handle)
"""
COLUMNS = """
from rocketwire import Reader
from rocketwire.columns import read_batches
sizes = []
with Reader(name_server) as reader:
    for batch in read_batches(reader, topic, columns=["body", "undecodable"]):
        assert batch.nbytes <= 64 * 1024 * 1024 + 1000
        sizes += [len(body.as_buffer()) for body in batch.column("body")]
"""


@pytest.fixture(scope="module")
def bombs() -> Iterator[tuple[str, str]]:
    body = zlib.compress(bytes(BODY))
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("bombs", 1)
        with WireClient(cluster.brokers[0].address) as client:
            for _ in range(COUNT):
                ext = send_ext("bombs") | {"e": "0", "f": str(0x301)}
                assert client.call(RequestCode.SEND_MESSAGE_V2, ext, body).code == 0
        cluster.brokers[0].reject(1, code=RequestCode.CONSUMER_SEND_MESSAGE_BACK)
        yield cluster.name_server, "bombs"


@pytest.mark.parametrize(
    "program",
    [READER, CONSUMER, FAILING, COLUMNS],
    ids=["reader", "consumer", "failing consumer", "columns"],
)
def test_memory_is_bounded_whatever_bodies_become(bombs, program):
    name_server, topic = bombs
    lines = f"""
from pathlib import Path
name_server, topic, count = {name_server!r}, {topic!r}, {COUNT}
{program}
assert sizes == [{BODY}] * count, sizes
# Not ru_maxrss: that begins with what the process took that started this one.
(peak,) = [x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM")]
print(int(peak.split()[1]) // 1024)
"""
    found = subprocess.run(
        [sys.executable, "-c", lines], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < LIMIT_MB


@pytest.mark.parametrize("name", MEMBERS)
def test_workers_that_wait_keep_no_message(name):
    """Each kept the last one that it had handled, which may be large, until the next one came."""
    handled: list[int] = []
    topic = f"few-{name}"

    def handle(message: StoredMessage) -> None:
        handled.append(message.offset)

    with EmbeddedCluster(brokers=1) as cluster, Producer(cluster.name_server) as producer:
        cluster.create_topic(topic, 1)
        options = {"handler": handle, "start": "earliest"}
        member = MEMBERS[name](cluster.name_server, unique_group(), topic, **options).start()
        try:
            for number in range(5):
                producer.send(Message(topic, b"%d" % number))
            eventually(lambda: len(handled) >= 5)
            eventually(lambda: not _stored_messages(topic), 10)
        finally:
            member.stop()


def _stored_messages(topic: str) -> list[StoredMessage]:
    """Those of this test: others of this process may have left some."""
    gc.collect()
    every = [found for found in gc.get_objects() if isinstance(found, StoredMessage)]
    return [message for message in every if message.topic == topic]
