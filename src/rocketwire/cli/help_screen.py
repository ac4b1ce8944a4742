"""What ``--help`` looks like: flags without a type, commands first, readable on narrow screens."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import wrap
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperGroup

#: On narrower screens Typer's columns cut off the names of options.
_TOO_NARROW: Final = 80
#: Panels of parameters that name none, in the order in which they come.
_USUAL: Final = ("Arguments", "Options")
#: A word of a shell: what is quoted is not taken apart.
_WORD: Final = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_GOES_ON: Final = " \\"
_FURTHER: Final = "    "


class _PlainFlags:
    """A flag takes no value, so no type is shown for one; what may be repeated takes one at a time."""

    epilog: str | None

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, ``--help`` included."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
            elif getattr(parameter, "multiple", False) and not parameter.metavar:
                parameter.metavar = "<str>"  # what is given each time, not a list of Python's
        return found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; on a narrow screen each option has a line of its own above its words."""
        if Console().width >= _TOO_NARROW:
            super().format_help(ctx, formatter)  # type: ignore[misc]
            return
        parameters, epilog = self._print_without_parameters(ctx, formatter)
        console = Console(highlight=False)
        _print_stacked(console, parameters, ctx)
        _print_epilog(console, epilog)

    def _print_without_parameters(self, ctx: Any, formatter: Any) -> tuple[list[Any], str | None]:
        """Typer's help without parameters and epilog, which are printed after it."""
        parameters = [p for p in self.get_params(ctx) if not getattr(p, "hidden", False)]
        epilog, self.epilog = self.epilog, None
        try:
            with _hidden(parameters):
                super().format_help(ctx, formatter)  # type: ignore[misc]
        finally:
            self.epilog = epilog
        return parameters, epilog


class PlainCommand(_PlainFlags, TyperCommand):
    """A command."""


class PlainGroup(_PlainFlags, TyperGroup):
    """A command that has commands."""


class CommandsFirst(PlainGroup):
    """A group whose help begins with its commands: a newcomer looks for where to start."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help: what it is, the commands by panel, the options, the first steps."""
        options, epilog = self._print_without_parameters(ctx, formatter)
        console = Console(highlight=False)
        if console.width < _TOO_NARROW:
            _print_stacked(console, options, ctx)
        else:
            console.print(_options_panel(options))
        _print_epilog(console, epilog)


@contextmanager
def _hidden(parameters: list[Any]) -> Iterator[None]:
    for parameter in parameters:
        parameter.hidden = True
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.hidden = False


def _options_panel(options: list[Any]) -> Panel:
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    for option in options:
        names = ", ".join([*option.opts, *option.secondary_opts])
        shown = f"{names} {option.metavar}" if option.metavar else names
        table.add_row(Text(shown, style="bold cyan"), Text(option.help or ""))
    return _panel(table, "Options")


def _print_stacked(console: Console, parameters: list[Any], ctx: Any) -> None:
    panels: dict[str, list[Any]] = defaultdict(list)
    for parameter in parameters:
        usual = _USUAL[not isinstance(parameter, TyperArgument)]
        panels[getattr(parameter, "rich_help_panel", None) or usual].append(parameter)
    first = [title for title in _USUAL if title in panels]
    for title in dict.fromkeys([*first, *panels]):
        table = Table.grid()
        for parameter in panels[title]:
            names, words = parameter.get_help_record(ctx)
            table.add_row(Text(names, style="bold cyan"))
            if words:
                table.add_row(Padding(Text(words, overflow="fold"), (0, 0, 0, 4)))
        console.print(_panel(table, title))


def _panel(table: Table, title: str) -> Panel:
    return Panel(table, title=title, title_align="left", border_style="dim")


def _print_epilog(console: Console, epilog: str | None) -> None:
    # Brackets are escaped, for Typer, which takes it for markup.
    for line in (epilog or "").replace(r"\[", "[").split("\n\n"):
        print("\n".join(_folded(f" {line}", console.width)))


def _folded(line: str, width: int) -> list[str]:
    """A line that is too long, cut so that a shell still reads it as one command when it is copied."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    first, *words = _WORD.findall(line)
    lines = [indent + first]
    for word in words:
        if len(lines[-1]) + len(" ") + len(word) + len(_GOES_ON) <= width:
            lines[-1] += f" {word}"
        else:
            lines[-1] += _GOES_ON
            # Within quotes a new line is a blank as well, and a backslash would be part of the text.
            lines += wrap(word, width - len(_GOES_ON), initial_indent=indent + _FURTHER,
                          subsequent_indent=indent + _FURTHER, break_on_hyphens=False)  # fmt: skip
    return lines
