"""``rocketwire topic``: list, create, show, alter and delete topics."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rocketwire.admin_values import Topic, TopicBroker
from rocketwire.cli.failures import FAILED, UsageError
from rocketwire.cli.help_screen import PlainGroup
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import make_table
from rocketwire.pages.words import some

app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Topics of a cluster.",
)


@command(app, "list", examples=("rocketwire topic list", "rocketwire topic list --all --json"))
def list_topics(
    here: Invocation,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those of the system and of groups.")
    ] = False,
) -> None:
    """The topics that the name server knows."""
    with here.admin(background=False) as admin:
        names = [topic.name for topic in admin.topics() if everything or topic.kind == "normal"]
    if here.as_json:
        here.emit(names)
        return
    for name in names:
        here.say(name)
    if not names:
        here.note("no topics yet: rocketwire topic create NAME, or just send to one")


@command(
    app,
    "create",
    examples=("rocketwire topic create orders", "rocketwire topic create orders --queues 16"),
)
def create(
    here: Invocation,
    name: Annotated[str, typer.Argument(help="Letters, digits, % | _ -.")],
    queues: Annotated[int, typer.Option(min=1, max=65535, help="On each broker.")] = 8,
    ordered: Annotated[
        bool,
        typer.Option("--ordered", help="Sharding keys keep their queue while a broker is away."),
    ] = False,
    broker: Annotated[
        list[str] | None, typer.Option(help="Only on this broker; repeatable.")
    ] = None,
    message_type: Annotated[
        str | None,
        typer.Option("--type", help="NORMAL, FIFO, DELAY, TRANSACTION or MIXED; from 5.0 on."),
    ] = None,
) -> None:
    """Create a topic on every master, or change the number of its queues."""
    with here.admin() as admin:
        where = admin.create_topic(
            name, queues, order=ordered, brokers=broker or None, message_type=message_type
        )
    if here.as_json:
        here.emit({"topic": name, "queues": queues, "brokers": where})
    else:
        here.say(f"{name}: {some(queues, 'queue')} on each of {', '.join(where)}")


@command(
    app, "show", examples=("rocketwire topic show orders", "rocketwire topic show orders --json")
)
def show(here: Invocation, name: Annotated[str, typer.Argument(help="Of the topic.")]) -> None:
    """Where a topic lives, and how many messages its queues hold."""
    with here.admin(background=False) as admin:
        topic = admin.topic(name)
    if here.as_json:
        here.emit(_described(topic))
    else:
        _print(here, topic)
    if any(state.error for state in topic.queues):
        raise typer.Exit(FAILED)


def _print(here: Invocation, topic: Topic) -> None:
    brokers = [
        (
            b.broker,
            b.master or "no master",
            permission_text(read=b.can_read, write=b.can_write),
            b.write_queues,
            b.read_queues,
        )
        for b in topic.brokers
    ]
    here.console.print(make_table(["broker", "master", "may", "write#", "read#"], brokers))
    here.say()
    rows = [
        (f"{s.queue.broker}/{s.queue.id}", s.first, s.end, s.messages, s.error or "")
        for s in topic.queues
    ]
    here.console.print(make_table(["queue", "first#", "end#", "messages#", ""], rows))
    kind = f", for {topic.message_type} messages" if topic.message_type else ""
    here.say(
        f"\n{topic.name}: {some(topic.messages, 'message')} in {some(len(topic.queues), 'queue')}{kind}"
    )


def _described(topic: Topic) -> dict[str, object]:
    return {
        "topic": topic.name,
        "message_type": topic.message_type,
        "order": topic.order,
        "brokers": [
            {"broker": b.broker, "cluster": b.cluster, "addresses": b.addresses}
            for b in topic.brokers
        ],
        "permissions": {
            b.broker: permission_text(read=b.can_read, write=b.can_write) for b in topic.brokers
        },
        "queues": [
            {
                "broker": s.queue.broker,
                "queue": s.queue.id,
                "first": s.first,
                "end": s.end,
                "error": s.error,
            }
            for s in topic.queues
        ],
        "messages": topic.messages,
    }


def permission_text(*, read: bool, write: bool) -> str:
    """What a topic allows, in words.

    >>> permission_text(read=True, write=True)
    'read, write'
    """
    words = [("read", read), ("write", write)]
    return ", ".join(word for word, may in words if may) or "nothing"


@command(
    app,
    "alter",
    examples=(
        "rocketwire topic alter orders --queues 16 --dry-run",
        "rocketwire topic alter orders --cannot-write --broker broker-a",
        "rocketwire topic alter orders --type MIXED --json",
    ),
)
def alter(  # noqa: PLR0913 - each is a setting of a topic
    here: Invocation,
    *,
    name: Annotated[str, typer.Argument(help="Of the topic.")],
    queues: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Both kinds, on each broker.")
    ] = None,
    read_queues: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Those that consumers read.")
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Those that producers write to.")
    ] = None,
    can_read: Annotated[
        bool | None, typer.Option("--can-read/--cannot-read", help="For consumers.")
    ] = None,
    can_write: Annotated[
        bool | None, typer.Option("--can-write/--cannot-write", help="For producers.")
    ] = None,
    message_type: Annotated[
        str | None,
        typer.Option("--type", help="NORMAL, FIFO, DELAY, TRANSACTION or MIXED; from 5.0 on."),
    ] = None,
    broker: Annotated[
        list[str] | None, typer.Option(help="Only on this broker; repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would change, and change nothing.")
    ] = False,
) -> None:
    """Change settings of a topic; what is not given stays as it is."""
    wanted: dict[str, Any] = {
        "read_queues": queues if read_queues is None else read_queues,
        "write_queues": queues if write_queues is None else write_queues,
        "can_read": can_read,
        "can_write": can_write,
        "message_type": message_type,
    }
    if all(value is None for value in wanted.values()):
        raise UsageError(
            "nothing to change: give --queues, --read-queues, --write-queues, --can-read, "
            "--cannot-read, --can-write, --cannot-write or --type"
        )
    with here.admin(background=False) as admin:
        before = admin.topic(name)
        where = admin.alter_topic(name, **wanted, brokers=broker or None, dry_run=dry_run)
    settings = {each.broker: _settings(each) for each in before.brokers}
    given = {key: value for key, value in wanted.items() if value is not None}
    if message_type is not None:
        given["message_type"] = message_type.upper()
    changes = [
        {"broker": each, "before": settings[each], "after": settings[each] | given}
        for each in where
        if each in settings
    ]
    _show_changes(here, name, changes, done=not dry_run)
    _warn_of_unread(here, before, read_queues or queues, where)


def _settings(broker: TopicBroker) -> dict[str, Any]:
    """What ``alter`` may change, by the names of its options."""
    return {
        "read_queues": broker.read_queues,
        "write_queues": broker.write_queues,
        "can_read": broker.can_read,
        "can_write": broker.can_write,
        "message_type": broker.message_type,
    }


def _show_changes(
    here: Invocation, name: str, changes: list[dict[str, Any]], *, done: bool
) -> None:
    if here.as_json:
        here.emit({"topic": name, "changed": done, "brokers": changes})
        return
    rows = [
        (each["broker"], setting.replace("_", " "), _word(old), _word(each["after"][setting]))
        for each in changes
        for setting, old in each["before"].items()
        if old != each["after"][setting]
    ]
    if not rows:
        here.say(f"{name} is like that already")
        return
    here.console.print(
        make_table(
            ["broker", "setting", "was" if done else "is", "now" if done else "would be"], rows
        )
    )
    here.say("done" if done else "\nnothing was changed: leave out --dry-run to do it")


def _word(value: object) -> str:
    """A setting in words: old brokers do not tell the type of a topic's messages."""
    if value is None:
        return "not told"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _warn_of_unread(
    here: Invocation, before: Topic, read_queues: int | None, where: tuple[str, ...]
) -> None:
    """Consumers can't read a queue above the number of read queues, whatever is in it."""
    if read_queues is None:
        return
    beyond = [
        state
        for state in before.queues
        if state.queue.broker in where and state.queue.id >= read_queues and state.messages
    ]
    if beyond:
        count = sum(state.messages for state in beyond)
        here.note(
            f"{count:,} messages in {len(beyond)} queues can't be read with {read_queues} read "
            f"queues; they are kept: rocketwire topic alter {before.name} --read-queues N, with "
            "the number as it was, shows them again"
        )


@command(app, "delete", examples=("rocketwire topic delete orders --yes",))
def delete(
    here: Invocation,
    name: Annotated[str, typer.Argument(help="Of the topic.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a topic and its messages, on every broker."""
    if not yes:
        if not here.is_live:
            raise UsageError(f"deleting {name} deletes its messages: say --yes if you mean it")
        typer.confirm(f"Delete {name} and all of its messages?", abort=True)
    with here.admin(background=False) as admin:
        where = admin.delete_topic(name)
    if here.as_json:
        here.emit({"topic": name, "deleted_on": where})
    else:
        here.say(f"{name} deleted on {', '.join(where)}")
