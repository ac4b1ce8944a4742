"""What one run of one path gives, and how runs are timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Sample:
    """One run: so many messages, in so many seconds, for so much CPU time of the client.

    ``latencies`` are p50 and p99 in seconds, where one message waits for the one before it.
    """

    messages: int
    seconds: float
    cpu: float
    p50: float | None = None
    p99: float | None = None

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def cpu_each(self) -> float:
        """Seconds of CPU per message."""
        return self.cpu / self.messages


class Stopwatch:
    """Wall and CPU time of a block; CPU counts all threads of this process."""

    seconds = 0.0
    cpu = 0.0

    def __enter__(self) -> Self:
        self._cpu, self._began = time.process_time(), time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu = time.process_time() - self._cpu

    def sample(self, messages: int, latencies: Sequence[float] = ()) -> Sample:
        """What was measured."""
        if not latencies:
            return Sample(messages, self.seconds, self.cpu)
        ordered = sorted(latencies)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        return Sample(messages, self.seconds, self.cpu, ordered[len(ordered) // 2], p99)
