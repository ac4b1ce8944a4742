"""``python -m bench.faults``: one of three real brokers goes wrong; who goes on sending?

Ours, Apache's Java producer (as it comes, and with its latency switch on) and the Go client run one after
the other through the same faults on the same cluster of Apache RocketMQ, behind the proxies of
``tests/real``. Our promises are judged and told as held or missed. Only ratios within one run mean anything.

Scenarios are named ``client/fault/mode``. Without a choice those of the documentation are run, about
twelve minutes. ``--only ours/blackhole`` runs those whose name has that part; ``--resume`` leaves out
what the file of results holds already; ``--docs PAGE`` writes the tables between the marks of a page.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.real.proxied import FAULTS, Proxied, proxied_cluster
from tests.real.running import unique

from bench import fault_results
from bench.fault_loads import CLIENTS, Load, OurLoad, loads
from bench.fault_phases import MODES, Return, Verdict, judge
from bench.fault_results import FAULT_WORDS, Run, name_of
from rocketwire.version import __version__

_JVM = ("-XX:+UseSerialGC",)
_RETURN_LIMIT = 12.0
RESULTS = Path("bench/results/faults.json")

Scenario = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Phases:
    """How long is sent before anything counts, in peace, and in the fault; seconds."""

    warm: float
    peace: float
    fault: float


def everything() -> list[Scenario]:
    """Every client in every fault in every way of sending."""
    return [(c, fault, mode) for fault in FAULT_WORDS for mode in MODES for c in CLIENTS]


def documented() -> list[Scenario]:
    """Ours in everything; others in one thread, and only where they are known to differ."""
    telling = {
        "java": set(FAULT_WORDS),
        "java-switch": {"slow-80ms", "slow-300ms", "blackhole", "frozen"},
        "go": {"slow-300ms", "blackhole"},
    }
    return [
        (client, fault, mode)
        for client, fault, mode in everything()
        if client == "ours" or (mode == "1" and fault in telling[client])
    ]


def run(proxied: Proxied, fault: str, load: Load, phases: Phases) -> tuple[Verdict, Return | None]:
    """Warm up, send in peace, break the broker, mend it, and judge."""
    begin, end = FAULTS[fault]
    load.start()
    started = time.perf_counter()
    time.sleep(phases.warm + phases.peace)
    begun = time.perf_counter() - started
    begin(proxied)
    try:
        time.sleep(phases.fault)
    finally:
        ended = time.perf_counter() - started
        isolation = load.isolation() if isinstance(load, OurLoad) else None
        end(proxied)
    healed = time.perf_counter() - started
    back = None
    if isinstance(load, OurLoad):
        back = Return(_wait_for_return(load, started, ended, healed), isolation)
    return judge(load.stop(), phases.warm, begun, ended), back


def _wait_for_return(load: OurLoad, started: float, ended: float, healed: float) -> float | None:
    """Seconds from healing to the first use; a restarted broker may be in use before it is reported ready."""
    while (used := load.used_after(ended)) is None:
        if time.perf_counter() - started > healed + _RETURN_LIMIT:
            return None
        time.sleep(0.02)
    return max(0.0, used - healed)


def main(words: list[str] | None = None) -> int:
    """Run the chosen scenarios and tell what came of them; 1 if a promise was missed."""
    chosen = _arguments(words)
    conditions, runs = fault_results.read(chosen.json)
    plan = _plan(chosen, runs)
    if plan:
        conditions = _conditions(chosen)
        phases = Phases(chosen.warm, chosen.peace, chosen.seconds)
        print(f"{len(plan)} scenarios, about {_minutes(plan, phases):.0f} minutes", flush=True)
        with proxied_cluster(chosen.version, _JVM) as proxied, loads(chosen.version) as makers:
            _warm_up(proxied, makers, plan, 2 * phases.warm)
            for scenario in plan:
                done = _attempt(proxied, makers, scenario, phases)
                if done is not None:
                    runs[done.name] = done
                    fault_results.write(chosen.json, conditions, runs.values())
                    print(fault_results.row(done), flush=True)
    return _tell(chosen, conditions, [runs[name] for name in sorted(runs)])


def _warm_up(
    proxied: Proxied,
    makers: dict[str, Callable[..., Load]],
    plan: Sequence[Scenario],
    seconds: float,
) -> None:
    """Let every client send for a while: fresh Java, theirs and the brokers', is slow at first."""
    for client in sorted({client for client, *_ in plan}):
        topic = unique("warm")
        proxied.cluster.create_topic(topic)
        load = makers[client](proxied.cluster.name_server, topic, "4")
        load.start()
        time.sleep(seconds)
        load.stop()


def _attempt(
    proxied: Proxied, makers: dict[str, Callable[..., Load]], scenario: Scenario, phases: Phases
) -> Run | None:
    """Run one scenario; None if the client itself did not survive it, which is told."""
    client, fault, mode = scenario
    topic = unique("bench")
    proxied.cluster.create_topic(topic)
    try:
        load = makers[client](proxied.cluster.name_server, topic, mode)
        verdict, back = run(proxied, fault, load, phases)
    except RuntimeError as error:
        print(f"{name_of(*scenario):<28} no result: {str(error).splitlines()[0]}", flush=True)
        return None
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Run(client, fault, mode, verdict, back, today, phases.fault)


def _tell(chosen: argparse.Namespace, conditions: dict[str, str], runs: Sequence[Run]) -> int:
    ours = [run for run in runs if run.client == "ours"]
    missed = [run for run in ours if run.missed]
    print(f"promises held in {len(ours) - len(missed)} of {len(ours)} scenarios of ours")
    if chosen.docs and runs:
        fault_results.put_into(chosen.docs, fault_results.tables(conditions, runs))
        print(chosen.docs)
    print(chosen.json)
    return 1 if missed else 0


def _plan(chosen: argparse.Namespace, runs: dict[str, Run]) -> list[Scenario]:
    wanted = everything() if chosen.all or chosen.only else documented()
    if chosen.quick and not chosen.only:
        wanted = [("ours", "blackhole", "1")]
    parts = [part for part in chosen.only.split(",") if part]
    return [
        each
        for each in wanted
        if (not parts or any(_matches(part, each) for part in parts))
        and not (chosen.resume and name_of(*each) in runs)
    ]


def _matches(part: str, scenario: Scenario) -> bool:
    """Whether all words of ``ours/blackhole`` are among those of the scenario."""
    return set(part.split("/")) <= set(scenario)


def _minutes(plan: Sequence[Scenario], phases: Phases) -> float:
    each = phases.warm + phases.peace + phases.fault + 0.5
    returns = sum(2.0 for client, *_ in plan if client == "ours")
    restarts = sum(8.0 for _, fault, _ in plan if fault == "killed")
    return (20.0 + len(plan) * each + returns + restarts) / 60


def _conditions(chosen: argparse.Namespace) -> dict[str, str]:
    return {
        "Rocketwire": __version__,
        "Apache RocketMQ": f"{chosen.version} (brokers and Java client)",
        "Python": platform.python_version(),
        "cores": str(os.cpu_count()),
        "a fault of": f"{chosen.seconds:g} s",
        "command": "python -m bench.faults --docs docs/explanation/beside-java.md",
    }


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", default="5.3.3", help="release of Apache RocketMQ")
    parser.add_argument("--only", default="", help="some names, or parts of names, by commas")
    parser.add_argument("--all", action="store_true", help="every client in everything")
    parser.add_argument("--resume", action="store_true", help="only what has no result yet")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it works")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long a fault lasts")
    parser.add_argument("--peace", type=float, default=3.0, help="how long before it is measured")
    parser.add_argument("--warm", type=float, default=1.5, help="what is left out at the start")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument("--docs", type=Path, help="write the tables into this page")
    chosen = parser.parse_args(words)
    if chosen.quick:
        chosen.seconds, chosen.peace, chosen.warm = 3.0, 1.0, 0.5
        chosen.json = chosen.json.with_stem("faults-quick")
        if chosen.docs:
            parser.error("--quick is too short for the documentation: leave out --docs")
    known = {*CLIENTS, *FAULT_WORDS, *MODES}
    unknown = sorted(
        {word for part in chosen.only.split(",") for word in part.split("/") if word} - known
    )
    if unknown:
        parser.error(f"--only {', '.join(unknown)}: choose from {', '.join(sorted(known))}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
