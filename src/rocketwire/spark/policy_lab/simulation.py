"""``simulate``: many experiments with a simulated cluster, split by Spark, and what they show."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rocketwire.errors import ConfigError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.pages.document import write_page
from rocketwire.pages.words import core_time
from rocketwire.spark.delivery_report.places import page_path
from rocketwire.spark.pipelines.arrow_map import map_in_arrow
from rocketwire.spark.policy_lab.simulation_page import make_simulation_page
from rocketwire.spark.policy_lab.watch import OnProgress, watched
from rocketwire.testing.cluster_faults import parse_fault
from rocketwire.testing.simulated_cluster import ClusterFigures, ClusterSimulation, Setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLICIES: Final = ("default", "java4", "java5", "off")
FAULTS: Final = ("slow:0.3@broker-1", "weak:0.3@all", "flap:2@broker-1")
#: Sends a second and core of the simulation, below what is measured: what an estimate is made of.
SPEED: Final = 12_000
#: What a producer takes for each broker that it knows, and for itself, in bytes.
_PER_BROKER: Final = 2_900
_PER_PRODUCER: Final = 40_000
_MOST_MEMORY: Final = 4_000_000_000
#: A policy does harm where failures or lost time are above those without any by this factor.
_HARM: Final = 1.1
#: Or where the slowest thousandth takes so many times as long, and so much longer.
_TAIL: Final = 2.0
_TAIL_BY: Final = 0.02
_SCHEMA: Final = pa.schema([("result", pa.string())])


@dataclass(frozen=True, slots=True)
class Experiment:
    """One policy, one fault, one seed, one size."""

    policy: str
    fault: str
    seed: int
    producers: int
    brokers: int
    figures: ClusterFigures
    cpu_seconds: float = 0.0
    memory_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What came of all experiments; ``harm`` says from which size on the default does harm."""

    experiments: tuple[Experiment, ...]
    harm: str
    seconds: float
    setting: Setting
    page: Path | None = None


@dataclass(frozen=True, slots=True)
class Extent:
    """What is going to be done, told before it begins."""

    experiments: int
    sends: float
    core_hours: float
    memory: float

    def __str__(self) -> str:
        return (
            f"{self.experiments} experiments, {self.sends:,.0f} sends: about "
            f"{core_time(3600 * self.core_hours)}, and up to {self.memory / 1e6:,.0f} MB for each worker"
        )


def simulate(  # noqa: PLR0913 - each has a default
    spark: SparkSession,
    setting: Setting | None = None,
    *,
    faults: Sequence[str] = FAULTS,
    policies: Sequence[str] = POLICIES,
    seeds: int = 1,
    sizes: Sequence[tuple[int, int]] = (),
    out: str | Path | None = None,
    on_plan: Callable[[Extent], None] | None = None,
    on_progress: OnProgress | None = None,
) -> SimulationResult:
    """Run a simulated cluster under each policy, with each fault and seed.

    Args:
        spark: the session that splits the work.
        setting: how many producers and brokers, for how long, how fast.
        faults: as ``KIND[:NUMBER]@WHERE[/BEGIN-END]``, one to an experiment.
        policies: names of policies.
        seeds: how many runs of each, that differ by chance alone.
        sizes: further pairs of producers and brokers, to see how results grow.
        out: the page, one HTML file that needs no network; none is written without it.
        on_plan: told before it begins what it takes.
        on_progress: told now and then how many experiments of how many are done.

    Raises:
        ConfigError: an argument is wrong, or it is too large for a worker.
    """
    began = time.monotonic()
    base = setting or Setting()
    page = None if out is None else page_path(out)
    tasks = tasks_of(base, faults, policies, seeds, sizes)
    if on_plan is not None:
        on_plan(_extent(base, tasks))
    rows = spark.createDataFrame([(json.dumps(task),) for task in tasks], "task string")
    # Round robin, so that every experiment is a part of its own.
    parts = rows.repartition(len(tasks))
    worker = Worker(asdict(replace(base, faults=())))
    with watched(spark, len(tasks), on_progress):
        rows_found = map_in_arrow(parts, worker, "result string").collect()
    found = [json.loads(row["result"]) for row in rows_found]
    experiments = tuple(
        sorted(
            (_experiment(one) for one in found),
            key=lambda e: (e.fault, e.producers, e.brokers, policies.index(e.policy), e.seed),
        )
    )
    seconds = time.monotonic() - began
    result = SimulationResult(experiments, harm_of(experiments), seconds, base, page)
    if page is not None:
        write_page(page, make_simulation_page(result))
    return result


def tasks_of(
    base: Setting,
    faults: Sequence[str],
    policies: Sequence[str],
    seeds: int,
    sizes: Sequence[tuple[int, int]],
) -> list[dict[str, Any]]:
    """The experiments, each as plain values.

    Raises:
        ConfigError: an argument is wrong, or one is too large for a worker.
    """
    if not faults or not policies or seeds < 1:
        raise ConfigError("simulate: give at least one fault, one policy and one seed")
    for name in policies:
        FaultPolicy.named(name)
    every = sorted({(base.producers, base.brokers), *sizes})
    for producers, brokers in every:
        if producers < 1 or brokers < 2:
            raise ConfigError(f"simulate: {producers} producers and {brokers} brokers are too few")
        if _memory(producers, brokers) > _MOST_MEMORY:
            raise ConfigError(
                f"simulate: {producers} producers that know {brokers} brokers each take more than "
                f"{_MOST_MEMORY // 10**9} GB; take fewer of either"
            )
        for text in faults:
            parse_fault(text, brokers=brokers, seconds=base.seconds)
    return [
        {"policy": policy, "fault": fault, "seed": seed, "producers": producers, "brokers": brokers}
        for producers, brokers in every
        for fault in faults
        for policy in policies
        for seed in range(seeds)
    ]


def _memory(producers: int, brokers: int) -> float:
    return producers * (_PER_PRODUCER + brokers * _PER_BROKER)


def _extent(base: Setting, tasks: Sequence[Mapping[str, Any]]) -> Extent:
    sends = sum(task["producers"] * base.rate * base.seconds for task in tasks)
    memory = max(_memory(task["producers"], task["brokers"]) for task in tasks)
    return Extent(len(tasks), sends, sends / SPEED / 3600, memory)


@dataclass(frozen=True, slots=True)
class Worker:
    """Runs experiments; travels to Spark's workers, so it holds plain values only."""

    setting: Mapping[str, Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The experiments of a partition."""
        for batch in batches:
            for text in batch.column(0).to_pylist():
                result = json.dumps(self.run(json.loads(text)))
                yield pa.RecordBatch.from_pylist([{"result": result}], schema=_SCHEMA)

    def run(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """One experiment."""
        base = Setting(**self.setting)
        fault = parse_fault(task["fault"], brokers=task["brokers"], seconds=base.seconds)
        setting = replace(
            base, producers=task["producers"], brokers=task["brokers"], faults=(fault,)
        )
        began = time.process_time()
        policy = FaultPolicy.named(task["policy"])
        figures = ClusterSimulation(policy, setting, seed=task["seed"]).run()
        return dict(task) | {
            "figures": asdict(figures),
            "cpu_seconds": time.process_time() - began,
            "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def _experiment(found: Mapping[str, Any]) -> Experiment:
    return Experiment(**(dict(found) | {"figures": ClusterFigures(**found["figures"])}))


def harm_of(experiments: Sequence[Experiment]) -> str:
    """From which size on the default policy does worse than no policy at all, in a sentence."""
    sizes = sorted({(e.producers, e.brokers) for e in experiments})
    for producers, brokers in sizes:
        for fault in sorted({e.fault for e in experiments}):
            ours, none = (
                [
                    e.figures
                    for e in experiments
                    if (e.policy, e.fault, e.producers, e.brokers)
                    == (name, fault, producers, brokers)
                ]
                for name in ("default", "off")
            )
            if not ours or not none:
                continue
            worse = _worse(ours, none)
            if worse:
                return (
                    f"The default policy does harm from {producers:,} producers and {brokers} "
                    f"brokers on, with {fault}: {worse}."
                )
    if not {"default", "off"} <= {e.policy for e in experiments}:
        return "Whether the default policy does harm was not asked: it is compared with off."
    largest = f"{sizes[-1][0]:,} producers and {sizes[-1][1]} brokers"
    return f"Up to {largest} the default policy does no harm with these faults."


def _worse(ours: Sequence[ClusterFigures], none: Sequence[ClusterFigures]) -> str:
    failed, without = (sum(f.failed for f in figures) for figures in (ours, none))
    sends = sum(f.sends for f in ours)
    if failed > _HARM * without and failed - without > 0.001 * sends:
        return f"{failed:,} sends fail, and {without:,} without a policy"
    lost, before = (sum(f.lost for f in figures) for figures in (ours, none))
    if lost > _HARM * before and lost - before > 0.001 * sends:
        return f"{lost:,.0f} s are lost, and {before:,.0f} s without a policy"
    tail, usual = (fmean(f.p999 for f in figures) for figures in (ours, none))
    if tail > max(_TAIL * usual, usual + _TAIL_BY):
        return (
            f"the slowest thousandth of sends takes {1000 * tail:,.0f} ms and more, and "
            f"{1000 * usual:,.0f} ms without a policy"
        )
    return ""
