"""TLS contexts from settings. Imported when a connection is to be encrypted, not before."""

from __future__ import annotations

import ssl

from rocketwire.config import Tls
from rocketwire.errors import ConfigError


def make_context(tls: Tls) -> ssl.SSLContext:
    """A client context; the server's certificate and name are verified unless told otherwise.

    Raises:
        ConfigError: a file can't be used.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls: ca_file {tls.ca_file!r} can't be used: {error}") from None
    if tls.cert_file is not None:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file, tls.key_password)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"tls: cert_file {tls.cert_file!r} and key_file {tls.key_file!r} can't be used: {error}"
            ) from None
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
