"""``rocketwire group``: consumer groups, their members, assignment and lag, and moving them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from rocketwire.admin_values import Group, GroupQueue, OffsetChange
from rocketwire.cli.failures import FAILED, UsageError
from rocketwire.cli.help_screen import PlainGroup
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import make_table
from rocketwire.cli.read import ENDS, parse_moment
from rocketwire.message import MessageQueue
from rocketwire.pages.words import some

app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Consumer groups.",
)
#: Topics that a group has for itself, whose positions are not moved along.
_OWN = ("%RETRY%", "%DLQ%")

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it, instead of showing it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show it, as without --yes.")]


@command(app, "list", examples=("rocketwire group list", "rocketwire group list --all --json"))
def list_groups(
    here: Invocation,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those of the system.")
    ] = False,
) -> None:
    """The consumer groups that the brokers know."""
    with here.admin(background=False) as admin:
        found = [group for group in admin.groups() if everything or not group.is_system]
    if here.as_json:
        here.emit([{"group": group.name, "brokers": group.brokers} for group in found])
        return
    for group in found:
        here.say(group.name)
    if not found:
        here.note("no groups yet: rocketwire consume TOPIC --group NAME")


@command(
    app, "show", examples=("rocketwire group show billing", "rocketwire group show billing --json")
)
def show(here: Invocation, group: Annotated[str, typer.Argument(help="Its name.")]) -> None:
    """Members, which of them has which queue, and how far behind each queue is."""
    with here.admin(background=False) as admin:
        found = admin.group(group)
    if here.as_json:
        here.emit(_described(found))
    else:
        _print(here, found)
    if found.errors:
        raise typer.Exit(FAILED)


def _print(here: Invocation, group: Group) -> None:
    rows = [(m.client_id, m.address, m.language) for m in group.members]
    here.console.print(make_table(["member", "address", "language"], rows))
    here.say()
    queues = [
        (_place(item.queue), item.consumed, item.end, item.lag, item.member or "-")
        for item in group.queues
    ]
    here.console.print(make_table(["queue", "consumed#", "end#", "behind#", "member"], queues))
    lag = sum(group.lag.values())
    here.say(f"\n{group.name}: {some(len(group.members), 'member')}, {some(lag, 'message')} behind")
    for error in group.errors.values():
        here.note(error)


def _described(group: Group) -> dict[str, object]:
    return {
        "group": group.name,
        "members": [
            {"client_id": m.client_id, "address": m.address, "language": m.language}
            for m in group.members
        ],
        "subscriptions": group.subscriptions,
        "queues": [_described_queue(item) for item in group.queues],
        "lag": sum(group.lag.values()),
        "errors": group.errors,
    }


def _described_queue(item: GroupQueue) -> dict[str, object]:
    return {
        "topic": item.queue.topic,
        "broker": item.queue.broker,
        "queue": item.queue.id,
        "consumed": item.consumed,
        "end": item.end,
        "lag": item.lag,
        "member": item.member,
    }


def _place(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker}/{queue.id}"


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
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Move a group to another moment; shows what would change, and changes it with --yes."""
    position = ENDS[to] if to in ENDS else _moment(to)
    with here.admin(background=False) as admin:
        topics = [topic] if topic is not None else _topics(admin.group(group))
        changes = [
            change
            for name in topics
            for change in admin.reset(group, name, position, dry_run=dry_run or not yes)
        ]
    _show_changes(here, changes, done=yes and not dry_run)


def _topics(group: Group) -> list[str]:
    found = {item.queue.topic for item in group.queues}
    return sorted(name for name in found if not name.startswith(_OWN))


def _moment(text: str) -> datetime:
    found = parse_moment(text)
    if found.timestamp() <= 0:
        raise UsageError(f"--to {text!r} is before 1970: say earliest")
    return found


def _show_changes(here: Invocation, changes: list[OffsetChange], *, done: bool) -> None:
    if here.as_json:
        queues = [
            {
                "topic": change.queue.topic,
                "broker": change.queue.broker,
                "queue": change.queue.id,
                "consumed": change.before,
                "to": change.after,
            }
            for change in changes
        ]
        here.emit({"changed": done, "queues": queues})
        return
    rows = [(_place(c.queue), c.before, c.after, f"{c.after - c.before:+,}") for c in changes]
    here.console.print(make_table(["queue", "stands at#", "goes to#", "moves#"], rows))
    here.say("done" if done else "\nnothing was changed: say --yes to do it")


@command(
    app,
    "clone",
    examples=("rocketwire group clone billing billing-2 --topic orders --yes",),
)
def clone(
    here: Invocation,
    *,
    source: Annotated[str, typer.Argument(help="The group whose positions are taken.")],
    target: Annotated[str, typer.Argument(help="The group that gets them; without members.")],
    topic: Annotated[str, typer.Option(help="Of which topic.")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Put a group where another one is; shows what would change, and changes it with --yes."""
    with here.admin(background=False) as admin:
        changes = admin.clone_offsets(source, target, topic, dry_run=dry_run or not yes)
    _show_changes(here, list(changes), done=yes and not dry_run)


@command(app, "delete", examples=("rocketwire group delete billing --yes",))
def delete(
    here: Invocation,
    group: Annotated[str, typer.Argument(help="Its name.")],
    topics: Annotated[
        bool, typer.Option("--topics", help="Also its retry and dead-letter topics.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a group that has no members, and what it has consumed."""
    if not yes:
        if not here.is_live:
            raise UsageError(f"deleting {group} deletes its positions: say --yes if you mean it")
        typer.confirm(f"Delete {group} and its positions?", abort=True)
    with here.admin(background=False) as admin:
        where = admin.delete_group(group, with_topics=topics)
    if here.as_json:
        here.emit({"group": group, "deleted_on": where})
    else:
        here.say(f"{group} deleted on {', '.join(where)}")
