"""Metric families that are filled label by label; what has the same labels is added up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

#: Name, kind, help and labels of each metric.
Definition = tuple[str, str, str, tuple[str, ...]]


class Families:
    """The metrics of one scrape.

    Args:
        definitions: what may be set.
        limit: how many label combinations one metric may have; more are counted as left out.
    """

    def __init__(self, definitions: Sequence[Definition], limit: int | None = None) -> None:
        self._definitions: Final = {definition[0]: definition for definition in definitions}
        self._values: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
        self._limit = limit
        self.left_out = 0

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add to what these labels have."""
        values = self._values[name]
        if labels not in values and self._limit is not None and len(values) >= self._limit:
            self.left_out += 1
            return
        values[labels] = values.get(labels, 0.0) + value

    def metrics(self) -> Iterator[Metric]:
        """What was set."""
        for name, values in self._values.items():
            _, kind, text, labels = self._definitions[name]
            family: Any = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            # The library puts _total behind the names of counters by itself.
            made = family(name.removesuffix("_total"), text, labels=labels)
            for found, value in values.items():
                made.add_metric(found, value)
            yield made
