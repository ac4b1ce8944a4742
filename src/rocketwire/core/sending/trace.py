"""Message traces: which sends are recorded, and how records travel to the trace topic.

The records are Java's ``Pub`` records, so that its tools show them. Two things differ from Java on
purpose: a send that failed is recorded, too (without an offset id, as not successful), and each
message of a batch has a record of its own, so that it can be found by its id. As in Java, a oneway
message is recorded only when it failed, and nothing is where the broker wants no traces.

A trace must never cost a message: what finds no room in line, or can't be sent, is dropped and
counted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain, islice, repeat
from typing import Any, Final, NamedTuple

from rocketwire.config import AUTO, ProducerConfig
from rocketwire.core.effects import Event, Op, wait
from rocketwire.core.sending.sender import Sender
from rocketwire.core.wake_up import WakeUp
from rocketwire.hooks import SendEvent
from rocketwire.message import Message
from rocketwire.wire.trace_record import MESSAGE_TYPES, PubRecord, encode_trace_record

_log = logging.getLogger("rocketwire.trace")

#: Records that wait; more are dropped.
QUEUE: Final = 2048
#: From this many on they are sent at once, otherwise after LINGER seconds.
BATCH: Final = 10
LINGER: Final = 5.0
#: The most that one trace message holds. Its keys are properties, which have a limit of 32 KiB.
MAX_BYTES: Final = 128_000
MAX_KEYS: Final = 16_000
#: Seconds for one trace message, and the rest after one that failed.
TIMEOUT: Final = 5.0
PAUSE: Final = 1.0

_GROUP_LENGTH: Final = 120
_NORMAL: Final = MESSAGE_TYPES.index("Normal")
_DELAYED: Final = MESSAGE_TYPES.index("Delay_Msg")
_ORDERED: Final = MESSAGE_TYPES.index("Order_Msg")


class _Sent(NamedTuple):
    """What a record is made of. Not the message itself: a line of them would hold its bodies."""

    start_ms: int
    region: str | None
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str | None
    body_length: int
    cost_ms: int
    message_type: int
    offset_message_id: str | None
    success: bool


class TraceMessage(NamedTuple):
    """A trace message and how many records it has."""

    message: Message
    records: int


class Tracer:
    """A hook that records how sends ended, and the line in which records wait.

    Args:
        topic: the trace topic.
        group: of the producer whose messages are traced.
        clock: monotonic.
        make_lock: gives locks.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        *,
        clock: Callable[[], float],
        make_lock: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.topic: Final = topic
        self.dropped = 0
        self._group = group
        self._clock = clock
        self._lock = make_lock()
        self._wake_up = WakeUp(make_lock())
        self._closing = Event()
        self._queue: deque[_Sent] = deque()
        self._in_hand = 0
        self._is_called = False
        self._is_failing = False
        self._deadline = float("inf")
        #: Whether records are sent.
        self.is_shipping = False

    # -- recording: on the thread that sends --------------------------------------------------

    def after_send(self, event: SendEvent) -> None:
        """Put the records of a send in line."""
        if not event.is_traced or (event.result is None and event.error is None):
            return
        if event.messages[0].topic == self.topic:
            return
        queue, count = self._queue, len(event.messages)
        room = 0 if self._closing.is_set else QUEUE - len(queue)
        if count == 1 and room > 0:
            queue.append(_one(event))
        else:
            queue.extend(islice(_each(event), max(0, room)))
            if count > room:
                self._drop(count - max(0, room))
        if len(queue) >= BATCH and not self._is_called:
            self._is_called = True
            self._wake_up.wake()

    def _drop(self, count: int) -> None:
        with self._lock:
            self.dropped += count

    # -- sending: wherever the operation runs -------------------------------------------------

    def wait(self) -> Op[None]:
        """Wait until there is enough to send, or something for long, or the end."""
        if not self._closing.is_set:
            yield from self._wake_up.wait(self._clock() + LINGER)
        # From here on what comes wakes it again; those in line before are taken now.
        self._is_called = False

    def rest(self) -> Op[None]:
        """Wait a while, or until the end."""
        yield from wait(self._closing, self._clock() + PAUSE)

    def take(self) -> Iterator[TraceMessage]:
        """Everything in line, as messages to be sent; each must be told sent or lost."""
        records: list[PubRecord] = []
        for _ in range(len(self._queue)):
            try:
                sent = self._queue.popleft()
            except IndexError:  # another thread took the last one
                break
            records.append(PubRecord(group=self._group, **sent._asdict()))
        self._in_hand += len(records)
        return pack(self.topic, records)

    def sent(self, trace: TraceMessage) -> None:
        """A trace message was stored."""
        self._in_hand -= trace.records
        self._is_failing = False

    def lost(self, trace: TraceMessage, error: Exception) -> None:
        """A trace message was not stored."""
        self._lose(trace.records, error)

    def lost_all(self, error: Exception) -> None:
        """What was taken from the line and not sent is lost."""
        self._lose(self._in_hand, error)

    def _lose(self, records: int, error: Exception) -> None:
        self._in_hand -= records
        self._drop(records)
        if not self._is_failing:
            _log.warning("traces are lost, messages are not: %s", error)
        self._is_failing = True

    # -- the end --------------------------------------------------------------------------------

    def close(self, deadline: float) -> None:
        """Record nothing more; what is in line should be sent by then."""
        self._deadline = deadline
        self._closing.set()
        self._wake_up.wake()

    def time_left(self) -> float:
        """Seconds that a trace message may take now."""
        return min(TIMEOUT, self._deadline - self._clock())

    def is_over(self) -> bool:
        """Whether nothing more is to be sent: all is, or there is no time."""
        return self._closing.is_set and (not self._queue or self.time_left() <= 0)

    def finish(self) -> None:
        """Count what was not sent as dropped."""
        self._drop(len(self._queue) + self._in_hand)
        self._queue.clear()
        self._in_hand = 0


def _one(event: SendEvent) -> _Sent:
    message, result = event.messages[0], event.result
    return _Sent(
        int(event.at * 1000),
        None if result is None else result.region,
        message.topic,
        event.message_ids[0],
        message.tags,
        message.keys,
        event.address,
        event.size,
        int(event.elapsed * 1000),
        message_type(message),
        None if result is None else result.offset_message_id,
        result is not None,
    )


def _each(event: SendEvent) -> Iterator[_Sent]:
    """The records of a batch: what is true of all of them, with what is each one's own."""
    start_ms, region, topic, *_ = whole = _one(event)
    host, cost_ms, is_stored = whole.store_host, whole.cost_ms, whole.success
    places: Iterable[str | None] = () if event.result is None else event.result.offset_message_ids
    for message, message_id, place in zip(
        event.messages, event.message_ids, chain(places, repeat(None)), strict=False
    ):
        yield _Sent(
            start_ms,
            region,
            topic,
            message_id,
            message.tags,
            message.keys,
            host,
            len(message.body),
            cost_ms,
            message_type(message),
            place,
            is_stored,
        )


def message_type(message: Message) -> int:
    """The number that stands for the kind of a message in a trace."""
    if message.delay_level or message.deliver_at is not None:
        return _DELAYED
    return _NORMAL if message.sharding_key is None else _ORDERED


def pack(topic: str, records: Iterable[PubRecord]) -> Iterator[TraceMessage]:
    """Trace messages: those of one source topic together, none too large.

    A message can be found by every id and user key in it.
    """
    by_topic: dict[str, list[PubRecord]] = {}
    for record in records:
        by_topic.setdefault(record.topic, []).append(record)
    for group in by_topic.values():
        lines: list[bytes] = []
        size = key_size = 0
        keys: dict[str, None] = {}
        for record in group:
            line = encode_trace_record(record).encode("utf-8", "replace")
            words = _keys_of(record)
            more = sum(len(word.encode("utf-8", "replace")) + 1 for word in words)
            if lines and (size + len(line) > MAX_BYTES or key_size + more > MAX_KEYS):
                yield TraceMessage(Message(topic, b"".join(lines), keys=list(keys)), len(lines))
                lines, size, key_size, keys = [], 0, 0, {}
            lines.append(line)
            size += len(line)
            key_size += more
            keys.update(dict.fromkeys(words))
        yield TraceMessage(Message(topic, b"".join(lines), keys=list(keys)), len(lines))


def _keys_of(record: PubRecord) -> list[str]:
    words = [record.message_id or ""]
    if record.keys and len(record.keys.encode("utf-8", "replace")) < MAX_KEYS // 2:
        words += record.keys.split(" ")
    return [word for word in words if word]


def trace_settings(config: ProducerConfig, number: int) -> ProducerConfig:
    """The settings of the producer that sends traces for another one.

    Args:
        config: those of the other one.
        number: of the tracing producer in this process; a part of the group, as in Java.
    """
    room = _GROUP_LENGTH - len(f"_INNER_TRACE_PRODUCER--PRODUCE-{number}")
    return replace(
        config,
        group=f"_INNER_TRACE_PRODUCER-{config.group[:room]}-PRODUCE-{number}",
        namespace=None,
        hooks=(),
        trace=None,
        telemetry=None,
        status=None,
        selector=None,
        auto_batch=None,
        send_timeout=TIMEOUT,
        attempt_timeout=AUTO,
        # What every version of Java's tools can read.
        compress_over=4096,
        compression="zlib",
        compress_level=5,
        max_message_size=4 * 1024 * 1024,
    )


def ship_traces(tracer: Tracer, sender: Sender) -> Op[None]:
    """Send records as they come, until the tracer is closed and all are sent or time is up.

    Nothing else ends it: there would be no sign that nothing is traced any more.
    """
    tracer.is_shipping = True
    while True:
        yield from tracer.wait()
        try:
            went_well = yield from _ship(tracer, sender)
        except Exception as error:  # noqa: BLE001 - it is logged, and costs these records only
            tracer.lost_all(error)
            went_well = False
        if tracer.is_over():
            return
        if not went_well:
            # Whatever is wrong, it must not be asked for with every tenth message.
            yield from tracer.rest()


def _ship(tracer: Tracer, sender: Sender) -> Op[bool]:
    went_well = True
    for trace in tracer.take():
        left = tracer.time_left()
        if left <= 0:
            return False
        try:
            yield from sender.send(trace.message, timeout=left)
        except Exception as error:  # noqa: BLE001 - keys that can't be had for a moment, say
            tracer.lost(trace, error)
            went_well = False
        else:
            tracer.sent(trace)
    return went_well
