"""The part of the asyncio admin client that moves messages: dead letters and replays."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from datetime import datetime
from itertools import islice

from rocketwire.admin_values import DeadLetter, Purged, Redriven, Replayed
from rocketwire.aio.reader import AsyncReader
from rocketwire.core.admin import dead_letters as letters
from rocketwire.core.admin.redrive import find_redriven
from rocketwire.core.admin.redrive import redrive as redrive_letter
from rocketwire.core.admin.replay import Replay, check_batch, check_messages, is_unfinished
from rocketwire.message import epoch_of
from rocketwire.stored_message import StoredMessage


class AsyncMessageAdmin(AsyncReader):
    """Dead letters and replays; what ``AsyncAdmin`` has besides is there."""

    # -- dead letters ------------------------------------------------------------------------

    def dead_letters(
        self, group: str, *, since: datetime | float | None = None, purged: bool = False
    ) -> AsyncIterator[DeadLetter]:
        """The messages that a consumer group has given up, in order per queue, for ``async for``.

        Args:
            group: its name.
            since: only those given up at or after that.
            purged: also those that were purged.

        Raises:
            GroupNotFoundError: there is no such group.
            PermissionDeniedError: its dead letters may not be read; the text says how to allow it.
        """
        moment = None if since is None else epoch_of(since, "since")
        return self._letters(group, moment, purged=purged)

    async def _letters(
        self, group: str, since: float | None, *, purged: bool
    ) -> AsyncIterator[DeadLetter]:
        self._deadline()
        reading = letters.LetterReading(
            self._instance,
            group,
            since=since,
            purged=purged,
            reader=self._config.group,
            timeout=self._config.pull_timeout,
        )
        await self._run(reading.begin())
        while not reading.is_over:
            for letter in await self._run(reading.next_letters()):
                yield letter

    async def redrive(self, dead_letter: DeadLetter, *, to: str | None = None) -> Redriven:
        """Send a dead letter again, to the group that gave it up; other groups do not see it.

        It is looked for first, so that a second call sends nothing. Its count of tries begins anew.

        Args:
            dead_letter: as ``dead_letters`` gives it.
            to: a topic instead, whose groups all get it.

        Raises:
            InvalidMessageError: it is no dead letter.
            RocketMQError: it was not sent; or that is not known, and the next call finds out.
        """
        self._deadline()
        return await self._run(
            redrive_letter(
                self._instance,
                dead_letter,
                to=to,
                reader=self._config.group,
                timeout=self._config.request_timeout,
            )
        )

    async def redriven(self, dead_letter: DeadLetter, *, to: str | None = None) -> Redriven | None:
        """Where the copy of a dead letter is that ``redrive`` has sent already; None without one.

        Args:
            dead_letter: as ``dead_letters`` gives it.
            to: the topic that was given to ``redrive``, if any.

        Raises:
            InvalidMessageError: it is no dead letter.
            RocketMQError: it could not be looked for.
        """
        self._deadline()
        return await self._run(
            find_redriven(
                self._instance,
                dead_letter,
                to=to,
                reader=self._config.group,
                timeout=self._config.request_timeout,
            )
        )

    async def purge_dead_letters(
        self, group: str, *, before: datetime | float | None = None, dry_run: bool = False
    ) -> tuple[Purged, ...]:
        """Show a group's dead letters no more; they stay in their log until it is deleted.

        Args:
            group: its name.
            before: only those given up before that.
            dry_run: tell what it would do.

        Raises:
            GroupNotFoundError: there is no such group.
        """
        self._deadline()
        return await self._run(
            letters.purge(
                self._instance,
                group,
                before=None if before is None else epoch_of(before, "before"),
                reader=self._config.group,
                dry_run=dry_run,
                timeout=self._config.request_timeout,
            )
        )

    # -- replay ------------------------------------------------------------------------------

    def replay(
        self,
        messages: Iterable[StoredMessage] | AsyncIterable[StoredMessage],
        into: str,
        *,
        keep_order: bool = False,
        label: str = "",
        batch: int = 32,
    ) -> AsyncIterator[Replayed]:
        """Put messages into another topic, each once: what an earlier run has sent is recognised.

        Args:
            messages: as a reader gives them; any number.
            into: the topic, which exists.
            keep_order: messages of one queue stay in order, and the first failure ends it.
            label: set it to another text in order to put the same messages there once more.
            batch: messages that are looked for, and sent, at a time.

        Raises:
            TopicNotFoundError: there is no such topic.
            InvalidMessageError: an argument is wrong.
            RocketMQError: brokers can't be asked for what is there.
        """
        check_batch(batch)
        check_messages(messages)
        return self._replayed(messages, into, batch, keep_order=keep_order, label=label)

    async def _replayed(
        self,
        messages: Iterable[StoredMessage] | AsyncIterable[StoredMessage],
        into: str,
        batch: int,
        *,
        keep_order: bool,
        label: str,
    ) -> AsyncIterator[Replayed]:
        self._deadline()
        run = Replay(
            self._instance,
            into,
            keep_order=keep_order,
            label=label,
            group=self._config.group,
            timeout=self._config.request_timeout,
        )
        await self._run(run.begin())
        async for part in _parts(messages, batch):
            results = await self._run(run.put(part))
            for result in results:
                yield result
            if keep_order and is_unfinished(results):
                return


async def _parts(
    messages: Iterable[StoredMessage] | AsyncIterable[StoredMessage], size: int
) -> AsyncIterator[list[StoredMessage]]:
    """Messages, so many at a time."""
    if isinstance(messages, AsyncIterable):
        part: list[StoredMessage] = []
        async for message in messages:
            part.append(message)
            if len(part) == size:
                yield part
                part = []
        if part:
            yield part
        return
    source = iter(messages)
    while found := list(islice(source, size)):
        yield found
