"""Which dead letters are meant: the options that narrow them, the same in every command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from rocketwire.cli.read import parse_moment

if TYPE_CHECKING:
    from rocketwire.admin_values import DeadLetter
    from rocketwire.sync.admin import Admin

Since = Annotated[
    str | None, typer.Option(help="Given up from then on: a time (ISO 8601), or an age (15m, 2h).")
]
Before = Annotated[str | None, typer.Option(help="Given up before that, likewise.")]
OfTopic = Annotated[str | None, typer.Option(help="Sent to this topic.")]
Key = Annotated[str | None, typer.Option(help="With this key.")]
Tag = Annotated[str | None, typer.Option(help="With this tag.")]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", help="With this id, the dead letter's own or the original."),
]
ErrorText = Annotated[str | None, typer.Option(help="With this text in their last error.")]
Limit = Annotated[int | None, typer.Option("--limit", "-l", min=1, help="At most so many.")]
Purged = Annotated[bool, typer.Option("--purged", help="Also those that were purged.")]


def has_id(letter: DeadLetter, ids: Iterable[str]) -> bool:
    """Whether one of the ids is its own, or that of its original."""
    return not {letter.original_id, letter.message.offset_message_id}.isdisjoint(ids)


def has_key(letter: DeadLetter, key: str) -> bool:
    """Whether a key is one of its keys."""
    return key in (letter.message.keys or "").split()


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """What was asked for."""

    since: datetime | None = None
    before: datetime | None = None
    topic: str | None = None
    key: str | None = None
    tag: str | None = None
    ids: tuple[str, ...] = ()
    error: str | None = None
    limit: int | None = None
    purged: bool = False

    @classmethod
    def of(  # noqa: PLR0913 - one for each option
        cls,
        since: str | None = None,
        before: str | None = None,
        topic: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        ids: list[str] | None = None,
        error: str | None = None,
        limit: int | None = None,
        *,
        purged: bool = False,
    ) -> LetterFilter:
        """From what a person wrote.

        Raises:
            UsageError: a time is none.
        """
        return cls(
            None if since is None else parse_moment(since),
            None if before is None else parse_moment(before),
            topic,
            key,
            tag,
            tuple(ids or ()),
            error,
            limit,
            purged,
        )

    @property
    def is_narrow(self) -> bool:
        """Whether some are left out."""
        return self != LetterFilter(purged=self.purged)

    def letters(self, admin: Admin, group: str) -> Iterator[DeadLetter]:
        """The dead letters of a group that fit."""
        found = admin.dead_letters(group, since=self.since, purged=self.purged)
        return islice((letter for letter in found if self._fits(letter)), self.limit)

    def _fits(self, letter: DeadLetter) -> bool:
        message = letter.message
        return (
            (self.before is None or message.stored_at < self.before)
            and self.topic in {None, letter.original_topic}
            and self.tag in {None, message.tags}
            and (self.key is None or self.key in (message.keys or "").split())
            and (
                not self.ids or bool({*self.ids} & {letter.original_id, message.offset_message_id})
            )
            and (self.error is None or self.error in (letter.last_error or ""))
        )
