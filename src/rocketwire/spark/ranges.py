"""How the messages of a batch are cut into tasks.

A task on a warm Python worker costs as much as reading some 20,000 rows, so small ranges are
joined; a queue is only split when asked, because rows of one queue then lose their order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rocketwire.message import MessageQueue

SMALL: Final = 20_000


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """Messages of one queue, from ``start`` up to but not including ``end``."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many offsets it spans."""
        return self.end - self.start

    def split(self, pieces: int) -> list[QueueRange]:
        """About equal parts, none of them empty."""
        pieces = max(1, min(pieces, self.rows))
        edges = [self.start + self.rows * number // pieces for number in range(pieces + 1)]
        return [QueueRange(self.queue, low, high) for low, high in itertools.pairwise(edges)]


def plan_tasks(
    ranges: Iterable[QueueRange],
    *,
    join_small: bool = True,
    max_records: int | None = None,
    min_partitions: int | None = None,
) -> list[tuple[QueueRange, ...]]:
    """The ranges of each task.

    Args:
        ranges: at most one for each queue; empty ones are left out.
        join_small: put ranges under 20,000 rows together, as far as ``min_partitions`` allows.
        max_records: split ranges above this.
        min_partitions: split the largest ranges until there are about this many.
    """
    wanted = sorted(part for part in ranges if part.rows > 0)
    if max_records is not None:
        wanted = [piece for part in wanted for piece in part.split(-(-part.rows // max_records))]
    if min_partitions is not None and len(wanted) < min_partitions:
        wanted = _split_in_proportion(wanted, min_partitions)
    if not join_small:
        return [(part,) for part in wanted]
    return _join(wanted, min_partitions or 1, max_records)


def _split_in_proportion(ranges: list[QueueRange], count: int) -> list[QueueRange]:
    total = sum(part.rows for part in ranges)
    return [piece for part in ranges for piece in part.split(-(-part.rows * count // total))]


def _join(
    ranges: list[QueueRange], least: int, max_records: int | None
) -> list[tuple[QueueRange, ...]]:
    tasks: list[tuple[QueueRange, ...]] = [(part,) for part in ranges if part.rows >= SMALL]
    small = [part for part in ranges if part.rows < SMALL]
    limit = min(SMALL, max_records or SMALL)
    current: list[QueueRange] = []
    for number, part in enumerate(small):
        rows = sum(other.rows for other in current)
        # From here on each range must be a task of its own, or there would be too few.
        is_needed = len(tasks) + 1 + len(small) - number <= least
        if current and (rows + part.rows > limit or is_needed):
            tasks.append(tuple(current))
            current = []
        current.append(part)
    return [*tasks, tuple(current)] if current else tasks
