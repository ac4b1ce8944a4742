"""What a consumer has done so far."""

from __future__ import annotations

from dataclasses import dataclass

from rocketwire.message import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """One queue of a member.

    ``handled`` is the first offset that is not handled yet, ``committed`` what the broker knows,
    ``end`` the end of the queue when it was last asked. ``state`` is ``running``, ``paused`` (by
    ``pause()``, or for lack of room), ``resting`` (ordered, after a failure), ``unlocked`` or ``leaving``.
    """

    queue: MessageQueue
    handled: int
    committed: int | None
    end: int
    held: int
    held_bytes: int
    in_hand: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """Counters since the start, and the queues as they stand.

    ``handled`` counts messages whose handler succeeded, ``failed`` those whose handler did not,
    ``retried`` those that were sent back, ``retried_here`` those that were tried again without the
    broker, ``dead_lettered`` those given up, ``overdue`` those taken from a handler that hung.
    ``replies`` counts replies that reached a requester, ``failed_replies`` those that did not.
    """

    pulled: int
    pulled_bytes: int
    pulls: int
    empty_pulls: int
    pull_errors: int
    handled: int
    failed: int
    retried: int
    retried_here: int
    dead_lettered: int
    overdue: int
    rebalances: int
    assigned: int
    revoked: int
    commits: int
    pauses: int
    moved_offsets: int
    replies: int
    failed_replies: int
    trace_dropped: int
    held: int
    held_bytes: int
    in_hand: int
    queues: tuple[QueueState, ...]
    group: str


class ConsumerCounters:
    """Mutable side of the statistics. Additions without a lock: two threads may lose a count."""

    def __init__(self) -> None:
        self.pulled = 0
        self.pulled_bytes = 0
        self.pulls = 0
        self.empty_pulls = 0
        self.pull_errors = 0
        self.failed = 0
        self.retried = 0
        self.retried_here = 0
        self.dead_lettered = 0
        self.overdue = 0
        self.rebalances = 0
        self.assigned = 0
        self.revoked = 0
        self.commits = 0
        self.pauses = 0
        self.moved_offsets = 0
        self.replies = 0
        self.failed_replies = 0

    def snapshot(
        self,
        *,
        handled: int,
        held: int,
        held_bytes: int,
        in_hand: int,
        trace_dropped: int,
        queues: tuple[QueueState, ...],
        group: str,
    ) -> ConsumerStats:
        """The numbers now."""
        return ConsumerStats(
            **vars(self),
            handled=handled,
            held=held,
            held_bytes=held_bytes,
            in_hand=in_hand,
            trace_dropped=trace_dropped,
            queues=queues,
            group=group,
        )
