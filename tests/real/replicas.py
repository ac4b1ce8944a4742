"""A broker with replicas: a synchronous master and its slave, as production has them."""

from types import TracebackType
from typing import Self

from tests.real import settings
from tests.real.apache import ApacheBroker, ApacheCluster

from rocketwire import Message, Producer, SendStatus


class Replicated(ApacheCluster):
    """A cluster of one broker name or more, each a synchronous master with a slave.

    ``brokers`` are the masters; a slave has the name of its master and the id 1.
    """

    def __init__(self, version: str, brokers: int = 1, **overrides: str) -> None:
        values = {
            "brokerRole": "SYNC_MASTER",
            "slaveReadEnable": "true",
            # Slaves ask for topics, groups and offsets that often.
            "brokerHeartbeatInterval": "1000",
        } | overrides
        super().__init__(version, brokers=brokers, overrides=values)
        self.slaves = [self._slave(master, values) for master in self.brokers]

    def _slave(self, master: ApacheBroker, values: dict[str, str]) -> ApacheBroker:
        own = values | {"brokerRole": "SLAVE", "brokerId": "1"}
        return ApacheBroker(
            self.version,
            master.name,
            self.folder / f"{master.name}-slave",
            self.name_server,
            jvm=self._jvm,
            overrides=own,
        )

    def slave(self, name: str) -> ApacheBroker:
        return next(broker for broker in self.slaves if broker.name == name)

    def wait_copied(self, topic: str, group: str | None = None, limit: float = 60.0) -> None:
        """Wait until the slaves have the topic, and a position of the group: they ask every 10 s."""

        def copied(slave: ApacheBroker) -> bool:
            if f'"{topic}"'.encode() not in self.ask(slave.listen, 21).body:
                return False
            offsets = self.ask(slave.listen, 43).body
            return group is None or f'"{topic}@{group}"'.encode() in offsets

        for slave in self.slaves:
            self._await(lambda slave=slave: copied(slave), slave, limit)

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            for slave in self.slaves:
                slave.start()
            for slave in self.slaves:
                self.wait_ready(slave)
            self._wait_connected()
        except BaseException:
            self.close(keep=True)
            raise
        return self

    def _wait_connected(self) -> None:
        """Wait until every master has a slave that copies: 4.9 tries to connect every 5 s."""
        self.create_topic("replica-check", 1)
        with Producer(self.name_server, group="replica-check", send_timeout=20.0) as producer:
            for queue in producer.publish_queues("replica-check"):
                message = Message("replica-check", b"x")
                self._await(
                    lambda queue=queue, message=message: (
                        producer.send(message, queue=queue).status is SendStatus.OK
                    ),
                    self.slave(queue.broker),
                    60.0,
                )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(keep=kind is not None)

    def close(self, *, keep: bool = False) -> None:
        for slave in self.slaves:
            slave.kill()
        super().close(keep=keep)


CLUSTER = settings.CLUSTER
