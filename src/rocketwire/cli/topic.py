"""``rocketwire topic``: list, create, show and delete topics."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from rocketwire.cli.admin import QueueState
from rocketwire.cli.failures import FAILED, UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import make_table
from rocketwire.wire.codes import Permission
from rocketwire.wire.route import TopicRoute

app = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode="rich", help="Topics of a cluster."
)

_SYSTEM_PREFIXES: Final = ("%RETRY%", "%DLQ%", "RMQ_SYS_", "SCHEDULE_TOPIC_", "rmq_sys_", "wheel_")
_SYSTEM: Final = frozenset({
    "TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "DefaultCluster",
    "TRANS_CHECK_MAX_TIME_TOPIC", "DefaultHeartBeatSyncerTopic",
})  # fmt: skip


@command(app, "list", examples=("rocketwire topic list", "rocketwire topic list --all --json"))
def list_topics(
    here: Invocation,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those of the system and of groups.")
    ] = False,
) -> None:
    """The topics that the name server knows."""
    with here.admin() as admin:
        # A broker has a topic named after itself, and one named after its cluster.
        info = admin.clusters()
        hidden = _SYSTEM | set(info.brokers) | set(info.clusters)
        hidden |= {f"{name}_REPLY_TOPIC" for name in info.clusters}
        names = [
            name
            for name in admin.topics()
            if everything or (name not in hidden and not name.startswith(_SYSTEM_PREFIXES))
        ]
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
) -> None:
    """Create a topic on every master, or change the number of its queues."""
    with here.admin() as admin:
        where = admin.create_topic(
            name, queues=queues, order=ordered, brokers=tuple(broker) if broker else None
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
    with here.admin() as admin:
        route = admin.route(name)
        states = admin.queue_states(name)
    if here.as_json:
        here.emit(_described(name, route, states))
    else:
        _print(here, name, route, states)
    if any(state.error for state in states):
        raise typer.Exit(FAILED)


def _print(here: Invocation, name: str, route: TopicRoute, states: list[QueueState]) -> None:
    brokers = [
        (data.broker, address or "no master", permission_text(permission), writes, reads)
        for data in route.brokers
        for address in [data.master]
        for broker, reads, writes, permission, *_ in route.queues
        if broker == data.broker
    ]
    here.console.print(make_table(["broker", "master", "may", "write#", "read#"], brokers))
    here.say()
    rows = [
        (f"{s.queue.broker}/{s.queue.id}", s.first, s.end, s.end - s.first, s.error) for s in states
    ]
    here.console.print(make_table(["queue", "first#", "end#", "messages#", ""], rows))
    total = sum(state.end - state.first for state in states)
    here.say(f"\n{name}: {total:,} messages in {len(states)} queues")


def _described(name: str, route: TopicRoute, states: list[QueueState]) -> dict[str, object]:
    return {
        "topic": name,
        "brokers": [
            {"broker": data.broker, "cluster": data.cluster, "addresses": data.addresses}
            for data in route.brokers
        ],
        "permissions": {data.broker: permission_text(data.permission) for data in route.queues},
        "queues": [
            {
                "broker": s.queue.broker,
                "queue": s.queue.id,
                "first": s.first,
                "end": s.end,
                "error": s.error or None,
            }
            for s in states
        ],
        "messages": sum(state.end - state.first for state in states),
    }


def permission_text(permission: int) -> str:
    """What a permission allows, in words.

    >>> permission_text(6)
    'read, write'
    """
    words = [("read", Permission.READ), ("write", Permission.WRITE)]
    return ", ".join(word for word, bit in words if permission & bit) or "nothing"


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
    with here.admin() as admin:
        admin.route(name)
        where = admin.delete_topic(name)
    if here.as_json:
        here.emit({"topic": name, "deleted_on": where})
    else:
        here.say(f"{name} deleted on {', '.join(where)}")
