"""The folder of a store: who has it open, how it was left, and the sizes it was made with."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from dataclasses import fields
from pathlib import Path
from typing import Final

from rocketwire.embedded.store.disk import replace_file
from rocketwire.embedded.store.failures import StoreError, StoreLockedError
from rocketwire.embedded.store.fields import UNIT_SIZE
from rocketwire.embedded.store.layout import StoreSizes

_log: Final = logging.getLogger("rocketwire.embedded")

#: Apache's names, so that the file can be given to a Java broker with ``-c``.
_NAMES: Final = {
    "mappedFileSizeCommitLog": "log_file",
    "mappedFileSizeConsumeQueue": "queue_units",
    "maxHashSlotNum": "index_slots",
    "maxIndexNum": "index_entries",
}

# Locks of POSIX belong to a process; two brokers of this one must not share a folder either.
_open_here: set[Path] = set()


class StoreFolder:
    """Holds the folder's lock between ``open`` and ``close``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.abort_file = path / "abort"
        self.checkpoint_file = path / "checkpoint"
        self._sizes_file = path / "config" / "store.properties"
        self._lock: int | None = None

    def open(self) -> None:
        """Take the lock.

        Raises:
            StoreLockedError: another process has it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        key = self.path.resolve()
        if key in _open_here:
            raise StoreLockedError(f"{self.path} is open in this process already: stop that broker")
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError:
            os.close(descriptor)
            raise StoreLockedError(
                f"{self.path} is open in another process: stop that broker or give another folder"
            ) from None
        self._lock = descriptor
        _open_here.add(key)

    def close(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            _open_here.discard(self.path.resolve())
            os.close(self._lock)
            self._lock = None

    @property
    def left_clean(self) -> bool:
        """Whether the store was closed properly the last time."""
        return not self.abort_file.exists()

    def mark_running(self) -> None:
        """From now on, only a proper end counts as clean."""
        self.abort_file.touch()
        # The name is what counts; on a full disk there may be no room for the text.
        with contextlib.suppress(OSError):
            self.abort_file.write_bytes(str(os.getpid()).encode())

    def mark_clean(self) -> None:
        """Everything is on the medium."""
        self.abort_file.unlink(missing_ok=True)

    def settle_sizes(self, wanted: StoreSizes) -> StoreSizes:
        """The sizes that the files here have: those recorded, or those wanted for a new folder."""
        recorded = self._read_sizes()
        if recorded is None:
            self._write_sizes(wanted)
            return wanted
        if recorded != wanted:
            _log.info("%s was made with %s: these are used", self.path, recorded)
        return recorded

    def _read_sizes(self) -> StoreSizes | None:
        try:
            lines = self._sizes_file.read_text().splitlines()
        except FileNotFoundError:
            return None
        values: dict[str, int] = {}
        for line in lines:
            name, _, value = line.partition("=")
            if name in _NAMES:
                if not value.isdigit():
                    raise StoreError(f"{self._sizes_file}: {name} is {value!r}, not a number")
                values[_NAMES[name]] = int(value)
        if set(values) != {f.name for f in fields(StoreSizes)}:
            raise StoreError(f"{self._sizes_file} lacks one of {', '.join(_NAMES)}")
        values["queue_units"] //= UNIT_SIZE
        return StoreSizes(**values)

    def _write_sizes(self, sizes: StoreSizes) -> None:
        values = {name: getattr(sizes, field) for name, field in _NAMES.items()}
        values["mappedFileSizeConsumeQueue"] = sizes.queue_file
        text = "".join(f"{name}={value}\n" for name, value in values.items())
        replace_file(self._sizes_file, text.encode())
