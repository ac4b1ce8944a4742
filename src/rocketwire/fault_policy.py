"""Every number of the fault policy, as one frozen value.

What the numbers mean to a broker is decided by ``core/faults/table.py`` and its neighbours; here they
are only named, given their defaults and checked. The cap of a single attempt is not among them:
it is the producer's ``attempt_timeout``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Literal, TypeAlias, get_args

from rocketwire.errors import ConfigError

Mode: TypeAlias = Literal["adaptive", "java4", "java5", "off"]

#: Latency from which a row counts, and how long the broker is then left out; in seconds.
JAVA4_TABLE: Final = (
    (0.05, 0.0),
    (0.1, 0.0),
    (0.55, 30.0),
    (1.0, 60.0),
    (2.0, 120.0),
    (3.0, 180.0),
    (15.0, 600.0),
)
JAVA5_TABLE: Final = (
    (0.05, 0.0),
    (0.1, 0.0),
    (0.55, 2.0),
    (1.8, 5.0),
    (3.0, 6.0),
    (5.0, 10.0),
    (15.0, 30.0),
)

_AT_LEAST_ONE: Final = frozenset(
    {"relative", "pause_relative", "suspect_relative", "backoff", "probe_growth", "clear_factor"}
)
_FRACTIONS: Final = frozenset({"smoothing", "lone_weight", "probe_jitter", "max_slow_share"})
_MAY_BE_ZERO: Final = frozenset({"probe_jitter", "max_slow_share", "clear_after"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPolicy:
    """How a client judges its brokers. Times are seconds.

    Without arguments it is the adaptive policy: slow is what is slow *compared with the others*,
    isolation is in proportion, return is by proof. ``java4()``, ``java5()`` and ``off()`` are the
    alternatives; in those the numbers of the adaptive rules have no effect.

    Args:
        mode: which rules apply; use the class methods rather than this.
        bytes_per_second: the pace at which big requests are forgiven their time.
        expected: seconds by broker name that an answer takes because the broker is far away.
        smoothing: weight of the newest answer in a broker's smoothed latency.
        relative: an answer is slow above this many times the typical latency of the others ...
        floor: ... and when it is also this much above it.
        min_samples: answers that another broker must have given before one is called slow.
        pause_relative: a pause is our own if all who owe an answer are overdue by this factor ...
        pause_floor: ... and by this time at least.
        lone_weight: a slow answer is a lone pause if later requests to the broker were answered
            well and it is not slow on the whole, by a mean in which one answer has this weight.
        slow_factor: isolation for slowness, as a multiple of the latency seen.
        failure_isolation: isolation for a failure.
        backoff: a verdict before the record is clear multiplies the last isolation by this.
        max_isolation: the longest isolation.
        max_busy_isolation: the longest isolation of a broker that only says that it is busy.
        clear_after_sends: good sends after which the record may clear.
        clear_after: time without a verdict after which the record may clear.
        clear_factor: the same, as a multiple of the last isolation; the longer of both counts.
        suspect_relative: a broker is suspect when its oldest request is older than this many
            times the typical latency ...
        suspect_floor: ... and older than this.
        probe_timeout: how long a probe may take.
        probe_interval: wait between probes at first.
        probe_steady: for how long that wait does not grow.
        probe_growth: by which factor it grows then.
        probe_max_interval: up to which wait.
        probe_jitter: part by which every wait is lengthened or shortened at random.
        trial_interval: how often a message is let through although probes are slow.
        trial_sends: good messages in a row that end a trial.
        max_slow_share: part of the brokers that slowness alone may isolate.
        steady_after: a broker slow for this long without failing is logged, once.
        window: answers over which the quantiles in ``health()`` are taken.
        latency_table: Java's rows (latency, isolation), in rising order.
        failure_latency: the latency as which Java counts a failure.
        detector: whether ``java5`` probes brokers that can't be reached.

    >>> FaultPolicy(floor=0.05).floor
    0.05
    >>> FaultPolicy.java4().latency_table[2]
    (0.55, 30.0)
    """

    mode: Mode = "adaptive"
    bytes_per_second: float = 10_000_000.0
    expected: Mapping[str, float] = field(default_factory=dict, hash=False)
    smoothing: float = 0.1
    relative: float = 4.0
    floor: float = 0.02
    min_samples: int = 5
    pause_relative: float = 4.0
    pause_floor: float = 0.02
    lone_weight: float = 0.02
    slow_factor: float = 4.0
    failure_isolation: float = 0.5
    backoff: float = 2.0
    max_isolation: float = 30.0
    max_busy_isolation: float = 10.0
    clear_after_sends: int = 20
    clear_after: float = 10.0
    clear_factor: float = 2.0
    suspect_relative: float = 10.0
    suspect_floor: float = 0.1
    probe_timeout: float = 0.5
    probe_interval: float = 1.0
    probe_steady: float = 20.0
    probe_growth: float = 1.5
    probe_max_interval: float = 10.0
    probe_jitter: float = 0.5
    trial_interval: float = 30.0
    trial_sends: int = 2
    max_slow_share: float = 0.5
    steady_after: float = 60.0
    window: int = 256
    latency_table: tuple[tuple[float, float], ...] = ()
    failure_latency: float = 30.0
    detector: bool = False

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            choices = ", ".join(get_args(Mode))
            raise ConfigError(f"fault policy: mode is {self.mode!r}; it is one of {choices}")
        for item in fields(self):
            value = getattr(self, item.name)
            if item.type in ("float", "int"):
                _check_number(item.name, value, whole=item.type == "int")
        if not isinstance(self.detector, bool):
            raise ConfigError(f"fault policy: detector is {self.detector!r}; give True or False")
        object.__setattr__(self, "expected", _checked_expected(self.expected))
        object.__setattr__(self, "latency_table", _checked_table(self.latency_table))
        if self.mode in ("java4", "java5") and not self.latency_table:
            raise ConfigError(
                f"fault policy: latency_table is empty; mode {self.mode!r} needs rows of "
                f"(latency, isolation), FaultPolicy.{self.mode}() has Java's"
            )

    @classmethod
    def java4(cls, latency_table: Sequence[tuple[float, float]] = JAVA4_TABLE) -> FaultPolicy:
        """The tables and rules of Java's 4.x client with its switch on, without its bugs.

        Args:
            latency_table: rows of (latency from which it counts, how long it is left out), in
                seconds, as Java's ``setLatencyMax`` and ``setNotAvailableDuration``.
        """
        return cls(mode="java4", latency_table=tuple(latency_table), failure_latency=30.0)

    @classmethod
    def java5(
        cls,
        detector: bool = False,  # noqa: FBT001, FBT002  one flag, named like Java's
        latency_table: Sequence[tuple[float, float]] = JAVA5_TABLE,
    ) -> FaultPolicy:
        """The tables and rules of Java's client since 5.1.4 with its switch on, without its bugs.

        Args:
            detector: probe brokers that can't be reached, as Java does with
                ``startDetectorEnable``.
            latency_table: as for ``java4``.
        """
        return cls(
            mode="java5",
            latency_table=tuple(latency_table),
            failure_latency=10.0,
            detector=detector,
            # Java asks every 2 s from a timer that ticks every 3 s.
            probe_interval=3.0,
            probe_timeout=0.2,
        )

    @classmethod
    def off(cls) -> FaultPolicy:
        """Nobody is ever isolated; a retry still avoids the broker that failed."""
        return cls(mode="off")

    @classmethod
    def by_name(cls) -> dict[str, Callable[[], FaultPolicy]]:
        """What makes the policy of each name."""
        return {
            "default": cls,
            "java4": cls.java4,
            "java5": cls.java5,
            "java5-detector": lambda: cls.java5(detector=True),
            "off": cls.off,
        }

    @classmethod
    def named(cls, name: str) -> FaultPolicy:
        """The policy of a name, for settings that are text.

        Args:
            name: ``default``, ``java4``, ``java5``, ``java5-detector`` or ``off``.
        """
        known = cls.by_name()
        plain = str(name).strip().lower()
        # Words of earlier versions for the default.
        make = known.get("default" if plain in {"on", "adaptive"} else plain)
        if make is None:
            raise ConfigError(
                f"{name!r} is no fault policy: {', '.join(known)}, or a FaultPolicy in code"
            )
        return make()

    @property
    def probes(self) -> bool:
        """Whether brokers return by probes, so that a background has something to do."""
        return self.mode == "adaptive" or (self.mode == "java5" and self.detector)


def _check_number(name: str, value: object, *, whole: bool) -> None:
    kind = "a whole number" if whole else "a number"
    valid_type = isinstance(value, int) if whole else isinstance(value, (int, float))
    if not valid_type or isinstance(value, bool):
        raise ConfigError(f"fault policy: {name} is {value!r}; give {kind}")
    assert isinstance(value, (int, float))
    if not math.isfinite(value):
        raise ConfigError(f"fault policy: {name} is {value!r}; give a finite number")
    if name in _AT_LEAST_ONE and value < 1:
        raise ConfigError(f"fault policy: {name} is {value!r}; a factor below 1 makes no sense")
    if name in _FRACTIONS and not 0 <= value <= 1:
        raise ConfigError(f"fault policy: {name} is {value!r}; give a part between 0 and 1")
    if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
        raise ConfigError(f"fault policy: {name} is {value!r}; give a number above 0")


def _checked_expected(expected: object) -> dict[str, float]:
    if not isinstance(expected, Mapping):
        raise ConfigError(
            f"fault policy: expected is {expected!r}; give seconds by broker name, "
            "e.g. {'broker-far': 0.04}"
        )
    for broker, seconds in expected.items():
        if not isinstance(broker, str):
            raise ConfigError(f"fault policy: expected names {broker!r}; a broker's name is a str")
        number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if not number or not math.isfinite(seconds) or seconds < 0:
            raise ConfigError(
                f"fault policy: expected[{broker!r}] is {seconds!r}; give seconds, 0 or more"
            )
    return dict(expected)


def _checked_table(table: object) -> tuple[tuple[float, float], ...]:
    try:
        rows = tuple((float(a), float(b)) for a, b in table)  # type: ignore[attr-defined]  # checked by trying
    except (TypeError, ValueError):
        raise ConfigError(
            f"fault policy: latency_table is {table!r}; give rows of (latency, isolation)"
        ) from None
    numbers = [number for row in rows for number in row]
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise ConfigError("fault policy: latency_table has a number that is not finite and >= 0")
    latencies = [row[0] for row in rows]
    if latencies != sorted(set(latencies)):
        raise ConfigError("fault policy: latency_table must rise from row to row")
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHealth:
    """What the fault table holds of one broker, at one moment.

    ``since`` and ``until`` are on the client's monotonic clock; ``until`` is None unless the
    broker is isolated. ``why`` is a sentence, empty while all is well. Latencies are seconds as
    they were measured, before any allowance; the quantiles are over the most recent answers.
    ``record`` counts the verdicts that are not yet forgiven.
    """

    broker: str
    state: Literal["usable", "isolated", "trial", "suspect"]
    since: float
    until: float | None
    why: str
    last_latency: float | None
    smoothed: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    in_flight: int
    failures: int
    record: int
