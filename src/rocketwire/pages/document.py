"""A whole page and its larger parts. Every word that is given is escaped; parts are HTML already."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Final

from rocketwire.pages.style import STYLE
from rocketwire.version import __version__

_HIDDEN: Final = dict.fromkeys(
    (
        *(code for code in range(0x20) if code not in b"\t\n"),
        *range(0x7F, 0xA0),
        *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    ),
    "\ufffd",
)


def document(title: str, parts: Iterable[str], *, style: str = "", footer: str = "") -> str:
    """The page.

    Args:
        title: what the browser calls it.
        parts: its HTML, from top to bottom; empty ones are left out.
        style: rules for what only this page has.
        footer: words at the bottom.
    """
    end = f"\n<footer>{escape(footer)}</footer>" if footer else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head>\n<body>\n"
        f"{chr(10).join(part for part in parts if part)}{end}\n</body></html>\n"
    )


def made(at: datetime, more: str = "") -> str:
    """Words for the bottom: by what and when the page was made."""
    return f"Rocketwire {__version__}, {at:%Y-%m-%d %H:%M}.{' ' if more else ''}{more}"


def header(kicker: str, headline: str) -> str:
    """The top: what the page is about in small letters, and what it found in large ones."""
    return f'<header><p class="kicker">{escape(kicker)}</p><h1>{escape(headline)}</h1></header>'


def summary(sentences: Iterable[str]) -> str:
    """Sentences under the headline, of which the first is the most important."""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="summary">{items}</ul>'


def warnings(told: Iterable[tuple[str, str]]) -> str:
    """What a reader must know before the figures: a word or two, and the rest."""
    return "".join(
        f'<p class="warning"><b>{escape(head)}</b> {escape(text)}</p>' for head, text in told
    )


def facts(found: Iterable[tuple[str, str, str]]) -> str:
    """A row of figures: name, value, and what belongs to it in small letters."""
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><small>{escape(more)}</small></div>"
        for name, value, more in found
    )
    return f'<dl class="facts">{cells}</dl>'


def section(heading: str, about: str, *parts: str) -> str:
    """A part of the page, with a sentence that says how to read it."""
    words = f'<p class="about">{escape(about)}</p>' if about else ""
    return f"<section><h2>{escape(heading)}</h2>{words}{''.join(parts)}</section>"


def definitions(name: str, terms: Sequence[tuple[str, str]], *, is_open: bool = False) -> str:
    """Terms and what they mean, under a name that shows and hides them."""
    items = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in terms)
    return f"<details{' open' if is_open else ''}><summary>{escape(name)}</summary><dl>{items}</dl></details>"


def write_page(page: Path, text: str) -> None:
    """Put a page in place, whole or not at all.

    Control characters and marks that turn text around, which only names from elsewhere have, are
    shown as one that says so.
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    draft = page.with_name(f".{page.name}.{uuid.uuid4().hex[:8]}")
    try:
        draft.write_text(text.translate(_HIDDEN), encoding="utf-8", errors="replace")
        draft.replace(page)
    finally:
        draft.unlink(missing_ok=True)
