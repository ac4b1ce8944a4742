"""``rocketwire dlq``: the messages that a consumer group has given up, and their way back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketwire.cli.failures import FAILED, INTERRUPTED, CommandFailedError
from rocketwire.cli.help_screen import PlainGroup
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.letter_filter import (
    Before,
    ErrorText,
    Ids,
    Key,
    LetterFilter,
    Limit,
    OfTopic,
    Purged,
    Since,
    Tag,
    has_id,
    has_key,
)
from rocketwire.cli.output import body_text, make_table
from rocketwire.cli.read import describe, parse_moment
from rocketwire.cli.send_rate import Pace
from rocketwire.cli.signals import stop_requested
from rocketwire.errors import RocketMQError, TransportError
from rocketwire.pages.words import some

if TYPE_CHECKING:
    from rocketwire.admin_values import DeadLetter
    from rocketwire.sync.admin import Admin

app = typer.Typer(
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Dead letters: what a consumer group has given up.",
)

Group = Annotated[str, typer.Argument(help="The consumer group.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what it would do, and do nothing.")]
Rate = Annotated[float | None, typer.Option(min=0.001, help="At most so many messages a second.")]


@command(
    app,
    "list",
    examples=(
        "rocketwire dlq list billing",
        "rocketwire dlq list billing --since 12h --key order-42",
        "rocketwire dlq list billing --error KeyError --json | jq .last_error",
    ),
)
def list_letters(  # noqa: PLR0913 - each narrows what is shown
    here: Invocation,
    *,
    group: Group,
    since: Since = None,
    before: Before = None,
    topic: OfTopic = None,
    key: Key = None,
    tag: Tag = None,
    ids: Ids = None,
    error: ErrorText = None,
    limit: Limit = None,
    purged: Purged = False,
) -> None:
    """What a group has given up: when, of which topic, how often it was tried, and why."""
    wanted = LetterFilter.of(since, before, topic, key, tag, ids, error, limit, purged=purged)
    rows, count = [], 0
    with here.admin(background=False) as admin:
        for letter in wanted.letters(admin, group):
            count += 1
            if here.as_json:
                here.emit(described(letter))
            else:
                rows.append(_row(letter))
    if here.as_json:
        return
    if rows:
        columns = ["given up", "message id", "topic", "keys", "tries#", "last error"]
        here.console.print(make_table(columns, rows))
        here.say(
            f"\n{some(count, 'dead letter')} of {group}; rocketwire dlq show {group} ID shows one"
        )
    else:
        here.note(f"no dead letters of {group}" + (" like that" if wanted.is_narrow else ""))


def _row(letter: DeadLetter) -> tuple[object, ...]:
    message = letter.message
    return (
        f"{message.stored_at.astimezone():%Y-%m-%d %H:%M:%S}",
        letter.original_id,
        letter.original_topic,
        message.keys or "",
        letter.attempts,
        letter.last_error or "(not told)",
    )


@command(
    app,
    "show",
    examples=(
        "rocketwire dlq show billing 7F0000010A2B...",
        "rocketwire dlq show billing ID --json",
    ),
)
def show(
    here: Invocation,
    group: Group,
    name: Annotated[str, typer.Argument(metavar="ID|KEY", help="A message id, or a key.")],
) -> None:
    """All that is known of a dead letter: its origin, its error, its properties and its body."""
    with here.admin(background=False) as admin:
        found = admin.dead_letters(group, purged=True)
        letters = [letter for letter in found if has_id(letter, [name]) or has_key(letter, name)]
    if not letters:
        raise CommandFailedError(
            f"{group} has no dead letter with the id or key {name}: rocketwire dlq list {group}"
        )
    for letter in letters:
        if here.as_json:
            here.emit(described(letter))
        else:
            _print(here, letter)


def _print(here: Invocation, letter: DeadLetter) -> None:
    message, queue = letter.message, letter.original_queue
    if queue is None:
        place = f"{letter.original_topic} (the original is not there any more)"
    else:
        place = f"{queue.topic} {queue.broker}/{queue.id}@{letter.original_offset}"
    lines = {
        "message id": letter.original_id,
        "original": place,
        "born": message.born_at.astimezone().isoformat(),
        "given up": message.stored_at.astimezone().isoformat(),
        "tries": letter.attempts,
        "last error": letter.last_error or "(not told: another client gave it up)",
        "dead letter": f"{message.queue.broker}/{message.queue.id}@{message.offset}, "
        f"{message.offset_message_id}",
        "keys": message.keys or "",
        "tags": message.tags or "",
        "sharding key": message.sharding_key or "",
        **{f"property {name}": value for name, value in message.properties.items()},
    }
    here.console.print(make_table(["", ""], [(k, v) for k, v in lines.items() if v != ""]))
    here.say(f"\n{body_text(message.body)}\n")


def described(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter as JSON has it."""
    queue = letter.original_queue
    original = None
    if queue is not None:
        original = {"broker": queue.broker, "queue": queue.id, "offset": letter.original_offset}
    return {
        "group": letter.group,
        "original_topic": letter.original_topic,
        "original_id": letter.original_id,
        "original": original,
        "attempts": letter.attempts,
        "last_error": letter.last_error,
        "dead_letter_id": letter.message.offset_message_id,
        "message": describe(letter.message),
    }


@command(
    app,
    "redrive",
    examples=(
        "rocketwire dlq redrive billing --dry-run",
        "rocketwire dlq redrive billing --key order-42",
        "rocketwire dlq redrive billing --since 12h --error Timeout --rate 50",
        "rocketwire dlq redrive billing --to orders-repair",
    ),
)
def redrive(  # noqa: PLR0913 - each narrows what is sent
    here: Invocation,
    *,
    group: Group,
    since: Since = None,
    before: Before = None,
    topic: OfTopic = None,
    key: Key = None,
    tag: Tag = None,
    ids: Ids = None,
    error: ErrorText = None,
    limit: Limit = None,
    purged: Purged = False,
    to: Annotated[
        str | None, typer.Option(help="A topic; by default only the group gets them again.")
    ] = None,
    rate: Rate = None,
    dry_run: DryRun = False,
) -> None:
    """Send dead letters again, to the group that gave them up, each once.

    It may be interrupted and repeated: what was sent is recognised.
    """
    wanted = LetterFilter.of(since, before, topic, key, tag, ids, error, limit, purged=purged)
    counts: dict[str, int] = {}
    with here.admin() as admin, stop_requested() as stop:
        pace = Pace(rate, stop)
        for letter in wanted.letters(admin, group):
            if not pace.wait():
                break
            status, told = _redrive(admin, letter, to, dry_run=dry_run)
            counts[status] = counts.get(status, 0) + 1
            _tell(here, letter, status, told)
        is_stopped = stop.is_set()
    _sum_up(here, group, counts, is_stopped=is_stopped)


def _redrive(
    admin: Admin, letter: DeadLetter, to: str | None, *, dry_run: bool
) -> tuple[str, dict[str, Any]]:
    try:
        done = admin.redriven(letter, to=to) if dry_run else admin.redrive(letter, to=to)
    except TransportError as failure:
        return ("in doubt" if failure.written else "failed"), {"error": str(failure)}
    except RocketMQError as failure:
        return "failed", {"error": str(failure)}
    if done is None:
        return "would be sent", {}
    queue = done.queue
    place = {"topic": queue.topic, "broker": queue.broker, "queue": queue.id, "offset": done.offset}
    return ("sent" if done.is_new else "sent before"), place


def _tell(here: Invocation, letter: DeadLetter, status: str, told: dict[str, Any]) -> None:
    if here.as_json:
        here.emit(
            {
                "message_id": letter.original_id,
                "dead_letter_id": letter.message.offset_message_id,
                "result": status,
                **told,
            }
        )
        return
    keys = f" ({letter.message.keys})" if letter.message.keys else ""
    if "topic" in told:
        where = f" {told['topic']} {told['broker']}/{told['queue']}@{told['offset']}"
    else:
        where = f": {told['error']}" if told else ""
    here.say(f"{letter.original_id}{keys}  {status}{where}")


def _sum_up(here: Invocation, group: str, counts: dict[str, int], *, is_stopped: bool) -> None:
    words = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    here.note(f"{group}: {words or 'no dead letters like that'}")
    if is_stopped:
        here.note("interrupted: repeat the command to go on, nothing is sent twice")
        raise typer.Exit(INTERRUPTED)
    if counts.keys() & {"failed", "in doubt"}:
        here.note("repeat the command for those that failed: what was sent is recognised")
        raise typer.Exit(FAILED)


@command(
    app,
    "purge",
    examples=(
        "rocketwire dlq purge billing --dry-run",
        "rocketwire dlq purge billing --before 2026-11-01",
    ),
)
def purge(
    here: Invocation,
    *,
    group: Group,
    before: Before = None,
    dry_run: DryRun = False,
) -> None:
    """List a group's dead letters no more. Nothing is deleted: --purged still shows them."""
    moment = None if before is None else parse_moment(before)
    with here.admin(background=False) as admin:
        done = admin.purge_dead_letters(group, before=moment, dry_run=dry_run)
    count = sum(item.messages for item in done)
    if here.as_json:
        here.emit({"group": group, "purged": count, "dry_run": dry_run, "queues": _moves(done)})
    else:
        verb = "would be purged" if dry_run else "purged"
        here.say(
            f"{group}: {some(count, 'dead letter')} {verb}; dlq list --purged shows them still"
        )


def _moves(done: Any) -> Iterator[dict[str, object]]:
    return (
        {"broker": p.queue.broker, "queue": p.queue.id, "from": p.first, "to": p.end} for p in done
    )
