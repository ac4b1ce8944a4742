"""Which policies a lab compares: the named ones, the recorded one, and a grid of the default's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Final

from rocketwire.errors import ConfigError
from rocketwire.fault_policy import FaultPolicy

NAMED: Final = ("default", "java4", "java5", "off")
#: The default's main numbers, and the values that are tried beside it.
GRID: Final[Mapping[str, tuple[float, ...]]] = {
    "relative": (2.0, 8.0),
    "floor": (0.01, 0.05),
    "slow_factor": (2.0, 8.0),
    "probe_interval": (0.5, 3.0),
}
#: More would take days, and would be told apart by chance.
MOST: Final = 64


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy with a name; ``changed`` are the numbers in which it differs from the default."""

    name: str
    policy: FaultPolicy
    changed: Mapping[str, float]

    @property
    def is_of_grid(self) -> bool:
        """Whether it is the default with other numbers, or the default itself."""
        return self.policy.mode == "adaptive"


def candidates(
    policies: Iterable[str | FaultPolicy | tuple[str, FaultPolicy]] = NAMED,
    grid: Mapping[str, Sequence[float]] | None = None,
    *,
    is_full: bool = False,
) -> list[Candidate]:
    """The policies to compare, each once.

    Args:
        policies: names, policies, or pairs of both.
        grid: values of the default's numbers; each is tried alone, unless ``is_full``. None means
            ``GRID``, an empty mapping none.
        is_full: try all combinations.

    Raises:
        ConfigError: a name or a number is wrong, or they are too many.
    """
    found = [_named(policy) for policy in policies]
    numbers = {spec.name for spec in fields(FaultPolicy) if spec.type in ("float", "int")}
    for name in grid or ():
        if name not in numbers:
            raise ConfigError(
                f"grid: {name!r} is no number of FaultPolicy; take one of {', '.join(GRID)}"
            )
    for values in _points(GRID if grid is None else grid, is_full=is_full):
        changed = dict(values.items())
        found.append(Candidate(_words(changed), replace(FaultPolicy(), **_typed(changed)), changed))
    unique = list({one.policy: one for one in reversed(found)}.values())[::-1]
    if len(unique) > MOST:
        raise ConfigError(f"grid: {len(unique)} policies are too many; give {MOST} at most")
    if not unique:
        raise ConfigError(f"policies: there is nothing to compare; name some of {', '.join(NAMED)}")
    return unique


def _named(given: str | FaultPolicy | tuple[str, FaultPolicy]) -> Candidate:
    if isinstance(given, tuple):
        return Candidate(given[0], given[1], {})
    if isinstance(given, FaultPolicy):
        return Candidate(describe(given), given, {})
    return Candidate(given, FaultPolicy.named(given), {})


def _points(grid: Mapping[str, Sequence[float]], *, is_full: bool) -> list[dict[str, float]]:
    if is_full and grid:
        return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    return [{name: value} for name, values in grid.items() for value in values]


def _typed(changed: Mapping[str, float]) -> dict[str, Any]:
    whole = {spec.name for spec in fields(FaultPolicy) if spec.type == "int"}
    return {name: int(value) if name in whole else value for name, value in changed.items()}


def _words(changed: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in changed.items()) or "default"


def describe(policy: FaultPolicy) -> str:
    """A policy in a few words: its name, or what differs from the default."""
    for name in (*NAMED, "java5-detector"):
        if policy == FaultPolicy.named(name):
            return name
    own = FaultPolicy() if policy.mode == "adaptive" else FaultPolicy.named(policy.mode)
    changed = {
        spec.name: getattr(policy, spec.name)
        for spec in fields(policy)
        if getattr(policy, spec.name) != getattr(own, spec.name)
        and isinstance(getattr(policy, spec.name), int | float)
    }
    return _words(changed) if policy.mode == "adaptive" else f"{policy.mode} with changes"
