"""One message of a sharding key at a time.

A broker stores requests in the order in which its threads take them, which is not always the
order in which they were written. So two messages of one key are never in flight together: the sends
of a key wait for one another, each in a slot of its own. Nothing is kept of a key while no send of
it is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from rocketwire.core.effects import Event
from rocketwire.errors import Outcome, SendFailedError

#: Of every slot that never had to wait, as most do not.
_READY: Final = Event()
_READY.set()
#: How long a submitted message may wait for earlier sends of its key; each of these has a timeout.
PATIENCE: Final = 3600.0


class KeySlot:
    """The place of one send among the sends of a key. ``ready`` is set when it may go."""

    __slots__ = ("failed_before", "is_accepted", "key", "ready", "thread")

    def __init__(self, key: Hashable, thread: int | None, is_accepted: bool) -> None:  # noqa: FBT001
        self.key = key
        #: Which thread waits in the send; None where none does.
        self.thread = thread
        #: Whether the message was already taken from the user (by submit or send_many).
        self.is_accepted = is_accepted
        self.ready = _READY
        #: The failure of a message before this one, if it must not be sent because of that.
        self.failed_before: Exception | None = None


class KeyOrder:
    """The slots of all keys of a producer."""

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        self._slots: dict[Hashable, deque[KeySlot]] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def enter(
        self, keys: Sequence[Hashable], *, is_accepted: bool, thread: int | None = None
    ) -> tuple[KeySlot, ...]:
        """Take a slot for every key at once; a first one is ready.

        All at once, so that two batches with the same keys can't wait for one another. ``thread`` is
        the one that waits in the send, if one does.
        """
        slots = tuple([KeySlot(key, thread, is_accepted) for key in keys])
        try:
            with self._lock:
                for slot in slots:
                    if slot.key in self._slots:
                        slot.ready = Event()
                    line = self._join(slot)
                    if line[0] is not slot:
                        self._wait_behind(line, slot)
                    elif slot.ready is not _READY:
                        slot.ready.set()
        except BaseException:  # the thread is interrupted
            for slot in slots:
                self.leave(slot)
            raise
        return slots

    @staticmethod
    def _wait_behind(line: deque[KeySlot], slot: KeySlot) -> None:
        if slot.ready is _READY:  # a signal handler came before it joined the line
            slot.ready = Event()
            if line[0] is slot:  # and what it began has ended
                slot.ready.set()
        if slot.thread and any([other.thread == slot.thread for other in line][:-1]):
            slot.ready.setter = slot.thread  # it is in the midst of a send of the key

    def _join(self, slot: KeySlot) -> deque[KeySlot]:
        """Stand in the line of a key. A signal handler may come and go between any two steps."""
        while True:
            line = self._slots.setdefault(slot.key, deque())
            line.append(slot)
            if self._slots.get(slot.key) is line:
                return line

    def is_last(self, slot: KeySlot) -> bool:
        """Whether no other send of the key waits behind."""
        slots = self._slots.get(slot.key)
        return slots is not None and slots[-1] is slot

    def leave(self, slot: KeySlot, failure: Exception | None = None) -> None:
        """Done, or given up. After a failure those that were accepted behind it fail, too.

        A message that was accepted after the failed one would otherwise overtake it. Blocking sends
        that wait go on: their callers can still decide.
        """
        opened: list[KeySlot] = []
        with self._lock:
            slots = self._slots.get(slot.key)
            if slots is None or slot not in slots:
                if slots is not None and not slots:  # an interrupt came before a slot was in it
                    self._slots.pop(slot.key, None)
                return
            was_first = slots[0] is slot
            if slot in slots:  # a signal handler may have been here
                slots.remove(slot)
            if failure is not None and was_first:
                opened = [other for other in slots if other.is_accepted]
                for other in opened:
                    other.failed_before = failure
                    slots.remove(other)
            if not slots:
                if self._slots.get(slot.key) is slots:
                    self._slots.pop(slot.key, None)
            elif was_first:
                opened.append(slots[0])
        for other in opened:
            other.ready.set()


def not_sent_after(before: Exception) -> SendFailedError:
    """What a message fails with because one of its key before it has failed."""
    error = SendFailedError(
        f"not sent: an earlier message of its sharding key failed ({before})",
        outcome=Outcome.NOT_SENT,
    )
    error.__cause__ = before
    return error


def not_sent_in_midst() -> SendFailedError:
    """What a send fails with that would wait for the very code that it interrupts."""
    return SendFailedError(
        "not sent: it would wait for ever for the send of its sharding key in the midst of which this "
        "signal handler, hook or finalizer runs; use submit(), which does not wait",
        outcome=Outcome.NOT_SENT,
    )
