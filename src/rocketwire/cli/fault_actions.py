"""What ``rocketwire fault`` can do to a broker, by name.

Both ends use it: the command to check what was typed, the process with the brokers to do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rocketwire.errors import ConfigError

if TYPE_CHECKING:
    from rocketwire.embedded import BrokerHandle, Fault


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do.

    Attributes:
        method: of ``BrokerHandle``.
        summary: in words.
        value: what the number after it means; empty where there is none.
        takes_conditions: whether it can be narrowed to a topic, a code, the next requests.
        extra: fixed arguments.
    """

    method: str
    summary: str
    value: str = ""
    takes_conditions: bool = True
    extra: Mapping[str, Any] | None = None


ACTIONS: Final[dict[str, Action]] = {
    "slow": Action("slow", "each request waits so long", "seconds"),
    "hang": Action("hang", "requests stay unanswered until it is healed"),
    "busy": Action("busy", "requests are answered 'system busy'"),
    "reject": Action("reject", "requests are answered with this code", "code"),
    "refuse": Action("refuse", "connections are refused", takes_conditions=False),
    "drop": Action("drop_connections", "connections are closed"),
    "late": Action("late_replies", "requests are handled, answers come late", "seconds"),
    "lose": Action("lose_replies", "requests are handled, answers never come"),
    "half": Action("half_replies", "half of the answer comes, then the connection closes"),
    "wrong": Action("wrong_replies", "answers bear another request's number"),
    "garbage": Action("wrong_replies", "answers are no protocol", extra={"garbage": True}),
    "read-only": Action("read_only", "it takes no messages any more", takes_conditions=False),
    "disk-full": Action("disk_full", "nothing can be stored", takes_conditions=False),
    "clock": Action("clock", "its clock is wrong by so much", "seconds", takes_conditions=False),
    "kill": Action("kill", "it ends as by kill -9", takes_conditions=False),
    "restart": Action("restart", "it starts again from its folder", takes_conditions=False),
    "heal": Action("heal", "all faults end (not a kill: restart)", takes_conditions=False),
}


def find_action(name: str) -> Action:
    """The action of a name.

    Raises:
        ConfigError: there is none.
    """
    action = ACTIONS.get(name.lower().replace("_", "-"))
    if action is None:
        raise ConfigError(f"there is no fault {name!r}: there are {', '.join(ACTIONS)}")
    return action


def check_value(name: str, action: Action, value: float | None) -> None:
    """Refuse a number too many or too few.

    Raises:
        ConfigError: which.
    """
    if action.value and value is None:
        raise ConfigError(f"{name} needs a number of {action.value}: e.g. {name} 0.3")
    if not action.value and value is not None:
        raise ConfigError(f"{name} takes no number, but got {value}")


def perform(
    handle: BrokerHandle, name: str, value: float | None, conditions: Mapping[str, Any]
) -> None:
    """Do it to a broker."""
    action = find_action(name)
    check_value(name, action, value)
    if conditions and not action.takes_conditions:
        raise ConfigError(f"{name} is for the whole broker: leave out {', '.join(conditions)}")
    method: Callable[..., Any] = getattr(handle, action.method)
    arguments = [] if value is None else [int(value) if action.value == "code" else value]
    method(*arguments, **(action.extra or {}), **conditions)


def describe_fault(fault: Fault) -> str:
    """A fault in force, in a few words: ``slow 0.3 s topic=orders``."""
    parts = [fault.kind.value.replace("_", " ")]
    if fault.seconds:
        parts.append(f"{fault.seconds:g} s")
    if fault.topic is not None:
        parts.append(f"topic={fault.topic}")
    if fault.code is not None:
        parts.append(f"code={fault.code}")
    if fault.remaining is not None:
        parts.append(f"next={fault.remaining}")
    if fault.probability < 1:
        parts.append(f"p={fault.probability:g}")
    return " ".join(parts)


def describe_broker(handle: BrokerHandle) -> list[str]:
    """All that is wrong with a broker now."""
    if not handle.running:
        return ["killed"]
    found = [describe_fault(fault) for fault in handle.faults]
    server = handle._broker  # noqa: SLF001 - these have no public side
    if not server.listening:
        found.append("refusing connections")
    if not server.permission & 2:
        found.append("read-only")
    if server.store.disk.full:
        found.append("disk full")
    if server.clock_offset:
        found.append(f"clock {server.clock_offset:+g} s")
    return found
