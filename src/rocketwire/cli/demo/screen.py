"""The demo on screen: live on a terminal, as lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rocketwire.cli.demo.load import Client, Sample, quantile
from rocketwire.cli.demo.story import Scene
from rocketwire.cli.fault_actions import describe_broker
from rocketwire.cli.output import make_table, milliseconds, sparkline, state_text

if TYPE_CHECKING:
    from rocketwire.embedded import EmbeddedCluster

_WINDOW: Final = 2.0
_REFRESH: Final = 0.2
_LINE_EVERY: Final = 2.0
_SPARK_CELLS: Final = 40


def recent(samples: list[Sample], now: float, window: float = _WINDOW) -> list[Sample]:
    """The samples of the last seconds; the list grows at its end while it is read."""
    found = []
    for index in range(len(samples) - 1, -1, -1):
        if samples[index].at < now - window:
            break
        found.append(samples[index])
    return found


class DemoScreen:
    """Shows two clients side by side while a story goes on."""

    def __init__(
        self, console: Console, cluster: EmbeddedCluster, ours: Client, plain: Client, total: float
    ) -> None:
        self._console = console
        self._cluster = cluster
        self._ours = ours
        self._plain = plain
        self._total = total
        self._scene: Scene | None = None
        self._began = time.monotonic()
        self._is_live = console.is_terminal

    def begin(self, began: float) -> None:
        """The story begins."""
        self._began = began

    def announce(self, number: int, scene: Scene) -> None:
        """A scene begins; on a terminal the live screen says it, elsewhere lines do."""
        self._scene = scene
        if not self._is_live:
            at = time.monotonic() - self._began
            self._console.print(f"[{at:5.1f} s] {number}. {scene.title}", markup=False)
            self._console.print(f"          {scene.explanation}", markup=False)
            self._console.print(f"          $ {scene.command}", markup=False)
            self._console.file.flush()

    def watch(self, until: float, stop: threading.Event) -> bool:
        """Show the clients until a moment of the monotonic clock; False when asked to stop."""
        if self._is_live:
            return self._pass_time(until, stop, _REFRESH, lambda: None)
        return self._pass_time(until, stop, _LINE_EVERY, self._print_lines)

    def _pass_time(
        self, until: float, stop: threading.Event, step: float, tell: Callable[[], None]
    ) -> bool:
        while (left := until - time.monotonic()) > 0:
            if stop.wait(min(step, left)):
                return False
            if left > step:
                tell()
        return True

    def live(self) -> Live:
        """The live screen, to be used around ``watch`` on a terminal."""
        return Live(
            console=self._console,
            get_renderable=self._screen,
            refresh_per_second=1 / _REFRESH,
            transient=True,
        )

    @property
    def is_live(self) -> bool:
        """Whether there is a terminal."""
        return self._is_live

    def _print_lines(self) -> None:
        now = time.monotonic() - self._began
        parts = []
        for client in (self._ours, self._plain):
            latest = recent(client.samples, now)
            spans = [sample.latency for sample in latest]
            parts.append(
                f"{client.name}: {len(latest) / _WINDOW:.0f}/s, "
                f"p50 {milliseconds(quantile(spans, 0.5))}, p99 {milliseconds(quantile(spans, 0.99))}"
            )
        out = [h.broker for h in self._ours.producer.health() if h.state != "usable"]
        tail = f"; left out: {', '.join(out)}" if out else ""
        self._console.print(f"[{now:5.1f} s]    {'   '.join(parts)}{tail}", markup=False)
        self._console.file.flush()

    def _screen(self) -> Panel:
        now = time.monotonic() - self._began
        scene = self._scene
        parts: list[object] = []
        if scene is not None:
            parts += [
                Text(scene.title, style="bold"),
                Text(scene.explanation),
                Text(f"$ {scene.command}", style="cyan"),
                Text(),
            ]
        parts += [self._brokers(now), Text(), self._clients(now), Text()]
        parts.append(ProgressBar(total=self._total, completed=min(now, self._total), width=60))
        return Panel(
            Group(*parts),  # type: ignore[arg-type]  # all of them can be drawn
            title=f"Rocketwire demo  {now:4.1f} of {self._total:.0f} s",
            border_style="dim",
        )

    def _brokers(self, now: float) -> Table:
        health = {entry.broker: entry for entry in self._ours.producer.health()}
        latest = recent(self._ours.samples, now)
        rows = []
        for handle in self._cluster.brokers:
            entry = health.get(handle.name)
            faults = describe_broker(handle)
            share = sum(sample.broker == handle.name for sample in latest) / max(1, len(latest))
            rows.append(
                (
                    handle.name,
                    Text(", ".join(faults) or "none", style="red" if faults else "green"),
                    state_text(entry.state if entry else "-"),
                    f"{share:.0%}",
                    milliseconds(entry.smoothed if entry else None),
                    Text(entry.why if entry else "", style="dim"),
                )
            )
        columns = ["broker", "injected fault", "our verdict", "share#", "typical#", "because"]
        return make_table(columns, rows)

    def _clients(self, now: float) -> Table:
        rows = []
        for client in (self._ours, self._plain):
            latest = recent(client.samples, now)
            spans = [sample.latency for sample in latest]
            rows.append(
                (
                    client.name,
                    f"{len(latest) / _WINDOW:.0f}/s",
                    milliseconds(quantile(spans, 0.5)),
                    milliseconds(quantile(spans, 0.99)),
                    len(client.failures),
                    Text(_rate_line(client.samples, now, self._total), style="cyan"),
                )
            )
        columns = ["client", "sends#", "p50#", "p99#", "failed#", "sends a second, so far"]
        return make_table(columns, rows)


def _rate_line(samples: Sequence[Sample], now: float, total: float) -> str:
    width = total / _SPARK_CELLS
    cells = int(now / width)
    counts = [0] * max(cells, 1)
    for sample in list(samples):
        cell = int(sample.at / width)
        if cell < len(counts):
            counts[cell] += 1
    return sparkline([float(count) for count in counts])
