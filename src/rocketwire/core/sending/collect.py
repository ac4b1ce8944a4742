"""Messages submitted one by one that travel in batches (``auto_batch``).

A batch collects messages of one kind: one topic, one time limit, one wait flag, and for ordered
messages one queue. It leaves when it is full, when nothing of its kind is under way any more (so a
lone message is not delayed at all), or when its first message has waited for ``linger``. Then it
is sent as one request by the policy of every send, retried as the same batch, and each message
gets its own result, or the error with the outcome of its batch.

What can't be in a batch, or is better off alone, is not accepted: ``accept`` says which. How much
may be waiting in all is decided by the in-flight limit of the shell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rocketwire.config import AutoBatch
from rocketwire.core.effects import Event, Op, Sleep, wait
from rocketwire.core.faults.selection import best_queue, hash_queue
from rocketwire.core.lookup import locate_topic
from rocketwire.core.sending.encode import Collected
from rocketwire.core.sending.flush import left_to_parent
from rocketwire.core.sending.open_batch import WIDTH, BatchKind, Kind, OpenBatch
from rocketwire.core.sending.order import PATIENCE, not_sent_after
from rocketwire.core.sending.retry import worst_outcome
from rocketwire.core.sending.sender import Sender
from rocketwire.core.sending.validate import needs_own_request
from rocketwire.errors import BrokerError, Outcome, RouteError, SendFailedError
from rocketwire.hooks import SendEvent, call_hooks
from rocketwire.message import USUAL, Message, MessageQueue, SendResult
from rocketwire.wire.codes import ResponseCode

#: A broker that answers so takes no batches for the topic; single messages may fare better.
_NO_BATCHES: Final = frozenset(
    {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.MESSAGE_ILLEGAL}
)
#: Topics are few; more than these are looked at anew.
_MOST_TOPICS: Final = 10_000


def _ignore(batch: OpenBatch) -> None:
    """The default of ``on_new``: no in-flight limit counts batches."""


class Accumulator:
    """The batches of one producer.

    Args:
        sender: sends them.
        settings: how large a batch may be, and how long it may wait.
        on_over: told of each batch when its messages have their outcome, before callers that wait.
        on_new: told of each batch with its first message; must not call back.
    """

    def __init__(
        self,
        sender: Sender,
        settings: AutoBatch,
        on_over: Callable[[OpenBatch], object],
        on_new: Callable[[OpenBatch], object] = _ignore,
    ) -> None:
        config = sender.config
        self._sender = sender
        self._settings = settings
        self._on_over = on_over
        self._on_new = on_new
        self._clock = sender.instance.clock
        self._lock = sender.instance.surroundings.make_lock()
        self._kinds: dict[Kind, BatchKind] = {}
        self._announces = bool(sender.hooks.before_send)
        self._is_watched = bool(sender.hooks.before_send or sender.hooks.after_send)
        self._is_default = sender.default_selector is best_queue
        #: Bodies are shorter than this: a larger one is worth compressing, which a batch is not.
        self._largest: Final = min(settings.size, config.compress_over or settings.size)
        #: Topics whose broker takes no batches, and those that were found to need no closer look.
        self._single: set[str] = set()
        self._taken: set[str] = set()
        self._overhead: Final = sender.encoder.item_overhead
        self._checked_fields = sender.encoder.checked_fields
        #: The length of ``parts`` of a full batch.
        self._end_of_last: Final = settings.messages * WIDTH
        #: The open batch that took the last message without a key, because most messages go where the one
        #: before went. Never a closed batch, nor one of messages with ``wait_store_ok=False``.
        self._recent: OpenBatch | None = None
        #: Whether this thread was interrupted while it put a message into a batch.
        self.is_in_midst: Callable[[], bool] = getattr(self._lock, "_is_owned", lambda: False)
        #: An exception that was raised just after a message was added, which is sent all the same.
        self._despite: BaseException | None = None

    # -- taking messages in -----------------------------------------------------------------

    def accept(
        self,
        message: Message | Sequence[Message],
        queue: MessageQueue | None = None,
        selector: object = None,
        argument: object = None,
    ) -> bytes | None:
        """The encoded properties of a message that may travel in a batch; None: it travels alone.

        Not if the caller says where it goes, if it is delayed or large, if its topic takes no
        batches, or if the strategy that chooses its queue looks at each message. A list travels
        as it is.

        Raises:
            InvalidMessageError: it may not travel at all.
        """
        if (
            not isinstance(message, Message)
            or queue is not None
            or selector is not None
            or argument is not None
        ):
            return None
        fields = self._checked_fields(message)
        if (
            len(message.body) >= self._largest
            or not (self._is_default or message.sharding_key is not None)
            or (
                (message.topic not in self._taken or message.handling is not USUAL)
                and not self._may_join(message)
            )
        ):
            return None
        return fields

    def _may_join(self, message: Message) -> bool:
        """Whether brokers take a message in a batch. Topics that need no closer look are remembered."""
        if message.topic in self._single or needs_own_request(message):
            return False
        if len(self._taken) >= _MOST_TOPICS:
            self._taken.clear()
        self._taken.add(message.topic)
        return True

    def add(self, message: Message, fields: bytes, timeout: float) -> tuple[OpenBatch, int, bool]:
        """Put a message into the open batch of its kind; ``fields`` are from ``accept``.

        Returns:
            The batch, the message's place in it, and whether the batch is new: the caller then
            has to run ``deliver``.
        """
        if self._announces:
            call_hooks(self._sender.hooks.before_send, message)
        body = message.body
        size = len(body) + len(fields) + self._overhead
        key, place = message.sharding_key, -1
        if key is None and message.handling is USUAL:
            try:
                with self._lock:
                    batch = self._recent
                    if batch is not None and batch.topic == message.topic and batch.left >= size:
                        parts = batch.parts
                        end = len(parts)
                        if end < self._end_of_last and batch.timeout == timeout:
                            parts += (message if batch.keeps else body, fields, 0)
                            batch.left -= size
                            place = end // WIDTH
                            return batch, place, False
            except BaseException as error:
                if place >= 0:
                    self._despite = error
                raise
        where = False if key is None else self._queue_of(message)
        kind = (message.topic, message.wait_store_ok, timeout, where)
        return self._open(message, fields, size, kind)

    def took(self, error: BaseException) -> bool:
        """Whether ``add`` raised this after the message had got its place: it is sent."""
        took, self._despite = self._despite is error, None
        return took

    def not_begun(self) -> list[OpenBatch]:
        """Batches that no thread sends, because the one that opened them was interrupted."""
        kinds = list(self._kinds.values())
        # Others may have filled one meanwhile, and closed it.
        found = [batch for kind in kinds for batch in (kind.open, *list(kind.under_way))]
        return [batch for batch in found if batch is not None and not batch.is_begun]

    def _open(
        self, message: Message, fields: bytes, size: int, key: Kind
    ) -> tuple[OpenBatch, int, bool]:
        """Put a message into the open batch of its kind, which may have to be made."""
        sharding_key, place = message.sharding_key, -1
        full: OpenBatch | None = None
        try:
            with self._lock:
                kind = self._kinds.setdefault(key, BatchKind(key))
                batch = kind.open
                if batch is not None and not self._fits(batch, size, sharding_key):
                    full, batch = batch, None
                    self._close(full)
                is_new = batch is None
                if batch is None:
                    keeps = self._is_watched or sharding_key is not None
                    batch = OpenBatch(kind, self._settings.size, keeps=keeps)
                    kind.open = batch
                    # Before any other thread can find it, and flush.
                    self._on_new(batch)
                if sharding_key is not None:
                    self._take_slot(batch, message, sharding_key)
                kept = message if batch.keeps else message.body
                flag, end = message.flag, batch.count
                if not end:
                    batch.first = message
                batch.parts += (kept, fields, flag)
                batch.left -= size
                place = end
                if sharding_key is None and batch.wait_store_ok:
                    self._recent = batch
            if full is not None:
                full.ready.set()
        except BaseException as error:
            if place >= 0:
                self._despite = error
            if full is not None:  # else it would wait for as long as batches may linger
                full.ready.set()
            raise
        return batch, place, is_new

    def _take_slot(self, batch: OpenBatch, message: Message, key: str) -> None:
        if key not in batch.slots:
            order, name = self._sender.order, (self._sender.wire_topic(message.topic), key)
            (slot,) = order.enter([name], is_accepted=True)
            batch.slots[key] = slot

    def _fits(self, batch: OpenBatch, size: int, key: str | None) -> bool:
        if len(batch.parts) >= self._end_of_last or size > batch.left:
            return False
        slot = batch.slots.get(key) if key is not None else None
        # Another send may have taken the slot behind the batch; this message comes after it.
        return slot is None or self._sender.order.is_last(slot)

    def _queue_of(self, message: Message) -> MessageQueue | bool:
        """The queue of an ordered message as far as it is known; True for any other.

        Only a guess, so that a batch holds messages of one queue: they are looked at again when
        they leave.
        """
        sender = self._sender
        route = sender.instance.routes.get(sender.wire_topic(message.topic))
        if route is None or not route.queues:
            return True
        queues = sender.queues_of(route)
        return queues.select(hash_queue, message, None, sender.positions, self._clock())

    def _close(self, batch: OpenBatch) -> None:
        """Let no further message into a batch. Called under the lock."""
        batch.is_closed = True
        if self._recent is batch:
            self._recent = None
        if batch.kind.open is batch:
            batch.kind.open = None
        batch.kind.under_way.add(batch)  # at the end: an interrupt behind a call leaves none open

    def hurry(self) -> None:
        """Let every batch leave now: a caller waits for all of them."""
        with self._lock:
            waiting = [kind.open for kind in list(self._kinds.values()) if kind.open is not None]
        for batch in waiting:
            batch.ready.set()

    def disown(self) -> None:
        """In a forked child: the batches are the parent's, and holders of deliveries are told."""
        # Without the lock, which another thread may have held; there is no other thread now.
        for kind in list(self._kinds.values()):
            for batch in [kind.open, *kind.under_way]:
                if batch is not None and not batch.over.is_set:
                    batch.finish(left_to_parent())
                    batch.over = Event()  # what waits at the old one does so in the parent
                    batch.over.set()

    # -- sending ----------------------------------------------------------------------------

    def deliver(self, batch: OpenBatch) -> Op[None]:
        """See a batch to its end, from its first message on. Raises nothing; twice is harmless."""
        if batch.is_begun:
            return
        batch.is_begun = True
        error: Exception = SendFailedError("not sent: the batch was not sent")
        try:
            now = self._clock()
            if batch.kind.under_way:
                yield from wait(batch.ready, now + self._settings.linger)
            else:
                yield Sleep(now)  # what is submitted in this very moment comes along
            with self._lock:
                if not batch.is_closed:
                    self._close(batch)
            if batch.slots:
                yield from self._send_ordered(batch)
            else:
                yield from self._send(batch, batch.places(), None)
        except GeneratorExit:
            error = _given_up(Outcome.NOT_SENT)
            raise
        except Exception as failed:  # noqa: BLE001 - whatever it is, it is these messages' end
            error = failed
        finally:
            self._end(batch, error)

    def refuse(self, batch: OpenBatch, error: Exception) -> None:
        """A batch whose ``deliver`` will never run: its messages fail."""
        if not batch.over.is_set:
            self._end(batch, error)

    def _end(self, batch: OpenBatch, error: Exception) -> None:
        if batch.slots:
            # Messages that were sent have left their slots. One that was withdrawn must not fail those behind it.
            wanted = {batch.message(place).sharding_key for place in batch.places()}
            for key, slot in batch.slots.items():
                self._sender.order.leave(slot, error if key in wanted else None)
        kind, after = batch.kind, None
        with self._lock:
            if not batch.is_closed:
                self._close(batch)
            kind.under_way.discard(batch)
            if not kind.under_way:
                after = kind.open
                if after is None and self._kinds.get(kind.key) is kind:
                    del self._kinds[kind.key]
        if self._sender.hooks.after_send:
            self._tell_rest(batch, error)
        batch.finish(error)
        self._on_over(batch)
        batch.over.set()
        if after is not None:
            after.ready.set()

    def _tell_rest(self, batch: OpenBatch, error: Exception) -> None:
        """Tell hooks of messages that were announced, and never came to be sent."""
        sender = self._sender
        for place, message in enumerate(batch.parts[::WIDTH]):
            if place in batch.told:
                continue
            why: object = _taken_back() if place in batch.withdrawn else batch.look(place) or error
            ids = tuple(sender.instance.ids.next_many(1))
            told = why if isinstance(why, Exception) else error
            now, size = sender.instance.wall(), len(message.body)
            event = SendEvent((message,), None, told, 0.0, now, ids, size, None)
            call_hooks(sender.hooks.after_send, event)

    def _send(
        self, batch: OpenBatch, places: Sequence[int], queue: MessageQueue | None
    ) -> Op[None]:
        """Send some messages of a batch in one request."""
        if not places:
            return
        outcome: SendResult | Exception
        sender = self._sender
        content = self._content(batch, places)
        slots = tuple(batch.slots[key] for key in content.sharding_keys)
        attempt = sender.start_joined(content, batch.timeout, queue, slots)
        batch.told.update(places)  # by the operation
        try:
            outcome = yield from sender.operation(attempt)
        except SendFailedError as error:
            outcome = error
        except GeneratorExit:
            tried = () if attempt.history is None else attempt.history.attempts
            batch.settle(places, _given_up(worst_outcome(tried)))
            raise
        if len(places) > 1 and not batch.slots and _takes_no_batches(outcome):
            self._single.add(batch.topic)
            self._taken.discard(batch.topic)
            self._recent = None
            for place in places:
                yield from self._send(batch, (place,), queue)
        else:
            batch.settle(places, outcome)

    def _content(self, batch: OpenBatch, places: Sequence[int]) -> Collected:
        """Some messages of a batch as they travel."""
        encoder = self._sender.encoder
        if len(places) == 1:
            return Collected(batch.message(places[0]))
        kept, fields, flags = batch.columns(places)
        if batch.keeps:
            return encoder.joined(kept, fields)
        return encoder.packed(batch.first, kept, fields, flags)

    def _send_ordered(self, batch: OpenBatch) -> Op[None]:
        """Send a batch of ordered messages when it is the turn of each of their keys."""
        failed: dict[str, Exception] = {}
        for key, slot in batch.slots.items():
            is_ready = slot.ready.is_set
            if not (is_ready or (yield from wait(slot.ready, self._clock() + PATIENCE))):
                failed[key] = TimeoutError("an earlier message of it is under way")
            elif slot.failed_before is not None:
                failed[key] = slot.failed_before
        left: list[int] = []
        for place in batch.places():
            before = failed.get(batch.message(place).sharding_key or "")
            if before is None:
                left.append(place)
            else:
                batch.settle((place,), not_sent_after(before))
        for queue, places in (yield from self._by_queue(batch, left)).items():
            is_all = len(places) == batch.count
            yield from self._send(batch, range(batch.count) if is_all else places, queue)

    def _by_queue(
        self, batch: OpenBatch, places: Sequence[int]
    ) -> Op[dict[MessageQueue, list[int]]]:
        """One queue, unless the route was not known, or has changed, since they were taken in."""
        sender = self._sender
        deadline = self._clock() + batch.timeout
        try:
            route = yield from locate_topic(
                sender.instance, sender.wire_topic(batch.topic), deadline, *sender.defaults
            )
        except RouteError as error:
            raise SendFailedError(f"not sent: {error}") from error
        queues, now = sender.queues_of(route), self._clock()
        found: dict[MessageQueue, list[int]] = {}
        for place in places:
            message = batch.message(place)
            queue = queues.select(hash_queue, message, None, sender.positions, now)
            found.setdefault(queue, []).append(place)
        return found


def _takes_no_batches(outcome: SendResult | Exception) -> bool:
    if not isinstance(outcome, SendFailedError) or outcome.outcome is not Outcome.REJECTED:
        return False
    cause = outcome.attempts[-1].error if outcome.attempts else None
    return isinstance(cause, BrokerError) and cause.code in _NO_BATCHES


def _given_up(outcome: Outcome) -> SendFailedError:
    return SendFailedError(f"{outcome.value}: the producer was shut down", outcome=outcome)


def _taken_back() -> SendFailedError:
    return SendFailedError("not sent: cancelled before its batch left")
