"""A client that asks about clusters and topics, and changes topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocketwire.core import admin
from rocketwire.core.effects import Op, invoke
from rocketwire.core.lookup import ask_name_servers, fetch_route
from rocketwire.errors import RocketMQError, TopicNotFoundError
from rocketwire.message import MessageQueue
from rocketwire.sync.reader import Reader
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for
from rocketwire.wire.command import Reply
from rocketwire.wire.lenient_json import MAX_SIZE, loads, pairs
from rocketwire.wire.route import ClusterInfo, TopicRoute


@dataclass(frozen=True, slots=True)
class QueueState:
    """One queue: its first offset, the offset after its last, and when it was last written."""

    queue: MessageQueue
    first: int
    end: int
    error: str = ""


class Admin(Reader):
    """Questions for name servers and brokers; a reader, too, to look into topics."""

    _what = "admin client"

    @property
    def uses_tls(self) -> bool:
        """Whether its connections are encrypted."""
        return self._config.tls is not None

    def translate(self, address: str) -> str:
        """The address to use for an advertised one."""
        return self._instance.routes.translate(address)

    def clusters(self) -> ClusterInfo:
        """All brokers of all clusters."""
        return self._run(admin.cluster_info(self._instance, self._deadline()))

    def topics(self) -> list[str]:
        """Every topic that a name server knows, those of the system included."""
        operation = _topic_list(self, self._deadline())
        return self._run(operation)

    def route(self, topic: str) -> TopicRoute:
        """Where a topic lives.

        Raises:
            TopicNotFoundError: the name server does not know it.
        """
        found = self._run(fetch_route(self._instance, topic, self._deadline()))
        if found is None:
            raise TopicNotFoundError(
                f"topic {topic} does not exist: rocketwire topic create {topic}"
            )
        return found

    def create_topic(
        self, topic: str, *, queues: int, order: bool, brokers: tuple[str, ...] | None
    ) -> tuple[str, ...]:
        """Create or change a topic; returns the brokers that have it."""
        return self._run(
            admin.create_topic(
                self._instance,
                topic,
                queues=queues,
                order=order,
                brokers=brokers,
                deadline=self._deadline(),
            )
        )

    def delete_topic(self, topic: str) -> tuple[str, ...]:
        """Delete a topic everywhere; returns the brokers that had it."""
        return self._run(admin.delete_topic(self._instance, topic, self._deadline()))

    def queue_states(self, topic: str) -> list[QueueState]:
        """First and end offset of each readable queue; a broker's failure is in ``error``."""
        found = []
        for queue in self.queues(topic):
            try:
                state = QueueState(queue, self.min_offset(queue), self.max_offset(queue))
            except RocketMQError as error:
                state = QueueState(queue, 0, 0, str(error))
            found.append(state)
        return found

    def runtime(self, address: str) -> dict[str, str]:
        """What a broker says about itself."""
        reply = self.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = loads(bytes(reply.body), tolerant_limit=MAX_SIZE).get("table") or {}
        return {str(name): str(value) for name, value in pairs(table)}

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Their addresses."""
        return self._instance.name_servers

    def ask(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> Reply:
        """One request to one server.

        Raises:
            BrokerError: it answered with an error.
            TransportError: it gave no answer.
        """
        reply = self.try_asking(address, code, fields, timeout=timeout)
        return _checked(reply, address)

    def try_asking(
        self,
        address: str,
        code: int,
        fields: dict[str, str] | None = None,
        *,
        body: bytes = b"",
        timeout: float | None = None,
    ) -> Reply:
        """Likewise, but an answer that is an error is returned, too."""
        deadline = self._deadline()
        if timeout is not None:
            deadline = self._instance.clock() + timeout
        request = self._instance.request(code, fields or {}, body)
        return self._run(invoke(address, request, deadline))


def _topic_list(client: Any, deadline: float) -> Op[list[str]]:
    instance = client._instance  # noqa: SLF001 - a part of the class above
    code = RequestCode.GET_ALL_TOPICS_FROM_NAME_SERVER
    reply = yield from ask_name_servers(instance, code, {}, deadline)
    body = loads(bytes(_checked(reply, "the name server").body))
    return sorted(str(name) for name in body.get("topicList") or ())


def _checked(reply: Reply, who: str) -> Reply:
    if reply.code != ResponseCode.SUCCESS:
        raise error_for(reply.code, reply.remark, who)
    return reply
