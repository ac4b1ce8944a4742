"""``rocketwire group``: members, assignment and lag of a consumer group, and resetting it."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketwire.cli.failures import UsageError
from rocketwire.cli.group_admin import (
    RETRY_PREFIX,
    Progress,
    find_members,
    find_progress,
    plan_reset,
)
from rocketwire.cli.group_admin import reset as reset_group
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import make_table
from rocketwire.cli.read import parse_moment

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode="rich", help="Consumer groups."
)


@command(
    app, "show", examples=("rocketwire group show billing", "rocketwire group show billing --json")
)
def show(here: Invocation, group: Annotated[str, typer.Argument(help="Its name.")]) -> None:
    """Members, which of them has which queue, and how far behind each queue is."""
    with here.inspector(background=False) as admin:
        progress = find_progress(admin, group)
        members = find_members(admin, group)
    lag = sum(item.lag for item in progress)
    if here.as_json:
        here.emit(
            {
                "group": group,
                "members": [
                    {"client_id": m.client_id, "address": m.address, "language": m.language}
                    for m in members
                ],
                "queues": [_described(item) for item in progress],
                "lag": lag,
            }
        )
        return
    rows = [(m.client_id, m.address, m.language) for m in members]
    here.console.print(make_table(["member", "address", "language"], rows))
    here.say()
    queues = [
        (f"{p.queue.topic} {p.queue.broker}/{p.queue.id}", p.consumed, p.end, p.lag, p.owner or "-")
        for p in progress
    ]
    here.console.print(make_table(["queue", "consumed#", "end#", "behind#", "member"], queues))
    here.say(f"\n{group}: {len(members)} members, {lag:,} messages behind")


def _described(item: Progress) -> dict[str, object]:
    return {
        "topic": item.queue.topic,
        "broker": item.queue.broker,
        "queue": item.queue.id,
        "consumed": item.consumed,
        "end": item.end,
        "lag": item.lag,
        "member": item.owner or None,
    }


@command(
    app,
    "reset",
    examples=(
        "rocketwire group reset billing --to 2h",
        "rocketwire group reset billing --topic orders --to earliest --yes",
    ),
)
def reset(
    here: Invocation,
    *,
    group: Annotated[str, typer.Argument(help="Its name.")],
    to: Annotated[str, typer.Option(help="earliest, latest, a time, or an age such as 2h.")],
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it, instead of showing it.")] = False,
) -> None:
    """Move a group to another moment; shows what would change, and changes it with --yes."""
    moment = None if to == "latest" else 0 if to == "earliest" else _milliseconds(to)
    with here.inspector(background=False) as admin:
        progress = [
            item
            for item in find_progress(admin, group, topic)
            if topic is not None or not item.queue.topic.startswith(RETRY_PREFIX)
        ]
        plan = plan_reset(admin, progress, moment)
        _show_plan(here, plan, done=yes)
        if yes:
            reset_group(admin, group, plan, moment)
    if not here.as_json:
        here.say("done" if yes else "\nnothing was changed: say --yes to do it")


def _milliseconds(text: str) -> int:
    found = int(parse_moment(text).timestamp() * 1000)
    if found <= 0:
        raise UsageError(f"--to {text!r} is before 1970: say earliest")
    return found


def _show_plan(here: Invocation, plan: dict[Progress, int], *, done: bool) -> None:
    if here.as_json:
        here.emit(
            {
                "changed": done,
                "queues": [_described(item) | {"to": offset} for item, offset in plan.items()],
            }
        )
        return
    rows = [
        (
            f"{item.queue.topic} {item.queue.broker}/{item.queue.id}",
            item.consumed,
            offset,
            f"{offset - item.consumed:+,}",
        )
        for item, offset in plan.items()
    ]
    here.console.print(make_table(["queue", "stands at#", "goes to#", "moves#"], rows))
