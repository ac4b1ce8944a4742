"""A client that asks any server anything, for the commands that look for faults or make them."""

from __future__ import annotations

from rocketwire.core.admin.asking import checked
from rocketwire.core.admin.topics import known_route
from rocketwire.core.effects import invoke
from rocketwire.core.lookup import cluster_info
from rocketwire.sync.admin import Admin
from rocketwire.wire.command import Reply
from rocketwire.wire.route import ClusterInfo, TopicRoute


class Inspector(Admin):
    """An admin client that also puts single requests to single servers."""

    @property
    def uses_tls(self) -> bool:
        """Whether its connections are encrypted."""
        return self._config.tls is not None

    def translate(self, address: str) -> str:
        """The address to use for an advertised one."""
        return self._instance.routes.translate(address)

    def clusters(self) -> ClusterInfo:
        """All brokers of all clusters."""
        return self._run(cluster_info(self._instance, self._deadline()))

    def route(self, topic: str) -> TopicRoute:
        """Where a topic lives.

        Raises:
            TopicNotFoundError: the name server does not know it.
        """
        deadline = self._deadline()
        return self._run(known_route(self._instance, topic, deadline))

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
        return checked(reply, address, code)

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
