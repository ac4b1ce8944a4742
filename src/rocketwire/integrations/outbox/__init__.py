"""An outbox: messages are rows of the same database transaction as the data, and are relayed after it.

``Outbox`` writes them with SQLAlchemy 2, the application ``rocketwire.integrations.outbox.django`` with
Django. Any number of ``Relay``s send them: at least once, in order per topic and sharding key, each under
an id that stays the same when it is sent again (the property ``outboxId``).
"""

from typing import TYPE_CHECKING, Any

from rocketwire.integrations.extras import needs
from rocketwire.integrations.outbox.relay import Relay, RelayStats
from rocketwire.integrations.outbox.rows import ID_PROPERTY

if TYPE_CHECKING:
    from rocketwire.integrations.outbox.alchemy import Outbox

__all__ = ["ID_PROPERTY", "Outbox", "Relay", "RelayStats"]


def __getattr__(name: str) -> Any:
    # Django's users need no SQLAlchemy.
    if name == "Outbox":
        needs("outbox", "sqlalchemy")
        from rocketwire.integrations.outbox.alchemy import Outbox

        return Outbox
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
