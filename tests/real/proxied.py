"""Three real brokers, each reached through a proxy that can be made to misbehave."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tests.real.apache import QUICK_JVM, ApacheBroker, ApacheCluster
from tests.real.proxy import Proxies, Proxy

BAD = "broker-b"
"""The broker that faults are done to."""


class Proxied:
    """A cluster whose brokers advertise the addresses of their proxies."""

    def __init__(self, cluster: ApacheCluster, proxies: Proxies) -> None:
        self.cluster = cluster
        self.proxies = proxies

    @property
    def broker(self) -> ApacheBroker:
        return self.cluster.broker(BAD)

    @property
    def proxy(self) -> Proxy:
        return next(each for each in self.proxies.each if each.listen == self.broker.address)


@contextmanager
def proxied_cluster(version: str, jvm: Sequence[str] = QUICK_JVM) -> Iterator[Proxied]:
    """Brokers listen on one loopback address and advertise another, where the proxies listen."""
    with ExitStack() as stack:
        cluster = ApacheCluster(
            version, brokers=3, host="127.0.0.2", advertised_host="127.0.0.1", jvm=jvm
        )
        stack.enter_context(cluster)
        pairs = [(broker.address, broker.listen) for broker in cluster.brokers]
        yield Proxied(cluster, stack.enter_context(Proxies(pairs)))


FAULTS: dict[str, tuple[Callable[[Proxied], None], Callable[[Proxied], None]]] = {
    "slow-80ms": (lambda p: p.proxy.slow(0.08), lambda p: p.proxy.heal()),
    "slow-300ms": (lambda p: p.proxy.slow(0.3), lambda p: p.proxy.heal()),
    "blackhole": (lambda p: p.proxy.blackhole(), lambda p: p.proxy.heal()),
    "refuse": (lambda p: p.proxy.refuse(), lambda p: p.proxy.heal()),
    "flap": (lambda p: p.proxy.flap(0.3, 0.3), lambda p: p.proxy.heal()),
    "frozen": (lambda p: p.broker.pause(), lambda p: p.broker.resume()),
    "killed": (lambda p: p.broker.kill(), lambda p: p.cluster.restart(p.broker)),
}
"""How each fault begins and ends."""
