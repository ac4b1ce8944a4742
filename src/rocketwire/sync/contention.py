"""Many threads at once, and when it pays to let one thread work for all of them."""

from __future__ import annotations

import threading
from typing import Final, Self

#: Above this many threads each spends most of its time waiting for Python's lock, which every call of a
#: socket releases. A request has four such calls and waits twice; handed to one thread, which writes
#: those of many together, it has none and waits once. A transaction has eight, and waits twice. With
#: fewer threads that is no gain.
_MANY: Final = 8


class Contention:
    """Counts the threads that are within its ``with`` block, without a lock."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: list[None] = []

    def __enter__(self) -> Self:
        self._places.append(None)
        return self

    def __exit__(self, *_: object) -> None:
        self._places.pop()

    @property
    def is_large(self) -> bool:
        """Whether many are here, and this thread may leave its work to another.

        The main thread may not: a signal can interrupt its waiting, and what another thread does for it
        would go on.
        """
        return len(self._places) > _MANY and not _is_main()


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident
