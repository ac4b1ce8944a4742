"""The outbox with SQLAlchemy 2: tables, writing them in a session, and relays' access to them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from rocketwire.integrations.outbox.rows import LEASES, TABLE, WAITING, row_of

if TYPE_CHECKING:
    from rocketwire import Message

#: SQLite numbers rows only in a column of just this type.
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
#: MySQL's smallest binary type holds 64 KiB.
_BODY = sa.LargeBinary(length=2**24 - 1)


class Outbox:
    """The tables of an outbox.

    Args:
        metadata: where to define them, e.g. ``Base.metadata``, so that ``create_all`` and Alembic see
            them; their own by default.
    """

    def __init__(self, metadata: Any = None) -> None:
        self.metadata = sa.MetaData() if metadata is None else metadata
        self.table = sa.Table(
            TABLE,
            self.metadata,
            sa.Column("id", _NUMBER, primary_key=True, autoincrement=True),
            sa.Column("outbox_id", sa.String(36), nullable=False, unique=True),
            sa.Column("topic", sa.String(255), nullable=False),
            sa.Column("shard", sa.SmallInteger, nullable=False),
            sa.Column("sharding_key", sa.Text),
            sa.Column("body", _BODY, nullable=False),
            sa.Column("details", sa.Text, nullable=False),
            sa.Column("state", sa.SmallInteger, nullable=False, default=WAITING),
            sa.Column("created_at", sa.Double, nullable=False),
            sa.Column("sent_at", sa.Double),
            sa.Column("attempts", sa.Integer, nullable=False, default=0),
            sa.Column("error", sa.Text),
            sa.Index(f"{TABLE}_waiting", "state", "shard", "id"),
        )
        self.leases = sa.Table(
            LEASES,
            self.metadata,
            sa.Column("name", sa.String(64), primary_key=True),
            sa.Column("owner", sa.String(64), nullable=False),
            sa.Column("beat", sa.BigInteger, nullable=False),
        )

    def create(self, engine: Any) -> None:
        """Create the two tables where they are missing."""
        self.metadata.create_all(engine, tables=[self.table, self.leases])

    def add(self, session: Any, *messages: Message) -> None:
        """Write messages in the transaction of a ``Session`` or a ``Connection``.

        They are sent after it was committed, and never if it is rolled back.

        Raises:
            InvalidMessageError: one of them is no message.
        """
        if messages:
            session.execute(sa.insert(self.table), [row_of(message) for message in messages])

    async def add_async(self, session: Any, *messages: Message) -> None:
        """The same in an ``AsyncSession`` or an ``AsyncConnection``."""
        if messages:
            await session.execute(sa.insert(self.table), [row_of(message) for message in messages])

    def database(self, engine: Any) -> AlchemyDatabase:
        """What a ``Relay`` is given.

        Args:
            engine: a blocking one; relays of asyncio applications run in a thread or a process.
        """
        return AlchemyDatabase(engine)


class AlchemyDatabase:
    """A ``Database`` by an SQLAlchemy engine."""

    def __init__(self, engine: Any) -> None:
        if not isinstance(engine, sa.Engine):
            raise TypeError(
                f"{engine!r} is no blocking engine: a relay needs one of sqlalchemy.create_engine()"
            )
        self._engine = engine

    @property
    def has_one_writer(self) -> bool:
        """SQLite has."""
        return bool(self._engine.dialect.name == "sqlite")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[_Statements]:
        """A connection's transaction."""
        with self._engine.begin() as connection:
            yield _Statements(connection)


class _Statements:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, statement: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        found: Sequence[Sequence[Any]] = self._connection.execute(
            sa.text(statement), dict(parameters)
        ).all()
        return found

    def change(self, statement: str, parameters: Mapping[str, Any]) -> int:
        return int(self._connection.execute(sa.text(statement), dict(parameters)).rowcount)
