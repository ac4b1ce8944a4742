"""The transport and its channels, on kombu's virtual ones: who gets a message, and from where."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections import deque
from queue import Empty
from typing import Any, Final

from kombu.transport import virtual

from rocketwire import (
    BrokerError,
    ConfigError,
    Message,
    ReceivedMessage,
    RouteError,
    SendFailedError,
    StoredMessage,
    TransportError,
    __version__,
)
from rocketwire.integrations.celery.intake import Intake
from rocketwire.integrations.celery.mailboxes import MAILBOXES, Mailbox, Source, tag_of
from rocketwire.integrations.celery.settings import Clients, Settings
from rocketwire.integrations.celery.topic_names import topic_name

_log: Final = logging.getLogger("rocketwire.celery")

#: Seconds for which a channel waits for tasks before others have their turn.
_TURN: Final = 0.5
_MOST_AT_ONCE: Final = 32
#: Exchanges need little: one queue on each broker.
_EXCHANGE_QUEUES: Final = 1
_KEY: Final = re.compile(r"[\w.:@/-]{1,200}", re.ASCII)


def _decoded(message: StoredMessage) -> dict[str, Any] | None:
    """What kombu wrote; None, and a line in the log, for what it did not."""
    try:
        payload: dict[str, Any] = json.loads(message.body)
        payload["properties"].setdefault("delivery_info", {})["redelivered"] = False
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _log.error(
            "message %s of topic %s is dropped, kombu did not write it: %r",
            message.message_id,
            message.topic,
            error,
        )
        return None
    return payload


class QoS(virtual.QoS):
    """Acknowledges with RocketMQ what kombu acknowledges."""

    def ack(self, delivery_tag: str) -> None:
        """Be done with a message."""
        self.channel.intake.ack(delivery_tag)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002
        """Give a message back, or be done with it."""
        if requeue:
            self.channel.intake.release(delivery_tag)
        else:
            self.channel.intake.ack(delivery_tag)
        self._quick_ack(delivery_tag)


class Channel(virtual.Channel):
    """A channel: declares, publishes and consumes."""

    QoS = QoS
    supports_fanout = True

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self.clients: Clients = connection.clients
        self.intake = Intake(self.clients)
        self._without_ack: set[str] = set()
        self._ready: deque[tuple[str, dict[str, Any]]] = deque()

    # Names

    def _topic(self, queue: str) -> str:
        return topic_name(queue, self.clients.settings.topic_prefix)

    def _exchange_topic(self, exchange: str) -> str:
        # The default exchange has no name; a queue could not have this one.
        topic = self._topic(f"exchange:{exchange}")
        self.clients.ensure_topic(topic, _EXCHANGE_QUEUES)
        return topic

    @property
    def _cluster(self) -> str:
        settings = self.clients.settings
        return f"{settings.name_servers} {settings.client} {settings.topic_prefix}"

    def _mailbox(self, queue: str) -> Mailbox | None:
        return MAILBOXES.get(self._cluster, queue)

    # Declaring

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,  # noqa: FBT001, FBT002
        **options: Any,
    ) -> Any:
        """Declare a queue; only a passive declaration counts its messages."""
        queue = queue or f"amq.gen-{uuid.uuid4()}"
        if passive:
            return super().queue_declare(queue, passive=True, **options)
        self._new_queue(queue, **options)
        return virtual.base.queue_declare_ok_t(queue, 0, 0)

    def _new_queue(self, queue: str, **options: Any) -> None:
        if options.get("auto_delete") or options.get("exclusive"):
            expires = (options.get("arguments") or {}).get("x-expires")
            mailbox = MAILBOXES.open(
                self._cluster, queue, None if expires is None else expires / 1000
            )
            self._listen(mailbox, "", queue, "direct")
        elif self._mailbox(queue) is None:
            self.clients.ensure_topic(self._topic(queue), self.clients.settings.queues)

    def _listen(self, mailbox: Mailbox, exchange: str, routing_key: str, kind: str) -> None:
        topic = self._exchange_topic(exchange)
        if kind == "fanout":
            source = Source(topic, lambda _: True)
        elif kind == "topic":
            # From kombu: "*" is one word, "#" any number of them.
            pattern = re.compile(self.exchange_types["topic"].key_to_pattern(routing_key))
            source = Source(topic, lambda key: pattern.match(key) is not None)
        else:
            source = Source(topic, lambda key: key == routing_key, tag_of(routing_key))
        mailbox.add(f"{kind} {routing_key}", source, self.clients.reader)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        del pattern
        kind = self.typeof(exchange).type
        mailbox = self._mailbox(queue)
        if mailbox is not None:
            self._listen(mailbox, exchange, routing_key or "", kind)
        elif kind == "fanout":
            raise ConfigError(
                f"queue {queue!r} is bound to the fanout exchange {exchange!r}: over RocketMQ only "
                "queues of one consumer can be, declare it with auto_delete=True"
            )

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return self._mailbox(queue) is not None or self.clients.exists(self._topic(queue))

    def queue_delete(
        self,
        queue: str,
        if_unused: bool = False,  # noqa: FBT001, FBT002
        if_empty: bool = False,  # noqa: FBT001, FBT002
        **_: Any,
    ) -> None:
        """Delete a queue, and its topic if it has one."""
        if if_empty and self._size(queue):
            return
        if if_unused and queue in self._active_queues:
            return
        for exchange, routing_key, arguments in list(self.state.queue_bindings(queue)):
            self.queue_unbind(queue, exchange, routing_key, arguments)
        if not MAILBOXES.forget(self._cluster, queue):
            self.clients.delete_topic(self._topic(queue))

    def _size(self, queue: str) -> int:
        if self._mailbox(queue) is not None:
            return 0
        return self.clients.waiting(self._topic(queue))

    def _purge(self, queue: str) -> int:
        mailbox = self._mailbox(queue)
        if mailbox is not None:
            return mailbox.clear(self.clients.reader)
        return self.intake.purge(self._topic(queue))

    # Publishing

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **_: Any
    ) -> None:
        """Send to the queues that are known to be bound, else to the topic of the exchange."""
        self._inplace_augment_message(message, exchange, routing_key)
        queues = self._bound(exchange, routing_key) if exchange else [routing_key]
        for queue in queues:
            self._put(queue, message)
        if not queues:
            self._put_fanout(exchange, message, routing_key)

    def _bound(self, exchange: str, routing_key: str) -> list[str]:
        """The queues with a topic of their own that are bound here."""
        kind = self.typeof(exchange)
        if kind.type == "fanout" or exchange not in self.state.exchanges:
            return []
        found = kind.lookup(self.get_table(exchange), exchange, routing_key, None)
        return sorted(q for q in set(found) if q and self._mailbox(q) is None)

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        topic = self._topic(queue)
        # A queue without a topic is the mailbox of a consumer in some process, or of nobody.
        if self._mailbox(queue) is None and self.clients.exists(topic):
            self._send(topic, message, None)
        else:
            self._put_fanout("", message, queue)

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], routing_key: str, **_: Any
    ) -> None:
        self._send(self._exchange_topic(exchange), message, routing_key or "")

    def _send(self, topic: str, message: dict[str, Any], routing_key: str | None) -> None:
        properties = message["properties"]
        key = properties.get("correlation_id") or properties.get("message_id") or ""
        address = {} if routing_key is None else {"kombuRoutingKey": routing_key}
        self.clients.producer.send(
            Message(
                topic,
                json.dumps(message).encode(),
                tags=None if routing_key is None else tag_of(routing_key),
                keys=key if _KEY.fullmatch(str(key)) else None,
                properties={name: text for name, text in address.items() if text},
                deliver_at=properties.get("deliver_at"),
            )
        )

    # Consuming

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,  # noqa: FBT001
        callback: Any,
        consumer_tag: str,
        **options: Any,
    ) -> Any:
        """Consume a queue; without acknowledgements, a message is done with when it is delivered."""
        (self._without_ack.add if no_ack else self._without_ack.discard)(queue)
        return super().basic_consume(queue, no_ack, callback, consumer_tag, **options)

    def _get_many(self, queues: list[str], timeout: float | None = None) -> None:
        """Deliver one message, of whichever queue has one."""
        if not self._ready:
            self._look_into_mailboxes(queues)
        if not self._ready:
            self._receive(queues, _TURN if timeout is None else min(timeout, _TURN))
        if not self._ready:
            raise Empty
        queue, payload = self._ready.popleft()
        if queue in self._without_ack:
            self.intake.ack(payload["properties"]["delivery_tag"])
        self.connection._deliver(payload, queue)  # noqa: SLF001

    def _look_into_mailboxes(self, queues: list[str]) -> None:
        for queue in queues:
            mailbox = self._mailbox(queue)
            message = mailbox.take(self.clients.reader) if mailbox is not None else None
            payload = None if message is None else self._payload(message)
            if payload is not None:
                self._ready.append((queue, payload))

    def _receive(self, queues: list[str], wait: float) -> None:
        by_topic = {self._topic(q): q for q in queues if self._mailbox(q) is None}
        room = self.qos.can_consume_max_estimate()
        count = _MOST_AT_ONCE if room is None else room
        if by_topic and count:
            for message in self.intake.receive(by_topic, count, wait):
                payload = self._payload(message)
                if payload is not None:
                    self._ready.append((by_topic[message.topic], payload))

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """One message of one queue, without waiting."""
        del timeout
        mailbox = self._mailbox(queue)
        if mailbox is not None:
            message = mailbox.take(self.clients.reader)
            found: list[Any] = [] if message is None else [message]
        else:
            found = list(self.intake.receive([self._topic(queue)], 1, 0.0))
        payload = self._payload(found[0]) if found else None
        if payload is None:
            raise Empty
        return payload

    def basic_get(
        self,
        queue: str,
        no_ack: bool = False,  # noqa: FBT001, FBT002
        **options: Any,
    ) -> Any:
        """One message of one queue, or None."""
        message = super().basic_get(queue, no_ack=no_ack, **options)
        if message is not None and no_ack:
            self.intake.ack(message.delivery_tag)
        return message

    def _payload(self, message: StoredMessage) -> dict[str, Any] | None:
        """A message as kombu's dictionary, under a tag by which it can be acknowledged."""
        payload = _decoded(message)
        tag = str(uuid.uuid4())
        if isinstance(message, ReceivedMessage):
            self.intake.keep(tag, message)
            if payload is None:
                # It would come again for ever.
                self.intake.ack(tag)
        if payload is not None:
            again = isinstance(message, ReceivedMessage) and message.delivery_attempt > 1
            payload["properties"]["delivery_tag"] = tag
            payload["properties"]["delivery_info"]["redelivered"] = again
        return payload

    # Ending

    def _restore(self, message: Any) -> None:
        self.intake.release(message.delivery_tag)

    def close(self) -> None:
        """Give back what was not acknowledged."""
        was_closed = self.closed
        super().close()
        if not was_closed:
            self.intake.close()


class Transport(virtual.Transport):
    """``rocketmq://host:port``: see ``Settings`` for ``broker_transport_options``."""

    Channel = Channel
    driver_type = "rocketmq"
    driver_name = "rocketwire"
    default_port = 9876
    #: Seconds between two rounds in which nothing was found; channels with tasks wait on brokers.
    polling_interval = 0.05

    implements = virtual.Transport.implements.extend(
        exchange_type=frozenset({"direct", "topic", "fanout"})
    )
    connection_errors = (TransportError, RouteError, SendFailedError, OSError)
    channel_errors = (*virtual.Transport.channel_errors, BrokerError)

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.clients = Clients(Settings.of(client))

    def driver_version(self) -> str:
        """The version of Rocketwire."""
        return __version__

    def establish_connection(self) -> Any:
        """Find out whether there is a cluster.

        Raises:
            RouteError: no name server answers.
        """
        try:
            self.clients.check()
        except BaseException:
            self.clients.close()
            raise
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close the channels, and shut the clients down."""
        super().close_connection(connection)
        self.clients.close()
