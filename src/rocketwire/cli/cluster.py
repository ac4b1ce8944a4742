"""``rocketwire cluster``: an embedded cluster as a process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketwire.cli.cluster_screen import ClusterScreen
from rocketwire.cli.invocation import DEFAULT_NAME_SERVER, Invocation, command
from rocketwire.cli.signals import stop_requested

if TYPE_CHECKING:
    from rocketwire.embedded import EmbeddedCluster

app = typer.Typer(add_completion=False)


@command(
    app,
    "cluster",
    panel="Embedded cluster",
    connects=False,
    examples=(
        "rocketwire cluster",
        "rocketwire cluster --brokers 3 --port 9876 --store ./rocketmq-data",
        "rocketwire cluster --port 0 --json",
    ),
)
def cluster(  # noqa: PLR0913 - each has a default
    here: Invocation,
    *,
    brokers: Annotated[int, typer.Option(min=1, max=26, help="How many.")] = 1,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of the name server; 0 for any free one.")
    ] = 9876,
    broker_port: Annotated[
        int | None,
        typer.Option(min=1, max=65000, help="Of the first broker, +10 for each more. Any free."),
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Keep messages in this folder; else they go at the end.")
    ] = None,
    queues: Annotated[int, typer.Option(min=1, max=1024, help="Of topics made by sending.")] = 4,
    flush: Annotated[str, typer.Option(help="async, or sync: acknowledge after fsync.")] = "async",
    auto_create: Annotated[bool, typer.Option(help="Whether sending makes topics.")] = True,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Run a name server and brokers in this process, until Ctrl-C."""
    from rocketwire.embedded import EmbeddedCluster

    names = [f"broker-{chr(ord('a') + number)}" for number in range(brokers)]
    ports = {"name-server": port}
    if broker_port is not None:
        ports |= {name: broker_port + 10 * number for number, name in enumerate(names)}
    running = EmbeddedCluster(
        names,
        folder=store,
        ports=ports,
        queues=queues,
        flush=flush,  # type: ignore[arg-type]  # it is checked there
        auto_create_topics=auto_create,
    )
    with stop_requested() as stop:
        with running:
            serve(here, running, interval=interval, stop=stop)
        if here.as_json:
            here.emit({"event": "stopped"})
        else:
            here.say("stopped; everything is flushed" if store else "stopped")


def serve(here: Invocation, running: EmbeddedCluster, *, interval: float, stop: Any) -> None:
    """Show a running cluster until ``stop`` is set."""
    screen = ClusterScreen(
        here, lambda: running.brokers, headline=_headline(running), interval=interval
    )
    if here.as_json:
        here.emit(_started(running))
    screen.run(stop)


def _started(running: EmbeddedCluster) -> dict[str, Any]:
    return {
        "event": "started",
        "pid": os.getpid(),
        "name_server": running.name_server,
        "folder": str(running.folder),
        "brokers": {handle.name: handle.address for handle in running.brokers},
    }


def _headline(running: EmbeddedCluster) -> list[str]:
    server = running.name_server
    at = "" if server == DEFAULT_NAME_SERVER else f" -n {server}"
    many = len(running.brokers)
    what = f"{many} brokers" if many > 1 else "1 broker"
    return [
        f"RocketMQ, embedded: name server {server}, {what}, store {running.folder}",
        f"try:  rocketwire send orders hello{at}",
        f"      rocketwire fault {running.brokers[-1].name} slow 0.3{at}",
    ]
