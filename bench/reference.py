"""How fast this machine is at the moment: a fixed loop, timed beside everything that is measured.

A shared machine moves by 1.4 within an hour, and CPU time moves with it: another program on the
same core or its twin takes caches and cycles that no clock of a process shows. The loop does what a
client does (numbers into text, text into bytes, fields into a struct, pieces into one), it never
changes, and a figure that is divided by its pace can be compared with one of another hour.
"""

from __future__ import annotations

import struct
import time
from typing import Final

#: Seconds of CPU that one step took on the machine of the README's table when it was quiet.
STEP: Final = 1.0e-6
#: As many as last a few milliseconds: short beside what is measured, long beside a clock's step.
_STEPS: Final = 2500
_layout = struct.Struct(">iiiih")
_BODY: Final = b"0123456789" * 20


def loop(steps: int) -> int:
    """Encode so many records; the length of all of them. Never change what is done here."""
    pack, pieces = _layout.pack, []
    for number in range(steps):
        text = f"KEYS\x01order-{number}\x02TAGS\x01pay\x02UNIQ_KEY\x01{number:032X}\x02".encode()
        fields = (number, text)
        head = pack(20 + len(_BODY) + len(text), number, 0, len(_BODY), len(fields[1]))
        pieces += (head, _BODY, text)
    return len(b"".join(pieces))


def pace(steps: int = _STEPS) -> float:
    """How much slower the machine is now than it was for the table: 1.2 is a fifth slower."""
    began = time.thread_time()
    loop(steps)
    return (time.thread_time() - began) / steps / STEP
