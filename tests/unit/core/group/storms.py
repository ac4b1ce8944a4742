"""Random histories of groups: members, brokers and queues that come and go."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.unit.core.group.group_world import GroupWorld, Member

from rocketwire.core.group.allocation import average
from rocketwire.core.group.send_back import Retry
from rocketwire.message import MessageQueue


def everything(world: GroupWorld) -> list[MessageQueue]:
    return sorted(
        MessageQueue("T", broker, i) for broker, n in world.topics["T"].items() for i in range(n)
    )


def check_split(world: GroupWorld) -> None:
    """Everybody has what Java's average allocation gives him."""
    queues, names = everything(world), sorted(world.members)
    for name, mine in world.assignments().items():
        assert mine == sorted(average(name, queues, names)), name


class Storm:
    """Random joins, leaves, crashes, restarts and queue changes, with messages all the time."""

    def __init__(self, seed: int, world: GroupWorld | None = None, **options: object) -> None:
        self.world = world or GroupWorld(seed=seed)
        self.random = Random(seed * 7919)
        self.options = options

    def join(self) -> None:
        if len(self.world.members) < 6:
            member = self.make_member()
            member.behave = self._behave
            member.begin()

    def make_member(self) -> Member:
        return self.world.member(**self.options)

    def _behave(self, _: object) -> tuple[float, object]:
        # The quick ones go on with their queue before they look for another.
        seconds = self.random.choice([0.0, 0.0002, 0.001, 0.01, 0.1, 1.0])
        if self.random.random() < 0.05:
            return seconds, self.random.choice([ValueError("bad luck"), Retry(after=1.0)])
        return seconds, None

    def leave(self) -> None:
        self._any().leave()

    def crash(self) -> None:
        self._any().die()

    def _any(self) -> Member:
        return self.world.members[self.random.choice(sorted(self.world.members))]

    def restart_broker(self) -> None:
        broker = self.world.brokers[self.random.choice(sorted(self.world.brokers))]
        broker.restart()
        self.world.clock.call_at(self.world.clock() + self.random.uniform(0.1, 40.0), broker.heal)

    def widen(self) -> None:
        broker = self.random.choice(sorted(self.world.brokers))
        if self.world.topics["T"][broker] < 8:
            self.world.topics["T"][broker] += 1

    def events(self) -> list[Callable[[], None]]:
        """What may happen, the frequent ones more than once."""
        return [self.join, self.join, self.leave, self.crash, self.restart_broker, self.widen]

    #: How often something happens beside messages, of all rounds.
    share = 0.15

    def rage(self, seconds: float) -> None:
        world, events = self.world, self.events()
        self.join()
        end = world.clock() + seconds
        while world.clock() < end:
            world.send(self.random.randrange(4))
            world.run(self.random.uniform(0.05, 3.0))
            if self.random.random() < self.share:
                event = self.random.choice(events)
                if world.members or event == self.join:
                    event()

    def calm_down(self) -> None:
        world = self.world
        for broker in world.brokers.values():
            broker.heal()
        while len(world.members) < 2:
            self.join()
        for member in world.members.values():
            member.behave = lambda _: (0.001, None)
        for _ in range(60):
            world.run(10.0)
            if not self.missing():
                break
        assert not self.missing()
        world.run(100.0)  # locks of the dead end after 60 s, routes are 30 s old at most
        check_split(world)

    def missing(self) -> set[str]:
        """Messages that nobody has handled, and that are no dead letters."""
        world = self.world
        buried = {body for broker in world.brokers.values() for body in broker.dead_letters}
        return {message.body for _, _, message in world.messages()} - world.bodies - buried
