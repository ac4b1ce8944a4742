"""Getting data onto the medium without making anybody else wait.

A job is begun where the store is used, run in any thread, and ended where the store is used.
It works on descriptors of its own, so that files may be closed and deleted meanwhile.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from rocketwire.embedded.store.checkpoint import Checkpoint
from rocketwire.embedded.store.disk import Disk, sync_folder


@dataclass(slots=True)
class FlushJob:
    """Sync some files up to the log's end as it was when the job began."""

    disk: Disk
    log_end: int
    descriptors: list[int] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    checkpoint_path: Path | None = None
    error: Exception | None = None

    def add(self, descriptor: int) -> None:
        """Have this file synced, too."""
        self.descriptors.append(os.dup(descriptor))

    def run(self) -> None:
        """Do it. An error is kept for whoever ends the job."""
        try:
            for descriptor in self.descriptors:
                self.disk.sync(descriptor)
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
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()
