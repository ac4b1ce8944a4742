"""What a running embedded cluster shows: brokers, faults, traffic, disk."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rocketwire.cli.fault_actions import describe_broker
from rocketwire.cli.invocation import Invocation
from rocketwire.cli.output import make_table, size_text, sparkline
from rocketwire.pages.words import some

if TYPE_CHECKING:
    from rocketwire.embedded import BrokerHandle

_HISTORY: Final = 24
#: Below this the table would break words into letters: each broker gets lines of its own.
_TABLE_WIDTH: Final = 110
_LEGEND: Final = (
    "in, out: messages a second now, and the last seconds as bars. stored: messages since the "
    "start. log: bytes of the commit log. not indexed: bytes that a search by key does not find "
    "yet. Ctrl-C ends it."
)


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker at one moment; rates are messages a second since the moment before."""

    name: str
    address: str
    faults: tuple[str, ...]
    messages_in: int
    messages_out: int
    rate_in: float
    rate_out: float
    stored: int
    topics: int
    index_lag: int


class ClusterWatch:
    """Looks at brokers again and again, and works out rates."""

    def __init__(self, brokers: Callable[[], Sequence[BrokerHandle]]) -> None:
        self._brokers = brokers
        self._before: dict[str, tuple[float, int, int]] = {}
        self.history: dict[str, deque[float | None]] = {}

    def look(self) -> list[BrokerView]:
        """All brokers now."""
        return [self._view(handle) for handle in self._brokers()]

    def _view(self, handle: BrokerHandle) -> BrokerView:
        now, came, went = time.monotonic(), handle.messages_in, handle.messages_out
        then, came_before, went_before = self._before.get(handle.name, (now, came, went))
        self._before[handle.name] = (now, came, went)
        passed = max(now - then, 0.001)
        rate = max(came - came_before, 0) / passed
        self.history.setdefault(handle.name, deque(maxlen=_HISTORY)).append(rate)
        return BrokerView(
            name=handle.name,
            address=handle.address,
            faults=tuple(describe_broker(handle)),
            messages_in=came,
            messages_out=went,
            rate_in=rate,
            rate_out=max(went - went_before, 0) / passed,
            stored=handle.stored_bytes,
            topics=len(handle.own_topics),
            index_lag=handle.index_lag,
        )


class ClusterScreen:
    """Shows a cluster until it is told to stop: live, as lines, or as JSON."""

    def __init__(
        self,
        here: Invocation,
        brokers: Callable[[], Sequence[BrokerHandle]],
        *,
        headline: Sequence[str],
        interval: float,
    ) -> None:
        self._here = here
        self._watch = ClusterWatch(brokers)
        self._headline = headline
        self._interval = interval

    def run(self, stop: threading.Event) -> None:
        """Show until ``stop`` is set."""
        if self._here.is_live:
            self._run_live(stop)
        else:
            self._run_lines(stop)

    def _run_live(self, stop: threading.Event) -> None:
        with Live(console=self._here.console, auto_refresh=False) as live:
            while True:
                live.update(self._screen(self._watch.look()), refresh=True)
                if stop.wait(min(self._interval, 0.5)):
                    return

    def _screen(self, views: Sequence[BrokerView]) -> Group:
        history = self._watch.history
        top = max((value or 0.0 for row in history.values() for value in row), default=0.0)
        lines = {name: sparkline(row, top=top) for name, row in history.items()}
        wide = self._here.console.width >= _TABLE_WIDTH
        brokers = [_table(views, lines)] if wide else _blocks(views, lines)
        headline = [
            Text(line, style="bold" if n == 0 else "") for n, line in enumerate(self._headline)
        ]
        legend = Text(_LEGEND, style="dim")
        return Group(*headline, Text(), *brokers, Text(), legend)

    def _run_lines(self, stop: threading.Event) -> None:
        for line in self._headline:
            self._here.say(line)
        before: list[BrokerView] = []
        while True:
            views = self._watch.look()
            for view in views:
                self._tell(view, before)
            before = views
            if stop.wait(self._interval):
                return

    def _tell(self, view: BrokerView, before: Sequence[BrokerView]) -> None:
        """A line when something changed, so that a quiet cluster fills no log."""
        old = next((other for other in before if other.name == view.name), None)
        if old is not None and _counts(old) == _counts(view):
            return
        if self._here.as_json:
            self._here.emit({"event": "broker"} | _described(view))
            return
        state = ", ".join(view.faults) or "well"
        self._here.say(
            f"{time.strftime('%H:%M:%S')} {view.name} {view.address} {state}: "
            f"in {view.rate_in:,.0f}/s, out {view.rate_out:,.0f}/s, "
            f"{view.messages_in:,} stored, {size_text(view.stored)} in {some(view.topics, 'topic')}"
            + (f", {size_text(view.index_lag)} not indexed yet" if view.index_lag else "")
        )


def _state(view: BrokerView) -> Text:
    return Text(", ".join(view.faults) or "well", style="red" if view.faults else "green")


def _table(views: Sequence[BrokerView], lines: Mapping[str, str]) -> Table:
    columns = ["broker", "address", "state", "in#", "", "out#", "stored#", "log#"]
    columns += ["topics#", "not indexed#"]
    rows = [
        (
            view.name,
            view.address,
            _state(view),
            f"{view.rate_in:,.0f}/s",
            Text(lines[view.name], style="cyan"),
            f"{view.rate_out:,.0f}/s",
            f"{view.messages_in:,}",
            size_text(view.stored),
            f"{view.topics:,}",
            size_text(view.index_lag) if view.index_lag else "",
        )
        for view in views
    ]
    return make_table(columns, rows)


def _blocks(views: Sequence[BrokerView], lines: Mapping[str, str]) -> list[Text]:
    """Each broker in a few lines, for a narrow window."""
    found = []
    for view in views:
        traffic = f"in {view.rate_in:,.0f}/s, out {view.rate_out:,.0f}/s "
        amounts = (
            f"stored {view.messages_in:,}, log {size_text(view.stored)}, topics {view.topics:,}"
        )
        if view.index_lag:
            amounts += f", not indexed {size_text(view.index_lag)}"
        found += [
            Text.assemble((view.name, "bold"), f" {view.address} ", _state(view)),
            Text.assemble("  ", traffic, (lines[view.name], "cyan")),
            Text(f"  {amounts}"),
        ]
    return found


def _counts(view: BrokerView) -> tuple[object, ...]:
    return view.faults, view.messages_in, view.messages_out


def _described(view: BrokerView) -> dict[str, Any]:
    return {name: getattr(view, name) for name in BrokerView.__slots__}
