"""Messages on disk, in RocketMQ's own layout.

The broker talks to ``MessageStore`` and to nothing else in here.
"""

from rocketwire.embedded.store.failures import (
    MessageRefusedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
)
from rocketwire.embedded.store.layout import Draft, StoreSizes
from rocketwire.embedded.store.store import MessageStore

__all__ = [
    "Draft",
    "MessageRefusedError",
    "MessageStore",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreSizes",
]
