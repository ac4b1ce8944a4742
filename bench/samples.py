"""What one run of one path gives, and how runs are timed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Sample:
    """One run: so many messages, in so many seconds, for so much CPU time of the client.

    ``p50`` and ``p99`` are seconds, where one message waits for the one before it. ``making`` is
    what of the CPU time went into making the messages, measured apart. ``pace`` tells how much
    slower the machine was than usual (``reference.py``), ``server`` what share of one core a broker took.
    """

    messages: int
    seconds: float
    cpu: float
    p50: float | None = None
    p99: float | None = None
    making: float = 0.0
    pace: float = 1.0
    server: float | None = None

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def cpu_each(self) -> float:
        """Seconds of CPU per message, as they were."""
        return self.cpu / self.messages

    @property
    def cost(self) -> float:
        """Seconds of CPU per message at the usual pace of the machine, making it counted."""
        return self.cpu_each / self.pace

    @property
    def sending_cost(self) -> float:
        """The same, making it not counted."""
        return (self.cpu - self.making) / self.messages / self.pace


def process_cpu(pid: int) -> float:
    """Seconds of CPU that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
