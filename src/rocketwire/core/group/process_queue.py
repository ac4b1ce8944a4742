"""What a member of a group holds of one queue: messages, and how far it has come.

The offset that may be committed is the first one that is not handled yet, whatever was handled
behind it. All of it is guarded by one lock, the workload's, because handlers may run on threads; but
from the left of ``waiting`` they take without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rocketwire.core.effects import Event
from rocketwire.core.reading.pull import ALL, TagFilter
from rocketwire.core.wake_up import WakeUp
from rocketwire.message import MessageQueue
from rocketwire.stored_message import StoredMessage
from rocketwire.wire.lazy_message import weigh
from rocketwire.wire.pull_request import PullTemplate


class ProcessQueue:
    """One queue that is ours, from the moment at which it was given to us.

    Args:
        queue: which.
        offset: where to begin.
        wake_up: wakes the loop that pulls it.
        tags: what is wanted of it.
    """

    __slots__ = (
        "_order",
        "_settled",
        "barred",
        "committed",
        "end",
        "epoch",
        "held",
        "held_bytes",
        "idle",
        "in_hand",
        "is_dropped",
        "is_full",
        "is_listed",
        "is_paused",
        "locked_until",
        "loop",
        "next_offset",
        "parked",
        "queue",
        "resume_at",
        "source",
        "stride",
        "tags",
        "templates",
        "waiting",
        "wake_up",
    )

    def __init__(
        self, queue: MessageQueue, offset: int, wake_up: WakeUp, tags: TagFilter = ALL
    ) -> None:
        self.queue = queue
        self.wake_up = wake_up
        self.tags = tags
        #: Where the next pull begins.
        self.next_offset = offset
        #: Where the broker's queue ended when it was last asked.
        self.end = offset
        #: Pulled and not yet given to a handler.
        self.waiting: deque[StoredMessage] = deque()
        #: Topics whose messages wait apart (in the retry topic, while a topic is paused), and those.
        self.barred: frozenset[str] = frozenset()
        self.parked: list[StoredMessage] = []
        self._order: deque[int] = deque()
        self._settled: set[int] = set()
        #: Messages that are not settled, and the bytes that they take.
        self.held = 0
        self.held_bytes = 0
        #: Pieces of work that handlers have, or that are being sent back.
        self.in_hand = 0
        #: Set when nothing is in hand any more; only while a caller waits for that.
        self.idle: Event | None = None
        self.is_dropped = False
        #: Whether its pulls wait for room.
        self.is_full = False
        #: Whether it stands in the workload's line.
        self.is_listed = False
        #: Whether the program has paused it: nothing is pulled, and nothing handed out.
        self.is_paused = False
        #: Until when its lock on the broker is ours (ordered only).
        self.locked_until = 0.0
        #: Before this moment nothing of it is handed out (ordered, after a failure).
        self.resume_at = 0.0
        #: Counts fresh starts; work from before one does not count any more.
        self.epoch = 0
        #: Counts the loops that have pulled it; only the last one does.
        self.loop = 0
        #: What the broker knows already.
        self.committed: int | None = None
        #: The id of the broker that it is pulled from: 0 is the master.
        self.source = 0
        #: How many offsets one pull covered last.
        self.stride = 0
        #: Its pulls, encoded: by whether they wait, and for what is wanted.
        self.templates: dict[tuple[bool, int, str], PullTemplate] = {}

    def add(
        self, messages: Sequence[StoredMessage], next_offset: int, size: int | None = None
    ) -> None:
        """A pull brought these; the next one begins at ``next_offset``.

        Args:
            messages: in the order of their offsets.
            next_offset: behind all of them.
            size: what they weigh, if that is known.
        """
        self.waiting.extend(self._without_barred(messages))
        self._order.extend([message.offset for message in messages])
        self.held += len(messages)
        self.held_bytes += weigh(messages) if size is None else size
        self.next_offset = next_offset

    def put_first(self, messages: Sequence[StoredMessage]) -> None:
        """Hand these out before all others; they were in a handler's hand."""
        self.waiting.extendleft(reversed(self._without_barred(messages)))

    def _without_barred(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Messages that may be handed out; the others are put aside."""
        barred = self.barred
        if not barred:
            return messages
        self.parked += [message for message in messages if message.topic in barred]
        return [message for message in messages if message.topic not in barred]

    def hold_back(self, barred: frozenset[str], *, is_paused: bool) -> None:
        """Pause it or let it go on, as a whole or for messages of some topics.

        A handler that goes on with it finds nothing more, and looks for other work.
        """
        waiting = self._take_waiting()
        self.is_paused, self.barred = is_paused, barred
        self.waiting.extend(self._without_barred(waiting))

    @property
    def position(self) -> int:
        """The offset of what is handed out next."""
        try:
            return self.waiting[0].offset  # handlers take from it meanwhile
        except IndexError:
            return self.parked[0].offset if self.parked else self.next_offset

    def settle(self, messages: Sequence[StoredMessage]) -> int:
        """These are done with. Each is settled once. Returns the bytes that they took."""
        offsets = [message.offset for message in messages]
        count, order = len(offsets), self._order
        # The last of them is as far from the first open one as there are: they are all between.
        if not self._settled and count <= len(order) and max(offsets) == order[count - 1]:
            for _ in offsets:
                order.popleft()
        else:
            self._settle_apart(offsets)
        size = weigh(messages)
        self.held -= len(messages)
        self.held_bytes -= size
        return size

    def _settle_apart(self, offsets: list[int]) -> None:
        """Settle where something before is open, or was until now."""
        order, settled = self._order, self._settled
        settled.update(offsets)
        while settled and order and order[0] in settled:
            settled.remove(order.popleft())

    @property
    def floor(self) -> int:
        """The first offset that is not handled: what may be committed, and no more."""
        return self._order[0] if self._order else self.next_offset

    @property
    def span(self) -> int:
        """How far the last message is from the first one that is not settled."""
        return self._order[-1] - self._order[0] if self._order else 0

    def restart(self, offset: int) -> None:
        """Begin anew somewhere else. What a handler still has counts no more when it is done."""
        self.epoch += 1
        self.resume_at = 0.0
        self.next_offset = offset
        self.committed = None
        self.stride = 0
        self._take_waiting()
        self._order.clear()
        self._settled.clear()
        self.held = self.held_bytes = 0

    def forget_waiting(self) -> None:
        """Drop what no handler has seen. The floor stays below it: it is not handled."""
        waiting = self._take_waiting()
        self.held -= len(waiting)
        self.held_bytes -= weigh(waiting)

    def _take_waiting(self) -> list[StoredMessage]:
        """All that waits, apart or not; handlers which go on with this queue find nothing more.

        One by one, because they take without a lock. And from now on in another place: what comes
        after a fresh start is not for those who began before it.
        """
        waiting, self.waiting = self.waiting, deque()
        taken, self.parked = self.parked, []
        try:
            while True:
                taken.append(waiting.popleft())
        except IndexError:
            return taken

    def put_down(self) -> None:
        """A handler is done with something of it; ``in_hand`` counted that it had it."""
        self.in_hand -= 1
        if self.idle is not None:
            self._open_if_idle()

    def _open_if_idle(self) -> None:
        if not self.in_hand and self.idle is not None:
            self.idle.set()

    def idle_event(self) -> Event:
        """Set when nothing is in hand."""
        if self.idle is None:
            self.idle = Event()
            self._open_if_idle()
        return self.idle
