"""Which relay has which shards.

A lease has an owner and a number that the owner raises. A relay judges by its own clock for how long a
number stayed the same, so the clocks of machines need not agree. A lease changes hands only by a
statement that names the number that was seen.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import islice
from typing import Final

from rocketwire.integrations.outbox.rows import SHARDS
from rocketwire.integrations.outbox.store import Lease, Store

_FREE: Final = ""
_MEMBER: Final = "relay-"


class Leases:
    """The shards of one relay.

    Args:
        store: the tables.
        seconds: after which a lease that is not confirmed may be taken.
        clock: monotonic seconds.
    """

    def __init__(self, store: Store, seconds: float, clock: Callable[[], float]) -> None:
        self._store = store
        self._seconds = seconds
        self._clock = clock
        self.owner: Final = uuid.uuid4().hex
        #: What was seen of each name, and since when.
        self._seen: dict[str, tuple[Lease, float]] = {}
        self._mine: dict[int, Lease] = {}
        self._confirmed = float("-inf")

    @property
    def shards(self) -> frozenset[int]:
        """What this relay may send."""
        return frozenset(self._mine)

    @property
    def is_due(self) -> bool:
        """Whether they should be confirmed."""
        return self._clock() - self._confirmed >= self._seconds / 3

    def refresh(self) -> None:
        """Confirm this relay's shards, give some to newcomers, take those of the dead."""
        began = self._clock()
        if began - self._confirmed > self._seconds:
            # Too late: others may have them. What is still this relay's is seen below.
            self._mine.clear()
        found = self._look(began)
        members = self._members(found, began)
        share = SHARDS if self._store.has_one_writer else -(-SHARDS // len(members))
        wanted = self._wanted(found, share, began)
        own = _MEMBER + self.owner
        changed = self._store.move_leases(wanted | {own: (found[own], self.owner)})
        self._mine = {
            number: Lease(self.owner, wanted[_name(number)][0].beat + 1)
            for number in range(SHARDS)
            if _name(number) in changed and wanted[_name(number)][1] == self.owner
        }
        self._confirmed = began

    def release(self) -> None:
        """Give everything back."""
        self._store.move_leases({_name(n): (lease, _FREE) for n, lease in self._mine.items()})
        self._mine.clear()
        own = self._store.leases().get(_MEMBER + self.owner)
        if own is not None:
            self._store.drop_lease(_MEMBER + self.owner, own)
        self._confirmed = float("-inf")

    def _look(self, now: float) -> dict[str, Lease]:
        found = self._store.leases()
        if missing := [n for n in map(_name, range(SHARDS)) if n not in found]:
            self._store.add_leases(missing, _FREE)
        if (own := _MEMBER + self.owner) not in found:
            self._store.add_leases([own], self.owner)
            found = self._store.leases()
        self._seen = {
            name: self._seen[name]
            if name in self._seen and self._seen[name][0] == lease
            else (lease, now)
            for name, lease in found.items()
        }
        return found

    def _is_dead(self, name: str, now: float) -> bool:
        return now - self._seen[name][1] > self._seconds

    def _members(self, found: dict[str, Lease], now: float) -> set[str]:
        alive = {self.owner}
        for name, lease in found.items():
            if name.startswith(_MEMBER) and lease.owner != self.owner:
                if self._is_dead(name, now):
                    self._store.drop_lease(name, lease)
                else:
                    alive.add(lease.owner)
        return alive

    def _wanted(
        self, found: dict[str, Lease], share: int, now: float
    ) -> dict[str, tuple[Lease, str]]:
        """What to confirm, to give back and to take, with what was seen of each."""
        names = [name for name in map(_name, range(SHARDS)) if name in found]
        mine = [name for name in names if found[name].owner == self.owner]
        wanted = {name: (found[name], self.owner) for name in mine[:share]}
        wanted |= {name: (found[name], _FREE) for name in mine[share:]}
        free = (
            name
            for name in names
            if name not in wanted and (found[name].owner == _FREE or self._is_dead(name, now))
        )
        for name in islice(free, max(share - len(mine), 0)):
            wanted[name] = (found[name], self.owner)
        return wanted


def _name(number: int) -> str:
    return f"shard-{number}"
