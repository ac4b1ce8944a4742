"""``rocketwire fault``: break a broker of a running embedded cluster, and mend it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rocketwire.cli.failures import CommandFailedError
from rocketwire.cli.fault_actions import ACTIONS, arguments_of, describe_status, find_action
from rocketwire.cli.invocation import Invocation, command
from rocketwire.errors import TransportError
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import Reply
from rocketwire.wire.lenient_json import loads

if TYPE_CHECKING:
    from rocketwire.cli.admin import Inspector

#: ``rocketwire.embedded.call.CONTROL_CODE``, without loading the embedded cluster.
CONTROL_CODE: Final = 31001

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
    given = {name: value for name, value in conditions.items() if value is not None}
    with here.inspector(background=False) as admin:
        if action is not None:
            wanted = find_action(action)
            told = arguments_of(action, wanted, value, given)
            control(admin, broker, wanted.method, told)
        faults = ["killed"] if action == "kill" else _faults(admin, broker)
    if here.as_json:
        here.emit({"broker": broker, "faults": faults})
    else:
        here.say(f"{broker}: {', '.join(faults) or 'all is well'}")


def _faults(admin: Inspector, broker: str) -> list[str]:
    return describe_status(loads(control(admin, broker, "status", {}).body))


def control(admin: Inspector, broker: str, action: str, arguments: dict[str, Any]) -> Reply:
    """Have something done to an embedded broker, through its cluster or by itself.

    A name server of an embedded cluster acts for its brokers, which may be down; a broker that is
    a process of its own acts for itself.

    Raises:
        CommandFailedError: nobody here can do it; the text says why.
    """
    fields = {"action": action, "broker": broker}
    body = json.dumps(arguments).encode() if arguments else b""
    known = admin.clusters().brokers
    master = known[broker].master if broker in known else None
    reasons = []
    for address in (*admin.name_servers, *([admin.translate(master)] if master else ())):
        try:
            reply = admin.try_asking(address, CONTROL_CODE, fields, body=body)
        except TransportError as error:
            reasons.append(f"{address}: {error}")
            continue
        if reply.code == ResponseCode.SUCCESS:
            return reply
        if reply.code == ResponseCode.INVALID_PARAMETER:
            raise CommandFailedError(str(reply.remark))
    if reasons and master:
        raise CommandFailedError(f"{broker} does not answer ({'; '.join(reasons)}): start it again")
    raise CommandFailedError(
        f"{broker} is no embedded broker (brokers here: {', '.join(sorted(known)) or 'none'}): "
        "faults can be made in those of rocketwire cluster, rocketwire broker and EmbeddedCluster"
    )
