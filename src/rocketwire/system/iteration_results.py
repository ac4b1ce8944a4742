"""What middleware may return around a message that a loop iterates over."""

from __future__ import annotations

from rocketwire.core.group.send_back import Retry


def check_result(result: object) -> None:
    """Refuse a wish that a loop can't fulfil.

    Raises:
        TypeError: it is a retry. The message stays unacknowledged.
    """
    if isinstance(result, Retry) or result is Retry:
        raise TypeError(
            "a middleware returned a Retry around a loop, where going on acknowledges: raise an "
            "error, or use run(handler)"
        )
