"""Brokers with replicas, as production has them: a synchronous master and its slave, or a controller."""

import json
from types import TracebackType
from typing import Self

from tests.real import settings
from tests.real.apache import START_LIMIT, ApacheBroker, ApacheCluster, free_port

from rocketwire import Message, Producer, SendStatus
from rocketwire.wire.route import decode_cluster_info


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


class Controlled(ApacheCluster):
    """One broker name with replicas, and a controller that makes another the master when one dies.

    ``brokers`` are the replicas. A send is confirmed when all of them have it that keep up.
    """

    def __init__(self, version: str, replicas: int = 2) -> None:
        host = "127.0.0.1"
        controller = f"{host}:{free_port(host)}"
        own = {
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{controller}",
            "controllerDLegerSelfId": "n0",
            "mappedFileSize": str(16 << 20),
            # By default a master is missed after 10 s.
            "scanNotActiveBrokerInterval": "500",
            "scanInactiveMasterInterval": "500",
        }
        super().__init__(version, brokers=0, name_server_overrides=own)
        values = {
            "brokerId": "-1",
            "enableControllerMode": "true",
            "controllerAddr": controller,
            "allAckInSyncStateSet": "true",
            "brokerHeartbeatInterval": "500",
            "controllerHeartBeatTimeoutMills": "3000",
            "syncControllerMetadataPeriod": "1000",
            "syncBrokerMetadataPeriod": "1000",
            "checkSyncStateSetPeriod": "1000",
            "slaveReadEnable": "true",
        }
        for number in range(1, replicas + 1):
            folder = self.folder / f"replica-{number}"
            broker = ApacheBroker(
                version, "broker-a", folder, self.name_server, jvm=self._jvm, overrides=values
            )
            self.brokers.append(broker)

    def _start(self) -> None:
        super()._start()
        self.wait_in_step()

    def wait_in_step(self) -> None:
        """Wait until all replicas have what the master has, so that any may follow it."""
        self._await(self._keeps_up, self.server, START_LIMIT)

    @property
    def master(self) -> ApacheBroker | None:
        """The replica that the name server tells to be the master."""
        told = decode_cluster_info(self.ask(self.name_server, 106).body).brokers.get("broker-a")
        address = told.addresses.get(0) if told is not None else None
        return next((each for each in self.brokers if each.address == address), None)

    def _keeps_up(self) -> bool:
        """Whether all replicas are in the set from which a master is chosen."""
        master = self.master
        if master is None:
            return False
        told = json.loads(self.ask(master.listen, 907).body or b"{}")
        return int(told.get("inSyncSlaveNums", 0)) >= len(self.brokers) - 1


CLUSTER = settings.CLUSTER
