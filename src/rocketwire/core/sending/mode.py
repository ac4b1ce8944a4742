"""The three ways in which a caller waits for a send."""

from __future__ import annotations

import enum


class SendMode(enum.IntEnum):
    """How a send waits for its answer. Numbers, because other enums are slow keys."""

    BLOCKING = 0
    ASYNC = 1
    ONEWAY = 2
