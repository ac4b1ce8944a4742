"""What is said where an integration's library is not installed."""

from __future__ import annotations

from importlib import import_module


def needs(extra: str, *modules: str) -> None:
    """Import the modules that an extra brings.

    Raises:
        ModuleNotFoundError: one is missing; the text names the extra.
    """
    for name in modules:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"{error.name} is missing: pip install 'rocketwire[{extra}]'", name=error.name
            ) from None
