"""How a pipeline reaches the cluster: name servers, and options of the data source as given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocketwire.errors import ConfigError
from rocketwire.spark.options import ClientOptions, client_options


def source_options(
    name_servers: str | Sequence[str] | None, options: Mapping[str, str] | None
) -> dict[str, str]:
    """Options of the data source for every read and write of a pipeline.

    Raises:
        ConfigError: one is unknown or wrong, or nobody said where the name servers are.
    """
    made = {str(name): str(value) for name, value in (options or {}).items()}
    if name_servers is not None:
        text = name_servers if isinstance(name_servers, str) else ";".join(name_servers)
        made["nameServers"] = text
    checked(made)
    return made


def checked(options: Mapping[str, str]) -> ClientOptions:
    """The client's part of the options; the driver's environment counts, too."""
    import os

    return client_options({name.lower(): value for name, value in options.items()}, os.environ)


def require(value: object, name: str, what: str) -> None:
    """Refuse a missing argument."""
    if not value:
        raise ConfigError(f"{name} is missing: {what}")
