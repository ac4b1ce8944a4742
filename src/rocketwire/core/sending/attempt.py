"""One attempt of a send: what goes where, until when, and what the fault table must be told.

``Sender.start`` makes the first attempt of every send, whatever its message, its mode and its way
of choosing a queue. A driver knows two verbs: it writes the attempt, and it finishes it with the
frame of an answer that says "stored". For everything else it asks for ``operation()``, which stands
at this attempt and goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rocketwire.core.effects import Op
from rocketwire.core.faults.entries import NEVER, Entry, note_written
from rocketwire.core.faults.selection import Selector, best_queue, hash_queue
from rocketwire.core.routes import TopicEntry
from rocketwire.core.sending.mode import SendMode
from rocketwire.errors import RocketMQError
from rocketwire.message import Message, MessageQueue, SendResult
from rocketwire.wire.message_id import IdBlock
from rocketwire.wire.send_properties import id_of

if TYPE_CHECKING:
    from rocketwire.core.sending.history import SendHistory
    from rocketwire.core.sending.order import KeySlot
    from rocketwire.core.sending.sender import Sender
    from rocketwire.core.sending.target import SendTarget

#: Replaces the message of a finished attempt, so that the message can be freed.
RELEASED: Final = Message("-", b"-")
#: The ids of a batch; those of an ``IdBlock`` are made into text when a result is read.
MessageIds: TypeAlias = tuple[str, ...] | IdBlock


def as_texts(ids: MessageIds) -> tuple[str, ...]:
    """The ids themselves."""
    return tuple(ids.texts()) if isinstance(ids, IdBlock) else ids


class Batch:
    """Several messages that travel as one request."""

    __slots__ = ("ids", "messages", "sharding_keys")

    def __init__(
        self, messages: Sequence[Message], ids: MessageIds, sharding_keys: tuple[str, ...] = ()
    ) -> None:
        #: The first stands for all of them where no hook looks at each.
        self.messages = messages
        self.ids = ids
        self.sharding_keys = sharding_keys


class Place:
    """How the queue of a send is chosen where the default strategy does not choose it.

    ``queue`` is the only queue that the send may go to, once that is known.
    """

    __slots__ = ("argument", "is_pinned", "queue", "selector")

    def __init__(
        self,
        queue: MessageQueue | None,
        selector: Selector | None,
        argument: Any,
        *,
        is_pinned: bool,
    ) -> None:
        self.queue = queue
        self.selector = selector
        self.argument = argument
        self.is_pinned = is_pinned

    @property
    def is_ours(self) -> bool:
        """Whether the choice needs no foreign code, which may take its time or raise anything."""
        selector = self.selector
        return selector is None or selector is hash_queue or selector is best_queue


class SendAttempt:
    """An attempt, and the request that it writes (``wire.command.Request``).

    It is also what the fault table keeps of a request under way (``faults.UnderWay``): one object
    for each message in flight. ``target`` is None while the attempt can't be written, because the
    route is not known or an earlier message of its sharding key is under way.
    """

    __slots__ = (
        "allowance", "batch", "began", "body", "born", "deadline", "entry", "epoch", "flag", "history",
        "key_slots", "message", "mode", "place", "properties", "route", "sender", "system_flag", "target",
        "timeout", "written_at",
    )  # fmt: skip

    sender: Sender
    mode: SendMode
    #: The message, or the first of the batch.
    message: Message
    batch: Batch | None
    body: bytes
    properties: bytes
    system_flag: int
    #: The application's 32 bits; a batch has them in its items.
    flag: int
    #: None: the default strategy.
    place: Place | None
    #: Seconds for the whole send.
    timeout: float
    #: Where the send stands in the order of its sharding keys; only its first attempt has them.
    key_slots: tuple[KeySlot, ...]
    #: The story of the send; None while there is nothing to tell.
    history: SendHistory | None
    #: Where this attempt goes, and by which route that was decided.
    target: SendTarget | None
    route: TopicEntry | None
    #: The time of birth, as it stands in a header.
    born: bytes
    #: When the attempt began, and until when it may take.
    began: float
    deadline: float
    # What the fault table keeps.
    entry: Entry
    epoch: int
    written_at: float
    allowance: float

    # -- as a request -----------------------------------------------------------------------

    @property
    def code(self) -> int:
        """The request code."""
        return self.where.code

    def head(self, opaque: int, flag: int = 0) -> bytes:
        """Length, header kind and header."""
        target = self.target
        assert target is not None
        template = target.template
        if template is None:
            return target.head(self, opaque, flag)
        return template.head(
            opaque,
            flag,
            self.system_flag,
            self.flag,
            self.born,
            self.properties,
            len(self.body),
        )

    @property
    def where(self) -> SendTarget:
        """The target of an attempt that can be written."""
        assert self.target is not None
        return self.target

    # -- as the fault table sees it ---------------------------------------------------------

    @property
    def broker(self) -> str:
        """The broker that it goes to."""
        return self.entry.name

    @property
    def is_told_in_java(self) -> bool:
        """Whether Java's fault table learns of it (``faults.entries.WatchedAttempt``).

        A send with a queue or a selector bypasses Java's strategy. Where it is asynchronous, the
        code that reads answers tells the table all the same.
        """
        place = self.place
        return place is None or place.selector is best_queue or self.mode is SendMode.ASYNC

    def written(self, now: float, unanswered: int) -> None:
        """The request was handed to a connected socket (``effects.Observer``)."""
        self.entry.note_written(self, now, unanswered)

    # -- what it carries --------------------------------------------------------------------

    @property
    def messages(self) -> tuple[Message, ...]:
        """What travels in this request."""
        return (self.message,) if self.batch is None else tuple(self.batch.messages)

    @property
    def count(self) -> int:
        """How many messages travel in this request."""
        return 1 if self.batch is None else len(self.batch.messages)

    @property
    def ids(self) -> MessageIds:
        """The unique ids of the messages."""
        return (id_of(self.properties),) if self.batch is None else self.batch.ids

    @property
    def sharding_keys(self) -> tuple[str, ...]:
        """The keys whose order the send keeps."""
        if self.batch is not None:
            return self.batch.sharding_keys
        key = self.message.sharding_key
        return () if key is None else (key,)

    @property
    def is_pinned(self) -> bool:
        """Whether the send must stay on one queue."""
        place = self.place
        return self.sender.default_pins if place is None else place.is_pinned

    # -- what comes of it -------------------------------------------------------------------

    def operation(self) -> Op[SendResult]:
        """The rest of the send. Its first effect is this attempt, if it has a target.

        A driver that has written the attempt does not perform that effect: it sends the reply into
        the operation, or throws the error.
        """
        return self.sender.operation(self)

    def release(self) -> None:
        """Let go of the content: a caller that keeps the delivery does not keep the body."""
        self.body = b""
        self.message = RELEASED
        if self.batch is not None:
            self.batch.messages = ()
        if self.history is not None:
            last = self.history.last
            if last is not None and last is not self:
                last.body = b""
                last.message = RELEASED

    def give_up(self) -> None:
        """End the send where it stands: tell the fault table, the order of its keys and hooks."""
        sender = self.sender
        rest = sender.oneway(self) if self.mode is SendMode.ONEWAY else sender.operation(self)
        with suppress(RocketMQError):
            next(rest)
        rest.close()

    @property
    def is_written(self) -> bool:
        """Whether any byte of the request may have left."""
        return self.written_at != NEVER


def written_together(
    attempts: Sequence[SendAttempt], sizes: Sequence[int], now: float, unanswered: int
) -> None:
    """As ``SendAttempt.written`` for several that were handed to one socket at once, for the first time.

    Args:
        attempts: in the order of their bytes.
        sizes: the bytes of each.
        now: the moment.
        unanswered: bytes on that connection that had no answer before.
    """
    note_written(attempts, sizes, now, unanswered)
