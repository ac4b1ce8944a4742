"""One request on its way through a server, and the answer to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rocketwire.errors import RocketMQError
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import Command

if TYPE_CHECKING:
    from rocketwire.embedded.connection import Connection
    from rocketwire.embedded.faults import Fault
    from rocketwire.embedded.journal import JournalEntry


#: A request of our own, see ``remote_control``.
CONTROL_CODE: Final = 31001


@dataclass(slots=True)
class Answer:
    """What a handler wants to say. ``body`` is in pieces so that records need not be copied."""

    code: int = ResponseCode.SUCCESS
    ext: dict[str, str] = field(default_factory=dict)
    body: Sequence[bytes | memoryview] = ()
    remark: str | None = None


class Refusal(RocketMQError):  # noqa: N818 - it is an answer, not a failure of ours
    """Raised by a handler in order to answer with an error code."""

    def __init__(self, code: int, remark: str, ext: dict[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.ext = ext or {}


class Call:
    """A request that came over a connection. Answered once, at once or later."""

    __slots__ = ("answered", "command", "connection", "entry", "faults")

    #: Those that act on the answer.
    faults: Sequence[Fault]

    def __init__(self, connection: Connection, command: Command, entry: JournalEntry) -> None:
        self.connection = connection
        self.command = command
        self.entry = entry
        self.answered = False
        self.faults = ()

    @property
    def ext(self) -> dict[str, str]:
        """The request's header fields."""
        return self.command.ext

    def answer(self, answer: Answer) -> None:
        """Send the answer, unless nobody waits for one."""
        if self.answered:
            return
        self.answered = True
        self.entry.response_code = answer.code
        if not self.command.flag & 2:
            self.connection.server.send_answer(self, answer)


#: Answers at once, or returns None and answers later (or never, to a oneway request).
Handler = Callable[[Call], Answer | None]
