"""``rocketwire demo``: the whole story, from a cluster to a page with plots."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from rocketwire.cli.failures import FAILED, INTERRUPTED
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import make_table
from rocketwire.cli.signals import stop_requested

if TYPE_CHECKING:
    from rocketwire.cli.demo.checks import Check
    from rocketwire.cli.demo.page import Section
    from rocketwire.cli.demo.recording import Recording
    from rocketwire.embedded import EmbeddedCluster

app = typer.Typer(add_completion=False)

_NEXT: Final = (
    "rocketwire demo --keep                          then break a broker yourself",
    "rocketwire doctor --name-server HOST:9876       your own cluster: what works, what does not",
    "python -m pytest                                a RocketMQ fixture is there: def test(rocketmq)",
)


@command(
    app,
    "demo",
    panel="Start here",
    connects=False,
    examples=(
        "rocketwire demo",
        "rocketwire demo --no-spark --out /tmp/report.html",
        "rocketwire demo --keep",
    ),
)
def demo(
    here: Invocation,
    *,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Stop after the brokers.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running.")] = False,
    seconds: Annotated[
        float, typer.Option(min=6.0, max=600.0, help="Length of the part with the brokers.")
    ] = 24.0,
    out: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("demo-report.html"),
    picture: Annotated[
        Path | None,
        typer.Option(hidden=True, help="Also write the first plot as SVG, and one for telephones."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the orders.")] = 7,
) -> None:
    """See it all in two minutes: a cluster, a slow broker, a dead one, a pipeline, a report."""
    from rocketwire.cli.demo.brokers import BROKERS, InterruptedStoryError
    from rocketwire.embedded import EmbeddedCluster

    with_spark = not no_spark and find_spec("pyspark") is not None
    if not no_spark and not with_spark:
        here.note("the Spark part is left out: pip install 'rocketwire[spark]' brings it")
    with stop_requested() as stop:
        try:
            with EmbeddedCluster(BROKERS, order_routes=True) as cluster:
                here.say(f"Started an embedded cluster: {BROKERS} brokers at {cluster.name_server}")
                here.say("  with EmbeddedCluster(brokers=3, order_routes=True) as cluster: ...\n")
                held = _Demo(here, stop, out, picture).run(
                    cluster, seconds=seconds, seed=seed, with_spark=with_spark
                )
                if keep and not stop.is_set():
                    _keep(here, cluster, stop)
        except InterruptedStoryError:
            here.note("stopped; nothing was left behind")
            raise typer.Exit(INTERRUPTED) from None
    if not held:
        raise typer.Exit(FAILED)


class _Demo:
    """The steps of the demo, and what they found."""

    def __init__(
        self, here: Invocation, stop: threading.Event, out: Path, picture: Path | None
    ) -> None:
        self._here = here
        self._stop = stop
        self._out = out
        self._picture = picture

    def run(self, cluster: EmbeddedCluster, *, seconds: float, seed: int, with_spark: bool) -> bool:
        """All steps; whether every check held."""
        from rocketwire.cli.demo.brokers import play
        from rocketwire.cli.demo.page import make_page
        from rocketwire.cli.demo.spark_part import scratch_folder
        from rocketwire.pages.charts import NARROW, WIDTH
        from rocketwire.pages.document import write_page

        console = self._here.errors if self._here.as_json else self._here.console
        with scratch_folder() as folder:
            notes = folder / "telemetry" if with_spark else None
            recording = play(
                cluster, console, self._stop, seconds=seconds, seed=seed, telemetry=notes
            )
            checks = list(recording.checks)
            self._show_figures(recording)
            sections = self._run_spark(cluster, folder, checks) if notes is not None else []
        self._show_checks(checks)
        write_page(self._out, make_page(recording, checks, sections))
        if self._picture is not None:
            narrow = self._picture.with_stem(f"{self._picture.stem}-narrow")
            for target, width in ((self._picture, WIDTH), (narrow, NARROW)):
                plot = recording.latency_plot(width=width, standalone=True)
                target.write_text(plot, encoding="utf-8")
        self._finish(recording, checks)
        return all(check.holds for check in checks)

    def _run_spark(
        self, cluster: EmbeddedCluster, folder: Path, checks: list[Check]
    ) -> list[Section]:
        from rocketwire.cli.demo.spark_part import SparkPart

        page = self._out.resolve().with_name(f"{self._out.stem}-deliveries.html")
        part = SparkPart(self._here, cluster, self._stop, folder)
        section = part.run(folder / "telemetry", page)
        checks += part.checks
        return [section]

    def _show_figures(self, recording: Recording) -> None:
        if self._here.as_json:
            return
        table = make_table(["", "Rocketwire#", "plain client#"], recording.table())
        self._here.console.print(table)
        repeats = recording.repeats[recording.ours.name]
        self._here.say(
            f"\n{repeats} orders are stored twice: the frozen broker stored them when it woke up, "
            "after they had been sent elsewhere. Each result had maybe_duplicate=True.\n"
            if repeats
            else "\nNo order is stored twice.\n"
        )

    def _show_checks(self, checks: Sequence[Check]) -> None:
        if self._here.as_json:
            return
        rows = [
            (
                Text("held" if check.holds else "BROKEN", style="green" if check.holds else "red"),
                check.statement,
                check.figures,
            )
            for check in checks
        ]
        self._here.console.print(make_table(["check", "", ""], rows))

    def _finish(self, recording: Recording, checks: Sequence[Check]) -> None:
        path = str(self._out.resolve())
        if self._here.as_json:
            self._here.emit(
                {
                    "held": all(check.holds for check in checks),
                    "checks": [
                        {"statement": c.statement, "holds": c.holds, "figures": c.figures}
                        for c in checks
                    ],
                    "figures": {n: {"ours": a, "plain": b} for n, a, b in recording.table()},
                    "report": path,
                }
            )
            return
        self._here.say(f"\nThe page with the plots: {path}\n\nWhat to try next:")
        for line in _NEXT:
            self._here.say(f"  {line}")


def _keep(here: Invocation, cluster: EmbeddedCluster, stop: threading.Event) -> None:
    from rocketwire.cli.cluster import serve

    here.say("\nThe cluster goes on; Ctrl-C ends it.")
    serve(here, cluster, interval=1.0, stop=stop)
