"""``rocketwire replay``: what was in a topic once, into another one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rocketwire.cli.failures import FAILED, INTERRUPTED, UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.read import parse_moment, position
from rocketwire.cli.send_rate import Pace
from rocketwire.cli.signals import stop_requested
from rocketwire.stored_message import StoredMessage

if TYPE_CHECKING:
    from rocketwire.admin_values import Replayed
    from rocketwire.sync.admin import Admin

app = typer.Typer(add_completion=False)

_BATCH = 32
_SHOWN_FAILURES = 20


@command(
    app,
    "replay",
    panel="Messages",
    examples=(
        "rocketwire replay orders --from 2026-11-15T18:00 --to 2026-11-16T06:00 --into orders-again",
        "rocketwire replay orders --from 12h --into orders-test --sql \"region = 'eu'\" --rate 500",
        "rocketwire replay ./archive --into orders-again --keep-order",
    ),
)
def replay(  # noqa: PLR0913 - each is one decision of the user
    here: Invocation,
    *,
    source: Annotated[
        str, typer.Argument(metavar="TOPIC|ARCHIVE", help="A topic, or the folder of an archive.")
    ],
    into: Annotated[str, typer.Option(help="The topic that gets them; it exists.")],
    start: Annotated[
        str, typer.Option("--from", help="A time (ISO 8601), an age (12h), an offset, or earliest.")
    ] = "earliest",
    end: Annotated[
        str | None, typer.Option("--to", help="Where to stop, likewise; now by default.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option(help="Only what an SQL92 expression over properties fits.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only this tag; 'a || b' for several.")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="At most so many messages a second.")
    ] = None,
    keep_order: Annotated[
        bool, typer.Option("--keep-order", help="Messages of one queue stay in their order.")
    ] = False,
    label: Annotated[
        str, typer.Option(help="Another text puts the same messages there once more.")
    ] = "",
    of_topic: Annotated[
        str | None, typer.Option("--topic", help="Which topic of an archive that has several.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would be sent, and send nothing.")
    ] = False,
) -> None:
    """Put the messages of a topic, or of an archive of one, into another topic, each once.

    It may be interrupted and repeated: what was sent is recognised. Say --from and --to as times
    then, so that both runs mean the same messages.
    """
    wanted = _Wanted(source, start, end, sql, tag, of_topic)
    began = time.monotonic()
    with here.admin() as admin, stop_requested() as stop:
        if source == into:
            raise UsageError(f"{into} can't be replayed into itself: choose another topic")
        admin.queues(into)  # an unknown topic is told before anything is read
        messages, total = _from_archive(wanted) if wanted.is_archive else _from_topic(admin, wanted)
        tally = _Tally()
        pace = Pace(rate, stop)
        paced = _paced(messages, pace, tally)
        batch = _BATCH if rate is None else max(1, min(_BATCH, int(rate)))
        with _Bar(here, total) as advance:
            if dry_run:
                for _ in paced:
                    advance()
            else:
                for result in admin.replay(
                    paced, into, keep_order=keep_order, label=label, batch=batch
                ):
                    tally.add(here, result)
                    advance()
        is_stopped = stop.is_set()
    _sum_up(here, wanted, into, tally, time.monotonic() - began, is_stopped=is_stopped)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which messages."""

    source: str
    start: str
    end: str | None
    sql: str | None
    tag: str | None
    topic: str | None

    @property
    def is_archive(self) -> bool:
        return "/" in self.source or "\\" in self.source or Path(self.source).is_dir()


@dataclass(slots=True)
class _Tally:
    """What became of them."""

    read: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    shown: int = 0

    def add(self, here: Invocation, result: Replayed) -> None:
        status = "sent before" if result.status == "already there" else result.status
        self.counts[status] = self.counts.get(status, 0) + 1
        if result.error is not None and self.shown < _SHOWN_FAILURES:
            self.shown += 1
            queue = result.message.queue
            where = f"{queue.broker}/{queue.id}@{result.message.offset}"
            here.remark(status, f"{where} {result.message.message_id}: {status}: {result.error}")

    @property
    def unfinished(self) -> int:
        return self.counts.get("failed", 0) + self.counts.get("in doubt", 0)


def _from_topic(admin: Admin, wanted: _Wanted) -> tuple[Iterator[StoredMessage], int | None]:
    if wanted.topic is not None:
        raise UsageError("--topic chooses a topic of an archive: give the topic itself instead")
    topic = wanted.source
    start = position(admin, topic, wanted.start)
    end = position(admin, topic, wanted.end) if wanted.end is not None else None
    found = admin.read(topic, start, end, tags=wanted.tag, sql=wanted.sql)
    is_all = wanted.sql is None and wanted.tag is None
    return found, _offsets_between(admin, topic, start, end) if is_all else None


def _offsets_between(admin: Admin, topic: str, start: Any, end: Any) -> int | None:
    """How many messages lie between two positions, for the bar; None where that is not known."""

    def offset(queue: Any, place: Any) -> int:
        if place == "earliest":
            return admin.min_offset(queue)
        if place is None or place == "latest":
            return admin.max_offset(queue)
        if isinstance(place, datetime):
            return admin.offset_for_time(queue, place)
        return int(place[queue])

    queues = admin.queues(topic)
    return sum(max(0, offset(q, end) - offset(q, start)) for q in queues)


def _from_archive(wanted: _Wanted) -> tuple[Iterator[StoredMessage], int | None]:
    try:
        from rocketwire.columns.archive_messages import ArchivedMessages
    except ImportError:
        raise UsageError("archives need pyarrow: pip install 'rocketwire[arrow]'") from None
    found = ArchivedMessages(
        wanted.source,
        topic=wanted.topic,
        start=_moment(wanted.start),
        end=None if wanted.end is None else _moment(wanted.end),
    )
    if wanted.sql is None and wanted.tag is None:
        return iter(found), found.count
    return _filtered(found, wanted), None


def _moment(text: str) -> datetime | None:
    if text in {"earliest", "latest"}:
        return None
    if text.isdigit():
        raise UsageError(f"{text!r} is an offset: of an archive say a time, or an age such as 12h")
    return parse_moment(text)


def _filtered(messages: Any, wanted: _Wanted) -> Iterator[StoredMessage]:
    """What brokers would have left out of a topic is left out here."""
    from rocketwire.core.reading.pull import tag_filter
    from rocketwire.embedded.sql_filter import SqlFilter

    if wanted.sql is not None and wanted.tag is not None:
        raise UsageError("--sql and --tag can't go together: write TAGS = 'a' in the expression")
    matches = None if wanted.sql is None else SqlFilter(wanted.sql).matches
    tags = tag_filter(wanted.tag).tags
    for message in messages:
        own = {"TAGS": message.tags, "KEYS": message.keys, **message.properties}
        known = {name: value for name, value in own.items() if value is not None}
        if (matches is None or matches(known)) and (not tags or message.tags in tags):
            yield message


def _paced(messages: Iterator[StoredMessage], pace: Pace, tally: _Tally) -> Iterator[StoredMessage]:
    for message in messages:
        if not pace.wait():
            return
        tally.read += 1
        yield message


class _Bar:
    """A progress bar on a terminal, a line now and then elsewhere."""

    def __init__(self, here: Invocation, total: int | None) -> None:
        self._here, self._total = here, total
        self._done, self._told_at = 0, time.monotonic()
        self._progress: Progress | None = None
        if here.errors.is_terminal and not here.as_json:
            columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._progress = Progress(TextColumn("replaying"), *columns, console=here.errors)
            self._task = self._progress.add_task("", total=total)

    def __enter__(self) -> Any:
        if self._progress is not None:
            self._progress.start()
        return self._advance

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _advance(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress.advance(self._task)
        elif time.monotonic() - self._told_at > 5:
            self._told_at = time.monotonic()
            of = "" if self._total is None else f" of {self._total:,}"
            self._here.note(f"{self._done:,}{of} messages")


def _sum_up(
    here: Invocation,
    wanted: _Wanted,
    into: str,
    tally: _Tally,
    seconds: float,
    *,
    is_stopped: bool,
) -> None:
    if here.as_json:
        here.emit(
            {
                "source": wanted.source,
                "into": into,
                "read": tally.read,
                **{name.replace(" ", "_"): tally.counts.get(name, 0) for name in _RESULTS},
                "interrupted": is_stopped,
                "seconds": round(seconds, 3),
            }
        )
    else:
        counts = ", ".join(f"{count:,} {name}" for name, count in tally.counts.items())
        here.say(f"{wanted.source} -> {into}: {tally.read:,} read, {counts or 'nothing sent'}, "
                 f"{seconds:.1f} s")  # fmt: skip
    if is_stopped:
        here.note("interrupted: repeat the command to go on, nothing is sent twice")
        raise typer.Exit(INTERRUPTED)
    if tally.unfinished:
        here.note("repeat the command for those that failed: what was sent is recognised")
        raise typer.Exit(FAILED)


_RESULTS = ("sent", "sent before", "in doubt", "failed")
