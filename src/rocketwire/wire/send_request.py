"""Send requests from templates.

Most of a send header is the same for every message to one queue. A template holds that part
encoded; a message adds its time of birth, its properties and its flags. This saves about 6 µs of
the 8 µs that encoding a header field by field costs.
"""

from __future__ import annotations

import struct
from typing import Final

from rocketwire.errors import LocalProtocolError
from rocketwire.wire.binary_header import encode_ext
from rocketwire.wire.codes import CLIENT_VERSION, Language, RequestCode
from rocketwire.wire.framing import MAX_FRAME

_pack_start = struct.Struct(">IIhBhiiii").pack
_pack_int32 = struct.Struct(">i").pack
_pack_kind = struct.Struct(">IhBh").pack
_pack_middle = struct.Struct(">iii").pack
_pack_frame_start = struct.Struct(">I9si").pack
_UNIQUE: Final = b"UNIQ_KEY\x01"
_DIGIT_PAIRS: Final = [b"%02X" % number for number in range(256)]
_LAST_DIGITS: Final = [b"%02X\x02" % number for number in range(256)]
_FIXED: Final = 21
_BINARY: Final = 1 << 24
_PYTHON: Final = int(Language.PYTHON)
#: A time of birth has 13 digits until the year 2286, so that its name and size belong to the prefix.
_DIGITS: Final = 13
_BORN_FIELD: Final = b"\x00\x01g\x00\x00\x00\x0d"


def send_fields(
    *,
    group: str,
    topic: str,
    default_topic: str,
    default_queues: int,
    queue_id: int,
    broker: str,
    batch: bool,
) -> dict[str, str]:
    """The header fields that are the same for all messages to one queue (V2 letters)."""
    fields = {
        "a": group,
        "b": topic,
        "c": default_topic,
        "d": str(default_queues),
        "e": str(queue_id),
        "j": "0",
        "k": "false",
        "n": broker,
    }
    if batch:
        fields["m"] = "true"
    return fields


class SendRequest:
    """A send, ready for any connection."""

    __slots__ = ("_born_ms", "_prefix", "_properties", "body", "code")

    def __init__(
        self, code: int, prefix: bytes, born_ms: int, properties: bytes, body: bytes | memoryview
    ) -> None:
        self.code = code
        self._prefix = prefix
        self._born_ms = born_ms
        self._properties = properties
        self.body = body

    def head(self, opaque: int, flag: int = 0) -> bytes:
        """Length, header kind and header."""
        properties = self._properties
        if properties:  # an absent field and an empty one are the same to brokers
            properties = b"\x00\x01i%b%b" % (_pack_int32(len(properties)), properties)
        ext = len(self._prefix) + _DIGITS + len(properties)
        total = 4 + _FIXED + ext + len(self.body)
        if total > MAX_FRAME - 4:
            raise LocalProtocolError(
                f"request of {total + 4} bytes: at most {MAX_FRAME} fit into a frame"
            )
        start = _pack_start(
            total,
            _BINARY | (_FIXED + ext),
            self.code,
            _PYTHON,
            CLIENT_VERSION,
            opaque,
            flag,
            0,
            ext,
        )
        return b"%b%b%013d%b" % (start, self._prefix, self._born_ms, properties)


def moment_of(born_ms: int, id_head: str) -> bytes:
    """The part of a plain message's frame that is the same for all that are born in one ms."""
    properties = len(_UNIQUE) + len(id_head) + 5
    return b"%013d\x00\x01i%b%b%b" % (
        born_ms,
        _pack_int32(properties),
        _UNIQUE,
        id_head.encode(),
    )


class PlainFrames:
    """Whole frames for messages to one queue that have a body, an id and nothing else.

    Only the length, the opaque number and the end of the id differ from one to the next.

    Args:
        template: for the queue.
        id_size: characters of a message id.
        flag: of the request, which says whether it wants an answer.
    """

    __slots__ = ("_fixed", "_kind", "_middle")

    def __init__(self, template: SendTemplate, id_size: int, flag: int = 0) -> None:
        prefix = template.usual
        ext = len(prefix) + _DIGITS + 7 + len(_UNIQUE) + id_size + 1
        #: What follows the length up to the opaque number, and from there to the time of birth.
        self._kind = _pack_kind(_BINARY | (_FIXED + ext), template.code, _PYTHON, CLIENT_VERSION)
        self._middle = _pack_middle(flag, 0, ext) + prefix
        self._fixed = 4 + _FIXED + ext

    def frame(self, opaque: int, moment: bytes, number: int, body: bytes) -> bytes:
        """The frame of one message.

        Args:
            opaque: the connection's number for the request.
            moment: from ``moment_of``.
            number: the end of the message's id.
            body: small enough for any frame.
        """
        start = _pack_frame_start(self._fixed + len(body), self._kind, opaque)
        # Digits from tables: a format that makes them takes 0.37 µs instead of 0.29.
        end = _LAST_DIGITS[number & 0xFF]
        return b"".join((start, self._middle, moment, _DIGIT_PAIRS[number >> 8], end, body))


class SendTemplate:
    """Makes binary send requests to one queue."""

    __slots__ = ("_by_flags", "_fields", "code", "usual")

    def __init__(self, fields: dict[str, str]) -> None:
        self._fields = fields
        self.code = RequestCode.SEND_BATCH_MESSAGE if "m" in fields else RequestCode.SEND_MESSAGE_V2
        # Flags are chosen by the application, so this is kept small.
        self._by_flags: dict[tuple[int, int], bytes] = {}
        #: The fields up to the time of birth, for messages without flags.
        self.usual = self._prefix(0, 0)

    def request(
        self,
        system_flag: int,
        flag: int,
        born_ms: int,
        properties: bytes,
        body: bytes | memoryview,
    ) -> SendRequest:
        """The request for one message or one batch body."""
        if system_flag or flag:
            prefix = self._by_flags.get((system_flag, flag)) or self._prefix(system_flag, flag)
        else:
            prefix = self.usual
        return SendRequest(self.code, prefix, born_ms, properties, body)

    def _prefix(self, system_flag: int, flag: int) -> bytes:
        if len(self._by_flags) > 64:
            self._by_flags.clear()
        fields = self._fields | {"f": str(system_flag), "h": str(flag)}
        prefix = encode_ext(fields) + _BORN_FIELD
        self._by_flags[system_flag, flag] = prefix
        return prefix
