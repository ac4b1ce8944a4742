"""The proxy of RocketMQ 5 in front of a real cluster, on loopback addresses.

It listens on two ports: one for clients that speak gRPC, and one for those of the remoting protocol, to
which it gives routes that lead through itself.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real import jars, settings
from tests.real.apache import (
    OPENED,
    QUICK_JVM,
    START_LIMIT,
    ApacheCluster,
    JavaProcess,
    ServerFailedError,
    free_port,
)

_LAUNCHER = Path(__file__).parent / "java" / "LoopbackProxy.java"
_THREADS = 2
"""Of each of its pools; by default a dozen pools have sixteen threads per core and more."""


class GrpcProxy(JavaProcess):
    """One proxy. ``grpc`` and ``remoting`` are the addresses of its two ports.

    ``overrides`` are settings of its own, ``jvm`` further options of Java; ``shown`` is the host to which
    its routes lead.
    """

    def __init__(
        self,
        cluster: ApacheCluster,
        folder: Path,
        host: str = "127.0.0.1",
        *,
        shown: str | None = None,
        overrides: Mapping[str, object] | None = None,
        jvm: Sequence[str] = (),
    ) -> None:
        (folder / "conf").mkdir(parents=True, exist_ok=True)
        ports = free_port(host), free_port(host)
        self.grpc, self.remoting = (f"{host}:{port}" for port in ports)
        conf = folder / "conf" / "rmq-proxy.json"
        values: dict[str, object] = {
            "rocketMQClusterName": settings.CLUSTER,
            "namesrvAddr": cluster.name_server,
            "grpcServerPort": ports[0],
            "remotingListenPort": ports[1],
            "remotingAccessAddr": shown or host,
            "localServeAddr": host,
            "useEndpointPortFromRequest": False,
            # By default it is 20 s late with what is new, topics for retries among it.
            "topicRouteServiceCacheRefreshSeconds": 1,
        }
        values |= dict.fromkeys(_POOLS, _THREADS) | dict(overrides or {})
        conf.write_text(json.dumps(values))
        command = [
            "java",
            "-Xms64m",
            "-Xmx256m",
            "-XX:MaxDirectMemorySize=128m",
            *OPENED,
            *QUICK_JVM,
            *jvm,
            f"-Duser.home={folder}",
            f"-Djava.io.tmpdir={folder}",
            "-Djava.net.preferIPv4Stack=true",
            "-cp",
            jars.compiled(cluster.version, [_LAUNCHER], jars.PROXY_POM),
            "LoopbackProxy",
            host,
            "-pc",
            str(conf),
            "-pm",
            "cluster",
        ]
        super().__init__("proxy", command, folder)

    def wait_ready(self, limit: float = START_LIMIT) -> None:
        """Wait until it has said that both ports are open."""
        deadline = time.monotonic() + limit
        while not re.search(r"^started$", self.output.read_text(), re.MULTILINE):
            if not self.alive or time.monotonic() > deadline:
                raise ServerFailedError(f"the proxy did not start:\n{self.tail()}")
            time.sleep(0.05)


_POOLS = (
    "grpcThreadPoolNums",
    "grpcProducerThreadPoolNums",
    "grpcConsumerThreadPoolNums",
    "grpcRouteThreadPoolNums",
    "grpcClientManagerThreadPoolNums",
    "grpcTransactionThreadPoolNums",
    "producerProcessorThreadPoolNums",
    "consumerProcessorThreadPoolNums",
    "topicRouteServiceThreadPoolNums",
    "metadataThreadPoolNums",
)


@contextmanager
def grpc_proxy(cluster: ApacheCluster, name: str = "proxy", **options: Any) -> Iterator[GrpcProxy]:
    """A proxy in front of ``cluster`` that ends with the block."""
    proxy = GrpcProxy(cluster, cluster.folder / name, **options)
    proxy.start()
    try:
        proxy.wait_ready()
        yield proxy
    finally:
        proxy.kill()
