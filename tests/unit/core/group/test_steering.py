"""Programs that pause, seek and acknowledge by hand, in storms: nothing is lost, skipped or passed over.

What the world watches besides: nothing of a paused queue is handed out, nothing is committed past an
open delivery, and when a seek backwards is known to a broker, all from there on is handled again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.unit.core.group.group_world import GroupBroker, GroupWorld, Member
from tests.unit.core.group.storms import Storm

from rocketwire.core.effects import Op, sleep
from rocketwire.core.group.control import position, seek
from rocketwire.core.group.deliveries import HandedOut
from rocketwire.core.group.process_queue import ProcessQueue
from rocketwire.core.reading.pull import ALL
from rocketwire.errors import ClientClosedError, RocketMQError
from rocketwire.message import MessageQueue

#: Deliveries that a program has open at once, at most.
MOST_OPEN = 5


class Sought(NamedTuple):
    """A seek whose place no broker knows yet, and what is handled since."""

    member: Member
    held: ProcessQueue
    epoch: int
    offset: int
    since: set[int]

    @property
    def holds(self) -> bool:
        """Whether the one who sought still has the queue, and went nowhere else."""
        queue = self.held.queue
        is_his = self.member.is_alive and self.member.group.queues.get(queue) is self.held
        return is_his and self.held.epoch == self.epoch


class SteeredWorld(GroupWorld):
    """A world whose members go where they want in their queues."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # A second topic: messages of both come back through one retry topic, and one may be paused.
        self.topics["U"] = {"broker-a": 1}
        self.sought: dict[MessageQueue, Sought] = {}
        self.counts: Counter[str] = Counter()
        #: How often each queue was moved while a member had it.
        self.jumped: dict[ProcessQueue, int] = {}
        self._jumps: list[tuple[int, MessageQueue, int]] = []

    def count(self, what: str) -> None:
        self.counts[what] += 1

    def settled(self, queue: MessageQueue, offset: int) -> None:
        super().settled(queue, offset)
        if queue in self.sought:
            self.sought[queue].since.add(offset)

    def has_sought(self, member: Member, queue: MessageQueue, offset: int) -> None:
        """A member goes on elsewhere: what lies before that place is not wanted any more."""
        held = member.group.queues[queue]
        self.jumped[held] = self.jumped.get(held, 0) + 1
        self._jumps.append((len(self.handled), queue, offset))
        for before in range(offset):
            self.done.add((queue, before))
        self.sought[queue] = Sought(member, held, held.epoch, offset, set())
        self.count("seeks")

    def check_commit(self, broker: GroupBroker, key: tuple[str, int], offset: int) -> None:
        super().check_commit(broker, key, offset)
        queue = MessageQueue(key[0], broker.name, key[1])
        found = self.sought.get(queue)
        if found is None or not found.holds:
            self.sought.pop(queue, None)
        elif found.since.issuperset(range(found.offset, offset)):
            # The group stands there now: all that follows is to be handled, be it once more.
            del self.sought[queue]
            old = {o for q, o in self.done if q == queue and o >= found.offset}
            self.done -= {(queue, o) for o in old - found.since}
            self.count("seeks back" if old - found.since else "seeks ahead")

    def check_order(self) -> None:
        reached: dict[MessageQueue, int] = {}
        jumps = iter([*self._jumps, (len(self.handled) + 1, None, 0)])
        at, where, to = next(jumps)
        for number, (_, queue, offset, _) in enumerate(self.handled):
            while at <= number:
                reached[where] = max(to - 1, reached.get(where, -1))
                at, where, to = next(jumps)
            if queue.topic == "T":
                assert offset <= reached.get(queue, -1) + 1, (queue, offset, reached.get(queue))
                reached[queue] = max(offset, reached.get(queue, -1))


class Program(Member):
    """A member that takes deliveries, keeps some open, and decides about them in any order."""

    world: SteeredWorld

    def __init__(self, world: GroupWorld, name: str, **options: Any) -> None:
        super().__init__(world, name, **options)
        #: What is open, and how often its queue had been moved when it was taken.
        self.open: list[tuple[HandedOut, int]] = []

    def _work(self) -> Op[None]:
        while self.is_alive:
            yield from sleep(self.world.clock() + self.random.choice([0.001, 0.01, 0.2, 2.0]))
            if self.open and (len(self.open) >= MOST_OPEN or self.random.random() < 0.5):
                self._decide(*self.open.pop(self.random.randrange(len(self.open))))
            elif not self.group.is_leaving:
                self._take()

    def _take(self) -> None:
        with self.workload.lock:
            work = self.workload.next_open()
        if work is not None:
            self.in_hand.add(work)
            self.world.begins(self, work)
            jumps = self.world.jumped.get(work.process_queue, 0)
            self.open.append((HandedOut(self.group, work), jumps))

    def _decide(self, delivery: HandedOut, jumps: int) -> None:
        word = self.random.choice(["ack", "ack", "ack", "retry", "dead_letter"])
        work = delivery._work
        self.in_hand.discard(work)
        operation: Op[None] | None = None
        try:
            if word == "ack":
                is_good = delivery.acknowledge()
            else:
                is_good = False
                given = (1.0,) if word == "retry" else ("of no use",)
                operation = getattr(delivery, word)(*given)
        except ClientClosedError:
            word, is_good = "too late", False
        held = work.process_queue
        is_lost = held not in self.group.every_queue() or self.world.jumped.get(held, 0) != jumps
        assert not (delivery.counts and is_lost), f"{work.messages} counts, and comes again"
        if self.config.ordered or is_good:
            self.world.ends(self, work, is_good=is_good)
        if operation is not None:
            self._start(operation)
        self.world.count(word if delivery.counts else "too late")

    def leave(self) -> Any:
        """Go in peace; what is open comes again elsewhere, from now on."""
        for delivery, _ in self.open:
            self.world.ends(self, delivery._work, is_good=False)
            self.in_hand.discard(delivery._work)
        return super().leave()


class SteeredStorm(Storm):
    """A storm in which members pause, seek, and acknowledge by hand."""

    world: SteeredWorld
    share = 0.4

    def __init__(self, seed: int, **options: object) -> None:
        # Shorter than what a program has open takes: queues go away meanwhile.
        super().__init__(seed, SteeredWorld(seed=seed), drain_timeout=0.5, **options)

    def make_member(self) -> Member:
        if self.random.random() < 0.5:
            member = super().make_member()
        else:
            name = f"program-{next(self.world._numbers)}"
            member = Program(self.world, name, **self.options)
        member.group.subscribe({"T": ALL, "U": ALL})
        return member

    def events(self) -> list[Callable[[], None]]:
        steering = [self.pause, self.pause, self.resume, self.resume, self.seek, self.seek]
        return [*super().events(), *steering]

    def pause(self) -> None:
        self._set_pause(self._any(), is_paused=True)

    def resume(self) -> None:
        self._set_pause(self._any(), is_paused=False)

    def _set_pause(self, member: Member, *, is_paused: bool) -> None:
        queues = [queue for queue in member.group.queues if queue.topic == "T"]
        what = self.random.choice(["T", *queues, *queues])
        member.group.pauses.put(what, {"T"}, is_paused=is_paused)
        member.group.apply_pauses()
        self.world.count("pauses" if is_paused else "resumes")

    def seek(self) -> None:
        member = self._any()
        queues = sorted(queue for queue in member.group.queues if queue.topic == "T")
        if queues:
            member._start(self._seek(member, self.random.choice(queues)))

    def _seek(self, member: Member, queue: MessageQueue) -> Op[None]:
        stored = self.world.brokers[queue.broker].queues.get(("T", queue.id), [])
        where = self.random.choice(["earliest", "latest", self.random.randrange(len(stored) + 1)])
        try:
            offset = yield from seek(member.group, queue, where, self.world.clock() + 3.0)
        except RocketMQError:  # its broker is away, or the queue has gone to another member
            return
        self.world.has_sought(member, queue, offset)
        assert position(member.group, queue) == offset

    def calm_down(self) -> None:
        for member in self.world.members.values():
            member.group.pauses.put("T", {"T"}, is_paused=False)
            member.group.apply_pauses()
        super().calm_down()

    def missing(self) -> set[str]:
        """By place and not by content: what was sought back to is to be handled again."""
        world = self.world
        return {
            m.body for queue, offset, m in world.messages() if (queue, offset) not in world.done
        }


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
@pytest.mark.parametrize("seed", range(7))
def test_nothing_is_lost_or_passed_over_in_a_storm_of_programs(seed, ordered):
    storm = SteeredStorm(seed, ordered=ordered)
    storm.rage(200.0)
    storm.calm_down()
    if ordered:
        storm.world.check_order()
    assert min(storm.world.counts[what] for what in ("pauses", "seeks", "ack", "retry")) > 0
