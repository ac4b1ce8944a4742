"""Sending any number of messages: split into batches, kept in order per sharding key.

The split yields *lanes*. The jobs of one lane go one after another, lanes go side by side; how
many at once is the shell's business. A keyed message belongs to the lane of its queue, all others
are dealt out evenly and find their queue by the default strategy when their turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketwire.core.attempts import share
from rocketwire.core.effects import Effect, Invoke, InvokeAll, Op, Wait
from rocketwire.core.lookup import locate_topic
from rocketwire.core.ordering import not_sent_after
from rocketwire.core.retry import SendMode
from rocketwire.core.routes import TopicEntry
from rocketwire.core.selection import hash_queue
from rocketwire.core.send import Sender
from rocketwire.core.validate import check_message
from rocketwire.errors import (
    InvalidMessageError,
    Outcome,
    RocketMQError,
    RouteError,
    SendFailedError,
)
from rocketwire.message import Message, MessageQueue, SendResult

#: Room for the header of a message in a batch and its generated properties.
_OVERHEAD = 160
_BATCH_BYTES = 256 * 1024
_BATCH_MESSAGES = 1000
_LANES = 8


@dataclass(slots=True)
class Job:
    """Messages that travel in one request, with their places in the user's list."""

    indexes: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class Lane:
    """Jobs that go one after another; on one queue if their messages are ordered."""

    queue: MessageQueue | None = None
    jobs: list[Job] = field(default_factory=list)


Results = list[SendResult | RocketMQError | None]


class ManySender:
    """One call of ``send_many``."""

    def __init__(self, sender: Sender, messages: Iterable[Message], timeout: float | None) -> None:
        self._sender = sender
        self._timeout = sender.check_timeout(timeout)
        self._limit = min(_BATCH_BYTES, sender.config.max_message_size)
        given: Any = messages  # annotations bind nobody
        if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
            raise InvalidMessageError(f"messages is a {type(given).__name__}: give a list")
        self.messages = list(messages)
        self.results: Results = [None] * len(self.messages)
        for index, message in enumerate(self.messages):
            try:
                check_message(message, sender.config.max_message_size)
            except InvalidMessageError as error:
                raise InvalidMessageError(f"message {index}: {error}") from None

    def lanes(self) -> Op[list[Lane]]:
        """Ask for the routes of all topics and split."""
        by_topic: dict[str, list[int]] = {}
        for index, message in enumerate(self.messages):
            by_topic.setdefault(message.topic, []).append(index)
        found: list[Lane] = []
        for indexes in by_topic.values():
            try:
                found += yield from self._lanes_of_topic(indexes)
            except RouteError as error:
                failed = SendFailedError(f"not sent: {error}", outcome=Outcome.NOT_SENT)
                failed.__cause__ = error
                for index in indexes:
                    self.results[index] = failed
        return found

    def _lanes_of_topic(self, indexes: list[int]) -> Op[list[Lane]]:
        sender = self._sender
        topic = sender.wire_topic(self.messages[indexes[0]].topic)
        timeout = self._timeout or sender.config.send_timeout
        deadline = sender.instance.clock() + timeout
        entry = yield from locate_topic(sender.instance, topic, deadline, *sender.defaults)
        keyed = [i for i in indexes if self.messages[i].sharding_key is not None]
        plain = [i for i in indexes if self.messages[i].sharding_key is None]
        return self._deal(plain) + self._by_queue(keyed, entry)

    def _by_queue(self, indexes: list[int], entry: TopicEntry) -> list[Lane]:
        sender = self._sender
        lanes: dict[MessageQueue, Lane] = {}
        queues = sender.queues_of(entry)
        now = sender.instance.clock()
        for index in indexes:
            message = self.messages[index]
            queue = queues.select(hash_queue, message, None, sender.positions, now)
            lane = lanes.setdefault(queue, Lane(queue))
            self._put(lane, index)
        return list(lanes.values())

    def _deal(self, indexes: list[int]) -> list[Lane]:
        """Jobs without keys, dealt out to a few lanes."""
        whole = Lane()
        for index in indexes:
            self._put(whole, index)
        lanes = [Lane() for _ in range(min(_LANES, len(whole.jobs)))]
        for number, job in enumerate(whole.jobs):
            lanes[number % len(lanes)].jobs.append(job)
        return lanes

    def _put(self, lane: Lane, index: int) -> None:
        message = self.messages[index]
        size = len(message.body) + _OVERHEAD + _size_of_properties(message)
        job = lane.jobs[-1] if lane.jobs else None
        if job is None or not self._fits(job, message, size):
            job = Job()
            lane.jobs.append(job)
        job.indexes.append(index)
        job.messages.append(message)
        job.size += size

    def _fits(self, job: Job, message: Message, size: int) -> bool:
        first = job.messages[0]
        return (
            job.size + size <= self._limit
            and len(job.messages) < _BATCH_MESSAGES
            and first.wait_store_ok == message.wait_store_ok
            and not _travels_alone(first)
            and not _travels_alone(message)
        )

    def run(self, lane: Lane) -> Op[None]:
        """Send the jobs of a lane; results go to their places."""
        broken: dict[str, SendFailedError] = {}
        for job in lane.jobs:
            indexes = self._without_broken(job, broken)
            if not indexes:
                continue
            messages = [self.messages[i] for i in indexes]
            try:
                result = yield from self._send(messages, lane.queue)
            except SendFailedError as error:
                for index in indexes:
                    self.results[index] = error
                    if (key := self.messages[index].sharding_key) is not None:
                        broken[key] = error
            else:
                self._spread(indexes, result)

    def _send(self, messages: list[Message], queue: MessageQueue | None) -> Op[SendResult]:
        one_or_many: Message | Sequence[Message] = messages[0] if len(messages) == 1 else messages
        plan = self._sender.plan(one_or_many, SendMode.ASYNC, queue=queue, timeout=self._timeout)
        result = yield from self._sender.send(plan)
        if result is None:  # never for this mode
            raise SendFailedError("no answer", outcome=Outcome.MAYBE_STORED)
        return result

    def _without_broken(self, job: Job, broken: dict[str, SendFailedError]) -> list[int]:
        """The places of a job whose key has no failed message before them."""
        if not broken:
            return job.indexes
        kept: list[int] = []
        for index in job.indexes:
            before = broken.get(self.messages[index].sharding_key or "")
            if before is None:
                kept.append(index)
                continue
            self.results[index] = not_sent_after(before)
        return kept

    def _spread(self, indexes: list[int], result: SendResult) -> None:
        """One result for each message of a batch."""
        if len(indexes) == 1:
            self.results[indexes[0]] = result
            return
        for place, index in enumerate(indexes):
            self.results[index] = share(result, place)


def _travels_alone(message: Message) -> bool:
    return bool(message.delay_level) or message.deliver_at is not None


def _size_of_properties(message: Message) -> int:
    size = len(message.tags or "") + len(message.keys or "") + len(message.sharding_key or "")
    for name, value in message.properties.items():
        size += len(name) + len(value) + 2
    return size * 4  # as UTF-8, at worst


def run_together(operations: Iterable[Op[None]]) -> Op[None]:
    """Run operations side by side where only requests can be: all wait for one another's answers.

    For the blocking shell, which can have several requests under way (``InvokeAll``) but no other
    waits. What is no request is waited for when no request is left, because one operation may
    wait for what another one is about to do.
    """
    waiting: list[tuple[Op[None], Effect]] = []
    for operation in operations:
        _step(operation, None, waiting)
    while waiting:
        calls: list[tuple[Op[None], Invoke]] = []
        others: list[tuple[Op[None], Effect]] = []
        rounds, waiting = waiting, []
        for operation, effect in rounds:
            if type(effect) is Invoke:
                calls.append((operation, effect))
            elif type(effect) is Wait and effect.gate.is_open:
                _step(operation, True, waiting)  # noqa: FBT003 - the answer to a wait
            else:
                others.append((operation, effect))
        if calls:
            answers = yield InvokeAll(tuple(effect for _, effect in calls))
            for (operation, _), answer in zip(calls, answers, strict=True):
                _step(operation, answer, waiting)
            waiting += others
        elif not waiting:
            operation, effect = others.pop(0)
            answer = yield effect
            _step(operation, answer, waiting)
            waiting += others
        else:
            waiting += others


def _step(operation: Op[None], answer: Any, waiting: list[tuple[Op[None], Effect]]) -> None:
    try:
        if isinstance(answer, Exception):
            effect = operation.throw(answer)
        else:
            effect = operation.send(answer)
    except StopIteration:
        return
    waiting.append((operation, effect))
