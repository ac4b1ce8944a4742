"""Traces of consuming: Java's ``SubBefore`` and ``SubAfter`` records, one of each per message.

As with sends, a trace never costs a message anything: what finds no room, or can't be sent, is
dropped and counted. Records are written by the same settings as a producer's traces.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple

from rocketwire.config import ClientConfig, ProducerConfig
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.effects import Op
from rocketwire.core.faults.positions import RoundRobinCounter
from rocketwire.core.instance import Instance
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.trace import BATCH, LINGER, MAX_BYTES, MAX_KEYS, PAUSE, QUEUE, TIMEOUT
from rocketwire.core.wake_up import WakeUp
from rocketwire.hooks import HookSet
from rocketwire.log_fields import about
from rocketwire.message import Message
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.headers import DEFAULT_REGION
from rocketwire.wire.lazy_message import broker_property
from rocketwire.wire.properties import Property
from rocketwire.wire.trace_record import (
    CONTEXT_CODES,
    SubAfterRecord,
    SubBeforeRecord,
    encode_trace_record,
    words_in,
)

_log = logging.getLogger("rocketwire.trace")

SUCCESS: Final = CONTEXT_CODES.index("SUCCESS")
EXCEPTION: Final = CONTEXT_CODES.index("EXCEPTION")
FAILED: Final = CONTEXT_CODES.index("FAILED")

_numbers = count(1)


class Handling(NamedTuple):
    """A call of a handler that is under way."""

    request_id: str
    began_ms: int
    messages: Sequence[StoredMessage]


class _Line(NamedTuple):
    topic: str
    record: SubBeforeRecord | SubAfterRecord


class ConsumeTracer:
    """Records what handlers do. ``begin`` and ``end`` may be called from any thread."""

    def __init__(self, instance: Instance, config: ConsumerConfig) -> None:
        self.topic: Final = config.trace or ""
        self.dropped = 0
        self._group = config.group
        self._instance = instance
        self._wake_up = WakeUp(instance.surroundings.make_lock())
        self._line: deque[_Line] = deque()
        self._is_failing = False
        # Without hooks: a trace is neither traced nor a part of the telemetry.
        settings = trace_producer(config, next(_numbers))
        self._sender = Sender(instance, settings, RoundRobinCounter(instance.random), HookSet())

    def begin(self, messages: Sequence[StoredMessage]) -> Handling | None:
        """A handler is called; None for messages that are traces themselves, or want none."""
        if messages[0].topic == self.topic:
            return None
        messages = [m for m in messages if broker_property(m, Property.TRACE_ON) != "false"]
        if not messages:
            return None
        now = int(self._instance.wall() * 1000)
        handling = Handling(self._instance.ids.next(), now, messages)
        for m in messages:
            record = SubBeforeRecord(
                now,
                # Brokers before 5.0 do not note it; Java then writes no trace at all.
                broker_property(m, Property.MSG_REGION) or DEFAULT_REGION,
                self._group,
                handling.request_id,
                m.message_id,
                m.reconsume_times,
                m.keys,
            )
            self._put(m.topic, record)
        return handling

    def end(self, handling: Handling | None, code: int) -> None:
        """It is done, well or not."""
        if handling is None:
            return
        now = int(self._instance.wall() * 1000)
        cost = max(0, now - handling.began_ms) // len(handling.messages)
        for m in handling.messages:
            record = SubAfterRecord(
                handling.request_id,
                m.message_id,
                cost,
                code == SUCCESS,
                m.keys,
                code,
                now,
                self._group,
            )
            self._put(m.topic, record)
        if len(self._line) >= BATCH:
            self._wake_up.wake()

    def _put(self, topic: str, record: SubBeforeRecord | SubAfterRecord) -> None:
        if len(self._line) < QUEUE:
            self._line.append(_Line(topic, record))
        else:
            self.dropped += 1

    def ship(self) -> Op[None]:
        """Send what is in line; what can't be sent is dropped."""
        for message, records in self._pack():
            try:
                yield from self._sender.send(message, timeout=TIMEOUT)
            except Exception as error:  # noqa: BLE001 - keys that can't be had for a moment, say
                self.dropped += records
                if not self._is_failing:
                    text, extra = "traces are lost, messages are not: %s", about(group=self._group)
                    _log.warning(text, error, extra=extra)
                self._is_failing = True
            else:
                self._is_failing = False

    def keep_shipping(self) -> Op[None]:
        """Send records as they come, for ever."""
        clock = self._instance.clock
        while True:
            lost = self.dropped
            yield from self._wake_up.wait(clock() + LINGER)
            yield from self.ship()
            if self.dropped > lost:
                # Whatever is wrong, it must not be asked for with every tenth message.
                yield from self._wake_up.wait(clock() + PAUSE)

    def _pack(self) -> Iterator[tuple[Message, int]]:
        by_topic: dict[str, list[_Line]] = {}
        for _ in range(len(self._line)):
            line = self._line.popleft()
            by_topic.setdefault(line.topic, []).append(line)
        for lines in by_topic.values():
            texts: list[bytes] = []
            keys: dict[str, None] = {}
            for line in lines:
                text = encode_trace_record(line.record).encode("utf-8", "replace")
                if texts and sum(map(len, texts)) + len(text) > MAX_BYTES // 2:
                    yield self._message(texts, keys), len(texts)
                    texts, keys = [], {}
                texts.append(text)
                keys.update(dict.fromkeys(words_in(line.record.message_id, line.record.keys)))
            yield self._message(texts, keys), len(texts)

    def _message(self, texts: list[bytes], keys: dict[str, None]) -> Message:
        found, size = [], 0
        for key in keys:
            size += len(key.encode("utf-8", "replace")) + 1
            if size > MAX_KEYS:
                break
            found.append(key)
        return Message(self.topic, b"".join(texts), keys=found)


def trace_producer(config: ConsumerConfig, number: int) -> ProducerConfig:
    """The settings of the producer that sends a consumer's traces."""
    names = {spec.name for spec in dataclasses.fields(ClientConfig)}
    shared = {name: getattr(config, name) for name in names - {"hooks", "namespace"}}
    room = 120 - len(f"_INNER_TRACE_PRODUCER--CONSUME-{number}")
    return ProducerConfig(
        **shared,
        group=f"_INNER_TRACE_PRODUCER-{config.group[:room]}-CONSUME-{number}",
        send_timeout=TIMEOUT,
    )
