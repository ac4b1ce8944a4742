"""Tables. On a telephone each row is a list of names and values, so every cell has its column's name."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with something to it: small words below, or a role that has a colour (``good``, ``bad``)."""

    text: str
    below: str = ""
    role: str = ""


Row = Sequence[str | Cell]


def table(
    head: Sequence[str], rows: Iterable[Row], *, strong: Container[int] = (), frame: str = "scroll"
) -> str:
    """A table.

    Args:
        head: names of columns. One ends in ``#`` for numbers and in ``*`` for long text; ``%`` is a bar.
        rows: their cells; of a bar, a number from 0 to 100.
        strong: numbers of the rows that stand out.
        frame: the class around it; ``scroll`` becomes a list on a telephone.
    """
    columns = [(name.removesuffix("#").removesuffix("*"), _kind(name)) for name in head]
    body = "".join(
        ('<tr class="strong">' if number in strong else "<tr>")
        + "".join(_cell(*column, cell) for column, cell in zip(columns, row, strict=True))
        + "</tr>"
        for number, row in enumerate(rows)
    )
    return f'<div class="{frame}"><table>{_head(columns)}<tbody>{body}</tbody></table></div>'


def _head(columns: Sequence[tuple[str, str]]) -> str:
    if not any(name for name, _ in columns):
        return ""
    names = "".join(
        f'<th class="{kind}">{"" if kind == "meter" else escape(name)}</th>'
        for name, kind in columns
    )
    return f"<thead><tr>{names}</tr></thead>"


def _kind(name: str) -> str:
    if name == "%":
        return "meter"
    return {"#": "number", "*": "words"}.get(name[-1:], "plain")


def _cell(name: str, kind: str, given: str | Cell) -> str:
    cell = given if isinstance(given, Cell) else Cell(given)
    if kind == "meter":
        return f'<td class="meter"><i style="width:{float(cell.text):.1f}%"></i></td>'
    below = f"<small>{escape(cell.below)}</small>" if cell.below else ""
    kinds = " ".join(part for part in (kind, "both" if below else "", cell.role) if part)
    return f'<td data-name="{escape(name)}" class="{kinds}">{escape(cell.text)}{below}</td>'
