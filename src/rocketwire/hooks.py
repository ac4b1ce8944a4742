"""Small optional protocols through which applications watch a client.

A hook is any object that has one or more of the methods below; what it lacks is not called. An
exception in a hook is logged and harms nobody. Hooks run on the thread (or loop) that sends, so
they should be quick. They may submit, and shut the client down; what they must not do is wait for
the answer to a submitted message, which comes on that thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from rocketwire.message import Message, MessageQueue, SendResult
from rocketwire.stored_message import StoredMessage

_log = logging.getLogger("rocketwire.hooks")


class AttemptEvent(NamedTuple):
    """One attempt of a send has ended. A tuple, because one is made for every message.

    ``outcome`` is ``stored``, ``oneway``, ``not sent``, ``rejected`` or ``maybe stored``; ``state``
    is what the fault table thought of the broker when the attempt ended. Of a batch the id, the
    sharding key and the offset are those of its first message; ``messages`` is how many it has.
    ``mode`` is ``blocking``, ``async`` or ``oneway``, ``is_pinned`` whether the send must stay on its
    queue, ``send_at`` when the whole send began (seconds since 1970), ``timeout`` the seconds that it
    has in all.
    """

    at: float
    client_id: str
    topic: str
    broker: str
    queue_id: int
    offset: int | None
    message_id: str
    sharding_key: str | None
    size: int
    latency: float
    outcome: str
    error: str | None
    attempt: int
    messages: int
    state: str
    mode: str = "blocking"
    is_pinned: bool = False
    send_at: float | None = None
    timeout: float | None = None


class SendEvent(NamedTuple):
    """A whole send has ended, with a result or with an error; a oneway message has neither.

    ``at`` is when it began (seconds since 1970), ``size`` the bytes of the body as it travelled,
    ``address`` that of the broker that was tried last, if any was. ``is_traced`` is False when the
    broker said that it wants no traces.
    """

    messages: tuple[Message, ...]
    result: SendResult | None
    error: Exception | None
    elapsed: float
    at: float
    message_ids: tuple[str, ...]
    size: int
    address: str | None
    is_traced: bool = True


@dataclass(frozen=True, slots=True)
class BrokerEvent:
    """A broker was isolated, or has returned.

    ``at`` and ``until`` are seconds since 1970; ``until`` is when an isolation may end at the
    earliest, None where that is not known.
    """

    at: float
    broker: str
    why: str
    until: float | None


@dataclass(frozen=True, slots=True)
class ProbeEvent:
    """A broker that was left out was asked whether it is well.

    ``at`` is when the probe was over (seconds since 1970), ``latency`` the seconds until its answer,
    None where none came in time; ``why`` says what was wrong, if anything.
    """

    at: float
    broker: str
    latency: float | None
    is_good: bool
    why: str


@dataclass(frozen=True, slots=True)
class RouteEvent:
    """The queues of a topic changed; sharding keys may move to other queues, as in Java.

    ``before`` is empty where the topic was not known; ``at`` is in seconds since 1970.
    """

    topic: str
    before: tuple[MessageQueue, ...]
    after: tuple[MessageQueue, ...]
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class QueuesEvent:
    """Queues became ours, or are ours no more."""

    at: float
    group: str
    queues: tuple[MessageQueue, ...]


@dataclass(frozen=True, slots=True)
class RetryEvent:
    """A handler failed, and the message comes again; or never, if it went to the dead letters.

    ``after`` is the pause in seconds as far as it is known here (None: the broker chooses);
    ``error`` is what the handler raised, or None where it asked for the retry itself.
    """

    at: float
    group: str
    message: StoredMessage
    attempt: int
    after: float | None
    error: Exception | None


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """Something about one queue, in words."""

    at: float
    group: str
    queue: MessageQueue
    why: str


@runtime_checkable
class BeforeSend(Protocol):
    """Called before a message is sent; raising does not stop it."""

    def before_send(self, message: Message) -> None:
        """A message is about to be sent."""


@runtime_checkable
class AfterSend(Protocol):
    """Called when a send has succeeded or failed for good."""

    def after_send(self, event: SendEvent) -> None:
        """A send has ended."""


@runtime_checkable
class AfterAttempt(Protocol):
    """Called for every attempt."""

    def after_attempt(self, event: AttemptEvent) -> None:
        """An attempt has ended."""


@runtime_checkable
class BrokerIsolated(Protocol):
    """Called when the fault table isolates a broker."""

    def broker_isolated(self, event: BrokerEvent) -> None:
        """A broker is avoided from now on."""


@runtime_checkable
class BrokerReturned(Protocol):
    """Called when the fault table takes a broker back."""

    def broker_returned(self, event: BrokerEvent) -> None:
        """A broker is used again."""


@runtime_checkable
class BrokerWatcher(BrokerIsolated, BrokerReturned, Protocol):
    """Called when the fault table isolates a broker or takes it back."""


@runtime_checkable
class RouteWatcher(Protocol):
    """Called when the queues of a topic change."""

    def route_changed(self, event: RouteEvent) -> None:
        """The queues of a topic changed."""


@runtime_checkable
class RouteLearner(Protocol):
    """Called when the queues of a topic are first known, and when they change."""

    def route_learned(self, event: RouteEvent) -> None:
        """The queues of a topic are these from now on."""


@runtime_checkable
class ProbeWatcher(Protocol):
    """Called for every probe of a broker that is left out."""

    def broker_probed(self, event: ProbeEvent) -> None:
        """A probe is over."""


@runtime_checkable
class QueuesAssigned(Protocol):
    """Called when a group's member gets queues."""

    def assigned(self, event: QueuesEvent) -> None:
        """Queues are ours from now on."""


@runtime_checkable
class QueuesRevoked(Protocol):
    """Called when a group's member loses queues."""

    def revoked(self, event: QueuesEvent) -> None:
        """Queues are handled by others from now on."""


@runtime_checkable
class AssignmentWatcher(QueuesAssigned, QueuesRevoked, Protocol):
    """Called when the queues of a group's member change."""


@runtime_checkable
class RevocationWatcher(Protocol):
    """Called before queues of a group's member are taken away."""

    def queues_revoked(self, event: QueuesEvent) -> None:
        """Queues are about to go to another member, or to be left: the last moment to acknowledge.

        What is acknowledged in this call is committed with them. It must not wait for the consumer.
        """


@runtime_checkable
class MessageRetried(Protocol):
    """Called when a handler failed, and its message comes again."""

    def retried(self, event: RetryEvent) -> None:
        """The message comes again."""


@runtime_checkable
class MessageDeadLettered(Protocol):
    """Called when a handler failed for the last time."""

    def dead_lettered(self, event: RetryEvent) -> None:
        """The message was given up."""


@runtime_checkable
class RetryWatcher(MessageRetried, MessageDeadLettered, Protocol):
    """Called when a handler failed."""


@runtime_checkable
class QueuePaused(Protocol):
    """Called when a queue is held up for lack of room."""

    def paused(self, event: QueueEvent) -> None:
        """Nothing more is pulled until handlers have caught up."""


@runtime_checkable
class OffsetMoved(Protocol):
    """Called when a broker does not have an offset."""

    def offset_moved(self, event: QueueEvent) -> None:
        """The broker does not have the offset that was asked for, and went on elsewhere."""


@runtime_checkable
class HandlerOverdue(Protocol):
    """Called when a handler hangs."""

    def handler_overdue(self, event: QueueEvent) -> None:
        """A handler has been at a message for longer than ``handler_timeout``."""


@runtime_checkable
class QueueWatcher(QueuePaused, OffsetMoved, HandlerOverdue, Protocol):
    """Called when something holds a queue up."""


#: An object with at least one of the methods above. A type checker refuses one that has none, or
#: one whose method takes something else.
Hook: TypeAlias = (
    BeforeSend
    | AfterSend
    | AfterAttempt
    | BrokerIsolated
    | BrokerReturned
    | ProbeWatcher
    | RouteWatcher
    | RouteLearner
    | QueuesAssigned
    | QueuesRevoked
    | RevocationWatcher
    | MessageRetried
    | MessageDeadLettered
    | QueuePaused
    | OffsetMoved
    | HandlerOverdue
)


class HookSet:
    """All hooks of a client, sorted by what they listen to.

    An empty tuple is falsy, so that a sender pays one test for hooks which nobody has.
    """

    __slots__ = (
        "after_attempt",
        "after_send",
        "assigned",
        "before_send",
        "broker_isolated",
        "broker_probed",
        "broker_returned",
        "dead_lettered",
        "handler_overdue",
        "offset_moved",
        "paused",
        "queues_revoked",
        "retried",
        "revoked",
        "route_changed",
        "route_learned",
    )

    def __init__(self, hooks: Iterable[object] = ()) -> None:
        found = tuple(hooks)
        for name in self.__slots__:
            setattr(self, name, tuple(m for h in found if callable(m := getattr(h, name, None))))
        for kind in {type(hook) for hook in found} - _looked_at:
            _looked_at.add(kind)
            _warn_of_near_names(kind, self.__slots__)

    before_send: tuple[Callable[[Message], Any], ...]
    after_send: tuple[Callable[[SendEvent], Any], ...]
    after_attempt: tuple[Callable[[AttemptEvent], Any], ...]
    broker_isolated: tuple[Callable[[BrokerEvent], Any], ...]
    broker_returned: tuple[Callable[[BrokerEvent], Any], ...]
    route_changed: tuple[Callable[[RouteEvent], Any], ...]
    route_learned: tuple[Callable[[RouteEvent], Any], ...]
    broker_probed: tuple[Callable[[ProbeEvent], Any], ...]
    assigned: tuple[Callable[[QueuesEvent], Any], ...]
    queues_revoked: tuple[Callable[[QueuesEvent], Any], ...]
    revoked: tuple[Callable[[QueuesEvent], Any], ...]
    retried: tuple[Callable[[RetryEvent], Any], ...]
    dead_lettered: tuple[Callable[[RetryEvent], Any], ...]
    paused: tuple[Callable[[QueueEvent], Any], ...]
    offset_moved: tuple[Callable[[QueueEvent], Any], ...]
    handler_overdue: tuple[Callable[[QueueEvent], Any], ...]


#: Kinds of hooks that were looked at: each is warned about once.
_looked_at: Final[set[type]] = set()


def _warn_of_near_names(kind: type, names: Sequence[str]) -> None:
    """A method that is nearly one of ours is never called, and nothing would say so."""
    from difflib import get_close_matches  # slow to load, and needed for hooks of the caller only

    missing = [name for name in names if not hasattr(kind, name)]
    for method in dir(kind):
        if method.startswith("_") or method in names or not callable(getattr(kind, method, None)):
            continue
        near = get_close_matches(method, missing, n=1, cutoff=0.8)
        if near:
            _log.warning(
                "the hook %s has a method %s, which is never called; did you mean %s?",
                kind.__name__,
                method,
                near[0],
            )


def call_hooks(hooks: tuple[Callable[[Any], Any], ...], event: object) -> None:
    """Tell every hook; one that raises is logged."""
    for hook in hooks:
        try:
            hook(event)
        except (KeyboardInterrupt, SystemExit):
            # On another thread it would end no program, but whatever else runs on that thread.
            if threading.current_thread() is threading.main_thread():
                raise
            _log.exception("hook %r wants to end the program, which is the main thread's", hook)
        except BaseException:  # noqa: BLE001 - a watcher must never break what it watches
            # Not an Exception: that of a cancelled future which the watcher asked.
            _log.exception("hook %r failed", hook)
