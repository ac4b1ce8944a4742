"""Which queue a message goes to.

``TopicQueues`` holds the writable queues of one topic and remembers which of them the fault table
allows, until the table says that something changed: while all is well a choice is one comparison
and one remainder. Selectors see a ``QueueList``. Which brokers are usable is the table's decision; whether
and how often to retry is ``retry``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, overload

from rocketwire.core.faults.positions import Positions
from rocketwire.core.faults.presets import walk_java4, walk_java5, walk_plain
from rocketwire.core.faults.table import FaultTable
from rocketwire.errors import ConfigError, InvalidMessageError, RocketMQError
from rocketwire.message import Message, MessageQueue
from rocketwire.wire.java_hash import hash_index


class QueueList(Sequence[MessageQueue]):
    """All writable queues of a topic in Java's order, as a selector sees them. Immutable.

    Args:
        queues: the queues.
        usable: those of brokers that the fault policy allows, or a function that finds them out;
            by default all.
        failed: brokers already tried for this message, in order.
        next_index: gives the next round-robin position.
    """

    __slots__ = ("_failed", "_next_index", "_queues", "_usable")

    def __init__(
        self,
        queues: Sequence[MessageQueue],
        *,
        usable: Sequence[MessageQueue] | Callable[[], tuple[MessageQueue, ...]] | None = None,
        failed: Sequence[str] = (),
        next_index: Callable[[], int] | None = None,
    ) -> None:
        self._queues = queues if type(queues) is tuple else tuple(queues)
        self._usable = self._queues if usable is None else usable
        self._failed = tuple(failed)
        self._next_index = next_index

    @property
    def all(self) -> tuple[MessageQueue, ...]:
        """The queues as a tuple."""
        return self._queues

    @property
    def usable(self) -> tuple[MessageQueue, ...]:
        """The queues of brokers that the fault policy allows now.

        Never empty while there are queues: when no broker is usable, those of the least bad.
        """
        if callable(self._usable):
            self._usable = self._usable()
        return tuple(self._usable)

    @property
    def failed(self) -> tuple[str, ...]:
        """The brokers already tried for this message, the latest one last."""
        return self._failed

    def next_index(self) -> int:
        """Step the round-robin counter of this thread (asyncio: this producer) and topic."""
        return 0 if self._next_index is None else self._next_index()

    @overload
    def __getitem__(self, index: int) -> MessageQueue: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[MessageQueue, ...]: ...
    def __getitem__(self, index: int | slice) -> MessageQueue | tuple[MessageQueue, ...]:
        return self._queues[index]

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter(self._queues)

    def __contains__(self, queue: object) -> bool:
        return queue in self._queues

    def __repr__(self) -> str:
        return f"QueueList({list(self._queues)!r}, failed={self._failed!r})"


class Selector(Protocol):
    """Chooses the queue of a message.

    An attribute ``pins`` (missing means True) says whether a retry must stay on the queue chosen
    first; with False the selector is called again for each retry.
    """

    def __call__(self, queues: QueueList, message: Message, argument: Any, /) -> MessageQueue:
        """One of ``queues``."""


def pins(selector: Selector) -> bool:
    """Whether a message stays on the queue that this selector chose first."""
    return bool(getattr(selector, "pins", True))


def resolve_selector(selector: Selector | str | None, named: Callable[[str], Selector]) -> Selector:
    """The selector that a setting or an argument means: itself, its name, or None for the default.

    ``named`` knows the names. They include selectors that need a random generator, so it comes from
    outside.

    Raises:
        ConfigError: it is none of these.
    """
    if selector is None:
        return best_queue
    if isinstance(selector, str):
        return named(selector)
    if not callable(selector):
        raise ConfigError(
            f"selector is {selector!r}: give a callable (queues, message, argument) -> "
            "MessageQueue, or the name of one in rocketwire.selectors"
        )
    return selector


def prefer_untried(
    queues: tuple[MessageQueue, ...], failed: Sequence[str]
) -> tuple[MessageQueue, ...]:
    """Those of brokers not tried yet; else those of others than the one that just failed."""
    if not failed:
        return queues
    untried = tuple(queue for queue in queues if queue.broker not in failed)
    if untried:
        return untried
    return tuple(queue for queue in queues if queue.broker != failed[-1]) or queues


def best_queue(queues: QueueList, message: Message, argument: Any = None) -> MessageQueue:
    """The default strategy: round robin over the queues of usable brokers.

    A retry avoids the brokers that failed as long as there are others.
    """
    pool = prefer_untried(queues.usable, queues.failed)
    return pool[queues.next_index() % len(pool)]


best_queue.pins = False  # type: ignore[attr-defined]  # functions have attributes, mypy has not


def key_of(message: Message, argument: Any) -> Any:
    """What a hashing selector hashes: the argument, else the sharding key.

    Raises:
        InvalidMessageError: there is neither.
    """
    key = message.sharding_key if argument is None else argument
    if key is None:
        raise InvalidMessageError(
            "there is no key to choose the queue by: give argument= to the send, "
            "or sharding_key= to the message"
        )
    return key


def hash_queue(queues: QueueList, message: Message, argument: Any = None) -> MessageQueue:
    """The queue that Java's ``SelectMessageQueueByHash`` chooses for the same key."""
    return queues[hash_index(key_of(message, argument), len(queues))]


class Choice(NamedTuple):
    """What the table allowed at one version of it."""

    version: int
    #: To be taken in turn; empty when that is not enough to choose by.
    in_turn: tuple[MessageQueue, ...]
    #: Queues of brokers that may be chosen.
    allowed: tuple[MessageQueue, ...]
    #: Brokers that may be chosen, and of these those that are neither on trial nor suspect.
    candidates: frozenset[str]
    trusted: frozenset[str]


_UNKNOWN: Final = Choice(-1, (), (), frozenset(), frozenset())


class TopicQueues:
    """The writable queues of one topic, and which of them the fault table allows.

    Args:
        topic: their topic.
        queues: in Java's order; at least one.
        table: the fault table of the client instance.
        listed: all queues of the topic, with those that can't be reached now (ordered and static
            topics have such); by default the same.
    """

    __slots__ = ("_choice", "_members", "_table", "_watch", "brokers", "listed", "queues", "topic")

    def __init__(
        self,
        topic: str,
        queues: Sequence[MessageQueue],
        table: FaultTable,
        listed: Sequence[MessageQueue] | None = None,
    ) -> None:
        if not queues:
            raise ValueError(f"topic {topic!r} has no writable queue to choose from")
        self.topic: Final = topic
        self.queues: Final = tuple(queues)
        self.brokers: Final = tuple(dict.fromkeys(queue.broker for queue in queues))
        self.listed: Final = self.queues if listed is None else tuple(listed)
        self._members = frozenset(self.listed)
        self._table = table
        self._watch = table.watch
        self._choice = _UNKNOWN

    def best(self, counters: Positions, now: float, failed: Sequence[str] = ()) -> MessageQueue:
        """What ``best_queue`` chooses, without making a list for it.

        Args:
            counters: the round-robin positions of this thread or producer.
            now: the moment, on the table's clock.
            failed: brokers already tried for this message, in order.
        """
        choice = self._choice
        watch = self._watch
        if choice.version == watch.version and now < watch.at and not failed:
            in_turn = choice.in_turn
            if in_turn:
                return in_turn[counters.next(self.topic) % len(in_turn)]
        return self._best(counters, now, failed)

    def _best(self, counters: Positions, now: float, failed: Sequence[str]) -> MessageQueue:
        choice = self.choice(now)
        last = failed[-1] if failed else None
        walk = self._table.walk
        if walk == "java4":
            return walk_java4(self, choice.candidates, counters, last, self._java_fallback(now))
        if walk == "java5":
            return walk_java5(self, choice.candidates, counters, last, self._table.reachable)
        if walk == "plain":
            return walk_plain(self, counters, last)
        pool = prefer_untried(self.allowed(now, failed), failed)
        return pool[counters.next(self.topic) % len(pool)]

    def select(
        self,
        selector: Selector,
        message: Message,
        argument: Any,
        counters: Positions,
        now: float,
        failed: Sequence[str] = (),
    ) -> MessageQueue:
        """What a selector chooses, checked.

        Raises:
            ConfigError: the selector raised, or chose something that is not in the list.
        """
        if selector is best_queue:
            return self.best(counters, now, failed)
        key = message.sharding_key if argument is None else argument
        if selector is hash_queue and type(key) is str:
            # What it does with a list of them; making one is most of what choosing costs.
            return self.listed[hash_index(key, len(self.listed))]
        # A key must find its queue in the same place whether its broker is up or not; who does not
        # pin is better off without queues that can't be reached.
        queues = QueueList(
            self.listed if pins(selector) else self.queues,
            usable=lambda: self.allowed(now, failed),
            failed=failed,
            next_index=lambda: counters.next(self.topic),
        )
        try:
            chosen: object = selector(queues, message, argument)
        except RocketMQError:
            raise
        except Exception as error:
            raise ConfigError(f"selector {_name(selector)} raised {error!r}") from error
        # A plain tuple equals a queue, but has no .broker.
        if isinstance(chosen, MessageQueue) and chosen in self._members:
            return chosen
        return self._resist(selector, chosen)

    def _resist(self, selector: Selector, chosen: object) -> MessageQueue:
        if isinstance(chosen, MessageQueue):
            raise ConfigError(
                f"selector {_name(selector)} chose {tuple(chosen)!r}, which is not among the "
                f"{len(self.queues)} writable queues of {self.topic!r}: return one of those given"
            )
        raise ConfigError(
            f"selector {_name(selector)} returned {chosen!r}: "
            "return one of the queues that it was given"
        )

    def allowed(self, now: float, failed: Sequence[str] = ()) -> tuple[MessageQueue, ...]:
        """The queues of brokers that may be chosen now; of the least bad if there are none."""
        choice = self.choice(now)
        if choice.allowed:
            return choice.allowed
        if self._table.walk != "even":
            return self.queues
        others = [name for name in self.brokers if not failed or name != failed[-1]]
        names = self._table.least_bad(others or self.brokers, now)
        return tuple(queue for queue in self.queues if queue.broker in names)

    def another_usable(self, broker: str, now: float) -> bool:
        """Whether a broker of the topic other than this one is usable and not suspect.

        An attempt is capped only then.
        """
        choice, watch = self._choice, self._watch
        if choice.version != watch.version or now >= watch.at:
            choice = self.choice(now)
        trusted = choice.trusted
        return len(trusted) > 1 or (len(trusted) == 1 and broker not in trusted)

    def choice(self, now: float) -> Choice:
        """What the table allows now, remembered until that changes."""
        watch = self._watch
        if now >= watch.at:
            self._table.refresh(now)
        choice = self._choice
        if choice.version != watch.version:
            # The version is read first: a change in between is then seen at the next look.
            choice = self._choice = self._look(watch.version)
        return choice

    def _look(self, version: int) -> Choice:
        candidates, trusted = self._table.allowed(self.brokers)
        allowed = tuple(queue for queue in self.queues if queue.broker in candidates)
        all_of_them = len(allowed) == len(self.queues)
        # Java's walks skip over queues, which is more than taking the allowed ones in turn.
        in_turn = allowed if all_of_them or self._table.walk == "even" else ()
        return Choice(version, in_turn, allowed, candidates, trusted)

    def _java_fallback(self, now: float) -> Callable[[], tuple[MessageQueue, ...]]:
        def queues_of_least_bad() -> tuple[MessageQueue, ...]:
            names = self._table.least_bad(self.brokers, now)
            found = tuple(queue for queue in self.queues if queue.broker in names)
            if names and not found:
                self._table.forget(names[0])
            return found

        return queues_of_least_bad


def _name(selector: object) -> str:
    return getattr(selector, "__qualname__", None) or repr(selector)
