"""Context variables that a middleware sets elsewhere, for the loop that iterates.

The middleware around an iterated message runs in a context of its own (another thread, or task).
What it sets there, such as the current span, holds for the body of the loop, too, until the next
message is asked for.
"""

from __future__ import annotations

from contextvars import Context, ContextVar, Token
from typing import Any


class CarriedContext:
    """The differences between a context and the current one, made here and taken back."""

    def __init__(self) -> None:
        self._tokens: list[tuple[ContextVar[Any], Token[Any]]] = []

    def take(self, context: Context) -> None:
        """Set here what differs there."""
        missing = object()
        for variable, value in context.items():
            if variable.get(missing) is not value:
                self._tokens.append((variable, variable.set(value)))

    def give_back(self) -> None:
        """Set everything as it was before."""
        while self._tokens:
            variable, token = self._tokens.pop()
            try:
                variable.reset(token)
            except ValueError:  # the loop went on in another context, which has its own values
                self._tokens.clear()
