"""Where the records of many pull bodies begin.

Bodies that lie in one large buffer, as they came from the network, are read in place; others are
put together first. Records of one body often have one size, which is seen at once. Otherwise sizes
are followed from record to record: for few long bodies one after the other, for many short ones all
at once, a step in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from rocketwire.columns.buffers import Bytes, Int64s
from rocketwire.errors import RemoteProtocolError
from rocketwire.message import MessageQueue
from rocketwire.wire.lazy_message import whole_records
from rocketwire.wire.record_layout import MAGIC_V1, MAGIC_V2, MIN_RECORD, picked

_size_at = picked("size").unpack_from
#: From so many bodies on, and up to such a length of each, they are followed all at once: a step
#: costs some ten microseconds then, whatever the number of bodies.
_MANY: Final = 48
_SHORT: Final = 64 * 1024


class Checker(Protocol):
    """Says whether all is there that should be, and sees to it where it is not."""

    def is_complete(self, part: PullBody, count: int) -> bool:
        """Whether so many records are all that a body should hold."""

    def settle(self, part: PullBody) -> Iterator[PullBody]:
        """What follows a body that is not as it should be."""


@dataclass(frozen=True, slots=True)
class PullBody:
    """The body of one pull reply: whole records of one queue, one after the other.

    ``offset_delta`` is what the broker's answer says is to be added to stored offsets. Rows outside
    of ``first`` <= offset < ``end`` are left out. ``buffer`` is what the body is a part of,
    from ``at`` on, if it is known. ``next_offset`` is where the answer says that the next one begins.
    ``accounts`` is told if not all records are there.
    """

    queue: MessageQueue
    body: bytes | memoryview
    offset_delta: int = 0
    first: int = 0
    end: int = 2**63 - 1
    buffer: Bytes | None = None
    at: int = 0
    next_offset: int = 2**63 - 1
    accounts: Checker | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Records in ``data``: where each starts, and which body it belongs to."""

    data: Bytes
    starts: Int64s
    source: Int64s
    #: Whether no record was cut off.
    is_whole: bool = True


def find_records(bodies: Sequence[PullBody]) -> Found:
    """All records of some bodies, in their order.

    Raises:
        RemoteProtocolError: something there is not a record.
    """
    buffer = bodies[0].buffer
    if buffer is not None and _lie_in_order(bodies, buffer):
        begins = np.array([part.at for part in bodies], dtype=np.int64)
        sizes = np.array([len(part.body) for part in bodies], dtype=np.int64)
        found = _follow(buffer, begins, begins + sizes)
        if found is not None:
            return found
    return find_in_texts([part.body for part in bodies])


def _lie_in_order(bodies: Sequence[PullBody], buffer: Bytes) -> bool:
    before = 0
    for part in bodies:
        if part.buffer is not buffer or part.at < before:
            return False
        before = part.at + len(part.body)
    return True


def find_in_texts(texts: Sequence[bytes | memoryview]) -> Found:
    """The same for bodies that lie anywhere; they are copied into one buffer."""
    joined = bytes(texts[0]) if len(texts) == 1 else b"".join(texts)
    data = np.frombuffer(joined, dtype=np.uint8)
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    begins = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    found = _follow(data, begins, ends)
    if found is not None:
        return found
    # A record that is cut off at the end of a body, or nonsense: the careful reader tells.
    whole = [text[: whole_records(text)[1]] for text in texts]
    if [len(text) for text in whole] == [len(text) for text in texts]:
        raise RemoteProtocolError("the sizes of stored records do not make up a pull's body")
    return replace(find_in_texts(whole), is_whole=False)


def _follow(data: Bytes, begins: Int64s, ends: Int64s) -> Found | None:
    """Follow the sizes; None where they lead astray."""
    longest = int((ends - begins).max(initial=0))
    walked = _follow_even(data, begins, ends)
    is_checked = walked is not None
    if walked is None and len(begins) >= _MANY and longest <= _SHORT:
        walked = _follow_together(data, begins, ends)
    elif walked is None:
        walked = _follow_in_turn(data, begins.tolist(), ends.tolist())
    if walked is None:
        return None
    starts, counts = walked
    if len(starts) and not is_checked:
        magic = np.ndarray((len(data) - 3,), dtype=">u4", buffer=data, strides=(1,))[starts + 4]
        if not bool(((magic == MAGIC_V1) | (magic == MAGIC_V2)).all()):
            return None
    source = np.repeat(np.arange(len(begins), dtype=np.int64), counts)
    return Found(data, starts, source)


def _follow_even(data: Bytes, begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s] | None:
    """Where all records of each body have the size of its first; None if they have not.

    Every size and magic number is looked at, both as one number, so this is no guess.
    """
    lengths = ends - begins
    if len(lengths) == 0 or int(lengths.min()) < MIN_RECORD:
        return None
    heads = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
    marks = heads[begins]
    sizes, magics = marks.view(">i4")[0::2], marks.view(">u4")[1::2]
    firsts = sizes.astype(np.int64)
    if int(firsts.min()) < MIN_RECORD or not set(magics.tolist()) <= {MAGIC_V1, MAGIC_V2}:
        return None
    counts = lengths // firsts
    if not bool((counts * firsts == lengths).all()):
        return None
    before = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(before, counts)
    starts = np.repeat(begins, counts) + within * np.repeat(firsts, counts)
    is_even = bool((heads[starts] == np.repeat(marks, counts)).all())
    return (starts, counts) if is_even else None


def _follow_in_turn(
    data: Bytes, begins: list[int], ends: list[int]
) -> tuple[Int64s, Int64s] | None:
    """A step of Python for each record.

    Looking for all magic numbers at once was slower: that reads every byte of the bodies.
    """
    found: list[int] = []
    counts: list[int] = []
    add, size_at, view = found.append, _size_at, data.data
    for begin, end in zip(begins, ends, strict=True):
        position, last, before = begin, end - MIN_RECORD, len(found)
        while position <= last:
            add(position)
            (size,) = size_at(view, position)
            if size < MIN_RECORD:
                return None
            position += size
        if position != end:
            return None
        counts.append(len(found) - before)
    return np.array(found, dtype=np.int64), np.array(counts, dtype=np.int64)


def _follow_together(data: Bytes, begins: Int64s, ends: Int64s) -> tuple[Int64s, Int64s] | None:
    """A step of numpy for the n-th record of all bodies."""
    if len(data) < MIN_RECORD:
        return None if bool((ends > begins).any()) else (begins[:0], np.zeros_like(begins))
    sizes = np.ndarray((len(data) - 3,), dtype=">i4", buffer=data, strides=(1,))
    # A body that is at its end stays there: its position is kept, and left out in the end.
    position, steps = begins, []
    last = len(data) - MIN_RECORD
    while bool((is_open := position < ends).any()):
        if bool((position[is_open] > last).any()):
            return None
        step = np.where(is_open, sizes[np.minimum(position, last)], 0)
        if bool((step[is_open] < MIN_RECORD).any()):
            return None
        steps.append(position)
        position = position + step
    if bool((position != ends).any()):
        return None
    if not steps:
        return begins[:0], np.zeros_like(begins)
    places = np.stack(steps, axis=1)
    inside = places < ends[:, None]
    return places[inside], inside.sum(axis=1)
