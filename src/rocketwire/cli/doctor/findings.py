"""What the doctor finds: what was seen, what it means, and what to do about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Verdict(enum.Enum):
    """How a check came out."""

    WELL = "well"
    REMARK = "remark"
    ILL = "ill"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: what was looked at.
        verdict: how it came out.
        saw: what was seen.
        means: what that means; empty where all is well.
        remedy: what to do, one thing per line.
    """

    check: str
    verdict: Verdict
    saw: str
    means: str = ""
    remedy: tuple[str, ...] = ()

    def described(self) -> dict[str, object]:
        """For JSON."""
        return {
            "check": self.check,
            "verdict": self.verdict.value,
            "saw": self.saw,
            "means": self.means,
            "remedy": list(self.remedy),
        }


@dataclass(slots=True)
class Report:
    """All findings so far."""

    findings: list[Finding] = field(default_factory=list)

    def well(self, check: str, saw: str) -> None:
        """All is well."""
        self.findings.append(Finding(check, Verdict.WELL, saw))

    def remark(self, check: str, saw: str, means: str, *remedy: str) -> None:
        """It works, but one should know."""
        self.findings.append(Finding(check, Verdict.REMARK, saw, means, remedy))

    def ill(self, check: str, saw: str, means: str, *remedy: str) -> None:
        """It does not work."""
        self.findings.append(Finding(check, Verdict.ILL, saw, means, remedy))

    def skipped(self, check: str, why: str) -> None:
        """It could not be looked at, because of something found before."""
        self.findings.append(Finding(check, Verdict.SKIPPED, why))

    @property
    def is_well(self) -> bool:
        """Whether nothing is ill."""
        return all(finding.verdict is not Verdict.ILL for finding in self.findings)
