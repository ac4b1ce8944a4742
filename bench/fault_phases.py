"""What a run of sends says about the time before, during and after a fault.

Pure: every client's sends are judged by the same rules, whatever language made them. A send is three
numbers: seconds from the start of the run to its end, seconds it took, and whether it was stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
