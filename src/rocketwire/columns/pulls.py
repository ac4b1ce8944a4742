"""Pull requests by the row, and the one number that their answers are asked for.

At 32 messages an answer, what a pull costs is paid for every 32 rows. So requests are encoded once
for each queue, but for two numbers; many go out in one system call; and of an answer's header only
where to go on is read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final

from rocketwire.core.instance import Instance
from rocketwire.core.naming import with_namespace
from rocketwire.core.pull import TagFilter, pull_request
from rocketwire.message import MessageQueue
from rocketwire.wire import headers
from rocketwire.wire.binary_header import encode_ext
from rocketwire.wire.codes import CLIENT_VERSION, Language, PullFlag, RequestCode
from rocketwire.wire.command import Reply

_start = struct.Struct(">IIhBhiiii")
_FIXED: Final = 21
_BINARY: Final = 1 << 24
_NEXT: Final = re.compile(rb'"nextBeginOffset":"(\d{1,18})"')
_NEXT_BINARY: Final = b"\x00\x0fnextBeginOffset"
_DELTA: Final = b"offsetDelta"


class PullTemplate:
    """Makes the pulls of one queue."""

    def __init__(
        self, instance: Instance, queue: MessageQueue, group: str, tags: TagFilter
    ) -> None:
        self._instance = instance
        self._queue = queue
        self._group = group
        self._tags = tags
        self._prefix: bytes | None = None
        if instance.is_plain:
            self._prefix = self._encode_prefix()

    def _encode_prefix(self) -> bytes:
        namespace = self._instance.config.namespace
        fields = headers.pull(
            group=with_namespace(self._group, namespace),
            topic=with_namespace(self._queue.topic, namespace),
            queue_id=self._queue.id,
            offset=0,
            max_messages=0,
            system_flag=PullFlag.SUBSCRIPTION,
            subscription=self._tags.expression,
        )
        del fields["queueOffset"], fields["maxMsgNums"]
        return encode_ext(fields)

    def frame(self, opaque: int, offset: int, count: int) -> bytes:
        """The whole request for so many messages from an offset on."""
        if self._prefix is None:
            # Signed, or with a JSON header: every field each time.
            request = pull_request(
                self._instance,
                self._queue,
                offset,
                group=self._group,
                max_messages=count,
                tags=self._tags,
            )
            return request.head(opaque)
        first, most = b"%d" % offset, b"%d" % count
        ext = b"%b\x00\x0bqueueOffset\x00\x00\x00%c%b\x00\x0amaxMsgNums\x00\x00\x00%c%b" % (
            self._prefix, len(first), first, len(most), most,
        )  # fmt: skip
        header = _FIXED + len(ext)
        start = _start.pack(
            4 + header, _BINARY | header, RequestCode.PULL_MESSAGE, Language.PYTHON, CLIENT_VERSION,
            opaque, 0, 0, len(ext),
        )  # fmt: skip
        return start + ext


class Bundle:
    """Several requests that a connection writes as if they were one."""

    __slots__ = ("_frames",)

    code = RequestCode.PULL_MESSAGE
    body = b""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self._frames = frames

    def head(self, opaque: int, flag: int = 0) -> bytes:
        """All of them; each has an opaque number of its own already."""
        return b"".join(self._frames)


def next_offset_of(reply: Reply) -> tuple[int, int]:
    """Where to go on after an answer with messages, and what to add to its offsets.

    Raises:
        RemoteProtocolError: it does not say.
    """
    frame = reply.frame
    end = 4 + int.from_bytes(frame[1:4], "big")
    if frame.find(_DELTA, 4, end) < 0:
        if frame[0] == 0:
            found = _NEXT.search(frame, 4, end)
            if found is not None:
                return int(found[1]), 0
        else:
            at = frame.find(_NEXT_BINARY, 4, end) + len(_NEXT_BINARY)
            stop = at + 4 + int.from_bytes(frame[at : at + 4], "big")
            digits = frame[at + 4 : stop]
            if stop <= end and digits.isdigit() and at > len(_NEXT_BINARY):
                return int(digits), 0
    place = headers.decode_pull_reply(reply.ext)
    return place.next_offset, place.offset_delta
