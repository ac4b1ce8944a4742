"""Writing for people and for programs: consoles, tables, JSON, numbers in words."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rocketwire.cli.safe_text import visible_json, visible_lines
from rocketwire.core.durations import in_ms

#: Lines of a pipe are never wrapped: a program reads them.
_PIPE_WIDTH: Final = 1000
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_SIZES: Final = ("B", "kB", "MB", "GB", "TB")


class _EscapeHook(RenderHook):
    """Makes a console escape whatever it is told to print, but for its own colours."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Each of them with its text escaped."""
        return [_Escaped(renderable) for renderable in renderables]


class _Escaped:
    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _escaped(console.render(self._inner, options))


def _escaped(segments: Iterable[Segment]) -> Iterable[Segment]:
    for segment in segments:
        if segment.control:
            yield segment
        else:
            yield Segment(visible_lines(segment.text), segment.style)


def make_console(*, stderr: bool = False) -> Console:
    """A console that colours a terminal and leaves a pipe plain and wide."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    console = Console(file=stream, width=width, highlight=False, soft_wrap=not stream.isatty())
    if stream.isatty():
        console.push_render_hook(_EscapeHook())
    return console


def to_json(value: Any) -> str:
    """One line of JSON; moments as ISO 8601, bytes as text where they are text."""
    return visible_json(json.dumps(value, default=_plain, ensure_ascii=False))


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return body_text(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def body_text(body: bytes) -> str:
    """A body as text, with what is no UTF-8 shown as escapes."""
    return body.decode("utf-8", "backslashreplace")


def make_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = ""
) -> Table:
    """A table without lines; a column whose name ends in ``#`` holds numbers."""
    table = Table(
        box=None, pad_edge=False, header_style="bold", title=title or None, title_justify="left"
    )
    for name in columns:
        table.add_column(
            name.removesuffix("#"),
            justify="right" if name.endswith("#") else "left",
            overflow="fold",
        )
    for row in rows:
        table.add_row(
            *(cell if isinstance(cell, Text) else Text(visible_lines(str(cell))) for cell in row)
        )
    return table


def milliseconds(seconds: float | None) -> str:
    """A latency: ``1.4 ms``, ``302 ms``, ``2.10 s``; a dash for none."""
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else in_ms(seconds)


def size_text(count: float) -> str:
    """A number of bytes: ``12.3 MB``."""
    for unit in _SIZES[:-1]:
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {_SIZES[-1]}"


def sparkline(values: Sequence[float | None], *, top: float | None = None) -> str:
    """A row of blocks, one per value; a blank where there is none.

    >>> sparkline([0, 1, None, 7], top=7)
    '▁▂ █'
    """
    known = [value for value in values if value is not None]
    highest = top if top is not None else max(known, default=0.0)
    last = len(_BLOCKS) - 1
    return "".join(
        " "
        if value is None
        else _BLOCKS[min(last, int(value / highest * last + 0.5)) if highest > 0 else 0]
        for value in values
    )


STATE_STYLES: Final = {
    "usable": "green",
    "isolated": "red",
    "trial": "yellow",
    "suspect": "yellow",
    "down": "red",
}


def state_text(state: str) -> Text:
    """A broker's state in its colour."""
    return Text(state, style=STATE_STYLES.get(state, ""))
