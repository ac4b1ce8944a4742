"""Messages that consumer groups have given up: list them, leave them behind.

Nothing is deleted from a log. What is shown begins at the group's own position in its dead-letter
topic, which ``purge`` moves behind what is there.
"""

from __future__ import annotations

from rocketwire.admin_values import DeadLetter, Purged
from rocketwire.core.admin.groups import group_name, require_group
from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import fetch_route, refresh_topic
from rocketwire.core.naming import (
    DEAD_LETTER_PREFIX,
    with_namespace,
    without_namespace,
)
from rocketwire.core.reading.pull import (
    ALL,
    ask_queue,
    max_offset,
    message_by_offset_id,
    min_offset,
    offset_for_time,
)
from rocketwire.core.reading.topics import Reading
from rocketwire.errors import (
    BrokerError,
    PermissionDeniedError,
    RocketMQError,
)
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage
from rocketwire.wire import headers
from rocketwire.wire.codes import Permission, RequestCode, ResponseCode
from rocketwire.wire.lazy_message import broker_property
from rocketwire.wire.properties import Property
from rocketwire.wire.route import subscribe_queues


def letter_queues(instance: Instance, group: str, deadline: float) -> Op[tuple[MessageQueue, ...]]:
    """The queues of a group's dead letters; none while it has given up nothing.

    Raises:
        InvalidMessageError: it is no name of a group.
        GroupNotFoundError: no broker knows it.
        PermissionDeniedError: a broker lets nobody read them.
    """
    group_name(instance, group)
    topic = DEAD_LETTER_PREFIX + group
    name = with_namespace(topic, instance.config.namespace)
    route = yield from fetch_route(instance, name, deadline)
    if route is None:
        yield from require_group(instance, group, deadline)
        return ()
    closed = [data.broker for data in route.queues if not data.permission & Permission.READ]
    if closed:
        raise PermissionDeniedError(
            ResponseCode.NO_PERMISSION,
            f"the dead letters of {group} may be written and not read, as some brokers make them; "
            f"allow it with: rocketwire topic alter '{topic}' --can-read",
            ", ".join(closed),
            name="NO_PERMISSION",
        )
    yield from refresh_topic(instance, name, deadline)
    return subscribe_queues(topic, route)


def read_position(instance: Instance, group: str, queue: MessageQueue, deadline: float) -> Op[int]:
    """Where the dead letters begin that were not purged."""
    first = yield from min_offset(instance, queue, deadline)
    namespace = instance.config.namespace
    fields = headers.query_consumer_offset(
        with_namespace(group, namespace),
        with_namespace(queue.topic, namespace),
        queue.id,
        broker=queue.broker,
    )
    try:
        code = RequestCode.QUERY_CONSUMER_OFFSET
        reply = yield from ask_queue(instance, queue, code, fields, deadline)
    except BrokerError as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return first
    return max(first, headers.decode_offset(reply.ext))


class LetterReading:
    """One pass over the dead letters of a group, up to those that are there when it begins.

    Args:
        instance: the client instance.
        group: whose.
        since: epoch seconds; only those given up from then on.
        purged: also those that were purged.
        reader: the group under which brokers see the pulls.
        timeout: of one request.
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        *,
        since: float | None,
        purged: bool,
        reader: str,
        timeout: float,
    ) -> None:
        self._instance = instance
        self._group = group
        self._since = since
        self._purged = purged
        self._reader = reader
        self._timeout = timeout
        self._reading = Reading(
            instance, group=reader, tags=ALL, follow=False, request_timeout=timeout
        )

    def begin(self) -> Op[None]:
        """Find out where they are.

        Raises:
            GroupNotFoundError: there is no such group.
            PermissionDeniedError: nobody may read them.
        """
        instance = self._instance
        deadline = instance.clock() + self._timeout
        starts = {}
        queues = yield from letter_queues(instance, self._group, deadline)
        for queue in queues:
            deadline = instance.clock() + self._timeout
            if self._purged:
                first = yield from min_offset(instance, queue, deadline)
            else:
                first = yield from read_position(instance, self._group, queue, deadline)
            if self._since is not None:
                moment = yield from offset_for_time(
                    instance, queue, self._since, self._reader, deadline
                )
                first = max(first, moment)
            starts[queue] = first
        if queues:
            yield from self._reading.begin(queues[0].topic, queues, starts, None)

    @property
    def is_over(self) -> bool:
        """Whether there are no more."""
        return self._reading.is_over

    def next_letters(self) -> Op[list[DeadLetter]]:
        """The next ones; an empty list where none could be read just now."""
        letters = []
        for message in (yield from self._reading.next_messages()):
            if _bounced(message):
                continue
            letter = yield from read_letter(self._instance, self._group, message, self._timeout)
            letters.append(letter)
        return letters


def _bounced(message: StoredMessage) -> bool:
    """Whether it is a copy that a broker moved straight back while its group held locks.

    Nobody has tried it, and the dead letter that it is a copy of is still there.
    """
    return not message.reconsume_times and bool(broker_property(message, Property.DEAD_LETTER))


def read_letter(
    instance: Instance, group: str, message: StoredMessage, timeout: float
) -> Op[DeadLetter]:
    """What a dead letter tells, and where its original is, if that is still there."""
    origin = broker_property(message, Property.ORIGIN_MESSAGE_ID) or broker_property(
        message, Property.DLQ_ORIGIN_MESSAGE_ID
    )
    topic = broker_property(message, Property.RETRY_TOPIC) or broker_property(
        message, Property.DLQ_ORIGIN_TOPIC
    )
    original: StoredMessage | None = None
    if origin is not None:
        try:
            deadline = instance.clock() + timeout
            original = yield from message_by_offset_id(instance, origin, deadline, topic=topic)
        except (RocketMQError, OSError):  # deleted, or its broker is away: it is told without
            original = None
    if original is not None and original.message_id != message.message_id:
        original = None
    shown = without_namespace(topic or message.topic, instance.config.namespace)
    queue = None if original is None else original.queue
    return DeadLetter(
        group,
        message,
        shown,
        message.message_id,
        message.reconsume_times,
        broker_property(message, Property.ERROR),
        None if queue is None else queue._replace(topic=shown),
        None if original is None else original.offset,
    )


def purge(
    instance: Instance,
    group: str,
    *,
    before: float | None,
    reader: str,
    dry_run: bool,
    timeout: float,
) -> Op[tuple[Purged, ...]]:
    """Move the position of a group in its dead letters behind what is there; never backwards.

    Raises:
        GroupNotFoundError: there is no such group.
        BrokerError: a broker refused.
    """
    done = []
    namespace = instance.config.namespace
    for queue in (yield from letter_queues(instance, group, instance.clock() + timeout)):
        deadline = instance.clock() + timeout
        first = yield from read_position(instance, group, queue, deadline)
        if before is None:
            end = yield from max_offset(instance, queue, deadline)
        else:
            end = yield from offset_for_time(instance, queue, before, reader, deadline)
        if end > first and not dry_run:
            fields = headers.update_consumer_offset(
                with_namespace(group, namespace),
                with_namespace(queue.topic, namespace),
                queue.id,
                end,
                broker=queue.broker,
            )
            code = RequestCode.UPDATE_CONSUMER_OFFSET
            yield from ask_queue(instance, queue, code, fields, deadline)
        done.append(Purged(queue, first, max(first, end)))
    return tuple(done)
