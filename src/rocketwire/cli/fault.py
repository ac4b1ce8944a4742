"""``rocketwire fault``: break a broker of a running embedded cluster, and mend it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rocketwire.cli.control_channel import ask, find
from rocketwire.cli.fault_actions import ACTIONS, check_value, find_action
from rocketwire.cli.invocation import Invocation, command

app = typer.Typer(add_completion=False)

_KINDS = ", ".join(f"{name} {a.value.upper()}" if a.value else name for name, a in ACTIONS.items())


def _complete_action(incomplete: str) -> list[tuple[str, str]]:
    return [(n, action.summary) for n, action in ACTIONS.items() if n.startswith(incomplete)]


@command(
    app,
    "fault",
    panel="Embedded cluster",
    examples=(
        "rocketwire fault broker-b slow 0.3",
        "rocketwire fault broker-a busy --topic orders --next 100",
        "rocketwire fault broker-c kill && rocketwire fault broker-c restart",
        "rocketwire fault broker-b heal",
    ),
)
def fault(
    here: Invocation,
    *,
    broker: Annotated[str, typer.Argument(help="Its name.")],
    action: Annotated[
        str | None,
        typer.Argument(help=f"{_KINDS}.", autocompletion=_complete_action, show_default=False),
    ] = None,
    value: Annotated[
        float | None, typer.Argument(help="Seconds, or a code.", show_default=False)
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Only requests for this topic.")] = None,
    code: Annotated[int | None, typer.Option(help="Only requests with this code.")] = None,
    next_: Annotated[
        int | None, typer.Option("--next", min=1, help="Only so many requests.")
    ] = None,
    probability: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Of each request.")
    ] = None,
) -> None:
    """Break a running embedded broker, or mend it; without an action, show what is wrong."""
    conditions = {"topic": topic, "code": code, "next": next_, "probability": probability}
    request: dict[str, Any] = {"broker": broker}
    if action is not None:
        check_value(action, find_action(action), value)
        request |= {
            "action": action,
            "value": value,
            "conditions": {name: given for name, given in conditions.items() if given is not None},
        }
    with here.admin(background=False) as admin:
        address = find(admin, broker)
    answer = ask(address, request)
    if here.as_json:
        here.emit(answer)
    else:
        here.say(f"{broker}: {', '.join(answer['faults']) or 'all is well'}")
