"""Whether every offset that was read has its message: nothing is skipped in silence.

An answer whose last record is cut off is asked for again from there on. Offsets that have no message
are loss, unless a filter or a compaction of the topic explains them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rocketwire.columns.client_parts import ClientParts
from rocketwire.columns.lost_messages import DataLossError
from rocketwire.columns.record_starts import PullBody
from rocketwire.core.reading.pull import ALL, TagFilter, is_compacted
from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.lazy_message import cut, whole_records
from rocketwire.wire.message_fields import Source

_log = logging.getLogger("rocketwire.columns")

#: How often an answer may be cut off within its first record before it is given up.
_TRIES: Final = 3

#: Reads offsets of a queue again: from one on, up to another.
Again = Callable[[MessageQueue, int, int], Iterator[PullBody]]


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """What to do when things go wrong.

    ``timeout`` is how long a range may go without progress before the read fails.
    """

    timeout: float = 120.0
    fail_on_data_loss: bool = True
    tags: TagFilter = ALL
    group: str = "rocketwire-reader"

    @property
    def is_filtered(self) -> bool:
        """Whether brokers leave messages out."""
        return not self.tags.is_all

    def tell_of_loss(self, text: str) -> None:
        """Messages are gone.

        Raises:
            DataLossError: that is minded.
        """
        if self.fail_on_data_loss:
            raise DataLossError(f"{text}. Set failOnDataLoss to false to go on without them")
        _log.warning("%s; going on without them", text)


class Accounts:
    """Checks what was fetched under one policy."""

    def __init__(self, parts: ClientParts, policy: FetchPolicy, again: Again) -> None:
        self._parts = parts
        self._policy = policy
        self._again = again
        self._compacted: dict[str, bool] = {}
        self._cuts: dict[tuple[MessageQueue, int], int] = {}

    def is_complete(self, part: PullBody, count: int) -> bool:
        """Whether so many records are all that a body should hold, as far as that is known."""
        return self._policy.is_filtered or count == part.end - part.first

    def settle(self, part: PullBody) -> Iterator[PullBody]:
        """A body is not as it should be: what follows it, asked for again where it was cut.

        Raises:
            DataLossError: offsets have no messages, and that is minded.
            RemoteProtocolError: not even one record is whole, time after time.
        """
        source = Source(bytes(part.body), part.queue, part.queue.broker, part.offset_delta)
        messages, go_on_at = cut(source, part.next_offset)
        end = part.end
        if go_on_at is not None or whole_records(part.body)[1] < len(part.body):
            end = part.first if go_on_at is None else min(end, go_on_at)
        offsets = {message.offset for message in messages}
        missing = [n for n in range(part.first, end) if n not in offsets]
        self.account_for(part.queue, missing, end)
        if end < part.end:
            if end == part.first:
                self._count_cut(part)
            yield from self._again(part.queue, end, part.end)

    def _count_cut(self, part: PullBody) -> None:
        place = (part.queue, part.first)
        self._cuts[place] = self._cuts.get(place, 0) + 1
        if self._cuts[place] >= _TRIES:
            raise RemoteProtocolError(
                f"{part.queue}: answers from offset {part.first} on end within their first record"
            )

    def account_for(self, queue: MessageQueue, missing: Sequence[int], go_on_at: int) -> None:
        """Some offsets have no messages.

        Raises:
            DataLossError: nothing explains that, and it is minded.
        """
        if missing and not self._policy.is_filtered and not self._is_compacted(queue):
            self._policy.tell_of_loss(
                f"topic {queue.topic}, broker {queue.broker}, queue {queue.id}: {len(missing)} of "
                f"the offsets {missing[0]} to {missing[-1]} are gone; the broker goes on at "
                f"{go_on_at}"
            )

    def _is_compacted(self, queue: MessageQueue) -> bool:
        known = self._compacted.get(queue.topic)
        if known is None:
            limit = min(self._policy.timeout, self._parts.request_timeout)
            asked = is_compacted(self._parts.instance, queue, self._parts.clock() + limit)
            known = self._compacted[queue.topic] = bool(self._parts.run(asked))
        return known
