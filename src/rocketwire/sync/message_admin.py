"""The part of the blocking admin client that moves messages: dead letters and replays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice

from rocketwire.admin_values import DeadLetter, Purged, Redriven, Replayed
from rocketwire.core.admin import dead_letters as letters
from rocketwire.core.admin.redrive import find_redriven
from rocketwire.core.admin.redrive import redrive as redrive_letter
from rocketwire.core.admin.replay import Replay, check_batch, check_messages, is_unfinished
from rocketwire.message import epoch_of
from rocketwire.stored_message import StoredMessage
from rocketwire.sync.reader import Reader


class MessageAdmin(Reader):
    """Dead letters and replays; what ``Admin`` has besides is there."""

    # -- dead letters ------------------------------------------------------------------------

    def dead_letters(
        self, group: str, *, since: datetime | float | None = None, purged: bool = False
    ) -> Iterator[DeadLetter]:
        """The messages that a consumer group has given up, in order per queue.

        Args:
            group: its name.
            since: only those given up at or after that.
            purged: also those that were purged.

        Raises:
            GroupNotFoundError: there is no such group.
            PermissionDeniedError: its dead letters may not be read; the text says how to allow it.
        """
        self._deadline()
        reading = letters.LetterReading(
            self._instance,
            group,
            since=None if since is None else epoch_of(since, "since"),
            purged=purged,
            reader=self._config.group,
            timeout=self._config.pull_timeout,
        )
        self._run(reading.begin())
        return self._letters(reading)

    def _letters(self, reading: letters.LetterReading) -> Iterator[DeadLetter]:
        while not reading.is_over:
            yield from self._run(reading.next_letters())

    def redrive(self, dead_letter: DeadLetter, *, to: str | None = None) -> Redriven:
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
        return self._run(
            redrive_letter(
                self._instance,
                dead_letter,
                to=to,
                reader=self._config.group,
                timeout=self._config.request_timeout,
            )
        )

    def redriven(self, dead_letter: DeadLetter, *, to: str | None = None) -> Redriven | None:
        """Where the copy of a dead letter is that ``redrive`` has sent already; None without one.

        Args:
            dead_letter: as ``dead_letters`` gives it.
            to: the topic that was given to ``redrive``, if any.

        Raises:
            InvalidMessageError: it is no dead letter.
            RocketMQError: it could not be looked for.
        """
        self._deadline()
        return self._run(
            find_redriven(
                self._instance,
                dead_letter,
                to=to,
                reader=self._config.group,
                timeout=self._config.request_timeout,
            )
        )

    def purge_dead_letters(
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
        return self._run(
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
        messages: Iterable[StoredMessage],
        into: str,
        *,
        keep_order: bool = False,
        label: str = "",
        batch: int = 32,
    ) -> Iterator[Replayed]:
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
        self._deadline()
        run = Replay(
            self._instance,
            into,
            keep_order=keep_order,
            label=label,
            group=self._config.group,
            timeout=self._config.request_timeout,
        )
        self._run(run.begin())
        return self._replayed(run, iter(messages), batch, keep_order=keep_order)

    def _replayed(
        self, run: Replay, messages: Iterator[StoredMessage], batch: int, *, keep_order: bool
    ) -> Iterator[Replayed]:
        while part := list(islice(messages, batch)):
            results = self._run(run.put(part))
            yield from results
            if keep_order and is_unfinished(results):
                return
