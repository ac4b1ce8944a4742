"""``rocketwire exporter``: a cluster's numbers for Prometheus."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketwire.cli.failures import UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.signals import stop_requested

app = typer.Typer(add_completion=False)


@command(
    app,
    "exporter",
    examples=(
        "rocketwire exporter --name-server 10.0.0.1:9876",
        "rocketwire exporter --name-server 10.0.0.1:9876 --host 0.0.0.0 --port 9108 --timeout 5",
    ),
)
def exporter(
    here: Invocation,
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any free one.")] = 9108,
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other machines ask.")] = "127.0.0.1",
    timeout: Annotated[
        float, typer.Option(min=0.1, max=60.0, help="Seconds for asking the cluster, per scrape.")
    ] = 8.0,
    most: Annotated[
        int, typer.Option(min=1, max=10_000, help="Topics, and groups, that are looked at.")
    ] = 500,
    keep: Annotated[
        float, typer.Option(min=0.0, help="Seconds for which an answer serves further scrapes.")
    ] = 5.0,
) -> None:
    """Serve topics, groups, lag, brokers and dead letters to Prometheus, until Ctrl-C."""
    try:
        from rocketwire.integrations.prometheus import ClusterCollector
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is missing: pip install 'rocketwire[cli,prometheus]'"
        ) from None
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    with here.admin() as admin, stop_requested() as stop:
        registry.register(ClusterCollector(admin, timeout=timeout, most=most, keep=keep))
        try:
            server, thread = start_http_server(port, host, registry)
        except OSError as error:
            raise UsageError(f"{host}:{port} can't be served: {error}") from None
        try:
            here.say(f"http://{host}:{server.server_port}/metrics (Ctrl-C ends it)")
            stop.wait()
        finally:
            server.shutdown()
            server.server_close()
            thread.join(5.0)
