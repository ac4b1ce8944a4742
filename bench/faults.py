"""``python -m bench.faults``: one of three real brokers goes wrong; who goes on sending?

Ours, Apache's Java producer (as it comes, and with its latency switch on) and the Go client run one after
the other through the same faults on the same cluster of Apache RocketMQ, behind the proxies of
``tests/real``. The table is Markdown, for the documentation. Only ratios within one run mean anything.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.interop.driver import Driver, GoDriver, JavaDriver
from tests.real.proxied import BAD, FAULTS, Proxied, proxied_cluster
from tests.real.running import unique

from bench.fault_phases import Send, Verdict, judge
from rocketwire import Message, Producer, SendFailedError

_BODY = b"x" * 200
_JVM = ("-XX:+UseSerialGC",)
_RETURN_SECONDS = 5.0
CLIENTS = ("ours", "java", "java-switch", "go")


class Load(Protocol):
    """Sends at full speed between start and stop."""

    def start(self) -> None: ...

    def stop(self) -> list[Send]: ...


class OurLoad:
    """Our blocking producer from some threads."""

    def __init__(self, name_server: str, topic: str, threads: int) -> None:
        self._producer = Producer(name_server, group=unique("bench"))
        self._topic = topic
        self._sends: list[Send] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        self._begun = 0.0
        self.used: list[float] = []
        """When the bad broker stored something, in seconds from the start."""

    def start(self) -> None:
        self._producer.start()
        self._begun = time.perf_counter()
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[Send]:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        self._producer.shutdown()
        return self._sends

    def _work(self) -> None:
        while not self._over.is_set():
            at = time.perf_counter()
            try:
                result = self._producer.send(Message(self._topic, _BODY))
                good = True
                if result.queue.broker == BAD:
                    self.used.append(at - self._begun)
            except SendFailedError:
                good = False
            now = time.perf_counter()
            self._sends.append(Send(now - self._begun, now - at, good))


class ForeignLoad:
    """A foreign client's own producer, in its own process."""

    def __init__(
        self, driver: Driver, name_server: str, topic: str, threads: int, **options: Any
    ) -> None:
        self._driver = driver
        self._topic = topic
        self._threads = threads
        self._name = unique("load")
        driver.call(
            "producer.start",
            producer=self._name,
            group=self._name,
            name_server=name_server,
            **options,
        )

    def start(self) -> None:
        self._driver.call(
            "load.start",
            load=self._name,
            producer=self._name,
            topic=self._topic,
            threads=self._threads,
            body_size=len(_BODY),
        )

    def stop(self) -> list[Send]:
        found = self._driver.call("load.stop", load=self._name, limit=120)
        self._driver.begin("producer.stop", producer=self._name)
        return [Send(end / 1e6, took / 1e6, good == 1) for end, took, good in found["sends"]]


@contextmanager
def loads(names: list[str], version: str) -> Iterator[dict[str, Callable[..., Load]]]:
    """Something that makes a load, for each client asked for."""
    java: list[JavaDriver] = []
    with ExitStack() as stack:
        made: dict[str, Callable[..., Load]] = {}
        if any(name.startswith("java") for name in names):
            java.append(stack.enter_context(JavaDriver(version, ["-XX:TieredStopAtLevel=4"])))
        if "ours" in names:
            made["ours"] = OurLoad
        if "java" in names:
            made["java"] = lambda *a: ForeignLoad(java[0], *a)
        if "java-switch" in names:
            switch = {"sendLatencyFaultEnable": True}
            made["java-switch"] = lambda *a: ForeignLoad(java[0], *a, options=switch)
        if "go" in names:
            go = stack.enter_context(GoDriver())
            made["go"] = lambda *a: ForeignLoad(go, *a)
        yield made


def run(
    proxied: Proxied, fault: str, load: Load, seconds: tuple[float, float, float]
) -> tuple[Verdict, float | None]:
    """Warm up, send in peace, break the broker, mend it, and judge.

    The second value is how long after healing the broker was in use again, where the client tells.
    """
    warm, peace, broken = seconds
    begin, end = FAULTS[fault]
    load.start()
    started = time.perf_counter()
    time.sleep(warm + peace)
    begun = time.perf_counter() - started
    begin(proxied)
    try:
        time.sleep(broken)
    finally:
        ended = time.perf_counter() - started
        end(proxied)
    healed = time.perf_counter() - started
    time.sleep(_RETURN_SECONDS)
    verdict = judge(load.stop(), warm, begun, ended)
    back = [moment - healed for moment in getattr(load, "used", ()) if moment > healed]
    return verdict, min(back, default=None)


def row(client: str, fault: str, threads: int, verdict: Verdict, back: float | None) -> str:
    cells = (
        client,
        fault,
        str(threads),
        f"{verdict.rate_before:.0f}",
        f"{verdict.rate_during:.0f}",
        f"{verdict.kept:.2f}",
        f"{verdict.longest_gap:.2f} s",
        str(verdict.failures),
        "" if back is None else f"{back:.2f} s",
    )
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| client | fault | threads | sends/s before | sends/s in the fault | kept | longest gap | failed | back |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def main(words: list[str] | None = None) -> None:
    """Run the contest and print its table."""
    chosen = _arguments(words)
    lines = [HEAD]
    print(HEAD, flush=True)
    seconds = (chosen.warm, chosen.peace, chosen.seconds)
    with (
        proxied_cluster(chosen.version, _JVM) as proxied,
        loads(chosen.clients.split(","), chosen.version) as makers,
    ):
        for fault in chosen.faults.split(","):
            for threads in map(int, chosen.threads.split(",")):
                for client, make in makers.items():
                    topic = unique("bench")
                    proxied.cluster.create_topic(topic)
                    load = make(proxied.cluster.name_server, topic, threads)
                    lines.append(row(client, fault, threads, *run(proxied, fault, load, seconds)))
                    print(lines[-1], flush=True)
    today = datetime.datetime.now(datetime.UTC).date()
    lines.append(
        f"\nApache RocketMQ {chosen.version}, Python {platform.python_version()}, {today}."
    )
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n")


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--version", default="5.3.3", help="release of Apache RocketMQ")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="who takes part")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which faults")
    parser.add_argument("--threads", default="1,4", help="numbers of sending threads")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long a fault lasts")
    parser.add_argument("--peace", type=float, default=5.0, help="how long before it is measured")
    parser.add_argument("--warm", type=float, default=3.0, help="what is left out at the start")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    chosen = parser.parse_args(words)
    for given, known in ((chosen.clients, CLIENTS), (chosen.faults, FAULTS)):
        unknown = sorted(set(given.split(",")) - set(known))
        if unknown:
            parser.error(f"{', '.join(unknown)}: choose from {', '.join(known)}")
    return chosen


if __name__ == "__main__":
    main()
