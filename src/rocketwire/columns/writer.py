"""Record batches of one partition to messages: encoded here, delivered in the background."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from rocketwire.columns.client_parts import parts_of, sender_of
from rocketwire.columns.deliver import Deliverer, DeliveryReport
from rocketwire.columns.encode import BatchEncoder, Encoded, Single
from rocketwire.columns.ids import MessageIdColumn
from rocketwire.columns.row_ids import RowIds
from rocketwire.sync.producer import Producer
from rocketwire.system.surroundings import local_address

BadRowHandler = Callable[[Encoded], Iterable[Single]]


class TableWriter:
    """Sends batches, in the order in which they come.

    A context manager: an error within it cancels what was not sent yet.

    Args:
        producer: a running one.
        topic: where all rows go; None to read it from the column ``topic``.
        row_ids: makes the row ids.
        timeout: how long a row is tried.
        on_bad_rows: called with a piece that has bad rows, before any of it is sent; it raises,
            or returns what to send in their place.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str | None,
        *,
        row_ids: RowIds,
        timeout: float,
        on_bad_rows: BadRowHandler,
    ) -> None:
        sender = sender_of(producer)
        self._encoder = BatchEncoder(
            topic=topic,
            queues=producer.publish_queues,
            ids=MessageIdColumn(local_address(), os.getpid()),
            row_ids=row_ids,
            namespace=sender.config.namespace,
            max_message_size=sender.config.max_message_size,
        )
        self._deliverer = Deliverer(parts_of(producer), sender, timeout=timeout)
        self._on_bad_rows = on_bad_rows

    @property
    def report(self) -> DeliveryReport:
        """What was delivered so far."""
        return self._deliverer.report

    def write(self, batch: Any) -> None:
        """Send a batch; waits only while too much is without an answer.

        Raises:
            InvalidMessageError: a row is bad, and the handler minds.
            SendFailedError: an earlier row could not be delivered.
        """
        for encoded in self._encoder.encode(batch):
            instead = self._on_bad_rows(encoded) if encoded.bad else ()
            for part in (*encoded.parts, *instead):
                self._deliverer.put(part)

    def finish(self) -> DeliveryReport:
        """Wait for all answers.

        Raises:
            SendFailedError: a row could not be delivered.
        """
        return self._deliverer.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._deliverer.cancel()
