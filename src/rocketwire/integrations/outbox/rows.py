"""Messages as rows, and rows as messages."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from rocketwire import InvalidMessageError, Message

#: The names of the tables, which writers and relays share.
TABLE: Final = "rocketmq_outbox"
LEASES: Final = "rocketmq_outbox_leases"
#: Keys are spread over so many shards, and relays share those. Writers and relays must agree.
SHARDS: Final = 32
#: The property that tells consumers what they have seen already.
ID_PROPERTY: Final = "outboxId"

WAITING: Final = 0
SENT: Final = 1
FAILED: Final = 2


@dataclass(frozen=True)
class Row:
    """A message that waits; ``order_key`` is what it must not overtake within."""

    id: int
    outbox_id: str
    topic: str
    sharding_key: str | None
    body: bytes
    details: str

    @property
    def order_key(self) -> tuple[str, str]:
        """Rows with one such key are sent in order."""
        return self.topic, self.outbox_id if self.sharding_key is None else self.sharding_key

    def message(self) -> Message:
        """The message to be sent.

        Raises:
            InvalidMessageError: the row is none of ours.
        """
        try:
            details = json.loads(self.details)
            properties = {**(details.pop("properties", None) or {}), ID_PROPERTY: self.outbox_id}
            return Message(
                self.topic,
                self.body,
                sharding_key=self.sharding_key,
                properties=properties,
                **details,
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidMessageError(f"row {self.id} of {TABLE} is no message: {error}") from None


def row_of(message: Message) -> dict[str, Any]:
    """The columns of a message that was not sent yet.

    Raises:
        InvalidMessageError: it is no message.
    """
    if not isinstance(message, Message):
        raise InvalidMessageError(f"{message!r:.80} is no Message: give rocketwire.Message(...)")
    outbox_id = str(uuid.uuid4())
    key = message.sharding_key
    return {
        "outbox_id": outbox_id,
        "topic": message.topic,
        "shard": shard_of(message.topic, outbox_id if key is None else key),
        "sharding_key": key,
        "body": bytes(message.body),
        "details": json.dumps(_details(message)),
        "state": WAITING,
        "created_at": time.time(),
    }


def _details(message: Message) -> Mapping[str, Any]:
    found = {
        "tags": message.tags,
        "keys": message.keys,
        "properties": dict(message.properties) if message.properties else None,
        "delay_level": message.delay_level,
        "deliver_at": message.deliver_at,
        "flag": message.flag,
    }
    told = {name: value for name, value in found.items() if value}
    return told if message.wait_store_ok else told | {"wait_store_ok": False}


def shard_of(topic: str, key: str) -> int:
    """The shard of a key; the same in every process and release."""
    return crc32(f"{topic}\0{key}".encode()) % SHARDS
