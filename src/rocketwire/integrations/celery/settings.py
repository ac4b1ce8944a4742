"""What ``broker_transport_options`` may hold, and the clients that one connection needs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from rocketwire import (
    Admin,
    ConfigError,
    Credentials,
    GroupNotFoundError,
    Producer,
    Reader,
    SimpleConsumer,
    TopicNotFoundError,
)

#: Options that kombu and Celery read themselves.
_KOMBU_OPTIONS: Final = frozenset(
    {
        "body_encoding", "client_properties", "confirm_publish", "connect_retries_timeout",
        "deadletter_queue", "errback", "interval_max", "interval_start", "interval_step",
        "max_retries", "polling_interval",
    }
)  # fmt: skip
_DEFAULT_PORT: Final = 9876


@dataclass(frozen=True)
class Settings:
    """The options of the transport.

    Attributes:
        name_servers: beats the host of the URL; for more than one.
        group: the consumer group of all workers.
        visibility_timeout: seconds after which the messages of a worker that died come again; a
            living worker keeps its own for as long as it works on them.
        topic_prefix: in front of every topic.
        queues: of a new topic, on each broker.
        manage_topics: create topics when queues are declared, and delete them with the queues.
        client: further options of all clients, e.g. ``namespace`` or ``tls``.
    """

    name_servers: str | list[str] = ""
    group: str = "celery"
    visibility_timeout: float = 60.0
    topic_prefix: str = ""
    queues: int = 4
    manage_topics: bool = True
    client: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, connection: Any) -> Settings:
        """From a kombu connection: its URL and its transport options.

        Raises:
            ConfigError: there is no such option, or its value makes no sense.
        """
        given = {k: v for k, v in connection.transport_options.items() if k not in _KOMBU_OPTIONS}
        known = [each.name for each in fields(cls)]
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"broker_transport_options has {name!r}: there are {', '.join(known)}"
                )
        host = f"{connection.hostname or '127.0.0.1'}:{connection.port or _DEFAULT_PORT}"
        given.setdefault("name_servers", host)
        client = dict(given.get("client") or {})
        if connection.userid:
            client.setdefault(
                "credentials", Credentials(connection.userid, connection.password or "")
            )
        made = cls(**(given | {"client": client}))
        span: Any = made.visibility_timeout
        if not isinstance(span, int | float) or span < 1:
            raise ConfigError(f"visibility_timeout is {span!r}: seconds, 1 or more")
        return made


class Clients:
    """The clients of one connection, each made when it is first needed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._made: dict[type[Any], Any] = {}
        self._known: set[str] = set()
        self._lock = threading.Lock()
        # Connections are often just dropped.
        weakref.finalize(self, _shut_down, self._made)

    def _client(self, kind: type[Any]) -> Any:
        with self._lock:
            if kind not in self._made:
                settings = self.settings
                options = dict(settings.client)
                if kind is Producer:
                    options.setdefault("group", settings.group)
                self._made[kind] = kind(settings.name_servers, **options).start()
            return self._made[kind]

    @property
    def producer(self) -> Producer:
        """What tasks and replies are sent with."""
        made: Producer = self._client(Producer)
        return made

    @property
    def reader(self) -> Reader:
        """What mailboxes are read with."""
        made: Reader = self._client(Reader)
        return made

    @property
    def admin(self) -> Admin:
        """What topics are made with."""
        made: Admin = self._client(Admin)
        return made

    def consumer(self, topics: frozenset[str]) -> SimpleConsumer:
        """A member of the group, for some topics; the caller shuts it down."""
        settings = self.settings
        options = dict(settings.client)
        made = SimpleConsumer(
            settings.name_servers, group=settings.group, start="earliest", **options
        )
        for topic in sorted(topics):
            made.subscribe(topic)
        return made.start()

    def check(self) -> None:
        """Find out whether there is a cluster.

        Raises:
            RouteError: no name server answers.
        """
        self.admin.brokers()

    def exists(self, topic: str) -> bool:
        """Whether there is such a topic."""
        if topic in self._known:
            return True
        try:
            # Not the reader: it remembers a topic for a while that is deleted.
            self.admin.topic(topic)
        except TopicNotFoundError:
            return False
        self._known.add(topic)
        return True

    def ensure_topic(self, topic: str, queues: int) -> None:
        """Create a topic unless there is one.

        Raises:
            TopicNotFoundError: there is none, and ``manage_topics`` is off.
        """
        if self.exists(topic):
            return
        if not self.settings.manage_topics:
            raise TopicNotFoundError(
                f"there is no topic {topic!r}, and manage_topics is off: create it on the cluster"
            )
        self.admin.create_topic(topic, queues)
        self._known.add(topic)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic if there is one."""
        self._known.discard(topic)
        if self.settings.manage_topics and self.exists(topic):
            self.admin.delete_topic(topic)
            self._known.discard(topic)

    def waiting(self, topic: str) -> int:
        """About how many messages of a topic the group has not acknowledged."""
        if not self.exists(topic):
            return 0
        try:
            lag = self.admin.group(self.settings.group).lag
        except GroupNotFoundError:
            lag = {}
        known = {queue: count for queue, count in lag.items() if queue.topic == topic}
        reader = self.reader
        return sum(
            known[queue] if queue in known else reader.max_offset(queue) - reader.min_offset(queue)
            for queue in reader.queues(topic)
        )

    def close(self) -> None:
        """Shut all of them down; they are made again when they are needed again."""
        with self._lock:
            self._known.clear()
            _shut_down(self._made)


def _shut_down(clients: dict[type[Any], Any]) -> None:
    while clients:
        _, client = clients.popitem()
        client.shutdown()
