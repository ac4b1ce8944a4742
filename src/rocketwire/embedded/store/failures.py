"""What can go wrong in a store. The broker turns each into an answer; see ``handlers``."""

from __future__ import annotations

from rocketwire.errors import RocketMQError


class StoreError(RocketMQError):
    """The store can't do what was asked; nothing was stored."""


class StoreFullError(StoreError):
    """The disk, or the limit set for it, has no room. Reading still works."""


class StoreLockedError(StoreError):
    """Another broker, of this process or of another, has the folder open."""


class MessageRefusedError(StoreError):
    """The message can't be stored as it is: too large, or its properties are too long."""
