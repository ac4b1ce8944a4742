"""What the simple consumers of both shells share: received messages, and what is subscribed to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self, TypeVar

from rocketwire.core.group.receive import Receiver, Taken
from rocketwire.core.instance import Instance
from rocketwire.core.reading.filters import message_filter
from rocketwire.core.sending.validate import check_topic
from rocketwire.errors import ClientClosedError, ConfigError, InvalidMessageError
from rocketwire.simple_consumer_config import LONGEST_INVISIBLE, SimpleConsumerConfig, check_span
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.client_bodies import Subscription
from rocketwire.wire.pop import Receipt

M = TypeVar("M", bound="Received")


class Received(StoredMessage):
    """A message that was received: this member's for a while, and then any member's again."""

    __slots__ = ("_consumer", "_receipt")

    _consumer: Any
    _receipt: Receipt

    def __reduce__(self) -> tuple[Any, ...]:
        make, (_, fields) = super().__reduce__()
        # What was received in another process can't be acknowledged there.
        return make, (StoredMessage, fields)

    @property
    def delivery_attempt(self) -> int:
        """How often it was received, this time included: 1 the first time."""
        return self.reconsume_times + 1

    def _renew(self, receipt: Receipt) -> None:
        object.__setattr__(self, "_receipt", receipt)


def extension(seconds: float | str) -> float:
    """For how long a message is kept.

    Raises:
        InvalidMessageError: that makes no sense.
    """
    return check_span("seconds", seconds, least=0.001, most=LONGEST_INVISIBLE)


def release_after(after: float | str) -> float:
    """After how long a message is given back.

    Raises:
        InvalidMessageError: that makes no sense.
    """
    return check_span("after", after, least=0.0, most=LONGEST_INVISIBLE)


def become(taken: Taken, kind: type[M], consumer: object) -> M:
    """A received message as one of a shell's own kind, which has its fields and some more.

    Its topic is the one that was subscribed to, also where it comes from a retry topic.
    """
    message, topic = taken.message, taken.topic
    made = kind.__new__(kind)
    for owner in type(message).__mro__:
        for name in getattr(owner, "__slots__", ()):
            if name not in {"__dict__", "__weakref__"} and hasattr(message, name):
                object.__setattr__(made, name, getattr(message, name))
    if hasattr(message, "__dict__"):
        made.__dict__.update(message.__dict__)
    object.__setattr__(made, "topic", topic)
    object.__setattr__(made, "queue", message.queue._replace(topic=topic))
    object.__setattr__(made, "_consumer", consumer)
    made._renew(taken.receipt)  # noqa: SLF001 - it is being made here
    return made


def receipt_of(message: object) -> Receipt:
    """The receipt of a message that was received.

    Raises:
        InvalidMessageError: it was not, or is a copy that was made or pickled since.
    """
    receipt = getattr(message, "_receipt", None)
    if not isinstance(receipt, Receipt):
        raise InvalidMessageError(
            f"{message!r:.80} was not received by this consumer: give messages of receive()"
        )
    return receipt


class Subscriber:
    """What a simple consumer wants, before it is started and after; whatever its shell."""

    _state: str
    _config: SimpleConsumerConfig
    _instance: Instance
    _receiver: Receiver
    _subscriptions: list[Subscription]

    def subscribe(
        self, topic: str, tags: str | Iterable[str] = "*", *, sql: str | None = None
    ) -> Self:
        """Want the messages of a topic: all, those with some tags, or those that an expression fits.

        Args:
            topic: its name.
            tags: ``*``, ``TagA || TagB``, or a list of tags.
            sql: an SQL92 expression over properties, which the brokers evaluate.
        """
        if self._state == "closed":
            raise ClientClosedError("this simple consumer was shut down: make a new one")
        check_topic(topic)
        wanted = message_filter(tags, sql)
        subscription = Subscription(topic, wanted.expression, kind=wanted.kind)
        self._subscriptions.append(subscription)
        if self._state == "running":
            self._receiver.subscribe(subscription)
        return self

    def _opened(self) -> None:
        self._receiver = Receiver(self._instance, self._config.group, self._config.start)
        for subscription in self._subscriptions:
            self._receiver.subscribe(subscription)

    def _receipts(self, messages: object) -> list[tuple[Receipt, str]]:
        """The receipts and topics of messages that are to be acknowledged.

        Raises:
            InvalidMessageError: they are no list, or one of them was not received by this group.
        """
        if isinstance(messages, StoredMessage) or not isinstance(messages, Iterable):
            raise InvalidMessageError(
                f"messages is {messages!r:.80}: give a list of what receive() gave; "
                "one message has its own ack()"
            )
        found = []
        for message in messages:
            receipt, group = receipt_of(message), message._consumer._config.group  # noqa: SLF001
            if group != self._config.group:
                raise InvalidMessageError(
                    f"{message.message_id} was received by group {group}, not by "
                    f"{self._config.group}: acknowledge it there"
                )
            found.append((receipt, message.topic))
        return found

    def _check_subscribed(self) -> None:
        if not self._receiver.has_subscriptions:
            raise ConfigError("nothing is subscribed to: call subscribe('topic') first")
