"""Getting data onto the medium without making other work wait.

A job is begun where the store is used, run in any thread, and ended where the store is used.
It works on descriptors of its own, so that files may be closed and deleted meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rocketwire.embedded.store.checkpoint import Checkpoint
from rocketwire.embedded.store.disk import Disk, sync_folder


class _Span(NamedTuple):
    """The part of a file that may not be on the medium."""

    descriptor: int
    start: int
    end: int


@dataclass(slots=True)
class FlushJob:
    """Sync some files up to the log's end as it was when the job began.

    Attributes:
        again: write everything once more before it is synced, because a sync has failed.
        when_done: called by the thread that ends the job, if it has succeeded.
    """

    disk: Disk
    log_end: int
    again: bool = False
    spans: list[_Span] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    checkpoint_path: Path | None = None
    when_done: list[Callable[[], None]] = field(default_factory=list)
    error: Exception | None = None

    def add(self, descriptor: int, start: int, end: int) -> None:
        """Have this file synced, too; what is new in it lies between two positions."""
        self.spans.append(_Span(os.dup(descriptor), start, end))

    def run(self) -> None:
        """Do it. An error is kept for the caller that ends the job."""
        try:
            for span in self.spans:
                if self.again:
                    self.disk.write_again(*span)
                self.disk.sync(span.descriptor)
            for folder in self.folders:
                sync_folder(folder)
            # Last: it says that all of the above is done.
            if self.checkpoint is not None and self.checkpoint_path is not None:
                self.checkpoint.save(self.checkpoint_path)
        except OSError as error:
            self.error = error
        finally:
            self.discard()

    def discard(self) -> None:
        """Let go of the files."""
        for span in self.spans:
            os.close(span.descriptor)
        self.spans.clear()
