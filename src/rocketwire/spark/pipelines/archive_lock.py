"""One writer of an archive at a time, and a word about who it is.

The lock ends with its process, however that ends. A folder that is not on a local file system has
a lease instead, which ends a minute later.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from rocketwire.errors import ConfigError
from rocketwire.spark.pipelines.archive_lease import Lease, holder_text
from rocketwire.spark.pipelines.small_files import HadoopFiles, local_path, place_beside


@contextlib.contextmanager
def only_writer(folder: str | Path, work: str, hadoop: HadoopFiles | None = None) -> Iterator[None]:
    """Hold the lock of an archive.

    Args:
        folder: the archive.
        work: what is done, for another that comes.
        hadoop: the way to a folder that is not on a local file system.

    Raises:
        ConfigError: another process holds it; the text says which.
    """
    place = local_path(folder)
    if place is None:
        assert hadoop is not None  # nothing else reaches such a folder
        with Lease(hadoop, str(folder), _self(work)):
            yield
        return
    path = Path(place_beside(str(place.resolve()), "lock"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        if not _try_lock(file):
            file.seek(0)
            raise ConfigError(
                f"folder {folder}: {holder_text(file.read())} writes it at the moment; one at a time "
                "may. Wait for its end, name all topics in one run, or use another folder"
            )
        file.truncate(0)
        file.write(json.dumps(_self(work)))
        file.flush()
        yield


def _self(work: str) -> dict[str, object]:
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    return {"process": os.getpid(), "host": platform.node(), "since": moment, "work": work}


def _try_lock(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:  # not on this system; folders are not exchanged there, either
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
