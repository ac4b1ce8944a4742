"""The broker part of the demo: two clients, three brokers, and faults."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketwire.cli.demo.checks import check_failures, check_order, check_orders
from rocketwire.cli.demo.load import Client, LedgerClient, VerdictLog
from rocketwire.cli.demo.recording import Recording
from rocketwire.cli.demo.screen import DemoScreen
from rocketwire.cli.demo.story import SCENES, fault_periods
from rocketwire.sync.producer import Producer
from rocketwire.sync.reader import Reader

if TYPE_CHECKING:
    from rich.console import Console

    from rocketwire.embedded import EmbeddedCluster

BROKERS: Final = 3
QUEUES: Final = 4
_DRAIN: Final = 15.0
_ROUTE_REFRESH: Final = 2.0


class InterruptedStoryError(Exception):
    """The user pressed Ctrl-C."""


def play(
    cluster: EmbeddedCluster,
    console: Console,
    stop: threading.Event,
    *,
    seconds: float,
    seed: int,
    telemetry: Path | None = None,
) -> Recording:
    """Send, break, mend, and check; ``telemetry`` is a folder for what our producer notes.

    Raises:
        InterruptedStoryError: ``stop`` was set.
    """
    _make_topics(cluster)
    began = time.monotonic()
    server = cluster.name_server
    noted = {"telemetry": str(telemetry)} if telemetry is not None else {}
    ours = Client("Rocketwire", "orders", _producer(server, group="demo", **noted), began)
    verdicts = VerdictLog(ours.producer, began)
    plain = Client("plain client", "orders-plain", _plain_producer(server), began)
    ledger_producer = _producer(server, group="ledger", send_timeout=1.5)
    ledger = LedgerClient("ledger", "ledger", ledger_producer, began)
    clients = (ours, plain, ledger)
    screen = DemoScreen(console, cluster, ours, plain, seconds)
    sending_over = threading.Event()
    with ours.producer, plain.producer, ledger_producer:
        for client in clients:
            client.start(sending_over, seed)
        watcher = verdicts.start(sending_over)
        try:
            with screen.live() if screen.is_live else contextlib.nullcontext():
                begins = _tell_story(cluster, screen, stop, began, seconds)
        finally:
            sending_over.set()
            for client in clients:
                client.join(_DRAIN)
            watcher.join(_DRAIN)
        ended = time.monotonic() - began
        recording = Recording(ended, ours, plain, ledger, fault_periods(begins, ended), verdicts)
    _check(recording, server)
    return recording


def _producer(server: str, **options: Any) -> Producer:
    """Routes are asked for more often than usual, so that a restarted broker is soon seen."""
    return Producer(server, route_refresh=_ROUTE_REFRESH, **options)


def _plain_producer(server: str) -> Producer:
    """The same client without the fault policy: Java's defaults."""
    return _producer(
        server, group="plain", fault="off", attempt_timeout=None, retries=2, send_timeout=3.0
    )


def _make_topics(cluster: EmbeddedCluster) -> None:
    for topic in ("orders", "orders-plain", "ledger"):
        cluster.create_topic(topic, QUEUES, order=topic == "ledger")


def _tell_story(
    cluster: EmbeddedCluster,
    screen: DemoScreen,
    stop: threading.Event,
    began: float,
    seconds: float,
) -> list[float]:
    """Play scene after scene; returns when each began."""
    begins = []
    screen.begin(began)
    until = began
    for number, scene in enumerate(SCENES, start=1):
        scene.act(cluster)
        begins.append(time.monotonic() - began)
        screen.announce(number, scene)
        until += scene.share * seconds
        if not screen.watch(until, stop):
            raise InterruptedStoryError
    return begins


def _check(recording: Recording, server: str) -> None:
    with Reader(server, background=False) as reader:
        recording.checks.append(check_failures(recording.ours))
        for client in (recording.ours, recording.plain):
            checks, repeats = check_orders(reader, client)
            recording.checks += checks
            recording.repeats[client.name] = repeats
        recording.checks.append(check_order(reader, recording.ledger))
