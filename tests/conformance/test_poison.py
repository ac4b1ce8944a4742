"""Messages that no decent client would send, in a topic that everybody reads.

They are written with raw requests, as any client in any language may: to the embedded broker by us, to
Apache's by Apache's own encoders. Every reader of both shells gets all of them and what is before and
behind them, and nobody stops.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from tests.conformance.conftest import REAL
from tests.conformance.members import unique_group
from tests.conformance.receivers import RECEIVERS
from tests.embedded.wire_client import WireClient, send_ext
from tests.interop.driver import JavaDriver
from tests.real import running
from tests.wire_tools import encode_batch

from rocketwire import AsyncConsumer, AsyncReader, Consumer, Message, Producer, Reader, Retry
from rocketwire.columns import read_table
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode

LIMIT = 60.0
#: As many messages by Apache's own encoders, and as many good ones.
RANDOM_BY_JAVA = 60
BOMB = zlib.compress(bytes(70 * 1024 * 1024))
POISON: list[dict[str, Any]] = [
    {"g": 2**62},
    {"g": -(2**62)},
    {"g": 2**63 - 1, "f": 0x301},
    {"f": 0xC0},
    {"f": 0xC1, "body": b""},
    {"f": 0xC0, "body": encode_batch([(b"one", b"", 0), (b"two", b"", 0)])},
    {"f": 0xC0, "body": encode_batch([(b"one", b"", 0)]), "i": "INNER_BASE\x01900000\x02"},
    {"f": 0x701},
    {"f": 0x1, "body": zlib.compress(b"whole")[:-4]},
    {"f": 0x101},
    {"f": 0x201},
    {"f": 0x301, "body": BOMB},
    {"i": "TAGS\x01\x02KEYS"},
    {"i": "\x01\x02\x02\x01"},
    {"h": -1, "f": 0x40},
]


def _random_ones(count: int) -> list[dict[str, Any]]:
    rng = random.Random(14)
    kinds = [0, 0x1, 0x101, 0x201, 0x301, 0x501, 0xC0, 0xC1, 0x80]
    return [
        {
            "f": rng.choice(kinds),
            "g": rng.choice([0, 1_700_000_000_000, rng.randrange(-(2**63), 2**63)]),
            "body": rng.choice(
                [
                    rng.randbytes(rng.randrange(40)),
                    zlib.compress(rng.randbytes(20)),
                    encode_batch([(b"x", b"", 0)] * rng.randrange(3)),
                ]
            ),
        }
        for _ in range(count)
    ]


class Poisoned(NamedTuple):
    """A topic with poison between good messages in one queue."""

    release: str
    name_server: str
    topic: str
    count: int


def poison_embedded(cluster: EmbeddedCluster, topic: str) -> int:
    """Store the poison above; how many messages are there then."""
    sent = 0
    with (
        Producer(cluster.name_server, group="feeder") as producer,
        WireClient(cluster.brokers[0].address) as client,
    ):
        for one in POISON + _random_ones(100):
            fields = dict(one)
            body = fields.pop("body", b"nonsense")
            ext = send_ext(topic) | {"e": "0"} | {k: str(v) for k, v in fields.items()}
            reply = client.call(RequestCode.SEND_MESSAGE_V2, ext, body)
            assert reply.code == 0, reply
            producer.send(Message(topic, f"good {sent // 2}", keys="k"))
            sent += 2
    return sent


def poison_apache(release: str, address: str, topic: str) -> int:
    """Have Apache's own client store poison; a broker refuses some of it."""
    java = running.shared(f"java-{release}", lambda: JavaDriver(release))
    codes = java.call(
        "poison.write", address=address, topic=topic, queue=0, seed=14, count=RANDOM_BY_JAVA
    )
    assert codes[1::2] == [0] * RANDOM_BY_JAVA  # the good ones
    assert codes.count(0) > 1.5 * RANDOM_BY_JAVA  # 5.x takes no inner batch in an ordinary topic
    return int(codes.count(0))


@pytest.fixture(
    scope="module",
    params=[
        "embedded",
        *(pytest.param(v, marks=[pytest.mark.real, pytest.mark.timeout(600)]) for v in REAL),
    ],
)
def poisoned(request: pytest.FixtureRequest) -> Iterator[Poisoned]:
    if request.param == "embedded":
        with EmbeddedCluster(brokers=1) as cluster:
            cluster.create_topic("poisoned", 1)
            count = poison_embedded(cluster, "poisoned")
            yield Poisoned("embedded", cluster.name_server, "poisoned", count)
        return
    apache = running.cluster(request.param)
    topic = running.unique("poisoned")
    apache.create_topic(topic, 1)
    count = poison_apache(request.param, apache.brokers[0].listen, topic)
    yield Poisoned(request.param, apache.name_server, topic, count)


def look(message: Any) -> str:
    """What a careless application does."""
    assert repr(message)
    assert message.born_at <= message.born_at
    return f"{message.offset} {len(message.body)} {message.undecodable is None}"


def good(poisoned: Poisoned) -> set[str]:
    by_us = poisoned.release == "embedded"
    return {f"good {n}" for n in range(poisoned.count // 2 if by_us else RANDOM_BY_JAVA)}


def test_both_readers_and_the_columns_get_every_message(poisoned):
    _, name_server, topic, count = poisoned

    async def read() -> list[str]:
        async with AsyncReader(name_server) as reader:
            return [look(m) async for m in reader.read(topic)]

    with Reader(name_server) as reader:
        messages = list(reader.read(topic))
        assert [m.offset for m in messages] == list(range(count))
        assert {m.body.decode(errors="replace") for m in messages} >= good(poisoned)
        seen = [look(m) for m in messages]
        table = read_table(reader, topic, columns=["queueOffset", "body", "undecodable"])
        kept = read_table(reader, topic, columns=["queueOffset"], on_bad_body="skip")
    assert asyncio.run(read()) == seen
    assert [
        f"{r['queueOffset']} {len(r['body'])} {r['undecodable'] is None}" for r in table.to_pylist()
    ] == seen
    bad = [text for text in seen if text.endswith("False")]
    assert len(bad) > 15
    assert kept.num_rows == count - len(bad)


def _run_async(one: AsyncConsumer, handle: Callable[[Any], object]) -> None:
    asyncio.run(asyncio.wait_for(one.run(handle), LIMIT))


def _run_blocking(one: Consumer, handle: Callable[[Any], object]) -> None:
    timer = threading.Timer(LIMIT, one.stop)
    timer.start()
    try:
        one.run(handle)
    finally:
        timer.cancel()


SHELLS = {"asyncio": (AsyncConsumer, _run_async), "blocking": (Consumer, _run_blocking)}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"batch": 7}], ids=str)
def test_consumers_handle_every_message_and_try_those_again_that_fail(poisoned, shell, options):
    _, name_server, topic, count = poisoned
    make, run = SHELLS[shell]
    one = make(
        name_server, group=unique_group(), start="earliest", workers=2, retry_pause=0.01, **options
    ).subscribe(topic)
    seen: Counter[int] = Counter()
    failed: set[int] = set()
    lock = threading.Lock()

    def handle(given: Any) -> object:
        messages = given if isinstance(given, list) else [given]
        with lock:
            for message in messages:
                look(message)
            fresh = {m.offset for m in messages if m.undecodable} - failed
            if options.get("ordered") and fresh:
                failed.update(fresh)
                raise ValueError("bad bodies")
            seen.update(m.offset for m in messages)
            if len(seen) == count:
                one.stop()
        return None

    run(one, handle)
    assert set(seen) == set(range(count))
    stats = one.stats()
    assert stats.handled >= count
    assert stats.pull_errors == 0
    if options.get("ordered"):
        assert len(failed) > 15
        assert stats.failed >= len(failed)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_handler_that_fails_at_poison_neither_ends_run_nor_loses_a_worker(
    poisoned, shell, caplog
):
    """Two such messages killed both workers of an asyncio consumer, by the log line."""
    _, name_server, topic, count = poisoned
    make, run = SHELLS[shell]
    one = make(name_server, group=unique_group(), start="earliest", workers=2).subscribe(topic)
    tried: Counter[int] = Counter()
    lock = threading.Lock()

    def handle(message: Any) -> object:
        with lock:
            tried[message.offset] += message.topic == topic and message.reconsume_times == 0
            if len(tried) == count:
                one.stop()
        if message.offset % 2 == 0:
            raise ValueError("poison")
        return Retry() if message.offset % 5 == 0 else None

    run(one, handle)
    assert set(tried) == set(range(count))
    told = [r.getMessage() for r in caplog.records if "a handler failed" in r.getMessage()]
    assert len(told) >= count // 2
    assert f"group {one._config.group}, topic {topic}, broker broker-a, queue 0" in told[0]
    assert "attempt 1" in told[0]


@pytest.mark.parametrize("shell", list(RECEIVERS))
def test_receivers_get_every_message_and_are_done_with_it(poisoned, shell):
    release, name_server, topic, count = poisoned
    if release.startswith("4"):
        pytest.skip("4.x has no receive")
    seen: set[int] = set()
    deadline = time.monotonic() + LIMIT
    one = RECEIVERS[shell](name_server, group=unique_group(), start="earliest")
    try:
        one.subscribe(topic)
        one.start()
        while len(seen) < count and time.monotonic() < deadline:
            messages = one.receive(32, wait=2)
            seen |= {message.offset for message in messages if look(message)}
            one.acknowledge(messages)
    finally:
        one.shutdown()
    assert seen == set(range(count))
