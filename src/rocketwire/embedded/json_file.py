"""Small JSON files in Apache's shapes, replaced whole, with the last version beside them."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any, Final

from rocketwire.embedded.store import StoreError
from rocketwire.embedded.store.disk import replace_file
from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.lenient_json import MAX_SIZE, loads

_log: Final = logging.getLogger("rocketwire.embedded")


class JsonFile:
    """One file; a damaged one counts as its ``.bak``, and that as missing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Any:
        """What it holds; None when there is nothing that can be read."""
        for path in (self.path, self.path.with_name(self.path.name + ".bak")):
            try:
                data = path.read_bytes()
                if data.strip():
                    return loads(data, tolerant_limit=MAX_SIZE)
            except FileNotFoundError:
                continue
            except (OSError, RemoteProtocolError) as error:
                _log.warning("%s can't be read and is passed over: %s", path, error)
        return None

    def save(self, value: Any) -> None:
        """Replace the content.

        Raises:
            StoreError: there is no room for it.
        """
        text = json.dumps(value, indent="\t", ensure_ascii=False)
        replace_file(self.path, text.encode())

    def try_save(self, value: Any) -> bool:
        """Replace the content if that is possible; whether it was.

        A configuration that can't be written must not keep clients from reading messages.
        """
        try:
            self.save(value)
        except StoreError as error:
            _log.warning("%s can't be written now: %s", self.path, error)
            return False
        return True


class DataVersion:
    """Apache's mark of change: a counter, and the time of the last change."""

    def __init__(self, data: Any = None) -> None:
        stored = data if isinstance(data, dict) else {}
        counter = stored.get("counter", 0)
        self.counter: int = counter if type(counter) is int else 0
        self.timestamp = int(time.time() * 1000)

    def bump(self) -> None:
        """Something has changed. The time alone must differ, too: name servers compare both."""
        self.counter += 1
        self.timestamp = max(int(time.time() * 1000), self.timestamp + 1)

    def as_json(self) -> dict[str, int]:
        """As Apache writes it."""
        return {"counter": self.counter, "stateVersion": 0, "timestamp": self.timestamp}
