"""Pull requests from templates, and the one number that their answers are asked for most.

A reader that is far behind sends a pull for every 32 messages, and but for the offset and the number
of messages it is the same each time. Encoding it field by field costs as much as reading ten of the
messages, and so does decoding a whole answer's header to learn where to go on.
"""

from __future__ import annotations

import re
from typing import Final

from rocketwire.wire.binary_header import encode_ext
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import Reply
from rocketwire.wire.encoded_request import EncodedRequest
from rocketwire.wire.headers import decode_pull_reply

#: The names of the two numbers, each with three bytes of a length; the fourth is that of its digits.
_NUMBERS: Final = b"%b\x00\x0bqueueOffset\x00\x00\x00%c%b\x00\x0amaxMsgNums\x00\x00\x00%c%b"
_NEXT: Final = re.compile(rb'"nextBeginOffset":"(\d{1,18})"')
_NEXT_BINARY: Final = b"\x00\x0fnextBeginOffset"
_DELTA: Final = b"offsetDelta"


class PullRequest(EncodedRequest):
    """A pull, ready for any connection."""

    __slots__ = ()

    code = int(RequestCode.PULL_MESSAGE)


class PullTemplate:
    """Makes binary pull requests of one queue.

    Args:
        fields: those of a pull; its offset and its number of messages count for nothing.
    """

    __slots__ = ("_prefix",)

    def __init__(self, fields: dict[str, str]) -> None:
        changing = {"queueOffset", "maxMsgNums"}
        others = {name: value for name, value in fields.items() if name not in changing}
        self._prefix = encode_ext(others)

    def request(self, offset: int, count: int) -> PullRequest:
        """The request for so many messages from an offset on."""
        first, most = b"%d" % offset, b"%d" % count
        return PullRequest(_NUMBERS % (self._prefix, len(first), first, len(most), most))


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
    place = decode_pull_reply(reply.ext)
    return place.next_offset, place.offset_delta
