"""Dead letters that are sent again: to the group that failed, or anywhere else, and once only."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from rocketwire.admin_values import DeadLetter, Redriven
from rocketwire.core.admin.copies import (
    CopyOutcome,
    MarkedCopy,
    deliver,
    find_copies,
    find_soon,
    look_up,
    read_found,
)
from rocketwire.core.effects import Op, invoke_all, sleep
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import fetch_route, masters
from rocketwire.core.naming import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    with_namespace,
)
from rocketwire.core.reading.pull import (
    ALL,
    message_by_offset_id,
)
from rocketwire.core.reading.topics import Reading
from rocketwire.core.sending.validate import check_topic
from rocketwire.errors import (
    BrokerError,
    ConnectFailedError,
    InvalidMessageError,
    RocketMQError,
    RouteError,
    TopicNotFoundError,
    TransportError,
)
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.java_hash import hash_index
from rocketwire.wire.lazy_message import broker_property
from rocketwire.wire.message_copy import copy_of
from rocketwire.wire.properties import Property
from rocketwire.wire.route import publish_queues, subscribe_queues

#: How often, and how far apart, the index is asked for a dead letter that it should know.
_LOOKS: Final = 5
_PAUSE: Final = 0.2


def check_letter(dead_letter: object) -> DeadLetter:
    """A dead letter, as ``dead_letters`` gives it.

    Raises:
        InvalidMessageError: it is something else.
    """
    if not isinstance(dead_letter, DeadLetter):
        raise InvalidMessageError(
            f"dead_letter is {dead_letter!r:.80}: give a DeadLetter, as dead_letters(group) has them"
        )
    return dead_letter


def redrive(
    instance: Instance, letter: Any, *, to: str | None, reader: str, timeout: float
) -> Op[Redriven]:
    """Send a dead letter again, once: to the retry topic of its group, or to any topic.

    Raises:
        InvalidMessageError: it is no dead letter.
        RocketMQError: it was not sent, or (the text says so) that is not known.
    """
    letter = check_letter(letter)
    copy, brokers = yield from _copy_for(instance, letter, to, timeout)
    since = letter.message.stored_at.timestamp()
    has_index = yield from _has_index(instance, letter, timeout)
    known = None
    if not has_index:
        known = yield from _find_anywhere(instance, letter, copy, brokers, reader, timeout)
    if known is not None:
        return _sent_before(letter, copy, known)
    # A user that may read as a group may send to its retry topic, in its name: brokers check that.
    sender = letter.group if to is None else reader
    (outcome,) = yield from deliver(instance, [copy], brokers, group=sender, since=since)
    done = yield from _checked(instance, letter, outcome, timeout)
    if has_index:
        with contextlib.suppress(RocketMQError):  # it is sent, whatever becomes of the look
            yield from find_soon(instance, [outcome], brokers, since)
    return done


def find_redriven(
    instance: Instance, letter: Any, *, to: str | None, reader: str, timeout: float
) -> Op[Redriven | None]:
    """Where the copy of a dead letter is, if it was sent again already; nothing is sent.

    Raises:
        InvalidMessageError: it is no dead letter.
        RocketMQError: it could not be looked for.
    """
    letter = check_letter(letter)
    copy, brokers = yield from _copy_for(instance, letter, to, timeout)
    if (yield from _has_index(instance, letter, timeout)):
        since = letter.message.stored_at.timestamp()
        known = (yield from find_copies(instance, [copy], brokers, since)).get(copy.mark)
    else:
        known = yield from _find_anywhere(instance, letter, copy, brokers, reader, timeout)
    return None if known is None else _sent_before(letter, copy, known)


def _sent_before(letter: DeadLetter, copy: MarkedCopy, known: StoredMessage) -> Redriven:
    where = copy.queue._replace(broker=known.queue.broker, id=known.queue.id)
    return Redriven(letter, is_new=False, queue=where, offset=known.offset)


def _copy_for(
    instance: Instance, letter: DeadLetter, to: str | None, timeout: float
) -> Op[tuple[MarkedCopy, dict[str, str]]]:
    deadline = instance.clock() + timeout
    if to is None:
        return (yield from _to_its_group(instance, letter, deadline))
    return (yield from _to_topic(instance, letter, to, deadline))


def _copy(letter: DeadLetter, queue: MessageQueue, *, keeps_origin: bool) -> MarkedCopy:
    message = letter.message
    content = copy_of(message)
    if not keeps_origin:
        # A broker that has it fail there would send it back to where it once came from.
        content.properties.pop(Property.RETRY_TOPIC, None)
    return MarkedCopy(
        Property.DEAD_LETTER, message.offset_message_id, message.message_id, content, queue
    )


def _to_its_group(
    instance: Instance, letter: DeadLetter, deadline: float
) -> Op[tuple[MarkedCopy, dict[str, str]]]:
    """A copy for the retry topic on the broker that has the dead letter: only there it can be."""
    broker = letter.message.queue.broker
    known = yield from masters(instance, deadline)
    if broker not in known:
        raise ConnectFailedError(
            f"broker {broker}, which has the dead letter, has no master just now: wait for it"
        )
    queue = MessageQueue(RETRY_PREFIX + letter.group, broker, -1)
    return _copy(letter, queue, keeps_origin=True), {broker: known[broker]}


def _to_topic(
    instance: Instance, letter: DeadLetter, topic: str, deadline: float
) -> Op[tuple[MarkedCopy, dict[str, str]]]:
    """A copy for any topic: on the queue of its sharding key, else on the dead letter's broker."""
    check_topic(topic)
    if topic.startswith(DEAD_LETTER_PREFIX):
        raise InvalidMessageError(f"to is {topic!r}: nobody handles dead letters; give a topic")
    name = with_namespace(topic, instance.config.namespace)
    route = yield from fetch_route(instance, name, deadline)
    if route is None:
        raise TopicNotFoundError(f"topic {topic} does not exist: rocketwire topic create {topic}")
    known = {d.broker: instance.routes.translate(d.master) for d in route.brokers if d.master}
    queues = [queue for queue in publish_queues(topic, route) if queue.broker in known]
    if not queues:
        raise RouteError(f"topic {topic} has no queue that can be written to: check its permission")
    key = letter.message.sharding_key
    near = [queue for queue in queues if queue.broker == letter.message.queue.broker]
    chosen = queues if key else near or queues
    queue = chosen[hash_index(key or letter.message.offset_message_id, len(chosen))]
    return _copy(letter, queue, keeps_origin=False), known


def _find_anywhere(
    instance: Instance,
    letter: DeadLetter,
    copy: MarkedCopy,
    brokers: dict[str, str],
    reader: str,
    timeout: float,
) -> Op[StoredMessage | None]:
    """The copy where no index can be asked: by reading what came since the dead letter."""
    deadline = instance.clock() + timeout
    route = yield from fetch_route(
        instance, with_namespace(copy.queue.topic, instance.config.namespace), deadline
    )
    if route is None:
        return None
    queues = [q for q in subscribe_queues(copy.queue.topic, route) if q.broker in brokers]
    reading = Reading(instance, group=reader, tags=ALL, follow=False, request_timeout=timeout)
    since = letter.message.stored_at.timestamp()
    if queues:
        yield from reading.begin(copy.queue.topic, queues, since, None)
    while not reading.is_over:
        for message in (yield from reading.next_messages()):
            if broker_property(message, copy.name) == copy.mark:
                return message
    return None


def _has_index(instance: Instance, letter: DeadLetter, timeout: float) -> Op[bool]:
    """Whether the dead letter's broker knows the dead letter by its id.

    If it does not, its index is switched off, or was lost, and would know of no copy either.
    """
    message = letter.message
    known = yield from masters(instance, instance.clock() + timeout)
    broker = message.queue.broker
    if broker not in known:
        return False
    for _ in range(_LOOKS):
        call = look_up(
            instance,
            DEAD_LETTER_PREFIX + letter.group,
            message.message_id,
            known[broker],
            message.stored_at.timestamp(),
            instance.clock() + timeout,
        )
        (reply,) = yield from invoke_all((call,))
        ids = {found.offset_message_id for found in read_found(reply, broker)}
        if message.offset_message_id in ids:
            return True
        yield from sleep(instance.clock() + _PAUSE)
    return False


def _checked(
    instance: Instance, letter: DeadLetter, outcome: CopyOutcome, timeout: float
) -> Op[Redriven]:
    """What was made of it, if it is where it should be."""
    if outcome.status == "in doubt":
        raise TransportError(
            f"nobody knows whether the copy of {letter.original_id} was stored ({outcome.error}): "
            "redrive it again, which looks for it first",
            written=True,
        )
    if outcome.error is not None:
        raise outcome.error
    assert outcome.queue is not None
    assert outcome.offset is not None
    is_new = outcome.status == "sent"
    if is_new and outcome.queue.topic.startswith(RETRY_PREFIX):
        yield from _check_retried(instance, letter, outcome, timeout)
    return Redriven(letter, is_new, outcome.queue, outcome.offset)


def _check_retried(
    instance: Instance, letter: DeadLetter, outcome: CopyOutcome, timeout: float
) -> Op[None]:
    """Refuse to call it sent if the broker moved it straight back to the dead letters.

    Brokers of 5.x do that while an ordered member of the group holds locks.
    """
    if outcome.offset_message_id is None:
        return
    try:
        found = yield from message_by_offset_id(
            instance, outcome.offset_message_id, instance.clock() + timeout
        )
    except RocketMQError:  # it is stored, and more is not known
        return
    if found.queue.topic.startswith(DEAD_LETTER_PREFIX):
        raise BrokerError(
            ResponseCode.ILLEGAL_OPERATION,
            f"the broker moved {letter.original_id} straight back to the dead letters, because the "
            f"group {letter.group} is ordered and at work: redrive it with --to "
            f"{letter.original_topic}, or a minute after its members have stopped",
            letter.message.queue.broker,
        )
