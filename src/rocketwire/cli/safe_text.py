"""Text from a wire, made safe to show on a terminal.

Bodies, tags, keys, names and remarks are written by any client of the cluster. On a terminal
their control characters could move the cursor, change the title, answer for the user, or turn the
order of letters around. Here they become visible escapes. What goes to a pipe is left as it is.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

#: C0, delete and C1; marks that turn the direction of text; and further ends of lines.
_HIDDEN: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)
_SHORT: Final = {0x09: r"\t", 0x0A: r"\n", 0x0D: r"\r"}
_ESCAPES: Final = {
    code: _SHORT.get(code, f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
    for code in _HIDDEN
}
_LINES: Final = {code: escape for code, escape in _ESCAPES.items() if code != 0x0A}
#: JSON escapes the first 32 itself; these are its words for the others.
_JSON: Final = {code: f"\\u{code:04x}" for code in _HIDDEN if code >= 0x20}


def visible(text: str) -> str:
    r"""Text on one line, every control character shown as an escape.

    >>> print(visible("red: \x1b[31m"))
    red: \x1b[31m
    """
    return text.translate(_ESCAPES)


def visible_lines(text: str) -> str:
    """Likewise, with its lines kept."""
    return text.translate(_LINES)


def visible_json(text: str) -> str:
    """JSON that means the same, and holds no control character."""
    return text.translate(_JSON)


class TerminalLog(logging.Handler):
    """Log records on standard error, one line each; tracebacks only where they are asked for."""

    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__(logging.INFO if tracebacks else logging.WARNING)
        form = "%(asctime)s %(name)s: %(message)s" if tracebacks else "%(name)s: %(message)s"
        self.setFormatter(logging.Formatter(form))
        self._tracebacks = tracebacks

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; never raises."""
        try:
            if self._tracebacks:
                text = visible_lines(self.format(record))
            else:
                text = visible(f"{record.name}: {record.getMessage()}{_cause(record)}")
            # Looked up now: the stream may have been exchanged since this was made.
            print(text, file=sys.stderr)
        except Exception:  # noqa: BLE001 - logging must not end what it tells of
            self.handleError(record)


def _cause(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    return f" ({type(error).__name__}: {error})" if error is not None else ""
