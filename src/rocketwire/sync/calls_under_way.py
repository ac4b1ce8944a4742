"""Counts the calls of a producer that this thread is in, for signal handlers, hooks and finalizers inside of them.

Each thread counts its own calls, in plain attributes::

    here = self._calls.here
    here.sends += 1
    try:
        ...
    finally:
        here.sends -= 1

Python looks for signals behind a call, at the beginning of a function and where a loop goes round. So no
interrupt comes between the first count and its ``try``, nor before the last one once the work is over, and
a count that was raised is lowered again whatever else is raised. This is written out where it is needed:
a context manager begins with a call, and an interrupt there would leave its count as it was.
"""

from __future__ import annotations

import threading


class CallsHere:
    """The calls of one producer that one thread is in the midst of, those inside others included."""

    __slots__ = ("sends", "submits")

    def __init__(self) -> None:
        #: All that wait for an answer.
        self.sends = 0
        self.submits = 0


class CallsUnderWay(threading.local):
    """Those of the thread that asks, in ``here``."""

    #: For a signal handler that comes while those of its thread are being made: there are none yet.
    here = CallsHere()

    def __init__(self) -> None:
        super().__init__()
        self.here = CallsHere()
