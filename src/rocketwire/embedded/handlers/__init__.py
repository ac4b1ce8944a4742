"""What each request means, one file for each family. A file begins with what it does not do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketwire.embedded.call import Handler

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker


def all_handlers(broker: Broker) -> dict[int, Handler]:
    """Every request that a broker understands."""
    from rocketwire.embedded.handlers import clients, offsets, pull, send, topics

    table: dict[int, Handler] = {}
    for module in (send, pull, offsets, clients, topics):
        table |= module.handlers(broker)
    return table
