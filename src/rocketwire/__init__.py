"""Apache RocketMQ for Python and Spark."""

from rocketwire.version import __version__

__all__ = ["__version__"]
