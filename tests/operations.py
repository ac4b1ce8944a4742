"""Operations that tests run and the client does not."""

from rocketwire.core.effects import Oneway


def oneway(address, request, deadline, observer=None):
    """Write a request that has no reply."""
    yield Oneway(address, request, deadline, observer)
