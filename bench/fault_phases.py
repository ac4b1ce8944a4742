"""What a run of sends says about the time before, during and after a fault.

Pure: every client's sends are judged by the same rules, whatever language made them. A send is three
numbers: seconds from the start of the run to its end, seconds it took, and whether it was stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MODES = {"1": "1 thread", "4": "4 threads", "64": "64 in flight"}
"""Ways of sending: so many threads that wait for each answer, or one with so many under way."""

KEPT = {"1": 0.9, "4": 0.9, "64": 0.8}
"""The least share of the rate before the fault that is kept during it."""
LONGEST_GAP = 1.3
BACK_WITHIN = 3.0
BACK_FACTOR = 1.2
"""Of the last isolation, where a probe can't see the fault."""


@dataclass(frozen=True, slots=True)
class Send:
    """One send, or one batch."""

    ended: float
    took: float
    good: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """Rates are good sends a second."""

    rate_before: float
    rate_during: float
    failures: int
    longest_gap: float

    @property
    def kept(self) -> float:
        """The rate during the fault against the rate before it."""
        return self.rate_during / self.rate_before if self.rate_before else 0.0


@dataclass(frozen=True, slots=True)
class Return:
    """How a client came back to the broker after healing, where it tells.

    Attributes:
        after: Seconds from healing to the first message stored there; None if there was none.
        isolation: Seconds of the last isolation that was in force at healing, or None.
    """

    after: float | None
    isolation: float | None


@dataclass(frozen=True, slots=True)
class Check:
    """One of the promises, and whether it was kept in a run."""

    promise: str
    measured: str
    held: bool


def judge(sends: Sequence[Send], warm: float, begun: float, ended: float) -> Verdict:
    """Judge a run whose fault lasted from ``begun`` to ``ended``; what ends before ``warm`` is left out.

    Failures are counted by their end, so a send that began in the fault and failed after it counts, too.
    The longest gap is between two good sends, or the fault's own edges where there are none.
    """
    if not warm < begun < ended:
        raise ValueError(f"warm {warm}, begun {begun}, ended {ended} are not in this order")
    good = sorted(send.ended for send in sends if send.good)
    during = [moment for moment in good if begun <= moment < ended]
    return Verdict(
        rate_before=sum(warm <= moment < begun for moment in good) / (begun - warm),
        rate_during=len(during) / (ended - begun),
        failures=sum(not send.good and send.ended >= begun for send in sends),
        longest_gap=max(b - a for a, b in zip([begun, *during], [*during, ended], strict=True)),
    )


def checks(mode: str, verdict: Verdict, back: Return | None) -> tuple[Check, ...]:
    """Every promise for a way of sending; the last one only where the client tells of its return."""
    found = [
        Check(f"kept >= {KEPT[mode]}", f"{verdict.kept:.2f}", verdict.kept >= KEPT[mode]),
        Check(
            f"gap <= {LONGEST_GAP} s",
            f"{verdict.longest_gap:.2f} s",
            verdict.longest_gap <= LONGEST_GAP,
        ),
        Check("no failed send", str(verdict.failures), verdict.failures == 0),
    ]
    if back is not None:
        found.append(_check_return(back))
    return tuple(found)


def _check_return(back: Return) -> Check:
    limit = max(BACK_WITHIN, BACK_FACTOR * (back.isolation or 0.0))
    measured = "never" if back.after is None else f"{back.after:.2f} s"
    return Check(f"back <= {limit:.1f} s", measured, back.after is not None and back.after <= limit)
