"""What relays ask of a database, in SQL that PostgreSQL, MySQL and SQLite share.

Rows are marked when they are sent. A cursor over their numbers would skip those of transactions that
began early and committed late.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from rocketwire.integrations.outbox.rows import FAILED, LEASES, SENT, TABLE, WAITING, Row


class Transaction(Protocol):
    """A database transaction; parameters are written ``:name``."""

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """What a question gives."""

    def change(self, statement: str, parameters: Mapping[str, Any]) -> int:
        """Change rows; returns how many."""


class Database(Protocol):
    """A database with an outbox."""

    @property
    def has_one_writer(self) -> bool:
        """Whether only one can write at a time, so that one relay is all that makes sense."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """A transaction: committed at the end of the block, rolled back when that raises."""


class Lease(NamedTuple):
    """Who has a name, and how often that was confirmed."""

    owner: str
    beat: int


def _listed(values: Collection[Any], prefix: str) -> tuple[str, dict[str, Any]]:
    names = {f"{prefix}{number}": value for number, value in enumerate(values)}
    return ", ".join(f":{name}" for name in names), names


class Store:
    """The tables, as relays see them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def has_one_writer(self) -> bool:
        """See ``Database``."""
        return self._database.has_one_writer

    # Messages

    def waiting(
        self, shards: Collection[int], without_topics: Collection[str], limit: int
    ) -> list[Row]:
        """Rows that wait in some shards, oldest first."""
        chosen, parameters = _listed(shards, "s")
        where = f"state = {WAITING} AND shard IN ({chosen})"
        if without_topics:
            topics, names = _listed(without_topics, "t")
            where += f" AND topic NOT IN ({topics})"
            parameters |= names
        statement = (
            "SELECT id, outbox_id, topic, sharding_key, body, details "  # noqa: S608 - own names
            f"FROM {TABLE} WHERE {where} ORDER BY id LIMIT {limit:d}"
        )
        with self._database.transaction() as transaction:
            found = transaction.rows(statement, parameters)
        return [Row(row[0], str(row[1]), row[2], row[3], bytes(row[4]), row[5]) for row in found]

    def mark_sent(self, rows: Sequence[Row]) -> None:
        """Never send these again."""
        chosen, parameters = _listed([row.id for row in rows], "i")
        with self._database.transaction() as transaction:
            transaction.change(
                f"UPDATE {TABLE} SET state = {SENT}, sent_at = :now, error = NULL "  # noqa: S608
                f"WHERE id IN ({chosen})",
                parameters | {"now": time.time()},
            )

    def mark_failed(self, row: Row, error: str) -> None:
        """Put a row aside that no broker would ever take."""
        self._set(row, f"state = {FAILED}, error = :error", error)

    def note_error(self, row: Row, error: str) -> None:
        """Say why a row still waits."""
        self._set(row, "attempts = attempts + 1, error = :error", error)

    def _set(self, row: Row, what: str, error: str) -> None:
        with self._database.transaction() as transaction:
            transaction.change(
                f"UPDATE {TABLE} SET {what} WHERE id = :id",  # noqa: S608 - our own names
                {"id": row.id, "error": error[:1000]},
            )

    def delete_sent(self, older_than: float, limit: int) -> int:
        """Delete some rows that were sent before a moment; returns how many."""
        with self._database.transaction() as transaction:
            found = transaction.rows(
                f"SELECT id FROM {TABLE} WHERE state = {SENT} AND sent_at < :moment "  # noqa: S608
                f"ORDER BY id LIMIT {limit:d}",
                {"moment": older_than},
            )
            if not found:
                return 0
            chosen, parameters = _listed([row[0] for row in found], "i")
            return transaction.change(
                f"DELETE FROM {TABLE} WHERE id IN ({chosen})",  # noqa: S608 - our own names
                parameters,
            )

    def counts(self) -> dict[int, int]:
        """How many rows are in each state."""
        statement = f"SELECT state, COUNT(*) FROM {TABLE} GROUP BY state"  # noqa: S608 - our own
        with self._database.transaction() as transaction:
            return {int(state): int(count) for state, count in transaction.rows(statement, {})}

    def retry_failed(self) -> int:
        """Let rows wait again that were put aside."""
        with self._database.transaction() as transaction:
            return transaction.change(
                f"UPDATE {TABLE} SET state = {WAITING} WHERE state = {FAILED}",  # noqa: S608
                {},
            )

    # Leases

    def leases(self) -> dict[str, Lease]:
        """All leases by name."""
        with self._database.transaction() as transaction:
            found = transaction.rows(f"SELECT name, owner, beat FROM {LEASES}", {})  # noqa: S608
        return {name: Lease(owner, int(beat)) for name, owner, beat in found}

    def add_leases(self, names: Sequence[str], owner: str) -> None:
        """Make leases that are not there; all or none, if another is faster."""
        statement = f"INSERT INTO {LEASES} (name, owner, beat) VALUES (:name, :owner, 0)"  # noqa: S608
        try:
            with self._database.transaction() as transaction:
                for name in names:
                    transaction.change(statement, {"name": name, "owner": owner})
        except Exception as error:
            # Each library has a class of its own for it, by the name of the DB-API.
            if type(error).__name__ != "IntegrityError":
                raise

    def move_leases(self, wanted: Mapping[str, tuple[Lease, str]]) -> set[str]:
        """Confirm, take or give back leases, except those that changed since they were seen.

        Args:
            wanted: by name, what was seen, and the owner that shall be.

        Returns:
            The names of those that were changed.
        """
        statement = (
            f"UPDATE {LEASES} SET owner = :owner, beat = :next "  # noqa: S608 - our own names
            "WHERE name = :name AND owner = :old AND beat = :beat"
        )
        changed = set()
        with self._database.transaction() as transaction:
            # In the same order everywhere: two relays must not wait for one another.
            for name, (seen, owner) in sorted(wanted.items()):
                parameters = {"owner": owner, "next": seen.beat + 1, "name": name}
                parameters |= {"old": seen.owner, "beat": seen.beat}
                if transaction.change(statement, parameters):
                    changed.add(name)
        return changed

    def drop_lease(self, name: str, seen: Lease) -> None:
        """Forget a relay that is gone."""
        with self._database.transaction() as transaction:
            transaction.change(
                f"DELETE FROM {LEASES} WHERE name = :name AND beat = :beat",  # noqa: S608
                {"name": name, "beat": seen.beat},
            )
