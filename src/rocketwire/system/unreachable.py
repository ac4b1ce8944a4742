"""Why there is no connection, or none any more, in the same words in both shells."""

from __future__ import annotations

import socket

from rocketwire.core.durations import span
from rocketwire.errors import ClientClosedError, ConnectFailedError, ConnectionLostError


def explain(error: Exception, host: str, *, encrypted: bool = False) -> str:
    """What the server did, to follow its address: ``refused the connection``.

    Args:
        error: what connecting ended with.
        host: the name or address that was tried.
        encrypted: whether TLS was wanted.
    """
    if isinstance(error, ConnectionRefusedError):
        return "refused the connection"
    if isinstance(error, socket.gaierror):
        return f"could not be reached: the name {host!r} is not known here ({in_words(error)})"
    if encrypted:
        import ssl

        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"showed a certificate that is not trusted ({error.verify_message}): "
                "check tls ca_file and server_name"
            )
        if isinstance(error, TimeoutError):
            return "could not be reached: no end of the TLS handshake in time"
        if isinstance(error, (ssl.SSLError, ConnectionError)):
            return f"did not agree on TLS ({in_words(error)}): check that it is on there"
    return f"could not be reached: {in_words(error)}"


def in_words(error: BaseException) -> str:
    """What the system said, without its number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


def too_slow(looked_up: str | None, seconds: float) -> str:
    """What is said, after the address, when the time was over.

    Args:
        looked_up: the name of the host, if not even its addresses were known.
        seconds: how long it took.
    """
    if looked_up is None:
        return f"could not be reached: no connection in {span(seconds)}"
    return (
        f"could not be reached: the look-up of the name {looked_up!r} took longer than "
        f"{span(seconds)}, check the resolver or give an address"
    )


def could_not_connect(text: str, cause: BaseException | None) -> ConnectFailedError:
    """What requests end with that waited for a connection."""
    error = ConnectFailedError(text)
    error.__cause__ = cause
    return error


def was_lost(text: str, cause: BaseException | None, *, written: bool) -> ConnectionLostError:
    """What requests end with whose connection is gone."""
    error = ConnectionLostError(text, written=written)
    error.__cause__ = cause
    return error


def shut_down() -> ClientClosedError:
    """What requests end with whose client is closed."""
    return ClientClosedError("the client was shut down before the answer came")
