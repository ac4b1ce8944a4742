"""``rocketwire send``: one message, or one per line, or batches of lines."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketwire.cli.failures import FAILED, UsageError
from rocketwire.cli.invocation import Invocation, command
from rocketwire.cli.output import milliseconds
from rocketwire.errors import SendFailedError
from rocketwire.message import Message, SendResult
from rocketwire.pages.words import some

if TYPE_CHECKING:
    from rocketwire.sync.producer import Producer

app = typer.Typer(add_completion=False)


@command(
    app,
    "send",
    panel="Messages",
    examples=(
        "rocketwire send orders 'order 42 is paid' --tag pay --key order-42",
        "rocketwire send orders --file order.json --ordered customer-7",
        "cat lines.txt | rocketwire send orders --lines --batch 100",
    ),
)
def send(  # noqa: PLR0913 - a message has that many fields
    here: Invocation,
    *,
    topic: Annotated[str, typer.Argument(help="Where the message goes.")],
    body: Annotated[
        str | None, typer.Argument(help="The message; without it, --file or standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the message from a file.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="One message per line.")] = False,
    batch: Annotated[
        int, typer.Option(min=0, help="Lines sent in one request; implies --lines.")
    ] = 0,
    repeat: Annotated[int, typer.Option(min=1, help="Send it so many times.")] = 1,
    key: Annotated[list[str] | None, typer.Option(help="A key to find it by; repeatable.")] = None,
    tag: Annotated[str | None, typer.Option(help="A word that readers filter by.")] = None,
    prop: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="Repeatable.")
    ] = None,
    ordered: Annotated[
        str | None, typer.Option(metavar="KEY", help="Sharding key: one queue, in order.")
    ] = None,
    delay_level: Annotated[int, typer.Option(min=0, max=18, help="1 (1 s) to 18 (2 h).")] = 0,
    deliver_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Moment of delivery, ISO 8601 (5.x).")
    ] = None,
    oneway: Annotated[bool, typer.Option("--oneway", help="Do not wait for an answer.")] = False,
    timeout: Annotated[float | None, typer.Option(help="Seconds over all attempts.")] = None,
) -> None:
    """Send messages, and tell where each was stored."""
    fields: dict[str, Any] = {
        "tags": tag,
        "keys": key,
        "properties": _properties(prop or ()),
        "sharding_key": ordered,
        "delay_level": delay_level,
        "deliver_at": _moment(deliver_at),
    }
    if body is not None and file is not None:
        raise UsageError("give BODY or --file, not both")
    bodies = _bodies(body, file, by_line=lines or batch > 0)
    messages = (Message(topic, text, **fields) for text in bodies for _ in range(repeat))
    with here.producer() as producer:
        sending = _Sending(here, producer, timeout=timeout, oneway=oneway)
        sending.run(_grouped(messages, batch))
    sending.summarise()


class _Sending:
    """What was sent so far, and what came of it."""

    def __init__(
        self, here: Invocation, producer: Producer, *, timeout: float | None, oneway: bool
    ) -> None:
        self._here = here
        self._producer = producer
        self._timeout = timeout
        self._oneway = oneway
        self._brokers: Counter[str] = Counter()
        self._latencies: list[float] = []
        self._failed = 0
        self._sent = 0
        self._started = time.monotonic()

    def run(self, groups: Iterable[Message | list[Message]]) -> None:
        """Send everything; one failure does not stop the rest."""
        for group in groups:
            try:
                self._send(group)
            except SendFailedError as error:
                self._failed += 1
                self._tell_failure(error)
            self._sent += len(group) if isinstance(group, list) else 1

    def _send(self, group: Message | list[Message]) -> None:
        started = time.monotonic()
        if self._oneway:
            self._producer.send_oneway(group, timeout=self._timeout)
            return
        result = self._producer.send(group, timeout=self._timeout)
        self._latencies.append(time.monotonic() - started)
        self._brokers[result.queue.broker] += 1
        if self._here.as_json:
            self._here.emit(_described(result))
        elif len(self._latencies) <= 10:
            self._here.say(_line(result, self._latencies[-1]))
        elif len(self._latencies) == 11:
            self._here.say("... (a summary follows)")

    def _tell_failure(self, error: SendFailedError) -> None:
        if self._here.as_json:
            self._here.emit({"error": str(error), "outcome": error.outcome.value})
        else:
            self._here.errors.print(f"rocketwire: {error}", markup=False)

    def summarise(self) -> None:
        """Say how it went as a whole; the exit code tells of failures."""
        elapsed = time.monotonic() - self._started
        if self._oneway:
            self._here.say(f"{some(self._sent, 'message')} written; oneway sends have no answer")
        elif len(self._latencies) > 1:
            ordered = sorted(self._latencies)
            spread = ", ".join(f"{name} {n}" for name, n in sorted(self._brokers.items()))
            self._here.say(
                f"{self._sent} messages in {elapsed:.2f} s ({self._sent / elapsed:,.0f}/s), "
                f"requests p50 {milliseconds(ordered[len(ordered) // 2])}, "
                f"p99 {milliseconds(ordered[int(len(ordered) * 0.99)])}; {spread}"
            )
        if self._failed:
            if self._failed + len(self._latencies) > 1:
                self._here.note(f"{self._failed} requests failed")
            raise typer.Exit(FAILED)


def _line(result: SendResult, latency: float) -> str:
    queue = result.queue
    extra = f" after {result.attempt_count} attempts" if result.attempts else ""
    doubt = " (an earlier attempt may be stored, too)" if result.maybe_duplicate else ""
    return (
        f"{result.status}  {queue.broker}/{queue.id}  offset {result.offset}  "
        f"{result.message_id}  {milliseconds(latency)}{extra}{doubt}"
    )


def _described(result: SendResult) -> dict[str, Any]:
    return {
        "status": str(result.status),
        "topic": result.queue.topic,
        "broker": result.queue.broker,
        "queue": result.queue.id,
        "offset": result.offset,
        "message_id": result.message_id,
        "message_ids": list(result.message_ids),
        "offset_message_id": result.offset_message_id,
        "attempts": result.attempt_count,
        "maybe_duplicate": result.maybe_duplicate,
    }


def _bodies(body: str | None, file: Path | None, *, by_line: bool) -> Iterator[bytes]:
    if body is not None and body != "-":
        content = body.encode()
        yield from content.splitlines() if by_line else (content,)
        return
    if file is None and sys.stdin.isatty():
        raise UsageError("there is no message: give BODY, --file, or pipe it in")
    stream = file.open("rb") if file is not None else sys.stdin.buffer
    with stream:
        if by_line:
            yield from (line.rstrip(b"\r\n") for line in stream)
        else:
            yield stream.read()


def _grouped(messages: Iterator[Message], size: int) -> Iterator[Message | list[Message]]:
    if size <= 1:
        yield from messages
        return
    while group := list(islice(messages, size)):
        yield group


def _properties(pairs: Iterable[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--property {pair!r}: write NAME=VALUE")
        found[name] = value
    return found


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--deliver-at {text!r}: write it like 2030-01-31T12:00:00+00:00"
        ) from None
    return moment if moment.tzinfo is not None else moment.astimezone()
