"""Whether the recorded policy should be changed, to what, and how sure that is.

Numbers are chosen on one half of the incidents and judged on the other: the best of many policies on
some incidents is the luckiest on them, too. Where best and worst case disagree, nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Final, Literal

from rocketwire.pages.words import number, some
from rocketwire.spark.policy_lab.figures import Bounds

#: Fewer incidents teach nothing that holds for the next one.
LEAST_INCIDENTS: Final = 5
#: A gain below this part of the cost is not worth a change.
_WORTHWHILE: Final = 0.05
_DRAWS: Final = 2000
_SURE: Final = 0.95

Advice = Literal["change", "keep", "unknown", "none"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do. ``gain`` is in seconds an incident, with its interval over bootstrap draws."""

    advice: Advice
    sentence: str
    why: str
    chosen: str | None = None
    gain: float | None = None
    interval: tuple[float, float] | None = None


def judge(
    results: Mapping[str, Bounds],
    recorded: str | None,
    incidents: Sequence[int],
    *,
    per_failure: float,
    seed: int = 1,
) -> Verdict:
    """Choose on half of the incidents, judge on the other half.

    Args:
        results: figures by the policies' names.
        recorded: the policy that was at work; None where nobody knows.
        incidents: their numbers.
        per_failure: seconds that a failed send counts beside its own.
        seed: of the halves and the draws.
    """
    if len(incidents) < LEAST_INCIDENTS:
        return Verdict(
            "none",
            f"No advice: these records have {some(len(incidents), 'incident')}.",
            f"At least {LEAST_INCIDENTS} are needed, because numbers that are chosen on some of them "
            "must be judged on others. The table below says what each policy would have done.",
        )
    if recorded is None or recorded not in results:
        return Verdict(
            "none",
            "No advice: it is not known which policy was at work.",
            "The records have no header (version 1), or producers had different policies. "
            "The table below says what each policy would have done.",
        )
    mixed = list(incidents)
    Random(seed).shuffle(mixed)
    learn, test = mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]
    costs = {name: _middle(bounds, learn, per_failure) for name, bounds in results.items()}
    chosen = _best(costs, recorded)
    if chosen == recorded:
        return Verdict(
            "keep",
            f"Keep {recorded}: no other policy would have done better.",
            f"On {len(learn)} of {len(incidents)} incidents it was the best of {len(results)}.",
            chosen,
        )
    return _compare(results, recorded, chosen, learn, test, per_failure, seed)


def _best(costs: Mapping[str, float], recorded: str) -> str:
    """The cheapest; the default where another is hardly cheaper, since numbers differ by chance, too."""
    best = min(costs, key=lambda name: (costs[name], name != recorded, name))
    margin = _WORTHWHILE * costs[recorded]
    is_near = "default" in costs and costs["default"] <= costs[best] + margin
    return "default" if is_near and best != recorded else best


def _middle(bounds: Bounds, incidents: Sequence[int], per_failure: float) -> float:
    return sum(bounds.spread("cost", incidents, per_failure)) / 2


def _compare(
    results: Mapping[str, Bounds],
    recorded: str,
    chosen: str,
    learn: Sequence[int],
    test: Sequence[int],
    per_failure: float,
    seed: int,
) -> Verdict:
    mine, other = results[recorded], results[chosen]
    costs = [mine.spread("cost", [n], per_failure) for n in test]
    others = [other.spread("cost", [n], per_failure) for n in test]
    middle = [sum(a) / 2 - sum(b) / 2 for a, b in zip(costs, others, strict=True)]
    # As bad as it may be for the new policy: its worst case against the best of the old one.
    least = [a[0] - b[1] for a, b in zip(costs, others, strict=True)]
    gain, interval = fmean(middle), bootstrap(middle, seed)
    before = fmean(sum(cost) / 2 for cost in costs)
    told = (
        f"It was chosen on {len(learn)} incidents and judged on {len(test)} others: "
        f"{gain:+.1f} s an incident of {before:.1f} s, 95 % interval {interval[0]:+.1f} to "
        f"{interval[1]:+.1f} s."
    )
    if interval[0] <= 0 or gain < _WORTHWHILE * before:
        sentence = f"Keep {recorded}: {chosen} looked better, but that is not sure enough."
        return Verdict("keep", sentence, told, chosen, gain, interval)
    if bootstrap(least, seed)[0] <= 0:
        return Verdict(
            "unknown",
            f"Unknown: {chosen} may be better than {recorded}, and it may not.",
            f"{told} Times in which nobody saw a broker decide: in their worst case the gain is gone.",
            chosen,
            gain,
            interval,
        )
    part = number(round(100 * gain / before)) if before else "0"
    return Verdict(
        "change",
        f"Change the policy from {recorded} to {chosen}: {part} % less time lost in incidents.",
        f"{told} It holds in the worst case of what nobody saw.",
        chosen,
        gain,
        interval,
    )


def bootstrap(values: Sequence[float], seed: int) -> tuple[float, float]:
    """Between which means 95 % of samples of the values, drawn with repetition, lie."""
    draw = Random(seed)
    means = sorted(fmean(draw.choices(values, k=len(values))) for _ in range(_DRAWS))
    edge = (1 - _SURE) / 2
    return means[int(edge * _DRAWS)], means[int((1 - edge) * _DRAWS) - 1]
