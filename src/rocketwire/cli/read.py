"""``rocketwire read``: what is in a topic, as lines or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.text import Text

from rocketwire.cli.failures import CommandFailedError, UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import body_text
from rocketwire.cli.safe_text import visible
from rocketwire.errors import ConfigError
from rocketwire.message import MessageQueue
from rocketwire.setting_values import seconds
from rocketwire.stored_message import StoredMessage

if TYPE_CHECKING:
    from rocketwire.core.reading.topics import Position
    from rocketwire.sync.reader import Reader

app = typer.Typer(add_completion=False)


@command(
    app,
    "read",
    panel="Messages",
    examples=(
        "rocketwire read orders",
        "rocketwire read orders --from 15m --tag pay --limit 20",
        "rocketwire read orders --sql \"price > 10 AND region = 'eu'\"",
        "rocketwire read orders --from latest --follow --json | jq .body",
        "rocketwire read orders --key order-42",
    ),
)
def read(  # noqa: PLR0913 - each narrows what is read
    here: Invocation,
    *,
    topic: Annotated[str, typer.Argument(help="What to read.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="earliest, latest, a time (ISO 8601), an age (15m, 2h), or an offset.",
        ),
    ] = "earliest",
    end: Annotated[
        str | None, typer.Option("--to", help="Where to stop, likewise; now by default.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Wait for what comes.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-l", min=1, help="At most so many messages.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only this tag; 'a || b' for several.")] = None,
    sql: Annotated[
        str | None,
        typer.Option(help="Only what an SQL92 expression over properties fits, e.g. 'price > 10'."),
    ] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="BROKER/ID", help="Only this queue, e.g. broker-a/3.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Messages with this key, by the index.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="The message with this id.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Bodies only, one a line, as they are.")
    ] = False,
) -> None:
    """Read messages; in order per queue."""
    with here.reader() as reader:
        if id_ is not None:
            is_offset_id = _is_offset_id(reader, id_)
            found: Iterable[StoredMessage] = (
                [reader.message_by_id(id_)] if is_offset_id else [reader.message_by_id(id_, topic)]
            )
        elif key is not None:
            found = reader.messages_by_key(topic, key, max_messages=limit or 64)
            if not found:
                raise CommandFailedError(f"topic {topic} has no message with the key {key!r}")
        else:
            where = _queue(reader, topic, queue) if queue else topic
            found = reader.read(
                where,
                position(reader, where, start),
                position(reader, where, end) if end is not None else None,
                tags=tag,
                follow=follow,
                sql=sql,
            )
        show = show_json if here.as_json else show_body if raw else show_line
        count = 0
        for message in islice(found, limit):
            show(here, message)
            count += 1
        if count == 0:
            here.note(f"no messages in {topic}")


def _is_offset_id(reader: Reader, text: str) -> bool:
    """Whether an id of 32 characters is an offset id, which names the broker that has it."""
    from rocketwire.errors import RocketMQError
    from rocketwire.wire.message_id import decode_offset_message_id

    try:
        decode_offset_message_id(text)
        reader.message_by_id(text)
    except RocketMQError:
        return False
    return True


#: The two places that have names.
ENDS: Final[dict[str, Literal["earliest", "latest"]]] = {"earliest": "earliest", "latest": "latest"}


def position(reader: Reader, where: str | MessageQueue, text: str) -> Position:
    """A place in a topic from what a person wrote.

    Raises:
        UsageError: it is none.
    """
    if text in ENDS:
        return ENDS[text]
    if text.isdigit():
        queues = [where] if isinstance(where, MessageQueue) else reader.queues(where)
        return dict.fromkeys(queues, int(text))
    return parse_moment(text)


def parse_moment(text: str) -> datetime:
    """A moment: ISO 8601 (local without a zone), or how long ago, such as ``15m``."""
    try:
        return datetime.now(UTC) - timedelta(seconds=seconds(text))
    except ConfigError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is no position: earliest, latest, an offset, an age like 15m, "
            "or a time like 2030-01-31T12:00"
        ) from None
    return moment if moment.tzinfo is not None else moment.astimezone()


def _queue(reader: Reader, topic: str, text: str) -> MessageQueue:
    broker, slash, number = text.rpartition("/")
    known = reader.queues(topic)
    wanted = MessageQueue(topic, broker, int(number)) if slash and number.isdigit() else None
    if wanted not in known:
        names = ", ".join(f"{q.broker}/{q.id}" for q in known[:8])
        raise UsageError(f"--queue {text!r} is no queue of {topic}: there are {names}")
    return wanted


def show_line(here: Invocation, message: StoredMessage) -> None:
    """A message as a line for people; a pipe gets what was sent, to the letter."""
    queue = message.queue
    parts = [
        (f"{message.stored_at.astimezone():%H:%M:%S.%f}"[:-3], "dim"),
        (f"{queue.broker}/{queue.id}@{message.offset}", "cyan"),
        (message.keys or "", "green"),
        (f"[{message.tags}]" if message.tags else "", "yellow"),
    ]
    words = [(text, style) for text, style in parts if text] + [(body_text(message.body), "")]
    if not here.console.is_terminal:
        # Not by the console, which leaves out some control characters.
        here.console.file.write("  ".join(text for text, _ in words) + "\n")
        here.console.file.flush()
        return
    line = Text("  ").join(Text(visible(text), style=style) for text, style in words)
    here.console.print(line, soft_wrap=True)


def show_json(here: Invocation, message: StoredMessage) -> None:
    """A message as a line of JSON."""
    here.emit(describe(message))


def show_body(here: Invocation, message: StoredMessage) -> None:
    """A message's body, and nothing else."""
    sys.stdout.buffer.write(message.body + b"\n")
    sys.stdout.buffer.flush()


def describe(message: StoredMessage) -> dict[str, Any]:
    """A message as JSON has it."""
    properties: Mapping[str, str] = message.properties
    return {
        "topic": message.topic,
        "broker": message.queue.broker,
        "queue": message.queue.id,
        "offset": message.offset,
        "message_id": message.message_id,
        "tags": message.tags,
        "keys": message.keys,
        "sharding_key": message.sharding_key,
        "body": message.body,
        "properties": dict(properties),
        "born_at": message.born_at,
        "stored_at": message.stored_at,
        "reconsume_times": message.reconsume_times,
    }
