"""What each request means, one file for each family. A file begins with what it does not do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.embedded.call import Handler

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker


def all_handlers(broker: Broker) -> dict[int, Handler]:
    """Every request that a broker understands."""
    from rocketwire.embedded.handlers import (
        admin,
        assignment,
        clients,
        groups,
        messages,
        offsets,
        pop,
        pull,
        recall,
        reply,
        retry,
        send,
        topics,
        transactions,
    )

    table: dict[int, Handler] = {}
    families = (
        send, pull, offsets, clients, messages, topics, groups, retry, transactions, reply, admin,
        recall, pop, assignment,
    )  # fmt: skip
    for family in families:
        table |= family.handlers(broker)
    return table
