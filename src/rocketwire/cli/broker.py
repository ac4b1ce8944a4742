"""``rocketwire broker``: one embedded broker as a process of its own, which can be killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rocketwire.cli.cluster_screen import ClusterScreen
from rocketwire.cli.fault import CONTROL_CODE
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.signals import stop_requested

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker
    from rocketwire.embedded.call import Answer, Call
    from rocketwire.embedded.control import BrokerHandle

app = typer.Typer(add_completion=False)

_LAST_WORDS: Final = 0.05


@command(
    app,
    "broker",
    panel="Embedded cluster",
    examples=(
        "rocketwire broker --name-server 127.0.0.1:9876 --name broker-d --store ./broker-d",
        "rocketwire fault broker-d kill",
    ),
)
def broker(
    here: Invocation,
    *,
    store: Annotated[Path, typer.Option(help="Its folder; started again, it has its messages.")],
    name: Annotated[str, typer.Option(help="Unique in the cluster.")] = "broker-d",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any free one.")] = 0,
    host: Annotated[str, typer.Option(help="An address of this machine.")] = "127.0.0.1",
    queues: Annotated[int, typer.Option(min=1, max=1024, help="Of topics made by sending.")] = 4,
    flush: Annotated[str, typer.Option(help="async, or sync: acknowledge after fsync.")] = "async",
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
) -> None:
    """Run one broker and register it with a name server, until Ctrl-C."""
    from rocketwire.embedded import BrokerHandle, BrokerOptions, Journal
    from rocketwire.embedded.broker import Broker
    from rocketwire.embedded.loop_thread import LoopThread

    options = BrokerOptions(queues=queues, flush=flush)  # type: ignore[arg-type]  # checked there
    servers = here.name_servers.split(";")
    with here.inspector(background=False) as admin:
        admin.clusters()  # fails here, in one line, when there is no name server
    with stop_requested() as stop:
        server = Broker(name, store, servers, Journal(), options, host=host, port=port)
        thread = LoopThread(f"rocketwire-{name}")
        thread.start()
        try:
            thread.run(server.start)
            handle = BrokerHandle(server, thread)
            server.handlers[CONTROL_CODE] = _Control(server).handle
            _show(here, handle, interval).run(stop)
        finally:
            thread.run(server.stop)
            thread.run(server.release)
            thread.stop()
    if here.as_json:
        here.emit({"event": "stopped"})
    else:
        here.say("stopped; everything is flushed")


class _Control:
    """Obeys ``rocketwire fault`` as a broker does, and can be killed for real."""

    def __init__(self, server: Broker) -> None:
        from rocketwire.embedded.remote_control import ACTIONS, RemoteControl

        # One that refuses connections could not be reached any more to be healed.
        allowed = frozenset(ACTIONS - {"refuse"})
        self._control = RemoteControl(lambda _: server, allowed)
        self._loop = server.loop

    def handle(self, call: Call) -> Answer | None:
        """Do what is asked for."""
        if call.ext.get("action") == "kill":
            # The answer leaves first; nothing else does, as with any kill -9.
            self._loop.call_later(_LAST_WORDS, os.kill, os.getpid(), signal.SIGKILL)
            from rocketwire.embedded.call import Answer

            return Answer()
        return self._control.handle(call)


def _show(here: Invocation, handle: BrokerHandle, interval: float) -> ClusterScreen:
    if here.as_json:
        here.emit(
            {
                "event": "started",
                "pid": os.getpid(),
                "name_server": here.name_servers,
                "folder": str(handle.folder),
                "brokers": {handle.name: handle.address},
            }
        )
    return ClusterScreen(
        here,
        lambda: [handle],
        headline=[
            f"{handle.name} at {handle.address}, pid {os.getpid()}, store {handle.folder}",
            f"try:  kill -9 {os.getpid()}   rocketwire fault {handle.name} hang",
        ],
        interval=interval,
    )
