"""``rocketwire consume``: read as a member of a consumer group, or run a command per message."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.live import Live
from rich.table import Table

from rocketwire.cli.failures import CommandFailedError, UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import make_table
from rocketwire.cli.read import show_body, show_json, show_line
from rocketwire.cli.signals import stop_requested
from rocketwire.errors import ClientClosedError
from rocketwire.pages.words import some
from rocketwire.stored_message import StoredMessage

if TYPE_CHECKING:
    from rocketwire.sync.consumer import Consumer

app = typer.Typer(add_completion=False)

_LOOK: Final = 0.5


@command(
    app,
    "consume",
    panel="Messages",
    examples=(
        "rocketwire consume orders --group billing",
        "rocketwire consume orders --group billing --ordered --from earliest --json",
        "rocketwire consume orders --group big --sql 'price > 1000'",
        "rocketwire consume orders --group mail --tag paid --exec './send-mail.sh'",
    ),
)
def consume(  # noqa: PLR0913 - each has a default
    here: Invocation,
    *,
    topic: Annotated[str, typer.Argument(help="What to read.")],
    group: Annotated[str, typer.Option("--group", "-g", help="Its members share the queues.")],
    ordered: Annotated[
        bool, typer.Option("--ordered", help="One queue, one worker at a time, locked.")
    ] = False,
    exec_: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="CMD",
            help="Run this in a shell for each message, its body on standard input, its fields as "
            "ROCKETMQ_* variables; where it fails, the message comes again.",
        ),
    ] = None,
    tag: Annotated[str, typer.Option(help="Only this tag; 'a || b' for several.")] = "*",
    sql: Annotated[
        str | None,
        typer.Option(help="Only what an SQL92 expression over properties fits, e.g. 'price > 10'."),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="Where a new group begins: earliest, latest, a time.")
    ] = "latest",
    workers: Annotated[int, typer.Option(min=1, max=256, help="Messages handled at a time.")] = 1,
    limit: Annotated[
        int | None, typer.Option("--limit", "-l", min=1, help="Stop after so many messages.")
    ] = None,
    max_failures: Annotated[
        int | None,
        typer.Option(min=1, help="Stop, and fail, after so many failures of --exec."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Bodies only, one a line, as they are.")
    ] = False,
) -> None:
    """Read as a member of a group, until Ctrl-C; what was handled is not read again."""
    from rocketwire.sync.consumer import Consumer

    settings = here.consumer_settings() | {"ordered": ordered, "start": start, "workers": workers}
    consumer = Consumer(config=settings, group=group).subscribe(topic, tag, sql=sql)
    show = show_json if here.as_json else show_body if raw else show_line
    handle = _runner(exec_) if exec_ is not None else lambda message: show(here, message)
    counted = _Counted(handle, limit, max_failures, consumer.stop)
    with stop_requested() as stop, consumer:
        watcher = threading.Thread(
            target=_watch, args=(here, consumer, stop, counted), daemon=True, name="consume-watch"
        )
        watcher.start()
        try:
            consumer.run(counted)
        finally:
            counted.is_over.set()
            watcher.join(10)
    here.note(f"{some(counted.handled, 'message')} handled")
    if counted.failed == max_failures:
        raise CommandFailedError(
            f"--exec failed {counted.failed} times, as often as --max-failures allows; "
            "what failed comes again"
        )


class _Counted:
    """A handler that stops its consumer after so many messages."""

    def __init__(
        self,
        handle: Callable[[StoredMessage], object],
        limit: int | None,
        max_failures: int | None,
        stop: Callable[[], None],
    ) -> None:
        self._handle = handle
        self._limit = limit
        self._max_failures = max_failures
        self._stop = stop
        self._lock = threading.Lock()
        self.handled = 0
        self.failed = 0
        self.is_over = threading.Event()

    def __call__(self, message: StoredMessage) -> None:
        """Handle a message; one beyond the limit is left for later."""
        with self._lock:
            if self._limit is not None and self.handled >= self._limit:
                raise UsageError("beyond the limit: left for the next member")
            if self.failed == self._max_failures:
                raise CommandFailedError("beyond --max-failures: left for the next member")
            self.handled += 1
        try:
            self._handle(message)
        except BaseException:
            with self._lock:
                self.handled -= 1
                self.failed += self.failed != self._max_failures
            if self.failed == self._max_failures:
                self._stop()
            raise
        if self.handled == self._limit:
            self._stop()


def _runner(line: str) -> Callable[[StoredMessage], None]:
    """A handler that runs a command in a shell, and fails when the command does."""
    if not line.strip():
        raise UsageError("--exec is empty: give a command")

    def run(message: StoredMessage) -> None:
        try:
            subprocess.run(  # noqa: S602 - the line is the user's own; messages are no part of it
                line,
                shell=True,
                input=message.body,
                env=os.environ | _variables(message),
                check=True,
            )
        except subprocess.CalledProcessError as error:
            # The log has a line for each failure, which says of which message this is told.
            raise CommandFailedError(
                f"the command ended with code {error.returncode}; the message comes again"
            ) from None

    return run


def _variables(message: StoredMessage) -> dict[str, str]:
    found: dict[str, Any] = {
        "TOPIC": message.topic,
        "BROKER": message.queue.broker,
        "QUEUE": message.queue.id,
        "OFFSET": message.offset,
        "MESSAGE_ID": message.message_id,
        "TAGS": message.tags or "",
        "KEYS": message.keys or "",
        "SHARDING_KEY": message.sharding_key or "",
        "RECONSUME_TIMES": message.reconsume_times,
    }
    return {f"ROCKETMQ_{name}": str(value) for name, value in found.items()}


def _watch(here: Invocation, consumer: Consumer, stop: threading.Event, counted: _Counted) -> None:
    """Show a line per queue on a terminal, and stop the consumer when it is asked for."""
    live = Live(console=here.console, auto_refresh=False, transient=True) if here.is_live else None
    with live or contextlib.nullcontext():
        while not counted.is_over.wait(_LOOK if live is not None else 0.05):
            if stop.is_set():
                consumer.stop()
                return
            if live is not None:
                with contextlib.suppress(ClientClosedError):
                    live.update(_table(consumer), refresh=True)


def _table(consumer: Consumer) -> Table:
    rows = [
        (
            f"{state.queue.topic} {state.queue.broker}/{state.queue.id}",
            state.state,
            state.handled,
            max(0, state.end - state.handled),
            state.in_hand,
        )
        for state in consumer.stats().queues
    ]
    return make_table(["queue", "state", "handled up to#", "behind#", "in hand#"], rows)
