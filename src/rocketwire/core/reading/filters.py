"""What a subscription wants: some tags, or what an SQL92 expression over properties fits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rocketwire.core.effects import Op
from rocketwire.core.instance import Instance
from rocketwire.core.reading.pull import TagFilter, tag_filter
from rocketwire.core.reading.sql_check import check_sql
from rocketwire.errors import InvalidMessageError
from rocketwire.wire.client_bodies import Subscription

SQL92: Final = "SQL92"


def message_filter(tags: str | Iterable[str] | None, sql: Any) -> TagFilter:
    """A filter from what a user gave.

    Args:
        tags: ``*`` or None for all, ``TagA || TagB``, or a list of tags.
        sql: an expression, instead of tags.

    Raises:
        InvalidMessageError: it says nothing, or two things at once.
    """
    if sql is None:
        if tags is not None and not isinstance(tags, Iterable):
            raise InvalidMessageError(f"tags is {tags!r}: give '*', 'TagA || TagB' or a list")
        return tag_filter(tags)
    if tags is not None and tags != "*":
        raise InvalidMessageError(f"tags is {tags!r} and sql is {sql!r}: give one of them")
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidMessageError(f"sql is {sql!r}: give an expression, e.g. 'price > 10'")
    return TagFilter(sql, frozenset(), SQL92)


def check_filter(
    instance: Instance, group: str, topic: str, wanted: TagFilter, deadline: float
) -> Op[None]:
    """Have the brokers of a topic check an expression; tags need no check.

    Raises:
        ConfigError: a broker can't read it, or has such filters switched off.
        BrokerError: a broker answered with another error.
        TransportError: it could not be reached.
    """
    if wanted.kind == SQL92:
        subscription = Subscription(topic, wanted.expression, kind=SQL92)
        yield from check_sql(instance, group, subscription, deadline)
