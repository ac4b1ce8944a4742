"""What a send gives back: where the message was stored, and what the broker said about it.

How a result is read out of an answer is the business of ``core/sending/results.py``; here is what users
hold. Older versions had these values in ``message``, which still has their names, for pickles, too.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from rocketwire.errors import Attempt
from rocketwire.frozen import Frozen
from rocketwire.message_queue import MessageQueue


class SendStatus(enum.Enum):
    """What the broker said about storing the message. All four mean that it has the message."""

    OK = "SEND_OK"
    SEND_OK = "SEND_OK"  # noqa: PIE796 - the same, by Java's name
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"

    def __str__(self) -> str:
        return self.value


class _ResultSlots:
    """The slots of a result, still open: a result is filled as one of these and then frozen.

    Few of them, and all fields in one tuple: results of many messages stay in memory together, where
    every slot costs the garbage collector time.
    """

    __slots__ = ("_given", "_read", "_values")

    #: The fields in their order, None until they are read; by what, and what that is given.
    _values: tuple[Any, ...] | None
    _read: Callable[..., Mapping[str, Any]] | None
    _given: object


class SendResult(_ResultSlots, Frozen):
    """Where a message, or a batch, was stored.

    ``attempts`` holds the tries that failed before, and is empty when the first one succeeded;
    ``attempt_count`` counts all tries, the successful one included. ``maybe_duplicate`` says that an earlier
    try may have been stored, too. By ``recall_handle`` a message that waits for its time can be
    called back; it is None where there is none.

    A producer hands out results that read the broker's answer when a field is first asked for:
    many applications only care that there is one, and reading costs more than the send.
    """

    __slots__ = ()

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    offset: int
    transaction_id: str | None
    region: str
    message_ids: tuple[str, ...]
    offset_message_ids: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    maybe_duplicate: bool
    recall_handle: str | None

    def __init__(  # noqa: PLR0913, PLR0917 - these are the fields of a result
        self,
        status: SendStatus,
        message_id: str,
        offset_message_id: str,
        queue: MessageQueue,
        offset: int,
        transaction_id: str | None = None,
        region: str = "DefaultRegion",
        message_ids: tuple[str, ...] = (),
        offset_message_ids: tuple[str, ...] = (),
        attempts: tuple[Attempt, ...] = (),
        maybe_duplicate: bool = False,  # noqa: FBT001, FBT002 - a field like the others
        recall_handle: str | None = None,
    ) -> None:
        values = (
            status, message_id, offset_message_id, queue, offset, transaction_id, region,
            message_ids, offset_message_ids, attempts, maybe_duplicate, recall_handle,
        )  # fmt: skip
        _set_values(self, values)
        _set_read(self, None)  # behind them: another thread may be on its way through ``_filled``
        _set_given(self, None)

    @property
    def attempt_count(self) -> int:
        """How often it was tried, the successful try included."""
        return len(self.attempts) + 1

    @staticmethod
    def read_by(read: Callable[..., Mapping[str, Any]], given: object = None) -> SendResult:
        """A result whose fields are what ``read`` returns, as arguments of the constructor.

        Args:
            read: called when a field is first asked for, at most once in each thread.
            given: what it is called with, if anything; cheaper than a function that holds it.
        """
        made = _ResultSlots()
        made._read, made._given, made._values = read, given, None  # noqa: SLF001 - it is one soon
        made.__class__ = SendResult
        return made  # type: ignore[return-value]  # as above

    @staticmethod
    def read_each(read: Callable[[int], Mapping[str, Any]], count: int) -> list[SendResult]:
        """So many results; the fields of each are what ``read`` returns for its number.

        A function for each of them would be two more objects for the garbage collector to follow,
        which costs more than all the rest of a result.
        """
        results: list[Any] = []
        for place in range(count):
            made = _ResultSlots()
            made._read, made._given, made._values = read, place, None  # noqa: SLF001
            made.__class__ = SendResult
            results.append(made)
        return results

    def _filled(self) -> tuple[Any, ...]:
        """The fields, read now."""
        given, read = self._given, self._read  # in this order: another thread may forget them now
        if read is not None:
            SendResult.__init__(self, **(read() if given is None else read(given)))
        return cast("tuple[Any, ...]", self._values)

    def _state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _RESULT_FIELDS}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SendResult):
            return NotImplemented
        return self._state() == other._state()

    def __hash__(self) -> int:
        return hash(tuple(self._state().values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._state().items())
        return f"SendResult({shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_result, (self._state(),)

    def replace(self, **changes: Any) -> SendResult:
        """A copy with some fields changed."""
        return SendResult(**(self._state() | changes))


_RESULT_FIELDS: Final = tuple(SendResult.__annotations__)
# The slots' own setters: ``object.__setattr__`` looks for the name first.
_set_read = vars(_ResultSlots)["_read"].__set__
_set_given = vars(_ResultSlots)["_given"].__set__
_set_values = vars(_ResultSlots)["_values"].__set__


def _field(place: int) -> property:
    def field(result: SendResult) -> Any:
        values = result._values  # noqa: SLF001 - they are one thing
        return (result._filled() if values is None else values)[place]  # noqa: SLF001

    return property(field)


for _number, _name in enumerate(_RESULT_FIELDS):
    setattr(SendResult, _name, _field(_number))


def _make_result(fields: dict[str, Any]) -> SendResult:
    return SendResult(**fields)
