"""The end of one attempt in words that follow the broker's name, for errors, logs and the fault table."""

from __future__ import annotations

from rocketwire.core.durations import span
from rocketwire.errors import (
    BrokerError,
    ConnectFailedError,
    ConnectionLostError,
    RemoteProtocolError,
    RequestTimeoutError,
)


def what_happened(error: Exception, waited: float) -> str:
    """One attempt's end in words that follow the broker's name.

    >>> what_happened(RequestTimeoutError("", written=True), 1.0)
    'gave no answer in 1.0 s'
    """
    if isinstance(error, ConnectionLostError) and isinstance(error.__cause__, RemoteProtocolError):
        error = error.__cause__  # it was us who closed it, and that was the reason
    if isinstance(error, RequestTimeoutError):
        deed = "gave no answer" if error.written else "could not be reached"
        return f"{deed} in {span(waited)}"
    if isinstance(error, ConnectFailedError):
        if _was_refused(error):
            return "refused the connection"
        # Shells begin with the address, which the broker's name stands for here.
        address, _, deed = str(error).partition(" ")
        if deed and address.rpartition(":")[2].isdigit():
            return deed
        return f"could not be reached ({error})"
    if isinstance(error, ConnectionLostError):
        return f"closed the connection {'without an answer' if error.written else 'at once'}"
    if isinstance(error, BrokerError):
        name = f"{error.code_name} ({error.code})" if error.code_name else f"code {error.code}"
        return f"answered {name}: {error.remark}" if error.remark else f"answered {name}"
    if isinstance(error, RemoteProtocolError):
        return f"answered with something else than the protocol ({error})"
    return f"failed ({error})" if str(error) else f"failed ({type(error).__name__})"


def _was_refused(error: ConnectFailedError) -> bool:
    if isinstance(error.__cause__, ConnectionRefusedError):
        return True
    return "refused" in str(error).lower()
