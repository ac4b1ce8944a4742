"""A progress bar for work that is known in parts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rocketwire.cli.invocation import Invocation

_LINE_EVERY: Final = 5.0


class PartsBar:
    """A bar on a terminal, a line now and then elsewhere.

    Args:
        here: where to.
        doing: what is being done, such as "replaying".
        before: what is done until the number of parts is known; the same if nothing is.
    """

    def __init__(self, here: Invocation, doing: str, before: str | None = None) -> None:
        self._here = here
        self._doing = doing
        self._told_at = time.monotonic()
        self._progress: Progress | None = None
        if here.errors.is_terminal and not here.as_json:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[told]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=here.errors,
            )
            self._task = self._progress.add_task(before or doing, total=None, told="")

    def __enter__(self) -> Callable[[int, int], None]:
        if self._progress is not None:
            self._progress.start()
        return self._update

    def __exit__(self, *_: Any) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _update(self, done: int, parts: int) -> None:
        if self._progress is not None:
            told = f"{done} of {parts} parts"
            self._progress.update(
                self._task, description=self._doing, completed=done, total=parts, told=told
            )
        elif time.monotonic() - self._told_at > _LINE_EVERY:
            self._told_at = time.monotonic()
            self._here.note(f"{self._doing}: {done} of {parts} parts")
