"""Calls of methods that do not keep the method's object alive, so that a lost client is noticed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def weakly(method: Callable[P, T]) -> Callable[P, T | None]:
    """A call of a method; None once its object is gone."""
    reference = weakref.WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T | None:
        found = reference()
        return None if found is None else found(*args, **kwargs)

    return call
