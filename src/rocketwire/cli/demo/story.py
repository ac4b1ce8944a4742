"""What happens in the demo, and when: the faults, and the words that go with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rocketwire.embedded import EmbeddedCluster

SLOW_BROKER: Final = "broker-b"
DYING_BROKER: Final = "broker-c"
SLOWNESS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Scene:
    """One part of the story.

    Attributes:
        title: in a few words.
        share: of the whole time.
        explanation: what to look at.
        command: what one types for the same.
        act: what is done to the cluster as it begins.
        ends: broker whose fault ends as it begins, if any.
        breaks: broker whose fault begins, and what the fault is called.
    """

    title: str
    share: float
    explanation: str
    command: str
    act: Callable[[EmbeddedCluster], None]
    ends: tuple[str, ...] = ()
    breaks: tuple[str, str] | None = None


def _nothing(cluster: EmbeddedCluster) -> None:
    pass


def _slow(cluster: EmbeddedCluster) -> None:
    cluster.broker(SLOW_BROKER).slow(SLOWNESS)


def _freeze(cluster: EmbeddedCluster) -> None:
    cluster.broker(DYING_BROKER).hang()


def _wake(cluster: EmbeddedCluster) -> None:
    cluster.broker(DYING_BROKER).heal()


def _kill(cluster: EmbeddedCluster) -> None:
    cluster.broker(DYING_BROKER).kill()


def _mend(cluster: EmbeddedCluster) -> None:
    cluster.broker(DYING_BROKER).restart()
    cluster.broker(SLOW_BROKER).heal()


SCENES: Final = (
    Scene(
        "all is well",
        0.17,
        "Two clients send the same stream of orders to three brokers: ours, and a plain one that "
        "retries as Java's does by default.",
        "rocketwire cluster --brokers 3",
        _nothing,
    ),
    Scene(
        f"{SLOW_BROKER} is slow",
        0.20,
        f"Each request to {SLOW_BROKER} takes {SLOWNESS * 1000:.0f} ms longer. Java ignores "
        "everything under 550 ms; we compare brokers with one another.",
        f"rocketwire fault {SLOW_BROKER} slow {SLOWNESS}",
        _slow,
        breaks=(SLOW_BROKER, f"slow, +{SLOWNESS * 1000:.0f} ms"),
    ),
    Scene(
        f"{DYING_BROKER} freezes, too",
        0.17,
        "Connections stay open and nothing is answered, as when a machine stops. One attempt per "
        "sender waits; nobody else goes there.",
        f"rocketwire fault {DYING_BROKER} hang",
        _freeze,
        breaks=(DYING_BROKER, "frozen"),
    ),
    Scene(
        f"{DYING_BROKER} wakes up",
        0.08,
        "It now stores what had come while it was frozen: these messages are there twice, and the "
        "results of their sends had said that this may happen.",
        f"rocketwire fault {DYING_BROKER} heal",
        _wake,
        ends=(DYING_BROKER,),
    ),
    Scene(
        f"{DYING_BROKER} is killed",
        0.16,
        "As by kill -9. Connections are refused.",
        f"rocketwire fault {DYING_BROKER} kill",
        _kill,
        breaks=(DYING_BROKER, "killed"),
    ),
    Scene(
        "both are mended",
        0.22,
        "The brokers come back by proof: a probe, a message on trial, then the full share.",
        f"rocketwire fault {DYING_BROKER} restart; rocketwire fault {SLOW_BROKER} heal",
        _mend,
        ends=(DYING_BROKER, SLOW_BROKER),
    ),
)


@dataclass(frozen=True, slots=True)
class FaultPeriod:
    """A fault that was injected, in seconds since the story began."""

    broker: str
    name: str
    begin: float
    end: float


def fault_periods(begins: list[float], end: float) -> list[FaultPeriod]:
    """When each fault was in force, from when each scene began."""
    open_faults: dict[str, tuple[str, float]] = {}
    found: list[FaultPeriod] = []
    for scene, begin in zip(SCENES, begins, strict=False):
        for broker in scene.ends:
            if broker in open_faults:
                name, since = open_faults.pop(broker)
                found.append(FaultPeriod(broker, name, since, begin))
        if scene.breaks is not None:
            open_faults[scene.breaks[0]] = (scene.breaks[1], begin)
    found += [
        FaultPeriod(broker, name, since, end) for broker, (name, since) in open_faults.items()
    ]
    return sorted(found, key=lambda period: (period.broker, period.begin))
