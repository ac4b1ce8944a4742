"""What the policy lab predicts for a policy, beside a run of that policy on the same faults.

    python -m bench.policy_truth --scenarios slow,hang,refuse,flap,brown-out
    python -m bench.policy_truth --folder runs --record     # needs a quiet machine, four minutes
    python -m bench.policy_truth --folder runs              # predicts from what was recorded

Each scenario runs twice on the embedded cluster, under two policies, with the same sends at the same
times. From the telemetry of each run the lab predicts both; a simulation of one producer and three brokers
is told beside them. Prints both as tables.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from rocketwire import AsyncProducer, Message
from rocketwire.embedded import EmbeddedCluster
from rocketwire.fault_policy import FaultPolicy
from rocketwire.testing.cluster_faults import parse_fault
from rocketwire.testing.simulated_cluster import ClusterSimulation, Setting

RATE: Final = 150
SECONDS: Final = 24.0
BEGIN, END = 4.0, 14.0
POLICIES: Final = ("java5", "default")
NAMES: Final = ("broker-a", "broker-b", "broker-c")
#: Simulations of each, that differ by chance alone.
SEEDS: Final = 5
MEASURED: Final = "measured.json"


@dataclass
class Measured:
    """What came of the sends of a run."""

    sends: int
    failed: int
    p50: float
    p99: float
    lost: float


Runs = dict[tuple[str, str], Measured]


@dataclass(frozen=True)
class Predicted:
    """What the lab or a simulation says of a policy: best and worst case."""

    scenario: str
    recorded: str | None
    policy: str
    failed: tuple[float, float]
    p99: tuple[float, float]
    lost: tuple[float, float]


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


def simulated(scenario: str, policy: str, usual: float) -> Predicted:
    """The same in virtual time, with brokers that have capacity to spare: the mean over some seeds."""
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
    runs = [
        ClusterSimulation(FaultPolicy.named(policy), setting, seed=seed).run()
        for seed in range(SEEDS)
    ]
    means = (fmean(getattr(run, name) for run in runs) for name in ("failed", "p99", "lost"))
    failed, p99, lost = ((mean, mean) for mean in means)
    return Predicted(scenario, None, policy, failed, p99, lost)


def predicted(folder: Path, runs: Runs) -> list[Predicted]:
    """What the lab says of both policies, from the records of each."""
    from rocketwire.spark import lab, session

    found = []
    spark = session("policy-truth")
    try:
        for scenario, policy in runs:
            source = folder / scenario / policy
            made = lab(spark, source, source / "lab.html", policies=POLICIES, grid={})
            found += [
                Predicted(scenario, policy, one.name, one.failed, one.p99, one.lost)
                for one in made.policies
            ]
    finally:
        spark.stop()
    return found


# -- tables ---------------------------------------------------------------------------------------


def _beside(pair: tuple[float, float], truth: float) -> str:
    low, high = _short(pair[0]), _short(pair[1])
    return f"{low if low == high else f'{low} to {high}'} / {_short(truth)}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _row(one: Predicted, truth: Measured) -> str:
    p99 = one.p99[0] * 1000, one.p99[1] * 1000
    cells = [
        one.scenario,
        *([one.recorded] if one.recorded else []),
        one.policy,
        _beside(one.failed, truth.failed),
        _beside(p99, truth.p99 * 1000),
        _beside(one.lost, truth.lost),
    ]
    return f"| {' | '.join(cells)} |"


def _print_tables(folder: Path, runs: Runs) -> None:
    print("| fault | policy | failed, simulated / measured | p99 in ms | seconds lost |")
    print("|---|---|---|---|---|")
    for (scenario, policy), truth in runs.items():
        print(_row(simulated(scenario, policy, truth.p50), truth), flush=True)
    print(
        "\n| fault | recorded under | policy | failed, predicted / measured | p99 in ms | seconds lost |"
    )
    print("|---|---|---|---|---|---|")
    for one in predicted(folder, runs):
        print(_row(one, runs[one.scenario, one.policy]), flush=True)


def _record(folder: Path, scenarios: Sequence[str]) -> None:
    for scenario in scenarios:
        for policy in POLICIES:
            place = folder / scenario / policy
            truth = run(scenario, policy, place)
            (place / MEASURED).write_text(json.dumps(asdict(truth)))
            print(f"{scenario} under {policy}: {truth}", flush=True)


def _recorded(folder: Path, scenarios: Sequence[str]) -> Runs:
    return {
        (scenario, policy): Measured(
            **json.loads((folder / scenario / policy / MEASURED).read_text())
        )
        for scenario in scenarios
        for policy in POLICIES
    }


def main() -> int:
    """Run the scenarios, and print what was predicted beside what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scenarios", default=",".join(FAULTS))
    parser.add_argument("--folder", type=Path, help="where records stay; without it they go")
    parser.add_argument("--record", action="store_true", help="only run, and keep the records")
    given = parser.parse_args()
    scenarios = given.scenarios.split(",")
    if given.folder is None:
        with tempfile.TemporaryDirectory(prefix="policy-truth-") as place:
            _record(Path(place), scenarios)
            _print_tables(Path(place), _recorded(Path(place), scenarios))
    elif given.record:
        _record(given.folder, scenarios)
    else:
        _print_tables(given.folder, _recorded(given.folder, scenarios))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
