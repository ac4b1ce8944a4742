"""The page of a simulation: one HTML file that needs no network. Every name in it is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from rocketwire.pages.document import definitions, document, facts, header, made, section
from rocketwire.pages.drawing import box, label, latency_row, panel, svg, upright
from rocketwire.pages.scales import LogAxis
from rocketwire.pages.tables import table
from rocketwire.pages.words import DASH, latency, number, share, some, span

if TYPE_CHECKING:
    from rocketwire.spark.policy_lab.simulation import Experiment, SimulationResult

_STYLE: Final = """
.plot.range { height: 22px; } .plot.range .median { stroke-width: 2.4; }
"""
_HEADS: Final = (
    "size", "policy", "failed#", "p50#", "p99#", "p99.9#", "lost#", "lost a send#", "peak#",
    "back after#", "peak then#", "probes/s#", "look-ups/s#",
)  # fmt: skip

_WORDS: Final = (
    ("Size", "Producers and brokers; each producer is the client's own policy code."),
    ("Failed", "Sends that had no answer within their timeout, after all their tries."),
    (
        "Lost",
        (
            "What sends took beyond a usual answer, added up over all of them; by send, so that sizes "
            "can be compared."
        ),
    ),
    (
        "Peak",
        (
            "The most that a broker got in any second, against an even spread. Far above 1: a herd, "
            "load that moved at once."
        ),
    ),
    (
        "Back after, peak then",
        (
            "How long a broker that is well again took to get half of its share, and the most that it "
            "got in the ten seconds after: everybody back at once would overload it anew."
        ),
    ),
    (
        "Probes and look-ups",
        "The most in any second, over all producers: what the policy itself costs brokers and name servers.",
    ),
    (
        "What a simulation can't know",
        (
            "Brokers are lines of requests with a capacity and a latency of their own. Disks, garbage "
            "collectors and networks are not in it, nor programs that send less when sends take "
            "longer. The note on the lab compares it with real runs."
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class _Run:
    """All seeds of one policy under one fault at one size: their means."""

    fault: str
    producers: int
    brokers: int
    policy: str
    seeds: Sequence[Experiment]

    def mean(self, name: str) -> float:
        values = [getattr(one.figures, name) for one in self.seeds]
        known = [float(value) for value in values if value is not None]
        return sum(known) / len(known) if known else 0.0

    @property
    def size(self) -> str:
        return f"{number(self.producers)} x {number(self.brokers)}"

    @property
    def back(self) -> str:
        if any(one.figures.back is None for one in self.seeds):
            return DASH
        return span(self.mean("back"))


def make_simulation_page(result: SimulationResult) -> str:
    """The whole page."""
    runs = _runs(result.experiments)
    faults = sorted({run.fault for run in runs})
    setting = result.setting
    about = (
        f"{span(setting.seconds)} at {setting.rate:g} sends a second and producer, "
        f"{setting.load:.0%} of the brokers' capacity in use"
    )
    parts = (
        header(f"Simulation · {about}", result.harm),
        facts(_facts(result)),
        *(_section(fault, [run for run in runs if run.fault == fault]) for fault in faults),
        definitions("The words", _WORDS, is_open=True),
    )
    footer = made(datetime.now().astimezone())
    return document("Simulation of fault policies", parts, style=_STYLE, footer=footer)


def _runs(experiments: Sequence[Experiment]) -> list[_Run]:
    found: dict[tuple[str, int, int, str], list[Experiment]] = {}
    for one in experiments:
        key = (one.fault, one.producers, one.brokers, one.policy)
        found.setdefault(key, []).append(one)
    return [_Run(*key, seeds) for key, seeds in found.items()]


def _facts(result: SimulationResult) -> tuple[tuple[str, str, str], ...]:
    every = result.experiments
    sends = sum(one.figures.sends for one in every)
    return (
        ("Experiments", number(len(every)), some(len({one.seed for one in every}), "seed")),
        ("Sends", number(sends), "simulated"),
        ("Policies", number(len({one.policy for one in every})), ""),
        ("Faults", number(len({one.fault for one in every})), ""),
        ("It took", span(result.seconds), f"{span(sum(one.cpu_seconds for one in every))} of CPU"),
        ("Worker", f"{max(one.memory_mb for one in every):,.0f} MB", "the largest"),
    )


def _section(fault: str, runs: Sequence[_Run]) -> str:
    about = (
        "From the median to the slowest thousandth of all sends; the mark is the slowest hundredth. "
        "Further left is better."
    )
    return section(fault, about, _ranges(runs), _table(runs))


def _ranges(runs: Sequence[_Run]) -> str:
    axis = LogAxis.around([run.mean(name) for run in runs for name in ("p50", "p999")])
    grid = [upright(axis.place(t)) for t in axis.ticks()]
    rows = []
    for run in runs:
        low, mark, high = (axis.place(run.mean(name)) for name in ("p50", "p99", "p999"))
        note = f"{latency(run.mean('p50'))} to {latency(run.mean('p999'))}"
        drawn = [
            *grid,
            box((low, max(high, low + 0.003)), (0.25, 0.75), "sent", note),
            upright(mark, "median", (0.1, 0.9)),
        ]
        ends = label(latency(run.mean("p999")), "end", bottom=0.5)
        about = f"Latencies under {run.policy} with {run.size}: {note}"
        plot = f'<div class="plot range">{svg(drawn, "draw", about)}{ends}</div>'
        rows.append(panel(run.policy, [run.size], plot))
    return "".join(rows) + latency_row(axis)


def _table(runs: Sequence[_Run]) -> str:
    rows = []
    for run in runs:
        sends = max(1.0, run.mean("sends"))
        rows.append(
            (
                run.size,
                run.policy,
                share(run.mean("failed"), sends),
                *(latency(run.mean(name)) for name in ("p50", "p99", "p999")),
                span(run.mean("lost")),
                latency(max(0.0, run.mean("lost")) / sends),
                f"{run.mean('peak'):.1f}",
                run.back,
                DASH if run.back == DASH else f"{run.mean('peak_back'):.1f}",
                number(round(run.mean("probes"))),
                number(round(run.mean("lookups"))),
            )
        )
    return table(_HEADS, rows)
