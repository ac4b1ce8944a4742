"""Lists a client's settings in its docstring, so that ``help(Producer)`` tells them.

The tables of settings have the words; nothing is written twice. It is done once, when the module
of a client is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from rocketwire.config import AUTO

T = TypeVar("T")

#: What constructors take by themselves; their docstrings tell of it.
_ARGUMENTS = frozenset({"name_servers", "group", "middleware"})


def lists_settings(table: type[Any]) -> Callable[[type[T]], type[T]]:
    """A decorator that adds the settings of a table to the docstring of a client."""

    def add(client: type[T]) -> type[T]:
        if client.__doc__:  # none under python -OO
            client.__doc__ = f"{client.__doc__.rstrip()}\n\n    Settings:\n{_listing(table)}    "
        return client

    return add


def _listing(table: type[Any]) -> str:
    return "".join(
        f"        {field.name} = {_default(field)}: {field.metadata['help']}\n"
        for field in fields(table)
        if field.name not in _ARGUMENTS
    )


def _default(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        return f"{type(field.default_factory()).__name__}()"
    if field.name == "attempt_timeout" and field.default == AUTO:
        return "a share of send_timeout"
    return repr(field.default)
