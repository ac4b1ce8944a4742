"""The main plot: each broker over time, its latency, its traffic, and when it was avoided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rocketwire.pages.drawing import (
    bar,
    box,
    label,
    latency_scale,
    level,
    panel,
    path,
    runs,
    svg,
    tick_row,
)
from rocketwire.pages.scales import LogAxis, TimeAxis, round_up
from rocketwire.pages.words import (
    THIN,
    Clock,
    latency,
    number,
    short_number,
    some,
    span,
    times,
)
from rocketwire.spark.delivery_report.findings import (
    Avoidance,
    Counts,
    Findings,
    Named,
    Stretch,
)


class Timeline:
    """Latency, traffic and isolation of each broker over time, one above the other."""

    def __init__(self, found: Findings, clock: Clock) -> None:
        self._found = found
        self._clock = clock
        buckets = int((found.end - found.begin) / found.width) + 1
        self._axis = TimeAxis(found.begin, buckets * found.width)
        self._buckets = buckets
        every = [counts for own in found.buckets.values() for counts in own.values()]
        self._latency = LogAxis.around(v for c in every for v in (c.p50, c.p99))
        self._most = round_up(max((c.attempts for c in every), default=1) / found.width)

    def draw(self) -> str:
        """All panels and the axis."""
        avoided = {item.broker: item for item in self._found.avoided}
        panels = [
            self._panel(broker, avoided.get(broker.name), is_first=index == 0)
            for index, broker in enumerate(self._found.brokers)
        ]
        return "".join(panels) + tick_row(self._axis.ticks(self._clock))

    def _panel(self, broker: Named, avoided: Avoidance | None, *, is_first: bool) -> str:
        rows = self._found.buckets.get(broker.name, {})
        own = [s for s in self._found.stretches if s.broker == broker.name]
        about = f"Latency of {broker.name} over time"
        tall = svg([*self._shade(own), *self._grid(), *self._curves(rows)], "draw", about)
        low = svg(self._traffic(rows), "draw")
        over = svg([*self._hits(rows), *self._flags(own)], "hits")
        plots = (
            f'<div class="plot tall">{tall}{latency_scale(self._latency)}'
            f"{self._ends(rows) if is_first else ''}</div>"
            f'<div class="plot low">{low}{self._traffic_scale(is_first=is_first)}</div>{over}'
        )
        return panel(broker.name, _notes(broker, avoided), plots)

    def _edges(self, bucket: int) -> tuple[float, float]:
        return bucket / self._buckets, (bucket + 1) / self._buckets

    def _shade(self, own: Sequence[Stretch]) -> Iterator[str]:
        for stretch in own:
            left, right = self._axis.place(stretch.begin), self._axis.place(stretch.end)
            yield box((left, max(right, left + 0.001)), (0, 1), "away")

    def _flags(self, own: Sequence[Stretch]) -> Iterator[str]:
        """A bar on top of each stretch, which says why."""
        for stretch in own:
            left, right = self._axis.place(stretch.begin), self._axis.place(stretch.end)
            clock = self._clock
            note = (
                f"left from {clock.time(stretch.begin)} to {clock.time(stretch.end)} "
                f"({span(stretch.end - stretch.begin)}), {times(stretch.periods)} by "
                f"{some(stretch.clients, 'producer')}: {stretch.reason}"
            )
            yield box((left, max(right, left + 0.003)), (0.965, 1), "flag", note)

    def _grid(self) -> Iterator[str]:
        for value in self._latency.ticks():
            yield level(self._latency.place(value))

    def _curves(self, rows: Mapping[int, Counts]) -> Iterator[str]:
        place = self._latency.place
        medians = [(b, rows[b].p50 if b in rows else None) for b in range(self._buckets)]
        for run in runs(medians):
            upper: list[tuple[float, float]] = []
            lower: list[tuple[float, float]] = []
            for bucket, median in run:
                left, right = self._edges(bucket)
                # The ends reach to the edges, so that a bucket alone can be seen, too.
                middle = [(left + right) / 2]
                xs = [left] * (bucket == run[0][0]) + middle + [right] * (bucket == run[-1][0])
                upper += [(x, place(rows[bucket].p99 or 0)) for x in xs]
                lower += [(x, place(median)) for x in xs]
            yield path([*upper, *reversed(lower)], "ribbon", is_closed=True)
            yield path(upper, "edge")
            yield path(lower, "median")

    def _traffic(self, rows: Mapping[int, Counts]) -> Iterator[str]:
        full = self._most * self._found.width
        good: list[str] = []
        bad: list[str] = []
        for bucket, counts in sorted(rows.items()):
            across = self._edges(bucket)
            middle = counts.acknowledged / full
            if counts.acknowledged:
                good.append(bar(across, (0, middle)))
            if counts.failures:
                # At least a line, so that one failure among thousands is seen.
                bad.append(bar(across, (middle, max(counts.attempts / full, middle + 0.06))))
        yield f'<path class="sent" d="{"".join(good)}"/>'
        yield f'<path class="failed" d="{"".join(bad)}"/>'

    def _hits(self, rows: Mapping[int, Counts]) -> Iterator[str]:
        for bucket, counts in sorted(rows.items()):
            yield box(self._edges(bucket), (0, 1), "hit", self._note(bucket, counts))

    def _note(self, bucket: int, counts: Counts) -> str:
        at = self._clock.time(self._found.begin + bucket * self._found.width)
        text = f"{at}\n{some(counts.attempts, 'send')}"
        if counts.failures:
            text += f", {number(counts.failures)} failed"
        if counts.p50 is not None:
            text += f"\nmedian {latency(counts.p50)}, 99 % {latency(counts.p99)}"
        return text

    def _traffic_scale(self, *, is_first: bool) -> str:
        end = '<span class="end lane">sends, failures</span>' if is_first else ""
        return label(f"{short_number(self._most)}/s", "y", bottom=0.86) + end

    def _ends(self, rows: Mapping[int, Counts]) -> str:
        """The names of the curves, at their ends."""
        known = [counts for _, counts in sorted(rows.items()) if counts.p50 is not None]
        if not known:
            return ""
        lower = self._latency.place(known[-1].p50 or 0)
        upper = max(self._latency.place(known[-1].p99 or 0), lower + 0.14)
        return label("99 %", "end", bottom=upper) + label("median", "end", bottom=lower)


def _notes(broker: Named, avoided: Avoidance | None) -> Iterator[str | tuple[str, str]]:
    counts = broker.counts
    yield f"{short_number(counts.attempts)} sends"
    yield f"median {latency(counts.p50)}"
    yield f"99{THIN}% {latency(counts.p99)}"
    if counts.failures:
        yield "bad", some(counts.failures, "failure")
    if avoided is not None:
        yield "warm", f"left {span(avoided.seconds)}"
