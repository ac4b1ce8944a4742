"""How fast recorded sends are replayed and clusters simulated, on one core.

    python -m bench.policy_lab
    python -m bench.policy_lab --producers 10000 --brokers 100 --seconds 60

Prints a line of JSON for each: attempts a second of processor time, and the memory of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from random import Random
from typing import Any, Final

from rocketwire.fault_policy import FaultPolicy
from rocketwire.spark.policy_lab.conditions import PER_SECOND, QUANTILES, Sighting
from rocketwire.spark.policy_lab.replay import (
    Client,
    Period,
    RecordedBrokers,
    RecordedSend,
    Replay,
)
from rocketwire.testing.cluster_faults import parse_fault
from rocketwire.testing.simulated_cluster import ClusterSimulation, Setting

#: What a replay should reach, in attempts a second and core.
GOAL: Final = 20_000
_BEGIN: Final = 1_760_000_000.0
_SECONDS: Final = 300
_USUAL: Final = 0.002
_NAMES: Final = ("broker-a", "broker-b", "broker-c", "broker-d")


def _seen(random: Random, latency: float) -> Sighting:
    values = sorted(latency * random.uniform(0.8, 1.4) for _ in QUANTILES)
    return Sighting(answers=10, latencies=tuple(values))


def _sightings(random: Random) -> dict[str, dict[int, Sighting]]:
    """Five minutes, in which each broker is slow for a while and one fails."""
    first = int(_BEGIN * PER_SECOND)
    found = {
        name: {first + slot: _seen(random, _USUAL) for slot in range(_SECONDS * PER_SECOND)}
        for name in _NAMES
    }
    for number, name in enumerate(_NAMES):
        for slot in range(number * 600 + 300, number * 600 + 500):
            found[name][first + slot] = _seen(random, 0.3) if number else Sighting(refused=3)
    return found


def replay(policy: str, sends: int) -> dict[str, Any]:
    """Replay so many sends under a policy."""
    random = Random(1)
    period = Period(_BEGIN, _BEGIN, _BEGIN + _SECONDS, _USUAL)
    sightings = _sightings(random)
    client = Client({}, {"orders": dict.fromkeys(_NAMES, 4)})
    every = _SECONDS / sends
    asked = [RecordedSend(_BEGIN + n * every, "orders", "async") for n in range(sends)]
    began = time.process_time()
    brokers = RecordedBrokers(sightings, period, is_best=True, seed=1)
    tally = Replay(client, FaultPolicy.named(policy), brokers, period, seed=1).run(asked)
    seconds = time.process_time() - began
    return {
        "what": f"replay {policy}",
        "attempts": tally.attempts,
        "attempts a second": round(tally.attempts / seconds),
        "goal": GOAL,
        "MB": _memory(),
    }


def simulate(setting: Setting, policy: str) -> dict[str, Any]:
    """Simulate a cluster under a policy."""
    began = time.process_time()
    figures = ClusterSimulation(FaultPolicy.named(policy), setting, seed=1).run()
    seconds = time.process_time() - began
    return {
        "what": f"simulate {setting.producers}x{setting.brokers} {policy}",
        "sends": figures.sends,
        "processor seconds": round(seconds, 1),
        "sends a second": round(figures.sends / seconds),
        "MB": _memory(),
    }


def _memory() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> int:
    """Measure, and fail where the goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sends", type=int, default=150_000)
    parser.add_argument("--producers", type=int, default=500)
    parser.add_argument("--brokers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    results = [replay(policy, given.sends) for policy in ("default", "java4", "java5", "off")]
    for result in results:
        print(json.dumps(result), flush=True)
    fault = parse_fault("slow:0.3@broker-1", brokers=given.brokers, seconds=given.seconds)
    setting = Setting(
        producers=given.producers, brokers=given.brokers, seconds=given.seconds, faults=(fault,)
    )
    print(json.dumps(simulate(setting, "default")))
    return 0 if all(result["attempts a second"] >= GOAL for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
