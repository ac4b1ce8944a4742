"""What goes wrong in a simulated cluster, in words: ``slow:0.3@broker-7/10-40``."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketwire.errors import ConfigError

#: Each kind, and what its number means; None where it takes none.
KINDS: Final = {
    "slow": "seconds more for each answer",
    "hang": None,
    "refuse": None,
    "busy": None,
    "weak": "the part of its capacity that is left, from 0 to 1",
    "flap": "seconds for which it refuses and answers in turn",
}
_FORM: Final = re.compile(
    r"(?P<kind>[a-z]+)(:(?P<value>[0-9.]+))?@(?P<where>all|[0-9.]+%|broker-[0-9]+)"
    r"(/(?P<begin>[0-9.]+)-(?P<end>[0-9.]+))?"
)


@dataclass(frozen=True, slots=True)
class ClusterFault:
    """One fault: what, where, and from when to when (seconds from the beginning)."""

    kind: str
    value: float
    where: str
    begin: float
    end: float

    def kind_at(self, now: float) -> str:
        """What is wrong at a moment; a flapping broker refuses half of the time."""
        if self.kind != "flap":
            return self.kind
        return "refuse" if int((now - self.begin) / self.value) % 2 == 0 else ""

    def brokers(self, names: Sequence[str]) -> list[str]:
        """The brokers that it hits."""
        if self.where == "all":
            return list(names)
        if self.where.endswith("%"):
            count = math.ceil(float(self.where[:-1]) / 100 * len(names))
            return list(names[: max(1, count)])
        return [name for name in names if name == self.where]


def parse_fault(text: str, *, brokers: int, seconds: float) -> ClusterFault:
    """A fault from its words: ``KIND[:NUMBER]@WHERE[/BEGIN-END]``.

    Without a time it lasts from a sixth to two thirds of the whole.

    Args:
        text: the words; WHERE is ``broker-7``, ``all`` or ``10%``.
        brokers: how many there are, from broker-0 on.
        seconds: how long the simulation is.

    Raises:
        ConfigError: something in it makes no sense; the text says what.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None or match["kind"] not in KINDS:
        raise ConfigError(
            f"fault {text!r}: write KIND[:NUMBER]@WHERE[/BEGIN-END], such as slow:0.3@broker-7 or "
            f"refuse@10%/10-40; kinds are {', '.join(KINDS)}"
        )
    kind, where = match["kind"], match["where"]
    value = _value(text, kind, match["value"])
    begin = float(match["begin"]) if match["begin"] else seconds / 6
    end = float(match["end"]) if match["end"] else seconds * 2 / 3
    if not 0 <= begin < end:
        raise ConfigError(f"fault {text!r}: it ends before it begins")
    fault = ClusterFault(kind, value, where, begin, end)
    if not fault.brokers([f"broker-{number}" for number in range(brokers)]):
        raise ConfigError(
            f"fault {text!r}: there are brokers from broker-0 to broker-{brokers - 1}"
        )
    return fault


def _value(text: str, kind: str, given: str | None) -> float:
    meaning = KINDS[kind]
    if meaning is None:
        if given is not None:
            raise ConfigError(f"fault {text!r}: {kind} takes no number")
        return 0.0
    try:
        value = float(given or "")
    except ValueError:
        value = -1.0
    if value <= 0 or (kind == "weak" and value > 1):
        raise ConfigError(f"fault {text!r}: give {kind} a number, {meaning}")
    return value
