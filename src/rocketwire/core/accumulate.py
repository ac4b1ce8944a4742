"""Messages submitted one by one that travel in batches (``auto_batch``).

A *lot* collects messages of one kind: one topic, one time limit, one wait flag, and for ordered
messages one queue. It leaves when it is full, when nothing of its kind is under way any more (so a
lone message is not delayed at all), or when its first message has waited for ``linger``. Then it
is sent as one request by the policy of every send, retried as the same batch, and each message
gets its own result, or the error with the outcome of its batch.

What can't be in a batch, or is better off alone, is not accepted: ``accepts`` says which. How much
may be waiting in all is the room's business, in the shell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from rocketwire.config import AutoBatch
from rocketwire.core.attempts import share
from rocketwire.core.effects import Gate, Op, Sleep, wait
from rocketwire.core.encode import Outgoing
from rocketwire.core.lookup import locate_topic
from rocketwire.core.naming import RETRY_PREFIX
from rocketwire.core.ordering import PATIENCE, Ticket, not_sent_after
from rocketwire.core.retry import SendMode
from rocketwire.core.selection import best_queue, hash_queue
from rocketwire.core.send import Sender
from rocketwire.core.turns import left_to_parent
from rocketwire.core.validate import check_message
from rocketwire.errors import BrokerError, Outcome, RouteError, SendFailedError
from rocketwire.hooks import call_hooks
from rocketwire.message import PLAIN, Message, MessageQueue, SendResult
from rocketwire.wire.codes import ResponseCode

#: A broker that answers so takes no batches for the topic; single messages may fare better.
_NO_BATCHES: Final = frozenset(
    {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.MESSAGE_ILLEGAL}
)

Kind: TypeAlias = tuple[str, bool, float, MessageQueue | bool]


class Lane:
    """Lots of one kind: at most one is open, any number is under way."""

    __slots__ = ("kind", "open", "under_way")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.open: Lot | None = None
        self.under_way: set[Lot] = set()


class Lot:
    """Messages that travel together. ``over`` opens when all of them have their outcome."""

    __slots__ = (
        "_count", "_groups", "bytes", "gate", "is_closed", "is_sent", "items", "lane", "left",
        "limit", "messages", "over", "tickets", "timeout", "topic", "withdrawn",
    )  # fmt: skip

    def __init__(self, lane: Lane, size: int) -> None:
        self.lane = lane
        self.topic, _, self.timeout, _ = lane.kind
        self.messages: list[Message] = []
        #: By place, the ids of messages that are not plain, and how they travel.
        self.items: dict[int, tuple[str, bytes]] = {}
        self._count = 0
        #: How many bytes it still takes.
        self.left = size
        #: Up to how many messages board it (``aio/boarding.py``); none once it is closed.
        self.limit = 0
        #: Of the bodies alone: what they take of the room. Those that boarded are added later.
        self.bytes = 0
        self.tickets: dict[str, Ticket] = {}
        self.gate = Gate()
        self.is_closed = False
        self.is_sent = False
        self.over = Gate()
        self.withdrawn: set[int] = set()
        self._groups: list[tuple[Sequence[int], SendResult | Exception]] = []

    @property
    def count(self) -> int:
        """How many messages it has, or had."""
        return self._count or len(self.messages)

    def put(self, message: Message, item: tuple[str, bytes] | None, size: int) -> int:
        """Take a message in; returns its place."""
        place = len(self.messages)
        self.messages.append(message)
        if item is not None:
            self.items[place] = item
        self.left -= size
        self.bytes += len(message.body)
        return place

    def withdraw(self, place: int) -> bool:
        """Take a message back; False if it is on its way, or its fate is known."""
        if self.is_closed:
            return False
        self.withdrawn.add(place)
        return True

    def places(self) -> Sequence[int]:
        """The places of the messages that are to be sent."""
        everything = range(self.count)
        if not self.withdrawn:
            return everything
        return [place for place in everything if place not in self.withdrawn]

    def settle(self, places: Sequence[int], outcome: SendResult | Exception) -> None:
        """What became of some of the messages, which went in one request."""
        self._groups.append((places, outcome))

    def finish(self, error: Exception) -> None:
        """Everything is known; ``error`` is the outcome of those that have none yet."""
        self._count = self.count
        self.settle(range(self._count), error)
        # Whoever keeps the delivery of one message does not keep the bodies of all.
        self.messages, self.items = [], {}

    def outcome(self, place: int) -> SendResult | Exception:
        """What became of one message; only when the lot is over."""
        for places, outcome in self._groups:
            if place in places:
                if isinstance(outcome, SendFailedError):
                    return _own_copy(outcome)
                if isinstance(outcome, Exception) or len(places) == 1:
                    return outcome
                return share(outcome, places.index(place))
        raise LookupError(f"a lot of {self.count} messages has none at {place}")


def _ignore(lot: Lot) -> None:
    """Nobody counts lots."""


class Accumulator:
    """The lots of one producer.

    Args:
        sender: sends them.
        settings: how large a lot may be, and how long it may wait.
        on_over: told of each lot when its messages have their outcome, before those who wait.
        on_new: told of each lot with its first message; must not call back.
    """

    def __init__(
        self,
        sender: Sender,
        settings: AutoBatch,
        on_over: Callable[[Lot], object],
        on_new: Callable[[Lot], object] = _ignore,
    ) -> None:
        config = sender.config
        self._sender = sender
        self._settings = settings
        self._on_over = on_over
        self._on_new = on_new
        self._clock = sender.instance.clock
        self._lock = sender.instance.surroundings.make_lock()
        self._lanes: dict[Kind, Lane] = {}
        self._max_size = config.max_message_size
        self._is_default = sender.default_selector is best_queue
        #: Bodies are shorter than this: a larger one is worth compressing, which a batch is not.
        self.largest: Final = min(settings.size, config.compress_over or settings.size)
        #: Topics whose broker takes no batches.
        self._single: set[str] = set()
        #: Topics of which plain messages need no further look.
        self._usual: set[str] = set()
        #: Bytes of a plain message in a lot beyond its body.
        self.overhead: Final = sender.encoder.plain_items.overhead
        #: Messages in a lot.
        self.most: Final = settings.messages
        #: The lot that took the last plain message.
        self._recent: Lot | None = None

    # -- taking messages in -----------------------------------------------------------------

    def accepts(self, message: Message) -> bool:
        """Whether a message may travel in a batch.

        Not if it is delayed or large, or if its topic takes no batches, or if the strategy that
        chooses its queue looks at each message.

        Raises:
            InvalidMessageError: it may not travel at all.
        """
        check_message(message, self._max_size)
        if message.topic in self._single or message.topic.startswith(RETRY_PREFIX):
            return False
        if self._is_default and not self._sender.hooks.before_send:
            self._usual.add(message.topic)
        return (
            len(message.body) < self.largest
            and not message.delay_level
            and message.deliver_at is None
            and (self._is_default or message.sharding_key is not None)
        )

    def is_plain(self, message: Message) -> bool:
        """Whether a message is accepted and has nothing but a body; ``add_plain`` takes it then.

        False says nothing: ``accepts`` looks closer.
        """
        return (
            message.extras is PLAIN
            and message.topic in self._usual
            and 0 < len(message.body) < self.largest
        )

    def add_plain(self, message: Message, timeout: float) -> tuple[Lot, int, bool]:
        """As ``add``, for a message that is plain. It is encoded with its whole lot."""
        with self._lock:
            found = self.join(message, timeout)
        if found is not None:
            return found
        kind = (message.topic, True, timeout, False)
        size = len(message.body) + self.overhead
        lot, place, is_new = self._put(message, None, size, kind)
        self._recent = lot
        return lot, place, is_new

    def join(self, message: Message, timeout: float) -> tuple[Lot, int, bool] | None:
        """``add_plain`` if the message is plain, and the lot that took the last one takes it, too.

        Called under the lock. A shell with one thread has a faster way (``aio/boarding.py``).

        Returns:
            None if it is not taken in.
        """
        lot, size = self._recent, len(message.body)
        if (
            lot is None
            or lot.topic != message.topic
            or message.extras is not PLAIN
            or not 0 < size < self.largest
            or lot.timeout != timeout
            or lot.is_closed
        ):
            return None
        place, left = len(lot.messages), lot.left - size - self.overhead
        if place >= self.most or left < 0:
            return None
        lot.messages.append(message)
        lot.left = left
        lot.bytes += size
        return lot, place, False

    def add(self, message: Message, timeout: float) -> tuple[Lot, int, bool]:
        """Put a message into the open lot of its kind.

        Returns:
            The lot, the message's place in it, and whether the lot is new: the caller then has
            to run ``deliver``.

        Raises:
            InvalidMessageError: its properties are too large.
        """
        sender = self._sender
        if sender.hooks.before_send:
            call_hooks(sender.hooks.before_send, message)
        item = sender.encoder.item(message)
        where = False if message.sharding_key is None else self._queue_of(message)
        kind = (message.topic, message.wait_store_ok, timeout, where)
        return self._put(message, item, len(item[1]), kind)

    def _put(
        self, message: Message, item: tuple[str, bytes] | None, size: int, kind: Kind
    ) -> tuple[Lot, int, bool]:
        key, sender = message.sharding_key, self._sender
        full: Lot | None = None
        with self._lock:
            lane = self._lanes.get(kind)
            if lane is None:
                lane = self._lanes[kind] = Lane(kind)
            lot = lane.open
            if lot is not None and not self._fits(lot, size, key):
                self._close(lot)
                full, lot = lot, None
            is_new = lot is None
            if lot is None:
                lot = lane.open = Lot(lane, self._settings.size)
                # Before any other thread can find it, and flush.
                self._on_new(lot)
            place = lot.put(message, item, size)
            if key is not None and key not in lot.tickets:
                name = (sender.wire_topic(message.topic), key)
                (lot.tickets[key],) = sender.lines.line_up([name], is_accepted=True)
        if full is not None:
            full.gate.open()
        return lot, place, is_new

    def _fits(self, lot: Lot, size: int, key: str | None) -> bool:
        if len(lot.messages) >= self.most or size > lot.left:
            return False
        ticket = lot.tickets.get(key) if key is not None else None
        # Somebody else may have lined up behind the lot; this message comes after him.
        return ticket is None or self._sender.lines.is_last(ticket)

    def _queue_of(self, message: Message) -> MessageQueue | bool:
        """The queue of an ordered message as far as it is known; True for any other.

        Only a guess, so that a lot holds messages of one queue: they are looked at again when
        they leave.
        """
        sender = self._sender
        entry = sender.instance.routes.get(sender.wire_topic(message.topic))
        if entry is None or not entry.queues:
            return True
        queues = sender.queues_of(entry)
        return queues.select(hash_queue, message, None, sender.positions, self._clock())

    def _close(self, lot: Lot) -> None:
        """Let no further message into a lot. Called under the lock."""
        lot.is_closed = True
        lot.limit = 0
        lot.lane.under_way.add(lot)
        if lot.lane.open is lot:
            lot.lane.open = None

    def hurry(self) -> None:
        """Let every lot leave now: somebody waits for all of them."""
        with self._lock:
            waiting = [lane.open for lane in self._lanes.values() if lane.open is not None]
        for lot in waiting:
            lot.gate.open()

    def disown(self) -> None:
        """In a forked child: the lots are the parent's, and those who hold deliveries are told."""
        # Without the lock, which another thread may have held; there is no other thread now.
        for lane in self._lanes.values():
            for lot in [lane.open, *lane.under_way]:
                if lot is not None and not lot.over.is_open:
                    lot.finish(left_to_parent())
                    lot.over = Gate()  # whoever waits at the old one does so in the parent
                    lot.over.open()

    # -- sending ----------------------------------------------------------------------------

    def deliver(self, lot: Lot) -> Op[None]:
        """See a lot to its end, from its first message on. Raises nothing."""
        error: Exception = SendFailedError("not sent: the lot was not sent")
        try:
            now = self._clock()
            if lot.lane.under_way:
                yield from wait(lot.gate, now + self._settings.linger)
            else:
                yield Sleep(now)  # what is submitted in this very moment comes along
            with self._lock:
                if not lot.is_closed:
                    self._close(lot)
            if lot.tickets:
                yield from self._send_ordered(lot)
            else:
                yield from self._send(lot, lot.places(), None)
        except GeneratorExit:
            error = _given_up(lot)
            raise
        except Exception as failed:  # noqa: BLE001 - whatever it is, it is these messages' end
            error = failed
        finally:
            self._end(lot, error)

    def refuse(self, lot: Lot, error: Exception) -> None:
        """A lot whose ``deliver`` will never run: its messages fail."""
        if not lot.over.is_open:
            self._end(lot, error)

    def _end(self, lot: Lot, error: Exception) -> None:
        for ticket in lot.tickets.values():
            self._sender.lines.leave(ticket, error)  # those of messages that went have left
        lane, after = lot.lane, None
        with self._lock:
            if not lot.is_closed:
                self._close(lot)
            lane.under_way.discard(lot)
            if not lane.under_way:
                after = lane.open
                if after is None and self._lanes.get(lane.kind) is lane:
                    del self._lanes[lane.kind]
            if self._recent is lot:
                self._recent = None  # or it would be kept for as long as nothing is submitted
        lot.finish(error)
        self._on_over(lot)
        lot.over.open()
        if after is not None:
            after.gate.open()

    def _send(self, lot: Lot, places: Sequence[int], queue: MessageQueue | None) -> Op[None]:
        """Send some messages of a lot in one request."""
        if not places:
            return
        sender = self._sender
        outgoing = self._outgoing(lot, places)
        plan = sender.plan_outgoing(outgoing, SendMode.ASYNC, lot.timeout, queue)
        plan.tickets = tuple(lot.tickets[key] for key in outgoing.sharding_keys)
        lot.is_sent = True
        outcome: SendResult | Exception
        try:
            result = yield from sender.send(plan)
            outcome = SendFailedError("no answer") if result is None else result
        except SendFailedError as error:
            outcome = error
        if len(places) > 1 and not lot.tickets and _takes_no_batches(outcome):
            self._single.add(lot.topic)
            self._usual.discard(lot.topic)
            self._recent = None
            if lot.lane.open is not None:
                lot.lane.open.limit = 0
            for place in places:
                yield from self._send(lot, (place,), queue)
        else:
            lot.settle(places, outcome)

    def _outgoing(self, lot: Lot, places: Sequence[int]) -> Outgoing:
        encoder = self._sender.encoder
        if len(places) == 1:
            return encoder.single(lot.messages[places[0]])
        messages = lot.messages
        if len(places) < lot.count:
            messages = [lot.messages[place] for place in places]
        if not lot.items:
            bodies = [message.body for message in messages]
            return encoder.plain(messages, bodies, set(map(len, bodies)))
        found = [lot.items.get(p) or encoder.item(lot.messages[p]) for p in places]
        return encoder.joined(messages, [i for i, _ in found], [item for _, item in found])

    def _send_ordered(self, lot: Lot) -> Op[None]:
        """Send a lot of ordered messages when it is the turn of each of their keys."""
        failed: dict[str, Exception] = {}
        for key, ticket in lot.tickets.items():
            is_open = ticket.gate.is_open
            if not (is_open or (yield from wait(ticket.gate, self._clock() + PATIENCE))):
                failed[key] = TimeoutError("an earlier message of it is under way")
            elif ticket.failed_before is not None:
                failed[key] = ticket.failed_before
        left: list[int] = []
        for place in lot.places():
            before = failed.get(lot.messages[place].sharding_key or "")
            if before is None:
                left.append(place)
            else:
                lot.settle((place,), not_sent_after(before))
        for queue, places in (yield from self._by_queue(lot, left)).items():
            is_all = len(places) == lot.count
            yield from self._send(lot, range(lot.count) if is_all else places, queue)

    def _by_queue(self, lot: Lot, places: Sequence[int]) -> Op[dict[MessageQueue, list[int]]]:
        """One queue, unless the route was not known, or has changed, since they were taken in."""
        sender = self._sender
        deadline = self._clock() + lot.timeout
        try:
            entry = yield from locate_topic(
                sender.instance, sender.wire_topic(lot.topic), deadline, *sender.defaults
            )
        except RouteError as error:
            raise SendFailedError(f"not sent: {error}") from error
        queues, now = sender.queues_of(entry), self._clock()
        found: dict[MessageQueue, list[int]] = {}
        for place in places:
            message = lot.messages[place]
            queue = queues.select(hash_queue, message, None, sender.positions, now)
            found.setdefault(queue, []).append(place)
        return found


def _takes_no_batches(outcome: SendResult | Exception) -> bool:
    if not isinstance(outcome, SendFailedError) or outcome.outcome is not Outcome.REJECTED:
        return False
    cause = outcome.attempts[-1].error if outcome.attempts else None
    return isinstance(cause, BrokerError) and cause.code in _NO_BATCHES


def _given_up(lot: Lot) -> SendFailedError:
    outcome = Outcome.MAYBE_STORED if lot.is_sent else Outcome.NOT_SENT
    return SendFailedError(f"{outcome.value}: the producer was shut down", outcome=outcome)


def _own_copy(error: SendFailedError) -> SendFailedError:
    """The same error for another message: one that is raised twice would mix up two stories."""
    copy = type(error)(str(error), attempts=error.attempts, outcome=error.outcome)
    copy.__cause__ = error.__cause__
    return copy
