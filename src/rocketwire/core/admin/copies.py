"""Copies of messages that are stored at most once, however often the copying begins anew.

A copy keeps the id of its original, under which brokers index it, and has a mark in a property.
Before it is sent it is looked up by the first and recognised by the second: an id alone is shared
by retries, dead letters and other copies. One whose send got no answer is looked for, and never
sent again without a look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from rocketwire.admin_values import CopyStatus
from rocketwire.core.effects import Invoke, Op, invoke_all, sleep
from rocketwire.core.instance import Instance
from rocketwire.core.naming import with_namespace
from rocketwire.core.sending.retry import outcome_of
from rocketwire.errors import (
    ConnectFailedError,
    Outcome,
    RemoteProtocolError,
    RocketMQError,
    RouteError,
)
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage
from rocketwire.wire import headers
from rocketwire.wire.codes import STORED, RequestCode, ResponseCode, error_for
from rocketwire.wire.command import Reply, Request
from rocketwire.wire.lazy_message import broker_property, messages_in
from rocketwire.wire.message_copy import MessageCopy
from rocketwire.wire.properties import Property, rewritten_bytes

T = TypeVar("T")

#: Requests that are under way at a time.
_AT_ONCE: Final = 64
#: How often, and how far apart, a copy is looked for whose send got no answer.
_LOOKS: Final = 6
_PAUSE: Final = 0.5
#: The first pause before brokers are asked again for what they have stored, and the last moment.
_FIRST_PAUSE: Final = 0.01
_PATIENCE: Final = 3.0
#: Clocks of brokers differ; what was stored that much before an original is looked at, too.
_SLACK: Final = 3600.0
_MOST_FOUND: Final = 32


@dataclass(frozen=True, slots=True)
class MarkedCopy:
    """A copy on its way: what it holds, whence it is, and where it goes.

    ``name`` is the property of its ``mark``. ``queue`` is as users name it; an id of -1 leaves the choice to the broker.
    """

    name: str
    mark: str
    message_id: str
    content: MessageCopy
    queue: MessageQueue
    reconsume_times: int = 0


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """What became of a copy. ``queue`` and ``offset`` tell where it is, if that is known."""

    copy: MarkedCopy
    status: CopyStatus
    queue: MessageQueue | None = None
    offset: int | None = None
    offset_message_id: str | None = None
    error: RocketMQError | None = None


def deliver(
    instance: Instance,
    copies: Sequence[MarkedCopy],
    brokers: Mapping[str, str],
    *,
    group: str,
    since: float,
    in_order: bool = False,
) -> Op[list[CopyOutcome]]:
    """Store those copies that are not there yet; one outcome for each, in the order given.

    Args:
        instance: the client instance.
        copies: all for one topic.
        brokers: addresses of the masters that could hold one, by name.
        group: in whose name they are sent.
        since: no copy is older than that.
        in_order: of those for one queue, one at a time; after a failure the rest is not sent.

    Raises:
        TransportError: a broker could not be asked, and nothing was sent.
        BrokerError: one refused to look, and nothing was sent.
    """
    wanted = {copy.mark: copy for copy in reversed(copies)}  # the first, where one is there twice
    unique = [copy for copy in copies if wanted[copy.mark] is copy]
    found = yield from find_copies(instance, unique, brokers, since)
    outcomes = {c.mark: _there(c, found[c.mark]) for c in unique if c.mark in found}
    left = [copy for copy in unique if copy.mark not in found]
    for part in _rounds(left) if in_order else _parts(left):
        sent = yield from _send(instance, part, brokers, group)
        outcomes |= {outcome.copy.mark: outcome for outcome in sent}
        if in_order and any(outcome.status != "sent" for outcome in sent):
            break
    yield from _clear_doubts(instance, outcomes, brokers, since)
    unsent = ConnectFailedError("not sent: one before it in its queue was not stored")
    ends = {c.mark: outcomes.get(c.mark) or CopyOutcome(c, "failed", error=unsent) for c in unique}
    return [ends[c.mark] if wanted[c.mark] is c else _again(ends[c.mark]) for c in copies]


def find_copies(
    instance: Instance, copies: Iterable[MarkedCopy], brokers: Mapping[str, str], since: float
) -> Op[dict[str, StoredMessage]]:
    """Those copies that brokers hold already, by their marks.

    Raises:
        TransportError: a broker could not be asked.
        BrokerError: it refused.
    """
    found: dict[str, StoredMessage] = {}
    wanted = [_Look(copy, broker) for copy in copies for broker in brokers]
    while wanted:
        older: list[_Look] = []
        for part in _parts(wanted):
            deadline = instance.clock() + instance.config.request_timeout
            calls = tuple(_ask(instance, look, brokers, since, deadline) for look in part)
            replies = yield from invoke_all(calls)
            for look, reply in zip(part, replies, strict=True):
                messages = read_found(reply, look.broker)
                match = next((m for m in messages if look.is_for(m)), None)
                if match is not None:
                    found.setdefault(look.copy.mark, match)
                elif len(messages) >= _MOST_FOUND:
                    older.append(look.before(messages))
        wanted = [look for look in older if look.copy.mark not in found]
    return found


@dataclass(frozen=True, slots=True)
class _Look:
    """A copy that one broker is asked for. Brokers give the newest 32 with an id, and tell of no more.

    So an id that many retries share is asked for again, up to the oldest that came (``until_ms``).
    """

    copy: MarkedCopy
    broker: str
    until_ms: int = 2**63 - 1

    def is_for(self, message: StoredMessage) -> bool:
        return broker_property(message, self.copy.name) == self.copy.mark

    def before(self, messages: Sequence[StoredMessage]) -> _Look:
        oldest = min(round(message.stored_at.timestamp() * 1000) for message in messages)
        if oldest >= self.until_ms:
            raise RouteError(
                f"{self.broker} has over {_MOST_FOUND} messages of one second with the id "
                f"{self.copy.message_id} in {self.copy.queue.topic}, and tells of no more: nobody "
                "knows whether the copy is there, and it is not sent"
            )
        return _Look(self.copy, self.broker, oldest)


def find_soon(
    instance: Instance,
    outcomes: Iterable[CopyOutcome],
    brokers: Mapping[str, str],
    since: float,
) -> Op[MarkedCopy | None]:
    """Wait until brokers find what they have just stored; a copy that they do not find, if any.

    Their index follows the log, as a rule within milliseconds. Work that is repeated then must not
    look too early, so nothing is told to be sent before it can be found.

    Raises:
        RocketMQError: a broker could not be asked.
    """
    left = [outcome.copy for outcome in outcomes if outcome.status == "sent"]
    pause, end = _FIRST_PAUSE, instance.clock() + _PATIENCE
    while left:
        found = yield from find_copies(instance, left, brokers, since)
        left = [copy for copy in left if copy.mark not in found]
        if not left or instance.clock() >= end:
            break
        yield from sleep(instance.clock() + pause)
        pause = min(pause * 2, _PAUSE)
    return left[0] if left else None


def look_up(
    instance: Instance,
    topic: str,
    message_id: str,
    address: str,
    since: float,
    deadline: float,
    *,
    until_ms: int = 2**63 - 1,
) -> Invoke:
    """The question for the messages of a topic with an id, newest first."""
    fields = headers.query_message(
        topic=with_namespace(topic, instance.config.namespace),
        key=message_id,
        max_messages=_MOST_FOUND,
        begin_ms=max(0, round((since - _SLACK) * 1000)),
        end_ms=until_ms,
        unique=None if instance.config.credentials is not None else True,
    )
    return Invoke(address, instance.request(RequestCode.QUERY_MESSAGE, fields), deadline)


def read_found(reply: Reply | RocketMQError, broker: str) -> list[StoredMessage]:
    """The messages of the answer.

    Raises:
        RocketMQError: it is none.
    """
    if not isinstance(reply, Reply):
        raise reply
    if reply.code == ResponseCode.QUERY_NOT_FOUND:
        return []
    if reply.code != ResponseCode.SUCCESS:
        asked = RequestCode.QUERY_MESSAGE
        raise error_for(reply.code, reply.remark, broker, asked=asked)
    return messages_in(reply.body, broker=broker)


def _ask(
    instance: Instance, look: _Look, brokers: Mapping[str, str], since: float, deadline: float
) -> Invoke:
    copy, address = look.copy, brokers[look.broker]
    topic, message_id = copy.queue.topic, copy.message_id
    return look_up(instance, topic, message_id, address, since, deadline, until_ms=look.until_ms)


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))


def _rounds(copies: Iterable[MarkedCopy]) -> Iterator[tuple[MarkedCopy, ...]]:
    """Copies such that no two for one queue are in one round, and all are in their order."""
    rows: dict[MessageQueue, list[MarkedCopy]] = {}
    for copy in copies:
        rows.setdefault(copy.queue, []).append(copy)
    for number in range(max(map(len, rows.values()), default=0)):
        yield tuple(row[number] for row in rows.values() if number < len(row))


def _send(
    instance: Instance, copies: Sequence[MarkedCopy], brokers: Mapping[str, str], group: str
) -> Op[list[CopyOutcome]]:
    deadline = instance.clock() + max(5.0, instance.config.request_timeout)
    calls, ready, outcomes = [], [], []
    for copy in copies:
        try:
            request = _request(instance, copy, group)
            calls.append(Invoke(brokers[copy.queue.broker], request, deadline))
            ready.append(copy)
        except RocketMQError as error:
            outcomes.append(CopyOutcome(copy, "failed", error=error))
    replies = (yield from invoke_all(tuple(calls))) if calls else []
    return outcomes + [_read(c, reply) for c, reply in zip(ready, replies, strict=True)]


def _request(instance: Instance, copy: MarkedCopy, group: str) -> Request:
    content = copy.content
    properties = content.properties | {
        Property.UNIQ_KEY: copy.message_id,
        copy.name: copy.mark,
    }
    fields = headers.send_v2(
        group=with_namespace(group, instance.config.namespace),
        topic=with_namespace(copy.queue.topic, instance.config.namespace),
        queue_id=copy.queue.id,
        born_ms=content.born_ms,
        properties=rewritten_bytes(properties).decode(),
        system_flag=content.system_flag,
        flag=content.flag,
        reconsume_times=copy.reconsume_times,
        broker=copy.queue.broker,
    )
    return instance.request(RequestCode.SEND_MESSAGE_V2, fields, content.body)


def _read(copy: MarkedCopy, reply: Reply | RocketMQError) -> CopyOutcome:
    broker = copy.queue.broker
    if not isinstance(reply, Reply):
        is_open = outcome_of(reply) is Outcome.MAYBE_STORED
        return CopyOutcome(copy, "in doubt" if is_open else "failed", error=reply)
    try:
        if reply.code not in STORED:
            asked = RequestCode.SEND_MESSAGE_V2
            refusal = error_for(reply.code, reply.remark, broker, asked=asked)
            return CopyOutcome(copy, "failed", error=refusal)
        told = headers.decode_send_reply(reply.ext)
    except RemoteProtocolError as error:
        return CopyOutcome(copy, "in doubt", error=error)
    where = copy.queue._replace(id=told.queue_id)
    return CopyOutcome(copy, "sent", where, told.queue_offset, told.offset_message_id)


def _there(copy: MarkedCopy, message: StoredMessage) -> CopyOutcome:
    where = copy.queue._replace(broker=message.queue.broker, id=message.queue.id)
    return CopyOutcome(copy, "already there", where, message.offset, message.offset_message_id)


def _again(outcome: CopyOutcome) -> CopyOutcome:
    """What became of a copy that was given a second time, and is not sent a second time."""
    return replace(outcome, status="already there") if outcome.status == "sent" else outcome


def _clear_doubts(
    instance: Instance,
    outcomes: dict[str, CopyOutcome],
    brokers: Mapping[str, str],
    since: float,
) -> Op[None]:
    """Look for the copies whose sends got no answer: found ones were sent."""
    for _ in range(_LOOKS):
        open_ones = [o.copy for o in outcomes.values() if o.status == "in doubt"]
        if not open_ones:
            return
        yield from sleep(instance.clock() + _PAUSE)
        try:
            found = yield from find_copies(instance, open_ones, brokers, since)
        except RocketMQError:  # a broker that can't be asked now may answer the next look
            continue
        for copy in open_ones:
            if copy.mark in found:
                there = _there(copy, found[copy.mark])
                outcomes[copy.mark] = CopyOutcome(
                    copy, "sent", there.queue, there.offset, there.offset_message_id
                )
