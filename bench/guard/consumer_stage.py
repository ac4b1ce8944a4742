"""Consumers without a network: their pulls are answered in memory, and handlers do nothing.

Membership (heartbeats, rebalancing, offsets) is left out: it does not grow with the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from bench.guard.counting import uncounted
from bench.guard.stage import (
    ADDRESS,
    ROUTE,
    TOPIC,
    MemoryTransport,
    Wire,
    stage_options,
    steady_time,
)
from rocketwire import AsyncConsumer
from rocketwire.aio.connection import Connection
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.group.membership import Group
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.group.pull_loop import begin_pulling
from rocketwire.core.reading.pull import ALL
from rocketwire.hooks import HookSet
from rocketwire.message import MessageQueue
from rocketwire.sync.member import Member
from rocketwire.system.registry import make_config
from rocketwire.wire.command import JSON, RESPONSE, Command, decode_command
from rocketwire.wire.framing import FrameBuffer
from rocketwire.wire.stored_message import encode_record

#: What a broker gives in one pull, unless it is configured otherwise.
_MOST: Final = 32
_END: Final = 1_000_000
_BODY: Final = b"x" * 200
_PROPERTIES: Final = (
    b"UNIQ_KEY\x017F000001000CF0DF35264B32A5B90000\x02CLUSTER\x01DefaultCluster\x02"
    b"KEYS\x01order-100000\x02TAGS\x01pay\x02region\x01eu-west\x02amount\x01100000\x02"
    b"trace\x01000000000001e240\x02"
)


class PullWire(Wire):
    """Answers every pull with as many messages as a broker gives, as 5.x answers."""

    def __init__(self) -> None:
        super().__init__()
        self._frames = FrameBuffer()
        self._asked: list[bytes] = []
        self._record = encode_record(topic=TOPIC, body=_BODY, properties=_PROPERTIES)

    def request(self, data: bytes) -> None:
        """Take what a consumer wrote."""
        self.written += len(data)
        self.writes += 1
        self._asked.append(data)

    def answers(self) -> bytes:
        """All answers so far, once."""
        with uncounted():
            for data in self._asked:
                for frame in self._frames.feed(data):
                    self._answer(decode_command(frame))
            self._asked.clear()
            return super().answers()

    def _answer(self, request: Command) -> None:
        offset = int(request.ext["queueOffset"])
        start, end = self._record[:20], self._record[28:]
        records = [start + (offset + n).to_bytes(8, "big") + end for n in range(_MOST)]
        ext = {
            "nextBeginOffset": str(offset + _MOST),
            "minOffset": "0",
            "maxOffset": str(_END),
            "suggestWhichBrokerId": "0",
        }
        reply = Command(0, ext, b"".join(records), header=JSON)
        self.write(reply.head(request.opaque, RESPONSE))
        self.write(cast("bytes", reply.body))


class ConsumerStage:
    """A consumer with one queue, which is pulled when ``turn`` is called."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.consumer = consumer
        self.wire = PullWire()
        instance, driver = consumer._instance, consumer._driver
        instance.learned(instance.routes.update(TOPIC, ROUTE))
        workload = consumer._workload = consumer._make_workload()
        self.workload = workload
        group = Group(instance, consumer._config, workload, HookSet(()))
        group.subscribe({TOPIC: ALL})
        group.start_pulling = lambda operation: driver.start(operation, _ignore)
        self._connection = Connection(
            ADDRESS, loop=driver.loop, clock=driver.clock, on_over=lambda _: None
        )
        self._connection.connection_made(cast("Any", MemoryTransport(self.wire)))
        driver.connections[ADDRESS] = self._connection
        self._held = ProcessQueue(MessageQueue(TOPIC, "broker-a", 0), 0, group.make_wake_up())
        begin_pulling(group, self._held)

    async def turn(self) -> None:
        """Let it read what it asked for, and go on."""
        self._connection._flush()
        self._connection.data_received(self.wire.answers())
        for _ in range(3):  # a loop that waits for room goes on in a tick of its own
            await asyncio.sleep(0)

    def end(self) -> None:
        """Pull no more."""
        self.workload.drop(self._held)


def _ignore(*_: object) -> None:
    """Pulling has ended."""


@asynccontextmanager
async def consumer_stage(*, batch: int, threads: bool = False) -> AsyncIterator[ConsumerStage]:
    """A consumer that has not joined anything; for threads, the one that they use."""
    options = stage_options({"batch": batch})
    consumer: AsyncConsumer
    if threads:
        consumer = Member(make_config(ConsumerConfig, ADDRESS, None, None, options), {})
    else:
        consumer = AsyncConsumer(ADDRESS, **options)
    with steady_time():
        await consumer.start()
    stage = ConsumerStage(consumer)
    try:
        yield stage
    finally:
        stage.end()
        # There is no network to say goodbye to.
        consumer._upkeep_driver._is_closed = True
        await consumer.shutdown()
