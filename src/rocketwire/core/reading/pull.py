"""Reading: operations that ask brokers for offsets and messages.

A queue is asked at its master; where that can't be reached, at a slave. Filters by tag are checked
again by their text, because brokers compare hashes only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from rocketwire.core.effects import Op, invoke, sleep
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import cluster_info, refresh_topic
from rocketwire.core.naming import with_namespace, without_namespace
from rocketwire.errors import (
    BrokerError,
    ConnectFailedError,
    InvalidMessageError,
    ProtocolError,
    RemoteProtocolError,
    TopicNotFoundError,
    TransportError,
)
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage
from rocketwire.wire import headers
from rocketwire.wire.client_bodies import decode_cleanup_policy
from rocketwire.wire.codes import PullFlag, RequestCode, ResponseCode, error_for
from rocketwire.wire.command import Reply, Request
from rocketwire.wire.lazy_message import cut, messages_in
from rocketwire.wire.message_fields import Source
from rocketwire.wire.message_id import OffsetId, decode_offset_message_id
from rocketwire.wire.route import MASTER_ID

#: A broker looks at held pulls every five seconds, and may answer that much late.
HOLD_SLACK: Final = 6.0
#: The pause before a master that can't be reached is asked again; each is twice the one before.
_FIRST_PAUSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one pull brought.

    ``next_offset`` is where to go on. ``moved_from`` is the offset that was asked for, if the
    queue does not have it any more (or not yet) and the broker corrected it.
    """

    queue: MessageQueue
    messages: tuple[StoredMessage, ...]
    next_offset: int
    min_offset: int
    max_offset: int
    moved_from: int | None = None
    suggested_broker_id: int = 0


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A subscription: the text for brokers, the tags to check against, and what the text is."""

    expression: str
    tags: frozenset[str]
    kind: str = "TAG"

    @property
    def is_all(self) -> bool:
        """Whether brokers leave nothing out."""
        return self.expression == "*" and self.kind == "TAG"


ALL: Final = TagFilter("*", frozenset())


def tag_filter(tags: str | Iterable[str] | None) -> TagFilter:
    """A filter from ``*``, ``TagA``, ``TagA || TagB`` or a list of tags.

    Raises:
        InvalidMessageError: it is none of these.
    """
    if tags is None:
        return ALL
    if isinstance(tags, str):
        names = [part.strip() for part in tags.split("||") if part.strip()]
        if not tags.strip() or names == ["*"]:
            return ALL
    else:
        names = [_one_tag(tag, tags) for tag in tags]
        if names == ["*"]:
            return ALL
    if not names:
        raise _no_tags(tags)
    return TagFilter(" || ".join(names), frozenset(names))


def _one_tag(tag: object, tags: object) -> str:
    if not isinstance(tag, str) or not tag.strip() or "||" in tag:
        raise _no_tags(tags)
    return tag.strip()


def _no_tags(tags: object) -> InvalidMessageError:
    return InvalidMessageError(
        f"tags is {tags!r}: give '*', 'TagA', 'TagA || TagB' or a list of single tags"
    )


def read_queues(instance: Instance, topic: str, deadline: float) -> Op[tuple[MessageQueue, ...]]:
    """The queues of a topic that can be read, in Java's order.

    Raises:
        TopicNotFoundError: no name server knows the topic.
    """
    name = with_namespace(topic, instance.config.namespace)
    if instance.recent_route(name) is None:
        fresh = yield from refresh_topic(instance, name, deadline)
        if fresh is None:
            raise TopicNotFoundError(f"topic {topic} is unknown: check its name, or create it")
    return instance.routes.read_queues(name)


def address_of(instance: Instance, queue: MessageQueue, deadline: float) -> Op[str]:
    """Where to ask for a queue: its master, else a slave."""
    name = with_namespace(queue.topic, instance.config.namespace)
    for is_last in (False, True):
        entry = instance.routes.get(name)
        broker = queue.broker if entry is None else entry.owner_of(queue)
        addresses = instance.routes.addresses_of(broker)
        if addresses:
            return addresses.get(MASTER_ID) or addresses[min(addresses)]
        if not is_last:
            yield from refresh_topic(instance, name, deadline)
    raise ConnectFailedError(f"broker {queue.broker} is not registered with any name server")


def ask_queue(
    instance: Instance, queue: MessageQueue, code: int, fields: dict[str, str], deadline: float
) -> Op[Reply]:
    """Ask the broker of a queue; where the master can't be reached, its slaves.

    Raises:
        TransportError: nobody could be reached.
        BrokerError: the broker refused.
    """
    first = yield from address_of(instance, queue, deadline)
    others = [a for a in instance.routes.addresses_of(queue.broker).values() if a != first]
    failure: TransportError | None = None
    for address in (first, *others):
        try:
            reply = yield from invoke(address, instance.request(code, fields), deadline)
        except TransportError as error:
            failure = failure or error
            continue
        if reply.code != ResponseCode.SUCCESS:
            raise error_for(reply.code, reply.remark, queue.broker, asked=code)
        return reply
    instance.route_wake_up.wake()
    raise failure or ConnectFailedError(f"broker {queue.broker} has no address")


def min_offset(instance: Instance, queue: MessageQueue, deadline: float) -> Op[int]:
    """The first offset that the queue still has."""
    name = with_namespace(queue.topic, instance.config.namespace)
    code, fields = RequestCode.GET_MIN_OFFSET, headers.queue(name, queue.id, broker=queue.broker)
    reply = yield from ask_queue(instance, queue, code, fields, deadline)
    return max(0, headers.decode_offset(reply.ext))


def max_offset(instance: Instance, queue: MessageQueue, deadline: float) -> Op[int]:
    """The offset that the next message will get.

    A slave may be behind, and what it says would look as if messages were lost. So a master that
    can't be reached is asked again for half of the time, and only then a slave.
    """
    name = with_namespace(queue.topic, instance.config.namespace)
    code, fields = RequestCode.GET_MAX_OFFSET, headers.queue(name, queue.id, broker=queue.broker)
    patience = (instance.clock() + deadline) / 2
    pause = _FIRST_PAUSE
    while _has_slaves(instance, queue):
        address = instance.routes.addresses_of(queue.broker)[MASTER_ID]
        try:
            reply = yield from invoke(address, instance.request(code, fields), patience)
        except TransportError:
            instance.route_wake_up.wake()
        else:
            if reply.code != ResponseCode.SUCCESS:
                raise error_for(reply.code, reply.remark, queue.broker, asked=code)
            return headers.decode_offset(reply.ext)
        if instance.clock() + pause >= patience:
            break
        yield from sleep(instance.clock() + pause)
        pause *= 2
        yield from refresh_topic(instance, name, patience)
    reply = yield from ask_queue(instance, queue, code, fields, deadline)
    return headers.decode_offset(reply.ext)


def _has_slaves(instance: Instance, queue: MessageQueue) -> bool:
    """Whether a queue's broker has a master, and slaves besides."""
    addresses = instance.routes.addresses_of(queue.broker)
    return MASTER_ID in addresses and len(addresses) > 1


def is_compacted(instance: Instance, queue: MessageQueue, deadline: float) -> Op[bool]:
    """Whether the broker keeps only the last message of each key of a topic: offsets then lack.

    Raises:
        TransportError: nobody could be reached.
    """
    name = with_namespace(queue.topic, instance.config.namespace)
    code = RequestCode.GET_TOPIC_CONFIG
    try:
        reply = yield from ask_queue(instance, queue, code, headers.topic_only(name), deadline)
    except BrokerError:  # before 5.0 there is neither this question nor such a topic
        return False
    return decode_cleanup_policy(reply.body) == "COMPACTION"


def offset_for_time(
    instance: Instance, queue: MessageQueue, moment: float, group: str, deadline: float
) -> Op[int]:
    """The first offset whose message was stored at or after a moment; the end if there is none.

    Brokers disagree: 5.x answers that, 4.9 the nearest message. So the answer is checked.
    """
    moment_ms = round(moment * 1000)
    name = with_namespace(queue.topic, instance.config.namespace)
    fields = headers.search_offset(name, queue.id, moment_ms, broker=queue.broker)
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    reply = yield from ask_queue(instance, queue, code, fields, deadline)
    offset = headers.decode_offset(reply.ext)
    found = yield from fetch(
        instance, queue, offset, group=group, max_messages=1, deadline=deadline
    )
    if found.messages and found.messages[0].stored_at.timestamp() * 1000 < moment_ms - 0.5:
        return offset + 1
    return offset if found.moved_from is None else found.next_offset


def pull_request(
    instance: Instance,
    queue: MessageQueue,
    offset: int,
    *,
    group: str,
    max_messages: int,
    wait: float = 0.0,
    tags: TagFilter = ALL,
) -> Request:
    """A pull that carries its subscription along, so that it needs no heartbeat."""
    flag = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if wait > 0 else 0)
    fields = headers.pull(
        group=with_namespace(group, instance.config.namespace),
        topic=with_namespace(queue.topic, instance.config.namespace),
        queue_id=queue.id,
        offset=offset,
        max_messages=max_messages,
        system_flag=flag,
        suspend_ms=round(wait * 1000),
        subscription=tags.expression,
        expression_type=tags.kind,
        broker=queue.broker,
    )
    return instance.request(RequestCode.PULL_MESSAGE, fields)


def fetch(
    instance: Instance,
    queue: MessageQueue,
    offset: int,
    *,
    group: str,
    max_messages: int = 32,
    wait: float = 0.0,
    tags: TagFilter = ALL,
    deadline: float,
) -> Op[Fetched]:
    """Up to so many messages from an offset on; waits for the first one if asked to.

    Raises:
        TransportError: the broker could not be reached.
        BrokerError: it refused.
    """
    request = pull_request(
        instance, queue, offset, group=group, max_messages=max_messages, wait=wait, tags=tags
    )
    address = yield from address_of(instance, queue, deadline)
    try:
        reply = yield from invoke(address, request, deadline)
    except TransportError:
        slaves = [a for a in instance.routes.addresses_of(queue.broker).values() if a != address]
        instance.route_wake_up.wake()
        if not slaves or instance.clock() >= deadline:
            raise
        reply = yield from invoke(slaves[0], request, deadline)
    return read_pull(reply, queue, offset, tags, namespace=instance.config.namespace)


_PULLED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


def read_pull(
    reply: Reply,
    queue: MessageQueue,
    offset: int,
    tags: TagFilter,
    *,
    namespace: str | None = None,
    is_retry: bool = False,
) -> Fetched:
    """What a broker's answer to a pull says, its messages unread.

    Args:
        reply: the answer.
        queue: the queue that was asked.
        offset: from where on.
        tags: what was asked for.
        namespace: of the client; users do not see it in the names of topics.
        is_retry: whether it is the group's retry topic: messages then show the topic that they
            were sent to.

    Raises:
        BrokerError: it is a refusal.
        RemoteProtocolError: something in it is not a record.
    """
    code = reply.code
    if code not in _PULLED:
        asked = RequestCode.PULL_MESSAGE
        raise error_for(code, reply.remark, queue.broker, asked=asked)
    told = headers.decode_pull_reply(reply.ext)
    next_offset = told.next_offset
    messages: list[StoredMessage] = []
    moved_from: int | None = None
    if code == ResponseCode.SUCCESS:
        shown = partial(without_namespace, namespace=namespace) if namespace else None
        source = Source(reply.body, queue, queue.broker, told.offset_delta, shown, is_retry)
        messages, go_on_at = cut(source, next_offset)
        if source.data and not messages:
            raise RemoteProtocolError(
                f"{queue}: an answer of {len(source.data)} bytes ends within its first record"
            )
        next_offset = next_offset if go_on_at is None else go_on_at
        if messages and messages[0].offset < offset:
            messages = [message for message in messages if message.offset >= offset]
        if tags.tags:
            messages = [message for message in messages if message.tags in tags.tags]
    elif code == ResponseCode.PULL_NOT_FOUND:
        next_offset = max(offset, next_offset)
    elif code == ResponseCode.PULL_OFFSET_MOVED and next_offset != offset:
        moved_from = offset
    return Fetched(
        queue,
        tuple(messages),
        next_offset,
        told.min_offset,
        told.max_offset,
        moved_from,
        told.suggested_broker_id,
    )


def message_by_offset_id(
    instance: Instance, offset_id: str, deadline: float, *, topic: str | None = None
) -> Op[StoredMessage]:
    """The message that a broker stored under an offset id, which names the broker's address.

    An id may come from anywhere, so only addresses that the cluster advertises are asked: another
    would be a way to make this client connect, with a signed request, to whatever the id says.

    Raises:
        InvalidMessageError: the id is malformed, or names no broker of this cluster.
    """
    try:
        place = decode_offset_message_id(offset_id)
    except ProtocolError as error:
        raise InvalidMessageError(
            f"{offset_id!r} is no offset message id ({error}): a message id is looked up with topic="
        ) from None
    advertised = _address_in(place)
    broker = yield from _broker_at(instance, advertised, deadline)
    if broker is None:
        raise InvalidMessageError(
            f"{offset_id!r} names the broker {advertised}, which is none of this cluster: check the "
            "id and name_servers; a message id is looked up with topic="
        )
    address = instance.routes.translate(advertised)
    fields = headers.view_message(place.offset, topic=topic)
    request = instance.request(RequestCode.VIEW_MESSAGE_BY_ID, fields)
    reply = yield from invoke(address, request, deadline)
    if reply.code != ResponseCode.SUCCESS:
        asked = RequestCode.VIEW_MESSAGE_BY_ID
        raise error_for(reply.code, reply.remark, address, asked=asked)
    for message in messages_in(reply.body, broker=broker):
        return message
    raise InvalidMessageError(f"{address} has no message under {offset_id!r}")


def is_own_offset_id(instance: Instance, message_id: str, deadline: float) -> Op[bool]:
    """Whether an id names a broker of this cluster: an offset message id, no message id."""
    try:
        place = decode_offset_message_id(message_id)
    except ProtocolError:
        return False
    return (yield from _broker_at(instance, _address_in(place), deadline)) is not None


def _address_in(place: OffsetId) -> str:
    host = f"[{place.host}]" if ":" in place.host else place.host
    return f"{host}:{place.port}"


def _broker_at(instance: Instance, address: str, deadline: float) -> Op[str | None]:
    """The broker that a route or the name servers' list has at an advertised address."""
    if instance.routes.is_advertised(address):
        known, used = instance.routes.masters().items(), instance.routes.translate(address)
        found = next((name for name, where in known if where == used), None)
        if found is not None:
            return found
    info = yield from cluster_info(instance, deadline)
    for name, data in info.brokers.items():
        if address in data.addresses.values():
            return name
    return None
