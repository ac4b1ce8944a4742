"""What is raised when messages are gone; apart, so that planners need not load what decodes them."""

from __future__ import annotations

from rocketwire.errors import RocketMQError


class DataLossError(RocketMQError):
    """Messages that should have been read are not there any more."""
