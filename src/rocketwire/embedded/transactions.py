"""Transactional messages: prepared ones wait, invisible, until their producer decides.

A prepared ("half") message is stored in a queue of its own; a decision adds a record to a second
queue, so that a restart knows what is undecided: everything in the first queue that the second
one does not name. How far both are settled is kept with the consumer offsets, as with Apache. A
producer that does not decide is asked, again and again up to a limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rocketwire.embedded.parked import REAL_QUEUE, REAL_TOPIC, Parked, park_in, read_parked
from rocketwire.embedded.schedule import Finish
from rocketwire.embedded.store import Draft, StoreError
from rocketwire.embedded.store.layout import Appended, encode_record
from rocketwire.embedded.topics import CHECK_MAX_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from rocketwire.wire.codes import RequestCode, SystemFlag
from rocketwire.wire.command import JSON, Command
from rocketwire.wire.java_hash import java_string_hash

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker
    from rocketwire.embedded.consumers import Member

_log: Final = logging.getLogger("rocketwire.embedded")
_GROUP: Final = "CID_RMQ_SYS_TRANS"
_REMOVED_TAG: Final = "d"


@dataclass(slots=True)
class _Half:
    log_offset: int
    checks: int = 0
    #: When it was asked for last, by the broker's clock.
    asked_ms: int = 0


class Transactions:
    """The undecided messages of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._undecided: dict[int, _Half] = {}
        #: Decisions that a restart must still know: offset of the decision, of the message.
        self._decisions: deque[tuple[int, int]] = deque()
        self._settled = 0
        self._turn = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Find the undecided messages, and begin to ask for them."""
        self._load()
        self._arm()

    def stop(self) -> None:
        """Ask for nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = self._broker.loop.call_later(
            self._broker.options.transaction_check_interval, self._check_all
        )

    def _load(self) -> None:
        store, offsets = self._broker.store, self._broker.offsets
        decided: set[int] = set()
        decisions = store.queues.get(OP_HALF_TOPIC, 0)
        if decisions is not None:
            begin = max(offsets.get(_GROUP, OP_HALF_TOPIC, 0) or 0, decisions.minimum)
            for offset in range(begin, decisions.maximum):
                for half in self._named_in(decisions.unit(offset)):
                    decided.add(half)
                    self._decisions.append((offset, half))
        halves = store.queues.get(HALF_TOPIC, 0)
        if halves is not None:
            begin = max(offsets.get(_GROUP, HALF_TOPIC, 0) or 0, halves.minimum)
            for offset in range(begin, halves.maximum):
                unit = halves.unit(offset)
                if offset not in decided and unit is not None:
                    self._undecided[offset] = _Half(unit[0])

    def _named_in(self, unit: tuple[int, int, int] | None) -> list[int]:
        record = self._broker.store.record_at(unit[0]) if unit is not None else None
        if record is None:
            return []
        text = read_parked(record).draft.body.decode(errors="replace")
        return [int(word) for word in text.split(",") if word.isdecimal() and len(word) < 20]

    # Preparing and deciding

    def prepare(self, draft: Draft, properties: dict[str, str], finish: Finish) -> Appended:
        """Store a message so that nobody sees it yet."""
        if unique := properties.get("UNIQ_KEY"):
            properties["__transactionId__"] = unique
        park_in(draft, properties, HALF_TOPIC, 0)
        draft.system_flag &= ~SystemFlag.TRANSACTION_MASK
        place = self._broker.put(finish(draft, properties))
        self._undecided[place.queue_offset] = _Half(place.physical_offset)
        return place

    def find(self, log_offset: int) -> Parked | None:
        """A prepared message by its place."""
        record = self._broker.store.record_at(log_offset)
        if record is None:
            return None
        parked = read_parked(record)
        return parked if parked.draft.topic == HALF_TOPIC else None

    def commit(self, parked: Parked) -> None:
        """Let a message appear where it belongs."""
        draft = parked.to_real_place()
        if draft is None:
            raise StoreError("the prepared message does not say where it belongs")
        draft.system_flag |= SystemFlag.TRANSACTION_COMMIT
        draft.prepared_offset = parked.log_offset
        # Its properties stay as they are. A delay is not applied again: producers drop it.
        self._broker.put(draft)
        self.decide(parked.queue_offset)

    def decide(self, half_offset: int) -> None:
        """Note that a message is decided, one way or the other."""
        broker = self._broker
        place = broker.put(
            Draft(
                OP_HALF_TOPIC,
                0,
                str(half_offset).encode(),
                f"TAGS\x01{_REMOVED_TAG}\x02".encode(),
                broker.clock_ms(),
                broker.host_bytes,
                tags_code=java_string_hash(_REMOVED_TAG),
            )
        )
        self._undecided.pop(half_offset, None)
        self._decisions.append((place.queue_offset, half_offset))
        self._settle()

    def _settle(self) -> None:
        """Move the marks behind which a restart need not look."""
        broker = self._broker
        halves = broker.store.queues.get(HALF_TOPIC, 0)
        if halves is None:
            return
        settled = min(self._undecided, default=halves.maximum)
        broker.offsets.put(_GROUP, HALF_TOPIC, 0, settled)
        while self._decisions and self._decisions[0][1] < settled:
            offset, _ = self._decisions.popleft()
            broker.offsets.put(_GROUP, OP_HALF_TOPIC, 0, offset + 1)

    # Asking

    @property
    def undecided(self) -> int:
        """How many messages wait for a decision."""
        return len(self._undecided)

    def _check_all(self) -> None:
        self._arm()
        self._check_each(list(self._undecided.items()))

    def do_due(self) -> int:
        """Ask for those whose time has come since the clock was put forward.

        Each at most once an interval, however often the clock is moved; the answers come later.
        """
        latest = self._broker.clock_ms() - self._broker.options.transaction_check_interval * 1000
        due = [item for item in self._undecided.items() if item[1].asked_ms <= latest]
        self._check_each(due)
        return 0

    def _check_each(self, halves: list[tuple[int, _Half]]) -> None:
        for offset, half in halves:
            try:
                self._check(offset, half)
            except StoreError as error:
                _log.warning("%s: transaction check failed: %s", self._broker.name, error)
                return

    def _check(self, offset: int, half: _Half) -> None:
        broker = self._broker
        parked = self.find(half.log_offset)
        if parked is None:
            self.decide(offset)
            return
        if self.age_ms(parked) < self.immunity_ms(parked):
            return
        if half.checks >= broker.options.transaction_check_max:
            self._give_up(offset, parked)
            return
        member = self._member(parked.properties.get("PGROUP", ""))
        if member is not None:
            half.checks += 1
            half.asked_ms = broker.clock_ms()
            member.connection.push(self._question(parked))

    def age_ms(self, parked: Parked) -> int:
        """How old a message is by the broker's clock, which the client's does not follow."""
        return self._broker.clock_ms() - parked.store_ms

    def immunity_ms(self, parked: Parked) -> int:
        """How long a message is left alone before it is asked for."""
        text = parked.properties.get("CHECK_IMMUNITY_TIME_IN_SECONDS", "")
        if text.isdecimal() and len(text) < 10:
            return int(text) * 1000
        return int(self._broker.options.transaction_timeout * 1000)

    def _member(self, group: str) -> Member | None:
        members = [
            m for m in self._broker.clients.producers.get(group, {}).values() if m.connection.open
        ]
        self._turn += 1
        return members[self._turn % len(members)] if members else None

    def _question(self, parked: Parked) -> Command:
        broker, properties = self._broker, parked.properties
        unique = properties.get("UNIQ_KEY", "")
        draft = parked.draft
        draft.topic = properties.get(REAL_TOPIC, draft.topic)
        draft.queue_id = int(properties.get(REAL_QUEUE, "0"))
        body = encode_record(
            draft, parked.queue_offset, parked.log_offset, parked.store_ms, broker.host_bytes
        )
        ext = {
            "topic": HALF_TOPIC,
            "tranStateTableOffset": str(parked.queue_offset),
            "commitLogOffset": str(parked.log_offset),
            "msgId": unique,
            "transactionId": unique,
            "offsetMsgId": broker.message_id(parked.log_offset),
            "bname": broker.name,
        }
        return Command(RequestCode.CHECK_TRANSACTION_STATE, ext, body, header=JSON)

    def _give_up(self, offset: int, parked: Parked) -> None:
        """Nobody decides: the message goes where operators look for such ones."""
        _log.warning("%s: nobody decides half message %d", self._broker.name, offset)
        draft = parked.draft
        draft.topic, draft.queue_id = CHECK_MAX_TOPIC, 0
        self._broker.topics.make_parked(CHECK_MAX_TOPIC)
        self._broker.put(draft)
        self.decide(offset)
