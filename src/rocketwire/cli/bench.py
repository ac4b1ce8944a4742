"""``rocketwire bench``: speed on the user's own cluster, or the programs of the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import rocketwire
from rocketwire.cli.bench_shapes import Shape
from rocketwire.cli.failures import CommandFailedError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import make_table

app = typer.Typer(add_completion=False)


@command(
    app,
    "bench",
    panel="More",
    examples=(
        "rocketwire bench --topic speed-test --name-server 10.0.0.1:9876",
        "rocketwire bench",
        "rocketwire bench --against java,go --rounds 5",
        "rocketwire bench --only blocking,batch --shapes key --scale 0.1",
    ),
)
def bench(  # noqa: PLR0913 - these are the options of the command
    here: Invocation,
    *,
    topic: Annotated[
        str | None,
        typer.Option(help="Measure on your own cluster: messages go to this topic and stay there."),
    ] = None,
    count: Annotated[
        int, typer.Option(min=10, help="With --topic: messages sent one by one in a round.")
    ] = 1000,
    size: Annotated[int, typer.Option(min=1, help="With --topic: bytes of a body.")] = 200,
    shape: Annotated[
        Shape,
        typer.Option(
            help="With --topic: body (nothing else), key (tag and key), rich (properties)."
        ),
    ] = Shape.KEY,
    against: Annotated[
        str, typer.Option(help="Clients beside ours, on the same broker: java, go.")
    ] = "java,go",
    only: Annotated[str, typer.Option(help="Some parts only, with commas.")] = "",
    shapes: Annotated[
        str, typer.Option(help="Some shapes of messages only: body,key,rich,sharded.")
    ] = "",
    bodies: Annotated[str, typer.Option(help="Bytes of bodies, such as 20,200,2000.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="How often each path is run.")] = 5,
    scale: Annotated[float, typer.Option(min=0.001, help="0.1: a tenth of the messages.")] = 1.0,
    results: Annotated[Path, typer.Option(help="All figures, as JSON.")] = Path(
        "bench-results.json"
    ),
) -> None:
    """Measure speed, as ratios in one run.

    With --topic on your own cluster, with what is installed. Without it everything, on servers of
    its own: that needs the source tree, and shows Java and Go where they are present.
    """
    if topic is not None:
        _on_cluster(here, topic, count=count, size=size, rounds=rounds, shape=shape)
        return
    root = find_source_tree()
    words = ["--against", against, "--rounds", str(rounds), "--scale", str(scale)]
    words += ["--json", str(results.resolve())]
    for option, value in (("--only", only), ("--shapes", shapes), ("--bodies", bodies)):
        words += [option, value] if value else []
    path = os.pathsep.join(filter(None, [str(root / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "bench", *words],
        cwd=root,
        env=os.environ | {"PYTHONPATH": path},
        stdout=sys.stderr if here.as_json else None,
        check=False,
    )
    if done.returncode != 0:
        raise typer.Exit(done.returncode)
    if here.as_json:
        print(results.read_text().strip())


def _on_cluster(
    here: Invocation, topic: str, *, count: int, size: int, rounds: int, shape: Shape
) -> None:
    from rocketwire.cli.bench_cluster import HEADINGS, as_rows, measure

    found = measure(
        lambda **own: here.producer(**({"group": "rocketwire-bench"} | own)),
        topic,
        count=count,
        size=size,
        rounds=rounds,
        shape=shape,
    )
    if here.as_json:
        here.emit([asdict(one) for one in found])
        return
    here.say(make_table(HEADINGS, as_rows(found)))


def find_source_tree() -> Path:
    """Where the benchmark programs are: here, above, or beside the package.

    Raises:
        CommandFailedError: nowhere.
    """
    near = Path.cwd().resolve()
    beside = Path(rocketwire.__file__).resolve().parents[2]
    for folder in (near, *near.parents, beside):
        if (folder / "bench" / "__main__.py").is_file() and (folder / "pyproject.toml").is_file():
            return folder
    raise CommandFailedError(
        "the benchmark programs are part of the source, not of the package: "
        "clone the repository and run make bench there"
    )
