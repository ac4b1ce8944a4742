"""Durations as they stand in errors, warnings and the words of the fault table.

Each of the three has its readers: ``span`` tells what a caller waited, to a tenth of a second; ``in_ms`` compares
brokers, where a tenth of a millisecond may matter; ``brief`` counts down, where nothing below a second does.
Pages have their own (``pages/words.py``), which are rounded for columns.
"""

from __future__ import annotations


def span(seconds: float) -> str:
    """A time in words: ``1.0 s``, ``0.3 s``, ``12 ms``; a clock that was put back counts as none."""
    seconds = max(seconds, 0.0)
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"


def in_ms(seconds: float) -> str:
    """A latency in words: ``302 ms``, ``1.4 ms``."""
    ms = seconds * 1000
    return f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def brief(seconds: float) -> str:
    """A span of time in words: ``4 s``, ``0.4 s``."""
    return f"{seconds:.0f} s" if seconds >= 2 else f"{seconds:.1f} s"
