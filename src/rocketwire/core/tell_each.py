"""Telling several of what became of them, where one that ends the program must not keep the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def tell_each(those: Iterable[T], tell: Callable[[T], object]) -> None:
    """Call ``tell`` with each.

    Raises:
        BaseException: the first that one of the calls raised; all others were made all the same.
    """
    raised: BaseException | None = None
    for one in those:
        try:
            tell(one)
        except BaseException as error:  # noqa: BLE001 - raised below
            raised = raised or error
    if raised is not None:
        raise raised
