"""``rocketwire topic``: list, create, show and delete topics."""

from __future__ import annotations

from typing import Annotated

import typer

from rocketwire.admin_values import Topic
from rocketwire.cli.failures import FAILED, UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import make_table

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode="rich", help="Topics of a cluster."
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
        here.say(f"{name}: {queues} queues on each of {', '.join(where)}")


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
    here.say(f"\n{topic.name}: {topic.messages:,} messages in {len(topic.queues)} queues{kind}")


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
