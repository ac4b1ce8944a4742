"""``rocketwire simulate``: what a fault policy does to clusters of any size, by Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rocketwire.cli.failures import UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.progress import PartsBar
from rocketwire.cli.spark_checks import check_page, check_simulation
from rocketwire.cli.spark_work import Master, started_spark, tell
from rocketwire.pages.words import some

if TYPE_CHECKING:
    from rocketwire.spark.policy_lab.simulation import Experiment

app = typer.Typer(add_completion=False)

_COLUMNS: Final = (
    "failed", "p50\nms", "p99\nms", "p99.9\nms", "lost\ns", "peak", "back\nafter", "back\npeak", "probes\n/s",
    "lookups\n/s",
)  # fmt: skip


@command(
    app,
    "simulate",
    panel="Spark",
    connects=False,
    examples=(
        "rocketwire simulate --producers 200 --brokers 10 --fault slow:0.3@broker-7",
        "rocketwire simulate --producers 10000 --brokers 100 --fault refuse@10% --policy default",
        "rocketwire simulate --size 100x3 --size 1000x30 --fault weak:0.3@all --fault flap:2@broker-1",
    ),
)
def simulate(  # noqa: PLR0913 - each has a default
    here: Invocation,
    *,
    producers: Annotated[int, typer.Option(min=1, help="How many send.")] = 100,
    brokers: Annotated[int, typer.Option(min=2, help="How many store, from broker-0 on.")] = 3,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND[:N]@WHERE[/FROM-TO]",
            help="slow:S, hang, refuse, busy, weak:PART, flap:S; at broker-7, 10% or all; repeatable.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="default, java4, java5, off; repeatable.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Simulated time.")] = 60.0,
    rate: Annotated[float, typer.Option(min=0.01, help="Sends a second of a producer.")] = 10.0,
    load: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="Part of the capacity in use.")
    ] = 0.5,
    seeds: Annotated[int, typer.Option(min=1, help="Runs that differ by chance.")] = 1,
    size: Annotated[
        list[str] | None, typer.Option(metavar="PxB", help="A further size, e.g. 1000x10.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The page.")] = Path("simulation.html"),
    master: Master = None,
) -> None:
    """Simulate producers with the real policy code over brokers with a capacity, at any size."""
    sizes = [parse_size(text) for text in size or ()]
    check_page(out)
    from rocketwire.spark.policy_lab.simulation import FAULTS, POLICIES
    from rocketwire.spark.policy_lab.simulation import simulate as run
    from rocketwire.testing.simulated_cluster import Setting

    setting = Setting(producers=producers, brokers=brokers, seconds=seconds, rate=rate, load=load)
    check_simulation(setting, fault or FAULTS, policy or POLICIES, seeds, sizes)
    with started_spark(here, master) as spark, PartsBar(here, "simulating") as bar:
        result = run(
            spark,
            setting,
            faults=fault or FAULTS,
            policies=policy or POLICIES,
            seeds=seeds,
            sizes=sizes,
            out=out,
            on_plan=lambda extent: here.note(str(extent)),
            on_progress=bar,
        )
    if not here.as_json:
        here.console.print(*tables(result.experiments))
    tell(here, result, result.harm, f"\nThe page: {out.resolve()}")


def parse_size(text: str) -> tuple[int, int]:
    """``1000x10`` as producers and brokers."""
    producers, _, brokers = text.lower().partition("x")
    if not producers.isdigit() or not brokers.isdigit():
        raise UsageError(f"--size {text!r}: write producers x brokers, such as 1000x10")
    return int(producers), int(brokers)


def tables(experiments: Sequence[Experiment]) -> Iterator[RenderableType]:
    """For each fault and size a heading and a table of policies, which fits 80 columns."""
    groups: dict[tuple[str, int, int], list[Experiment]] = defaultdict(list)
    for one in experiments:
        groups[one.fault, one.producers, one.brokers].append(one)
    has_seeds = len({one.seed for one in experiments}) > 1
    for (fault, producers, brokers), group in groups.items():
        yield Text(f"{fault}: {some(producers, 'producer')}, {some(brokers, 'broker')}")
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("policy", overflow="fold", min_width=len("default"))
        for name in _COLUMNS:
            table.add_column(name, justify="right", no_wrap=True)
        for one in group:
            table.add_row(f"{one.policy}, {one.seed}" if has_seeds else one.policy, *_row(one))
        yield Padding(table, (0, 0, 1, 0))


def _row(one: Experiment) -> list[str]:
    figures = one.figures
    back = ("-", "-")
    if figures.back is not None:
        back = (f"{figures.back:.0f} s", f"x{figures.peak_back:.1f}")
    return [
        f"{100 * figures.failed / max(1, figures.sends):.2f} %",
        *(_milliseconds(value) for value in (figures.p50, figures.p99, figures.p999)),
        f"{figures.lost:,.0f}",
        f"x{figures.peak:.1f}",
        *back,
        f"{figures.probes:,}",
        f"{figures.lookups:,}",
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f}" if seconds < 1 else f"{1000 * seconds:,.0f}"
