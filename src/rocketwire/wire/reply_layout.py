"""Answers that look like the one before.

A server writes the JSON header of each answer of one kind in the same way: the same fields in the
same order. So the first one is decoded in full, and a pattern made from it reads those that
follow, in 0.4 µs instead of 3 µs, checking every value on the way. What does not match (a remark,
an escape, another field) is decoded in full again.

Most answers to a send are never asked for more than whether the message is stored. Those are told
by their first and last bytes alone (``stored_number``). For one message that is 0.4 µs against 0.5
for the pattern; but the pattern walks over every value, and the answer to a batch of 500 has 500
ids. The values between are read, and checked, when they are asked for.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Final

from rocketwire.wire.codes import LANGUAGE_NAMES

#: Values that need no unescaping: printable ASCII without the quote and the backslash.
_TEXT: Final = r'"([ !#-\[\]-~]*)"'
_NUMBER: Final = r'"(-?[0-9]{1,19})"'
#: The properties of a message that is pushed to us: such text, with the separators between.
_PROPERTIES: Final = r'"([ !#-\[\]-~]*(?:\\u000[12][ !#-\[\]-~]*)*)"'
_NUMBERS: Final = frozenset({
    "queueId", "queueOffset", "nextBeginOffset", "minOffset", "maxOffset", "sysFlag", "flag",
    "bornTimestamp", "storeTimestamp", "reconsumeTimes",
})  # fmt: skip
_STATUS: Final = re.compile(r"[A-Z][A-Z_]{1,31}")
_PLACE: Final = frozenset({"msgId", "queueId", "queueOffset"})
#: The servers of a cluster have a handful of layouts; what comes beyond these is a hostile peer.
_MOST_LAYOUTS: Final = 128
_MOST_FIELDS: Final = 32

#: Of a binary header: its kind and length, code, language, version, opaque, flag, remark's length.
_start: Final = struct.Struct(">IhBhiii")
_BINARY: Final = 1 << 24
#: Of a frame with its length field: the lengths of frame and header, the latter with its kind.
_mark: Final = struct.Struct(">II").unpack_from
_OFFSET: Final = b"\x00\x0bqueueOffset"

_known: dict[tuple[object, ...], Layout | None] = {}


def stored_in_binary(frame: bytes) -> int:
    """The opaque number of an answer with a binary header that says "stored"; 0 of any other."""
    if len(frame) < _start.size:
        return 0
    mark, code, _, _, opaque, flag, remark = _start.unpack_from(frame)
    if code or flag != 1 or remark or mark != _BINARY + len(frame) - 4 or _OFFSET not in frame:
        return 0
    return int(opaque) if opaque > 0 else 0


class Layout:
    """The pattern of one kind of header."""

    __slots__ = (
        "_groups", "_separated", "code", "fields", "flag", "has_place", "head", "match", "opaque",
        "remark", "tail",
    )  # fmt: skip

    def __init__(
        self,
        pattern: str,
        code: int,
        flag: int,
        fields: tuple[str, ...],
        tail: str,
        remark: str | None = None,
    ) -> None:
        #: Called with a frame and the bounds of its header.
        self.match = re.compile(pattern.encode()).fullmatch
        self.code = code
        self.flag = flag
        self.fields = fields
        #: The group of the opaque number.
        self.opaque = len(fields) + 1
        #: Whether it tells where a message was stored, with numbers where numbers belong.
        self.has_place = _PLACE.issubset(fields) and remark is None
        # A header that tells of no place is not recognised by these: it has no such bytes.
        first = fields[0] if self.has_place and code == 0 else "\n"
        self.head = f'{{"code":{code},"extFields":{{"{first}":"'.encode()
        self.tail = tail.encode()
        #: The same in every answer of this kind.
        self.remark = remark
        self._separated = fields.index("properties") if "properties" in fields else -1
        self._groups: dict[tuple[str, ...], tuple[int, ...]] = {}

    def stored_number(self, frame: bytes) -> int:
        """The opaque number of an answer of this layout that says "stored"; 0 of any other frame.

        Looks at the bytes around the values only.
        """
        tail = self.tail
        if not (frame.endswith(tail) and frame.startswith(self.head, 4)):
            return 0
        end = len(frame) - len(tail)
        try:
            return int(frame[frame.rindex(b":", 0, end) + 1 : end])
        except ValueError:
            return 0

    def stored_answer(self, opaque: int) -> tuple[bytes, bytes]:
        """How the answer to that request that says "stored" begins and ends, if it has this layout."""
        return self.head, b":%d%b" % (opaque, self.tail)

    def groups_of(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """The groups of some fields in a match, in the order of the names; empty if one is not there.

        For readers that need a few values, again and again: give one and the same tuple.
        """
        found = self._groups.get(names)
        if found is None:
            is_there = set(names).issubset(self.fields)
            found = tuple(self.fields.index(name) + 1 for name in names) if is_there else ()
            self._groups[names] = found
        return found

    def ext(self, match: re.Match[bytes]) -> dict[str, str]:
        """The custom header of a header that matched."""
        texts = [value.decode() for value in match.groups()]
        place = self._separated
        if place >= 0:
            texts[place] = separated(match[place + 1]).decode()
        return dict(zip(self.fields, texts, strict=False))  # the last group is the opaque number


def says_stored(data: bytes, expected: tuple[bytes, bytes]) -> bool:
    """Whether this is one frame, with its length field, that begins and ends as is expected.

    What ``Layout.stored_number`` finds out of any frame, for one that is expected: half the time.
    """
    head, ending = expected
    return (
        data.endswith(ending)
        and data.startswith(head, 8)
        and _mark(data) == (len(data) - 4, len(data) - 8)
    )


def separated(properties: bytes) -> bytes:
    """Properties as they are, of those in a header that matched: no other escape is in them."""
    return properties.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")


def stored_numbers(layout: Layout | None, frames: Sequence[bytes]) -> list[int]:
    """For each frame ``Layout.stored_number`` or ``stored_in_binary``, whichever is right for it.

    Written out: answers come by the hundred, and a call for each would take a third of the time.

    Args:
        layout: how JSON answers that say "stored" look, if that is known.
        frames: without their length fields.
    """
    if layout is None:
        return [stored_in_binary(frame) if frame[0] else 0 for frame in frames]
    head, tail, size = layout.head, layout.tail, len(layout.tail)
    numbers: list[int] = []
    for frame in frames:
        number = 0
        if frame[0]:  # a binary header, as brokers before 5.0 answer
            number = stored_in_binary(frame)
        elif frame.endswith(tail) and frame.startswith(head, 4):
            end = len(frame) - size
            try:
                number = int(frame[frame.rindex(b":", 0, end) + 1 : end])
            except ValueError:
                number = 0
        numbers.append(number)
    return numbers


def _value(name: str) -> str:
    """What is expected of a field."""
    if name == "properties":
        return _PROPERTIES
    return _NUMBER if name in _NUMBERS else _TEXT


def is_status(remark: str) -> bool:
    """Whether a remark is the name of a status, which every answer to a pull has (``FOUND``).

    Words of an error differ from one to the next: they are no part of a layout.
    """
    return _STATUS.fullmatch(remark) is not None


def learn(
    header: bytes,
    code: int,
    language: int,
    version: int,
    flag: int,
    ext: Mapping[str, str],
    remark: str | None = None,
) -> Layout | None:
    """The layout of a header that was decoded in full; None if it fits none.

    Its remark is none, or the name of a status.
    """
    # Java leaves out an empty custom header.
    has_fields = bool(ext) or b'"extFields"' in header
    key = (code, language, version, flag, remark, has_fields, *ext)
    try:
        return _known[key]
    except KeyError:
        if len(_known) >= _MOST_LAYOUTS or len(ext) > _MOST_FIELDS:
            return None
    fields = ",".join(f'"{re.escape(name)}":{_value(name)}' for name in ext)
    name = LANGUAGE_NAMES[language] if 0 <= language < len(LANGUAGE_NAMES) else ""
    # In Java's order of fields. Answers in another order are decoded in full each time.
    middle = f'"flag":{flag},"language":"{name}","opaque":'
    said = "" if remark is None else f',"remark":"{remark}"'
    tail = f'{said},"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    custom = rf'"extFields":\{{{fields}\}},' if has_fields else ""
    pattern = rf'\{{"code":{code},{custom}{re.escape(middle)}(-?[0-9]{{1,10}}){re.escape(tail)}'
    layout = Layout(pattern, code, flag, tuple(ext), tail, remark)
    found = layout if layout.match(header) is not None else None
    _known[key] = found
    return found
