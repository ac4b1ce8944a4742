"""The outbox with Django: add ``rocketwire.integrations.outbox.django`` to ``INSTALLED_APPS``, and migrate.

``manage.py rocketmq_outbox`` relays.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rocketwire.integrations.outbox.rows import row_of

if TYPE_CHECKING:
    from rocketwire import Message

__all__ = ["add", "database"]

_PARAMETER: Final = re.compile(r":([a-z]\w*)")


def add(*messages: Message, using: str = "default") -> None:
    """Write messages in the transaction that is open: they are sent after it was committed.

    Raises:
        RuntimeError: no transaction is open, so the messages would not belong to any data.
        InvalidMessageError: one of them is no message.
    """
    from django.db import connections

    from rocketwire.integrations.outbox.django.models import OutboxMessage

    if not connections[using].in_atomic_block:
        raise RuntimeError(
            f"no transaction is open on {using!r}: call it in a block of transaction.atomic(), "
            "together with the data that the messages tell about"
        )
    OutboxMessage.objects.using(using).bulk_create(
        [OutboxMessage(**row_of(message)) for message in messages]
    )


def database(using: str = "default") -> DjangoDatabase:
    """What a ``Relay`` is given."""
    return DjangoDatabase(using)


class DjangoDatabase:
    """A ``Database`` by one of Django's connections."""

    def __init__(self, using: str) -> None:
        self._using = using

    @property
    def has_one_writer(self) -> bool:
        """SQLite has."""
        from django.db import connections

        return bool(connections[self._using].vendor == "sqlite")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[_Statements]:
        """An atomic block, on a connection that still works."""
        from django.db import connections, transaction

        connection = connections[self._using]
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
        with transaction.atomic(using=self._using), connection.cursor() as cursor:
            yield _Statements(cursor)


class _Statements:
    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def _execute(self, statement: str, parameters: Mapping[str, Any]) -> None:
        self._cursor.execute(_PARAMETER.sub(r"%(\1)s", statement), dict(parameters))

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        self._execute(statement, parameters)
        found: Sequence[Sequence[Any]] = self._cursor.fetchall()
        return found

    def change(self, statement: str, parameters: Mapping[str, Any]) -> int:
        self._execute(statement, parameters)
        return int(self._cursor.rowcount)
