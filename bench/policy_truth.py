"""What the policy lab predicts for a policy, beside a run of that policy on the same faults.

    python -m bench.policy_truth --scenarios slow,hang,refuse,flap,brown-out

Each scenario runs twice on the embedded cluster, under two policies, with the same sends at the same
times. From the telemetry of each run the lab predicts both; a simulation of one producer and three brokers
is told beside them. Prints a line of JSON for each prediction, with what was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rocketwire import AsyncProducer, Message
from rocketwire.embedded import EmbeddedCluster
from rocketwire.fault_policy import FaultPolicy
from rocketwire.testing.cluster_faults import parse_fault
from rocketwire.testing.simulated_cluster import ClusterFigures, ClusterSimulation, Setting

RATE: Final = 150
SECONDS: Final = 24.0
BEGIN, END = 4.0, 14.0
POLICIES: Final = ("java5", "default")
NAMES: Final = ("broker-a", "broker-b", "broker-c")


@dataclass
class Measured:
    """What came of the sends of a run."""

    sends: int
    failed: int
    p50: float
    p99: float
    lost: float


def _faults(cluster: EmbeddedCluster, scenario: str) -> list[tuple[float, Callable[[], Any]]]:
    one = cluster.broker("broker-b")
    if scenario == "slow":
        return [(BEGIN, lambda: one.slow(0.3)), (END, one.heal)]
    if scenario == "hang":
        return [(BEGIN, one.hang), (END, one.heal)]
    if scenario == "refuse":
        return [(BEGIN, one.refuse), (END, one.heal)]
    if scenario == "flap":
        steps = range(int(BEGIN), int(END), 2)
        return [m for at in steps for m in ((float(at), one.refuse), (at + 1.0, one.heal))]
    everyone = [cluster.broker(name) for name in NAMES]
    slow = [(BEGIN, lambda broker=broker: broker.slow(0.15)) for broker in everyone]
    return slow + [(END, broker.heal) for broker in everyone]


async def _send_all(producer: AsyncProducer) -> list[tuple[float, bool]]:
    ended: list[tuple[float, bool]] = []

    async def one() -> None:
        began = time.perf_counter()
        try:
            await producer.send(Message("orders", b"x" * 200))
        except Exception:
            ended.append((time.perf_counter() - began, True))
        else:
            ended.append((time.perf_counter() - began, False))

    loop, tasks = asyncio.get_running_loop(), []
    start = loop.time()
    for number in range(int(RATE * SECONDS)):
        await asyncio.sleep(max(0.0, start + number / RATE - loop.time()))
        tasks.append(loop.create_task(one()))
    await asyncio.gather(*tasks)
    return ended


async def _inject(faults: list[tuple[float, Callable[[], Any]]]) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    for at, action in faults:
        await asyncio.sleep(max(0.0, start + at - loop.time()))
        await asyncio.to_thread(action)


def run(scenario: str, policy: str, folder: Path) -> Measured:
    """One run, recorded."""

    async def life(cluster: EmbeddedCluster) -> list[tuple[float, bool]]:
        async with AsyncProducer(
            cluster.name_server, group="truth", fault=policy, telemetry=str(folder)
        ) as producer:
            await producer.send(Message("orders", b"x"))
            faults = asyncio.create_task(_inject(_faults(cluster, scenario)))
            ended = await _send_all(producer)
            await faults
            return ended

    with EmbeddedCluster(brokers=len(NAMES)) as cluster:
        ended = asyncio.run(life(cluster))
    latencies = sorted(latency for latency, _ in ended)
    usual = latencies[len(latencies) // 2]
    return Measured(
        sends=len(ended),
        failed=sum(is_failed for _, is_failed in ended),
        p50=usual,
        p99=latencies[int(0.99 * len(latencies))],
        lost=sum(max(0.0, latency - usual) for latency in latencies),
    )


FAULTS: Final = {
    "slow": "slow:0.3@broker-1",
    "hang": "hang@broker-1",
    "refuse": "refuse@broker-1",
    "flap": "flap:1@broker-1",
    "brown-out": "slow:0.15@all",
}


def simulated(scenario: str, policy: str, usual: float) -> ClusterFigures:
    """The same in virtual time, with brokers that have capacity to spare."""
    fault = parse_fault(f"{FAULTS[scenario]}/{BEGIN}-{END}", brokers=len(NAMES), seconds=SECONDS)
    setting = Setting(
        producers=1,
        brokers=len(NAMES),
        seconds=SECONDS,
        rate=RATE,
        load=0.01,
        latency=usual,
        faults=(fault,),
    )
    return ClusterSimulation(FaultPolicy.named(policy), setting, seed=1).run()


def main() -> int:
    """Run the scenarios, and print a line for each prediction."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scenarios", default="slow,hang,refuse,flap,brown-out")
    scenarios = parser.parse_args().scenarios.split(",")
    from rocketwire.spark import lab, session

    with tempfile.TemporaryDirectory(prefix="policy-truth-") as place:
        measured = {
            (scenario, policy): run(scenario, policy, Path(place) / scenario / policy)
            for scenario in scenarios
            for policy in POLICIES
        }
        for (scenario, policy), truth in measured.items():
            figures = simulated(scenario, policy, truth.p50)
            line = {
                "scenario": scenario,
                "simulated": policy,
                "failed": [figures.failed, truth.failed],
            }
            line["p99_ms"] = [round(figures.p99 * 1000, 1), round(truth.p99 * 1000, 1)]
            line["lost_s"] = [round(figures.lost, 1), round(truth.lost, 1)]
            print(json.dumps(line), flush=True)
        spark = session("policy-truth")
        try:
            for scenario, policy in measured:
                source = Path(place) / scenario / policy
                made = lab(spark, source, source / "lab.html", policies=POLICIES, grid={})
                _tell(scenario, policy, made, measured)
        finally:
            spark.stop()
    return 0


def _tell(scenario: str, recorded: str, made: Any, measured: dict[Any, Measured]) -> None:
    for one in made.policies:
        truth = measured[scenario, one.name]
        line = {
            "scenario": scenario,
            "recorded": recorded,
            "predicted": one.name,
            "failed": [one.failed, truth.failed],
            "p99_ms": [[round(v * 1000, 1) for v in one.p99], round(truth.p99 * 1000, 1)],
            "lost_s": [[round(v, 1) for v in one.lost], round(truth.lost, 1)],
            "incidents": len(made.incidents),
        }
        print(json.dumps(line | {"sends": asdict(truth)["sends"]}), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
