"""Records that must be read one by one: as the client's readers do it, with the same rules.

What comes out is written anew without bodies, so that all other columns are made as ever; the
bodies stand beside. They are made whole one after the other, and a few together are a batch: what a
sender compressed into kilobytes may be megabytes each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketwire.columns.record_starts import PullBody, find_in_texts
from rocketwire.columns.records import Decoded, Records, fixed_fields, locate
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.lazy_message import bare_record, cut
from rocketwire.wire.message_fields import Source

#: A batch ends before its bodies take more, unless one of them does. Half of what one body may take,
#: because the batch before it and a copy may be in memory at the same time.
_BATCH_BYTES: Final = 32 * 1024 * 1024
#: From so many bytes on it ends at once, so that the next body is not made whole beside it.
_ENOUGH_BYTES: Final = 16 * 1024 * 1024


@dataclass(slots=True)
class _Chunk:
    """What becomes one batch."""

    texts: list[list[bytes]]
    bodies: list[bytes] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)
    size: int = 0


def read_one_by_one(parts: Sequence[PullBody], *, with_bodies: bool) -> Iterator[Records]:
    """The records of some pull bodies, a few megabytes of bodies at a time.

    Args:
        parts: the pull bodies.
        with_bodies: whether messages' bodies are wanted.

    Raises:
        RemoteProtocolError: something there is not a record.
    """
    chunk = _Chunk([[] for _ in parts])
    for number, part in enumerate(parts):
        for message in _messages_of(part):
            size = len(message.body) if with_bodies else 0
            if chunk.reasons and chunk.size + size > _BATCH_BYTES:
                yield _located(chunk, parts, with_bodies=with_bodies)
                chunk = _Chunk([[] for _ in parts])
            chunk.texts[number].append(bare_record(message))
            chunk.reasons.append(message.undecodable if with_bodies else None)
            if with_bodies:
                chunk.bodies.append(message.body)
                chunk.size += size
            del message  # or its body would be held while the next one is made whole
            if chunk.size >= _ENOUGH_BYTES:
                yield _located(chunk, parts, with_bodies=with_bodies)
                chunk = _Chunk([[] for _ in parts])
    if chunk.reasons:
        yield _located(chunk, parts, with_bodies=with_bodies)


def _messages_of(part: PullBody) -> Iterator[StoredMessage]:
    """The messages of a pull body, each forgotten when the next is asked for."""
    data = bytes(part.body)
    if data:
        source = Source(data, part.queue, part.queue.broker, part.offset_delta)
        messages = cut(source, part.next_offset).messages
        messages.reverse()
        while messages:
            yield messages.pop()


def _located(chunk: _Chunk, parts: Sequence[PullBody], *, with_bodies: bool) -> Records:
    found = find_in_texts([b"".join(texts) for texts in chunk.texts])
    decoded = Decoded(chunk.bodies if with_bodies else None, chunk.reasons)
    return locate(found, fixed_fields(found), parts, decoded)
