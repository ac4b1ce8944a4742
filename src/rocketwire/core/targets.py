"""Queues as addresses: where requests for a queue go, and how their headers begin."""

from __future__ import annotations

from rocketwire.core.encode import Outgoing
from rocketwire.core.instance import Instance
from rocketwire.core.routes import TopicEntry
from rocketwire.errors import NoWritableQueueError
from rocketwire.message import MessageQueue
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import Request
from rocketwire.wire.send_request import PlainFrames, SendTemplate, send_fields


class SendTarget:
    """One queue on one address. Lives as long as the route that it came from."""

    __slots__ = ("_fields", "_instance", "_template", "address", "broker", "queue")

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
        # Signed requests, namespaces (v2) and JSON headers need every field each time.
        self._template = SendTemplate(fields) if instance.is_plain else None

    def frames(self, id_size: int, flag: int) -> PlainFrames:
        """Makes requests of plain messages; only for clients that are plain themselves."""
        return PlainFrames(SendTemplate(self._fields), id_size, flag)

    def request(self, outgoing: Outgoing, born_ms: int) -> Request:
        """The request for one message or batch."""
        if self._template is not None:
            return self._template.request(
                outgoing.system_flag, outgoing.flag, born_ms, outgoing.properties, outgoing.body
            )
        fields = self._fields | {
            "f": str(outgoing.system_flag),
            "g": str(born_ms),
            "h": str(outgoing.flag),
            "i": outgoing.properties.decode(),
        }
        code = RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2
        return self._instance.request(code, fields, outgoing.body)


def target_for(
    instance: Instance,
    group: str,
    entry: TopicEntry,
    queue: MessageQueue,
    *,
    is_batch: bool,
    defaults: tuple[str, int],
) -> SendTarget:
    """The target of a queue, made once per route.

    Raises:
        NoWritableQueueError: the queue's broker has no master that we know of.
    """
    broker = entry.owners.get(queue, queue.broker)
    address = entry.masters.get(broker)
    if address is None:
        known = ", ".join(sorted(entry.masters)) or "none"
        raise NoWritableQueueError(
            f"broker {broker} has no master for topic {queue.topic} (masters: {known})"
        )
    fields = send_fields(
        group=group,
        topic=entry.topic,
        default_topic=defaults[0],
        default_queues=defaults[1],
        queue_id=queue.id,
        broker=broker,
        batch=is_batch,
    )
    return SendTarget(instance, queue, broker, address, fields)
