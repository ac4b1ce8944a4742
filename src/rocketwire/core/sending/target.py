"""Where attempts go: one queue at one address, with all that can be prepared for it once.

``TopicPlan`` is what can be decided for a topic beforehand: the queues that the default strategy
takes in turn, and the limit of a first attempt. It holds until the route, the fault table or time
change something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.core.faults.entries import NEVER, Entry
from rocketwire.core.faults.selection import TopicQueues
from rocketwire.core.instance import Instance
from rocketwire.core.routes import TopicEntry
from rocketwire.errors import LocalProtocolError, NoWritableQueueError
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.send_request import SendTemplate, born_ms, send_fields

if TYPE_CHECKING:
    from rocketwire.core.sending.attempt import SendAttempt


class SendTarget:
    """One queue on one address. Lives as long as the route that it came from."""

    __slots__ = ("_fields", "_instance", "address", "broker", "code", "queue", "template")

    def __init__(
        self,
        instance: Instance,
        queue: MessageQueue,
        broker: str,
        address: str,
        fields: dict[str, str],
    ) -> None:
        self.queue = queue
        self.broker = broker
        self.address = address
        self._instance = instance
        self._fields = fields
        is_batch = "m" in fields
        self.code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        # Signed requests, namespaces (v2) and JSON headers need every field each time.
        self.template = SendTemplate(fields) if instance.is_plain else None

    def head(self, attempt: SendAttempt, opaque: int, flag: int) -> bytes:
        """The head of a request that no template can make.

        Raises:
            LocalProtocolError: it fits into no frame, or the caller's function gives no keys for it.
        """
        fields = self._fields | {
            "f": str(attempt.system_flag),
            "g": str(born_ms(attempt.born)),
            "h": str(attempt.flag),
            "i": attempt.properties.decode(),
        }
        try:
            request = self._instance.request(self.code, fields, attempt.body)
        except Exception as error:
            # A connection asks for it, beside the send, and knows what to do with this kind only.
            raise LocalProtocolError(f"the request can't be signed: {error!r}") from error
        return request.head(opaque, flag)


def target_for(
    instance: Instance,
    group: str,
    route: TopicEntry,
    queue: MessageQueue,
    *,
    is_batch: bool,
    defaults: tuple[str, int],
) -> SendTarget:
    """The target of a queue, made once per route.

    Raises:
        NoWritableQueueError: the queue's broker has no master that is known.
    """
    broker, address = route.owner_of(queue), route.address_of(queue)
    if address is None:
        known = ", ".join(sorted(route.masters)) or "none"
        raise NoWritableQueueError(
            f"broker {broker} has no master for topic {queue.topic} (masters: {known})"
        )
    fields = send_fields(
        group=group,
        topic=route.topic,
        default_topic=defaults[0],
        default_queues=defaults[1],
        queue_id=queue.id,
        broker=broker,
        batch=is_batch,
    )
    return SendTarget(instance, queue, broker, address, fields)


class ReadyTarget:
    """One queue that the default strategy takes in turn: its target, and its broker's records."""

    __slots__ = ("entry", "target")

    def __init__(self, target: SendTarget, entry: Entry) -> None:
        self.target = target
        self.entry = entry


class TopicPlan:
    """What holds for every message of a topic, as long as nothing changes."""

    __slots__ = (
        "another_usable", "first_limits", "fresh_until", "in_turn", "route", "routes_version",
        "topic", "version",
    )  # fmt: skip

    def __init__(self, route: TopicEntry, queues: TopicQueues, version: int) -> None:
        self.route = route
        #: As users say it, which is how round-robin positions are counted.
        self.topic = queues.topic
        #: The fault table's, when the plan was made.
        self.version = version
        #: The table of routes', when it was last looked at.
        self.routes_version = -1
        #: Until when the route may be used without being asked for again.
        self.fresh_until = NEVER
        #: Whether a broker is usable beside any that is chosen.
        self.another_usable = False
        #: How many seconds a first attempt may take, by those of its send.
        self.first_limits: dict[float, float] = {}
        #: The queues to be taken in turn; empty where choosing takes more than that.
        self.in_turn: tuple[ReadyTarget, ...] = ()
