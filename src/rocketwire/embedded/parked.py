"""Messages that wait in one place and belong to another: delayed, timed, prepared, retried.

While parked they bear ``REAL_TOPIC`` and ``REAL_QID``. When they are delivered, those and all
other properties stay as they are, as with Apache.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from rocketwire.embedded.store import Draft
from rocketwire.errors import InvalidMessageError
from rocketwire.wire.codes import SystemFlag
from rocketwire.wire.properties import decode_properties_bytes, rewritten_bytes
from rocketwire.wire.stored_message import decode_record, pack_host

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
_HOST_FLAGS: Final = SystemFlag.BORN_HOST_V6 | SystemFlag.STORE_HOST_V6


@dataclass(slots=True)
class Parked:
    """A stored message and a draft that is like it in everything."""

    draft: Draft
    properties: dict[str, str]
    queue_offset: int
    log_offset: int
    store_ms: int

    def note(self, name: str, value: str) -> None:
        """Have the draft bear one property more, if there is room for it."""
        with contextlib.suppress(InvalidMessageError):
            self.draft.properties = rewritten_bytes(self.properties | {name: value})

    def to_real_place(self) -> Draft | None:
        """The draft, bound for where the message belongs; None when it does not say where."""
        topic, queue = self.properties.get(REAL_TOPIC), self.properties.get(REAL_QUEUE, "")
        if not topic or not queue.isdecimal() or len(queue) > 9:
            return None
        self.draft.topic, self.draft.queue_id = topic, int(queue)
        return self.draft


def read_parked(record: memoryview) -> Parked:
    """Take a record of the log apart."""
    found, _ = decode_record(record, 0)
    draft = Draft(
        found.topic,
        found.queue_id,
        bytes(found.body),
        bytes(found.properties_raw),
        found.born_ms,
        pack_host(found.born_host),
        found.flag,
        found.system_flag & ~_HOST_FLAGS,
        found.reconsume_times,
        found.prepared_offset,
    )
    return Parked(
        draft,
        decode_properties_bytes(draft.properties),
        found.queue_offset,
        found.physical_offset,
        found.store_ms,
    )


def park_in(draft: Draft, properties: dict[str, str], topic: str, queue_id: int) -> None:
    """Note where a draft belongs, and bind it for elsewhere."""
    properties[REAL_TOPIC], properties[REAL_QUEUE] = draft.topic, str(draft.queue_id)
    draft.topic, draft.queue_id = topic, queue_id
