"""Faults on demand: what a server does wrong on purpose, to which requests, and how often.

This module decides; ``server`` and ``connection`` carry it out. Chance comes from one seeded
generator per server, so that a run with the same requests goes wrong in the same way.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from rocketwire.embedded.journal import SEND_CODES
from rocketwire.errors import ConfigError


class FaultKind(enum.Enum):
    """What goes wrong."""

    #: The request waits before it is handled.
    SLOW = "slow"
    #: The request waits until the server is healed, as when a process is stopped.
    HANG = "hang"
    #: The request is answered "system busy" and not handled.
    BUSY = "busy"
    #: The request is answered with a code of your choice and not handled.
    REJECT = "reject"
    #: The connection is closed instead of handling the request.
    DROP = "drop"
    #: The request is handled; then the connection is closed instead of answering.
    DROP_REPLY = "drop_reply"
    #: The request is handled and never answered.
    LOSE_REPLY = "lose_reply"
    #: The request is handled at once and answered late.
    LATE_REPLY = "late_reply"
    #: The request is handled; half of the answer is sent, and the connection closed.
    HALF_REPLY = "half_reply"
    #: The request is handled; the answer bears another request's number.
    WRONG_REPLY = "wrong_reply"
    #: The request is handled; bytes that are no answer are sent.
    GARBAGE_REPLY = "garbage_reply"


#: Kinds that act on the request; the others act on its answer.
BEFORE: Final = frozenset(
    {FaultKind.SLOW, FaultKind.HANG, FaultKind.BUSY, FaultKind.REJECT, FaultKind.DROP}
)


@dataclass(slots=True, eq=False)
class Fault:
    """One thing that goes wrong, and for which clients.

    Attributes:
        kind: what happens.
        seconds: how long, for the kinds that wait.
        code: only requests with this code; None for every code.
        topic: only requests that name this topic.
        sends_only: only requests that carry messages.
        remaining: for the next so many requests; None until it is healed.
        probability: of each request that fits.
        response_code: what a rejection says.
        jitter: seconds that are added at random, at most.
    """

    kind: FaultKind
    seconds: float = 0.0
    code: int | None = None
    topic: str | None = None
    sends_only: bool = False
    remaining: int | None = None
    probability: float = 1.0
    response_code: int = 1
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if self.seconds < 0 or self.jitter < 0:
            raise ConfigError(f"seconds is {self.seconds}: a fault lasts 0 seconds or more")
        if not 0 < self.probability <= 1:
            raise ConfigError(f"probability is {self.probability}: give more than 0, at most 1")
        if self.remaining is not None and self.remaining < 1:
            raise ConfigError(f"next is {self.remaining}: give 1 or more, or None for no end")

    def fits(self, code: int, topic: str | None) -> bool:
        """Whether a request is one of those meant."""
        return (
            (self.code is None or self.code == code)
            and (self.topic is None or self.topic == topic)
            and (not self.sends_only or code in SEND_CODES)
        )


class FaultPlan:
    """The faults of one server, in the order in which they were made."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._faults: list[Fault] = []

    @property
    def active(self) -> bool:
        """Whether there is any fault; asked for every request."""
        return bool(self._faults)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Those in force."""
        return tuple(self._faults)

    def add(self, fault: Fault) -> Fault:
        """Put one into force."""
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """End one; it may have ended by itself."""
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self) -> None:
        """End all."""
        self._faults.clear()

    def strike(self, code: int, topic: str | None) -> list[Fault]:
        """The faults that a request meets. Each counts it."""
        struck: list[Fault] = []
        for fault in tuple(self._faults):
            if not fault.fits(code, topic):
                continue
            if fault.probability < 1 and self._random.random() >= fault.probability:
                continue
            if fault.remaining is not None:
                fault.remaining -= 1
                if fault.remaining == 0:
                    self.remove(fault)
            struck.append(fault)
        return struck

    def delay(self, faults: Collection[Fault]) -> float:
        """How long several of them make a request wait together."""
        return sum(
            f.seconds + (self._random.random() * f.jitter if f.jitter else 0.0) for f in faults
        )
