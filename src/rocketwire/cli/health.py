"""``rocketwire health``: brokers as a producer sees them, an application's or one of our own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from rocketwire.cli.failures import CommandFailedError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import make_table, milliseconds, sparkline, state_text
from rocketwire.cli.signals import stop_requested
from rocketwire.errors import RocketMQError
from rocketwire.message import Message, MessageQueue

if TYPE_CHECKING:
    from rocketwire.sync.producer import Producer

app = typer.Typer(add_completion=False)

#: Every broker of Apache's has this topic from the start, and nobody's consumers read it.
_PROBE_TOPIC: Final = "BenchmarkTest"
_HISTORY: Final = 40

Look = Callable[[], list[dict[str, Any]]]


@command(
    app,
    "health",
    panel="Start here",
    examples=(
        "rocketwire health --status /run/orders.status",
        "rocketwire health --name-server 127.0.0.1:9876 --rate 20",
        "rocketwire health --count 1 --json",
    ),
)
def health(
    here: Invocation,
    *,
    status: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of an application: Producer(..., status='FILE')."),
    ] = None,
    topic: Annotated[
        str, typer.Option(help="Where our own probes go; without --status.")
    ] = _PROBE_TOPIC,
    rate: Annotated[float, typer.Option(min=0.1, max=1000, help="Probes a second.")] = 10.0,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many looks.")] = None,
) -> None:
    """Show the fault table live: each broker's state, latency, and why it is left out."""
    with stop_requested() as stop, contextlib.ExitStack() as stack:
        if status is not None:
            look, title = _file_look(status), f"as seen by the application of {status}"
        else:
            producer = stack.enter_context(here.producer(group="rocketwire-health"))
            look = stack.enter_context(_probing(producer, topic, rate))
            title = f"as seen by {rate:g} small messages a second to {topic}"
        screen = _HealthScreen(here, look, title)
        screen.run(stop, interval, count)


def _file_look(path: Path) -> Look:
    from rocketwire.system.status import is_alive, read_statuses

    def look() -> list[dict[str, Any]]:
        found = [status for status in read_statuses(path) if is_alive(status)]
        if not found:
            raise CommandFailedError(
                f"no running producer writes to {path}: give it status={str(path)!r}, "
                "and see that it runs on this machine"
            )
        return found

    return look


@contextlib.contextmanager
def _probing(producer: Producer, topic: str, rate: float) -> Iterator[Look]:
    """Send small messages in the background, and look at the producer that sends them."""
    from rocketwire.system.status import make_status

    producer.publish_queues(topic)  # fails here, in one line, when there is nobody
    stop = threading.Event()

    def send() -> None:
        by_turns = _ByTurns()
        message = Message(topic, b"rocketwire health", tags="rocketwire-health")
        while not stop.wait(1.0 / rate):
            with contextlib.suppress(RocketMQError):
                producer.send(message, selector=by_turns)

    def look() -> list[dict[str, Any]]:
        return [
            make_status(
                client_id=producer.client_id,
                group="rocketwire-health",
                health=producer.health(),
                stats=producer.stats(),
                now=time.monotonic(),
                wall=time.time(),
            )
        ]

    thread = threading.Thread(target=send, name="rocketwire-health", daemon=True)
    thread.start()
    try:
        yield look
    finally:
        stop.set()
        thread.join(10)


class _ByTurns:
    """A selector that goes from broker to broker.

    The default goes from queue to queue, and the topic of our probes may have a thousand on one
    broker.
    """

    pins = False

    def __init__(self) -> None:
        self._turn = 0

    def __call__(self, queues: Any, message: Message, argument: Any) -> MessageQueue:
        """The first queue of the next usable broker."""
        firsts = {queue.broker: queue for queue in reversed(queues.usable or queues)}
        self._turn += 1
        chosen: MessageQueue = firsts[sorted(firsts)[self._turn % len(firsts)]]
        return chosen


class _HealthScreen:
    """Shows statuses again and again: live, as tables, or as JSON."""

    def __init__(self, here: Invocation, look: Look, title: str) -> None:
        self._here = here
        self._look = look
        self._title = title
        self._history: dict[tuple[str, str], deque[float | None]] = defaultdict(
            lambda: deque(maxlen=_HISTORY)
        )

    def run(self, stop: threading.Event, interval: float, count: int | None) -> None:
        """Look every ``interval`` seconds, ``count`` times, or until ``stop`` is set."""
        live = Live(console=self._here.console, auto_refresh=False) if self._here.is_live else None
        with live or contextlib.nullcontext():
            looks = 0
            while not stop.wait(interval):
                self._show(self._look(), live)
                looks += 1
                if looks == count:
                    return

    def _show(self, statuses: list[dict[str, Any]], live: Live | None) -> None:
        if self._here.as_json:
            for status in statuses:
                self._here.emit(status)
            return
        picture = Group(*(part for status in statuses for part in self._part(status)))
        if live is not None:
            live.update(picture, refresh=True)
        else:
            self._here.console.print(picture)
            self._here.console.file.flush()

    def _part(self, status: dict[str, Any]) -> list[Any]:
        client = str(status["client_id"])
        stats = status["stats"]
        head = Text.assemble(
            (f"{status['group']} ", "bold"),
            f"pid {status['pid']}, {time.strftime('%H:%M:%S', time.localtime(status['time']))}, "
            f"{self._title}",
        )
        counts = Text(
            f"{stats['sent']:,} sends, {stats['failed']:,} failed, {stats['retries']:,} retries, "
            f"{stats['in_flight']:,} in flight, {stats['maybe_duplicates']:,} maybe twice",
            style="dim",
        )
        rows = [self._row(client, entry) for entry in status["health"]]
        columns = [
            "broker",
            "state",
            "typical#",
            "p50#",
            "p99#",
            "last#",
            "failures#",
            "",
            "because",
        ]
        return [head, counts, make_table(columns, rows), Text()]

    def _row(self, client: str, entry: dict[str, Any]) -> tuple[object, ...]:
        history = self._history[client, entry["broker"]]
        history.append(entry["last_latency"])
        return (
            entry["broker"],
            state_text(entry["state"]),
            milliseconds(entry["smoothed"]),
            milliseconds(entry["p50"]),
            milliseconds(entry["p99"]),
            milliseconds(entry["last_latency"]),
            entry["failures"],
            Text(sparkline(list(history)), style="cyan"),
            entry["why"],
        )
