"""What ``rocketwire fault`` can do to a broker, by name.

The broker is told over the wire by the embedded cluster's private request; what it can be told
are the methods of ``BrokerHandle``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rocketwire.errors import ConfigError

if TYPE_CHECKING:
    from rocketwire.embedded import BrokerHandle


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do.

    Attributes:
        method: of ``BrokerHandle``.
        summary: in words.
        value: what the number after it means; empty where there is none.
        argument: the method's name for that number.
        takes_conditions: whether it can be narrowed to a topic, a code, the next requests.
        extra: fixed arguments.
    """

    method: str
    summary: str
    value: str = ""
    argument: str = ""
    takes_conditions: bool = True
    extra: Mapping[str, Any] | None = None


ACTIONS: Final[dict[str, Action]] = {
    "slow": Action("slow", "each request waits so long", "seconds", "seconds"),
    "hang": Action("hang", "requests stay unanswered until it is healed"),
    "busy": Action("busy", "requests are answered 'system busy'"),
    "reject": Action("reject", "requests are answered with this code", "code", "response_code"),
    "refuse": Action("refuse", "connections are refused", takes_conditions=False),
    "drop": Action("drop_connections", "connections are closed"),
    "late": Action("late_replies", "requests are handled, answers come late", "seconds", "seconds"),
    "lose": Action("lose_replies", "requests are handled, answers never come"),
    "half": Action("half_replies", "half of the answer comes, then the connection closes"),
    "wrong": Action("wrong_replies", "answers bear another request's number"),
    "garbage": Action("wrong_replies", "answers are no protocol", extra={"garbage": True}),
    "read-only": Action("read_only", "it takes no messages any more", takes_conditions=False),
    "disk-full": Action("disk_full", "nothing can be stored", takes_conditions=False),
    "clock": Action(
        "clock", "its clock is wrong by so much", "seconds", "offset", takes_conditions=False
    ),
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


def arguments_of(
    name: str, action: Action, value: float | None, conditions: Mapping[str, Any]
) -> dict[str, Any]:
    """What the broker is told besides the method.

    Raises:
        ConfigError: conditions were given to an action that has none.
    """
    check_value(name, action, value)
    if conditions and not action.takes_conditions:
        raise ConfigError(f"{name} is for the whole broker: leave out {', '.join(conditions)}")
    found = dict(action.extra or {}) | dict(conditions)
    if value is not None:
        found[action.argument] = int(value) if action.argument == "response_code" else value
    return found


def describe_status(status: Mapping[str, Any]) -> list[str]:
    """All that is wrong with a broker, from what it says of itself."""
    if not status["running"]:
        return ["killed"]
    found = [_describe(fault) for fault in status["faults"]]
    if not status["listening"]:
        found.append("refusing connections")
    if not status["writable"]:
        found.append("read-only")
    if status["disk_full"]:
        found.append("disk full")
    if status["clock_offset"]:
        found.append(f"clock {status['clock_offset']:+g} s")
    return found


def _describe(fault: Mapping[str, Any]) -> str:
    parts = [str(fault["kind"]).replace("_", " ")]
    if fault.get("seconds"):
        parts.append(f"{fault['seconds']:g} s")
    parts += [f"{name}={fault[name]}" for name in ("topic", "code", "next") if name in fault]
    if fault.get("probability", 1.0) < 1:
        parts.append(f"p={fault['probability']:g}")
    return " ".join(parts)


def describe_broker(handle: BrokerHandle) -> list[str]:
    """All that is wrong with a broker of this process."""
    from rocketwire.embedded.remote_control import status

    return describe_status(status(handle._broker))  # noqa: SLF001 - what it says of itself
