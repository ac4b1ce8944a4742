"""What values have in common that never change once made."""

from __future__ import annotations


class Frozen:
    """A base for slotted values that refuse to be changed."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; make a new one to change {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; {name} can't be deleted")
