"""Draws the diagrams of the documentation: boxes and arrows, in light and dark, no network needed.

python tools/draw_diagrams.py writes docs/images/*.svg anew.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent.parent / "docs" / "images"
LINE = 17
STYLE = """
.d { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; }
.d text { fill: #1f2328; text-anchor: middle; }
.d .name { font-weight: 600; }
.d .note { fill: #57606a; font-size: 12px; }
.d rect { fill: #f6f8fa; stroke: #8c959f; rx: 8px; }
.d .good rect { fill: #dafbe1; stroke: #1a7f37; }
.d .bad rect { fill: #ffebe9; stroke: #cf222e; }
.d .trial rect { fill: #fff8c5; stroke: #9a6700; }
.d path { fill: none; stroke: #57606a; stroke-width: 1.5; }
.d .head { fill: #57606a; stroke: none; }
.d .weak { stroke-dasharray: 5 4; }
@media (prefers-color-scheme: dark) {
.d text { fill: #f0f6fc; } .d .note { fill: #9198a1; }
.d rect { fill: #161b22; stroke: #6e7681; }
.d .good rect { fill: #12261e; stroke: #3fb950; }
.d .bad rect { fill: #25171c; stroke: #f85149; }
.d .trial rect { fill: #272115; stroke: #d29922; }
.d path { stroke: #9198a1; } .d .head { fill: #9198a1; }
}
"""


class Box(NamedTuple):
    """A box by its middle; the first line is its name."""

    x: float
    y: float
    width: float
    lines: tuple[str, ...]
    kind: str = ""

    def svg(self) -> str:
        """As SVG."""
        height = LINE * len(self.lines) + 16
        top = self.y - height / 2
        lines = (
            f'<text class="{"note" if number else "name"}" x="{self.x}" '
            f'y="{top + 21 + number * LINE}">{escape(line)}</text>'
            for number, line in enumerate(self.lines)
        )
        return (
            f'<g class="{self.kind}"><rect x="{self.x - self.width / 2}" y="{top}" '
            f'width="{self.width}" height="{height}"/>{"".join(lines)}</g>'
        )


class Arrow(NamedTuple):
    """A path whose last point has the head, with a note beside it."""

    path: str
    note: tuple[str, float, float] = ("", 0, 0)
    weak: bool = False

    def svg(self) -> str:
        """As SVG."""
        text, x, y = self.note
        note = f'<text class="note" x="{x}" y="{y}">{escape(text)}</text>' if text else ""
        kind = ' class="weak"' if self.weak else ""
        return f'<path{kind} marker-end="url(#head)" d="{self.path}"/>{note}'


def draw(title: str, width: int, height: int, *parts: Box | Arrow) -> str:
    """A whole picture."""
    head = (
        '<defs><marker id="head" markerWidth="9" markerHeight="9" refX="8" refY="4.5" '
        'orient="auto"><path class="head" d="M0 0L9 4.5L0 9z"/></marker></defs>'
    )
    body = "".join(part.svg() for part in parts)
    return (
        f'<svg class="d" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'role="img" width="100%"><title>{escape(title)}</title><style>{STYLE}</style>'
        f"{head}{body}</svg>\n"
    )


def sequence(title: str, actors: tuple[str, ...], steps: tuple[tuple[int, int, str], ...]) -> str:
    """Who tells whom, from above: steps are (from, to, what); from 1 to 1 is a note."""
    width, row = 880, 38
    at = [width * (2 * number + 1) / (2 * len(actors)) for number in range(len(actors))]
    bottom = 60 + row * len(steps) + 10
    parts: list[Box | Arrow] = [
        Box(x, 30, 170, (name,)) for x, name in zip(at, actors, strict=True)
    ]
    parts += [Arrow(f"M{x} 47V{bottom}", weak=True) for x in at]
    for number, (start, end, what) in enumerate(steps):
        y = 80 + row * number
        if start == end:
            parts.append(Box(at[start], y - 4, 30 + 6.6 * len(what), (what,), "trial"))
        else:
            side = 4 if end > start else -4
            # Between two lines, so that none goes through the words.
            middle = at[start] + (at[1] - at[0]) / 2 * (1 if end > start else -1)
            parts.append(Arrow(f"M{at[start]} {y}H{at[end] - side}", (what, middle, y - 6)))
    return draw(title, width, bottom + 10, *parts)


PICTURES = {
    "life-of-a-producer": sequence(
        "What a producer says to whom, from its start to its shutdown",
        ("your thread", "background", "name server", "brokers"),
        (
            (0, 0, "start(): no network"),
            (0, 2, "first send: where is the topic?"),
            (2, 0, "its route, or that of TBW102"),
            (0, 3, "send"),
            (3, 0, "stored: queue and offset"),
            (1, 3, "heartbeat, every 30 s"),
            (1, 2, "routes, every 30 s"),
            (0, 3, "send"),
            (3, 0, "nothing: slow, or dead"),
            (0, 3, "the retry, to another broker"),
            (1, 3, "probe of the one left out"),
            (0, 0, "shutdown(): waits"),
            (0, 3, "goodbye"),
        ),
    ),
    "order-end-to-end": draw(
        "A key from the producer through its queue to one worker",
        880,
        170,
        Box(95, 60, 180, ("producer", "one key,", "one message in flight"), "good"),
        Box(315, 60, 170, ("queue on a broker", "stored in order")),
        Box(525, 60, 170, ("lock", "whose is the queue?")),
        Box(770, 60, 200, ("one worker at a time", "one message", "after another"), "good"),
        Arrow("M185 60H228", ("sends", 207, 50)),
        Arrow("M400 60H438"),
        Arrow("M610 60H668", ("gives", 638, 50)),
        Arrow(
            "M770 96V140H315V88",
            ("offset: the first message that is not handled", 540, 160),
            weak=True,
        ),
    ),
    "fault-states": draw(
        "The three states of a broker",
        880,
        250,
        Box(120, 60, 180, ("usable", "gets its share"), "good"),
        Box(760, 60, 200, ("isolated", "gets nothing, is probed"), "bad"),
        Box(440, 190, 210, ("trial", "one message at a time"), "trial"),
        Arrow("M210 50H658", ("slow compared with the others, or failed", 435, 40)),
        Arrow("M760 86V178H547", ("its time is over, and a probe is good", 668, 205)),
        Arrow("M335 190H120V88", ("two good messages in a row", 190, 212)),
        Arrow("M440 164V120H700V88", ("a bad message: out for twice as long", 565, 112)),
    ),
    "drivers": draw(
        "One set of operations, three drivers",
        880,
        220,
        Box(150, 110, 240, ("core: operations", "send, lookup, pull, upkeep")),
        Box(690, 40, 330, ("sync/driver", "blocking sockets, the caller's thread"), "good"),
        Box(690, 110, 330, ("aio/driver", "one connection for each broker"), "good"),
        Box(690, 180, 330, ("testing/simulation", "virtual clock, scripted brokers"), "good"),
        Arrow("M270 100L523 42", ("Invoke, Wait, Sleep", 385, 55)),
        Arrow("M270 110H523"),
        Arrow("M270 120L523 178"),
    ),
}


def main() -> None:
    """Write all pictures."""
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(picture)


if __name__ == "__main__":
    main()
