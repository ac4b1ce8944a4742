"""Middleware around messages that are sent together: of a list, or of ``send_many``.

Each message has a chain of its own, and all chains are open while the one request is under way. How
that is done differs (``sync/nested_calls.py``, ``aio/parallel_calls.py``); who has called on, what
they get, and what the caller gets is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rocketwire.core.sending.order import not_sent_after
from rocketwire.errors import Outcome, RocketMQError, SendFailedError, SendManyError
from rocketwire.message import Message, SendResult

#: Messages of ``send_many`` whose middleware is open at once.
WINDOW: Final = 1024

_MISSING: Final[Any] = object()


class ManyCalls:
    """The chains of several messages around one request.

    Args:
        messages: as the caller gave them.
        check: refuses a message that can't be sent.
        broken: for ``send_many``, where one message that is refused harms no other: the errors of
            sharding keys, whose later messages are not sent.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        check: Callable[[Message], Message],
        broken: dict[tuple[str, str], RocketMQError] | None = None,
    ) -> None:
        self.messages = messages
        self._check = check
        self._broken = broken
        #: Those that were passed on, by their place in the list.
        self._passed: dict[int, Message] = {}
        #: What the request gave each of them.
        self._given: dict[int, Any] = {}
        self._outcomes: list[Any] = [_MISSING] * len(messages)
        self._answer: Any = _MISSING
        #: Why nothing was sent: a middleware refused a message of the list.
        self.refusal: Exception | None = None

    # -- while the chains are open ------------------------------------------------------------

    def enter(self, place: int, message: Message) -> None:
        """A chain has come to its end: its message is to be sent.

        Raises:
            InvalidMessageError: it can't be.
            RuntimeError: it was there before.
        """
        if place in self._passed:
            raise RuntimeError(
                "call_next was called twice for a message of a list: it is sent once, with the "
                "others; use send() for messages that a middleware repeats"
            )
        if message is not self.messages[place]:
            self._check(message)
        self._passed[place] = message

    def has_entered(self, place: int) -> bool:
        """Whether a message is to be sent."""
        return place in self._passed

    def ended(self, place: int, outcome: Any) -> None:
        """A chain has ended, with what its middleware returned or raised."""
        self._outcomes[place] = outcome
        is_refusal = isinstance(outcome, Exception) and place not in self._passed
        if is_refusal and self._broken is None and self.refusal is None:
            self.refusal = outcome

    def run(self, send_all: Callable[[list[Message]], tuple[Any, list[Any]]]) -> None:
        """Send what was passed on, once all chains have come to their end."""
        places = self.sendable()
        if not places:
            return
        try:
            self.sent(places, send_all([self._passed[place] for place in places]))
        except Exception as error:  # noqa: BLE001 - each chain gets it, and the caller what they make of it
            self.failed(places, error)

    def sendable(self) -> list[int]:
        """The places of what is to be sent now; others are given their errors."""
        if self.refusal is not None:
            for place in self._passed:
                self._given[place] = _not_sent(self.refusal)
            return []
        broken = self._broken
        if not broken:
            return sorted(self._passed)
        places = []
        for place in sorted(self._passed):
            before = broken.get(_key(self._passed[place]))
            if before is None:
                places.append(place)
            else:
                self._given[place] = not_sent_after(before)
        return places

    def passed(self, places: list[int]) -> list[Message]:
        """The messages of these places."""
        return [self._passed[place] for place in places]

    def sent(self, places: list[int], answer: tuple[Any, list[Any]]) -> None:
        """What the request gave, altogether and for each message."""
        self._answer, shares = answer
        for place, given in zip(places, shares, strict=True):
            self._give(place, given)

    def failed(self, places: list[int], error: Exception) -> None:
        """The request failed as a whole."""
        for place in places:
            self._give(place, error)

    def _give(self, place: int, given: Any) -> None:
        self._given[place] = given
        message, is_error = self._passed[place], isinstance(given, RocketMQError)
        if self._broken is not None and is_error and message.sharding_key is not None:
            self._broken.setdefault(_key(message), given)

    def given(self, place: int) -> Any:
        """What the end of a chain gives back.

        Raises:
            Exception: what became of the message, if it was not sent.
        """
        found = self._given[place]
        if isinstance(found, BaseException):
            raise found
        return found

    # -- afterwards -----------------------------------------------------------------------------

    def answer_of_list(self) -> Any:
        """What the sender of a list gets.

        Raises:
            Exception: the first that left a middleware.
        """
        if self.refusal is not None:
            raise self.refusal
        for outcome in self._outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        if self._answer is _MISSING:  # nothing was passed on, or all errors were dealt with
            return self._outcomes[0]
        return self._answer

    def answers_of_many(self) -> list[SendResult | RocketMQError]:
        """One result or error per message."""
        return [self._as_result(place, found) for place, found in enumerate(self._outcomes)]

    def _as_result(self, place: int, outcome: Any) -> SendResult | RocketMQError:
        if isinstance(outcome, (SendResult, RocketMQError)):
            return outcome
        found = self._became(place)
        failure = SendFailedError(f"{found.value}: a middleware failed: {outcome}", outcome=found)
        failure.__cause__ = outcome
        return failure

    def _became(self, place: int) -> Outcome:
        """What became of a message, whatever its middleware made of that."""
        given = self._given.get(place)
        if isinstance(given, SendResult):
            return Outcome.STORED
        if isinstance(given, SendFailedError):
            return given.outcome
        # Nothing was sent before any other error of ours; of a foreign one that is not known.
        is_ours = given is None or isinstance(given, RocketMQError)
        return Outcome.NOT_SENT if is_ours else Outcome.MAYBE_STORED

    @staticmethod
    def finished(
        results: list[SendResult | RocketMQError], *, return_errors: bool
    ) -> list[SendResult | RocketMQError]:
        """What ``send_many`` gives.

        Raises:
            SendManyError: some failed, and the caller did not ask for a list of errors.
        """
        if not return_errors and any(isinstance(one, RocketMQError) for one in results):
            raise SendManyError(results)
        return results


def _key(message: Message) -> tuple[str, str]:
    return message.topic, message.sharding_key or ""


def _not_sent(refusal: Exception) -> SendFailedError:
    """What the other messages of a list get."""
    error = SendFailedError(
        f"{Outcome.NOT_SENT.value}: a middleware refused another message of the list: {refusal}",
        outcome=Outcome.NOT_SENT,
    )
    error.__cause__ = refusal
    return error


def not_called_on() -> TypeError:
    """A transaction without a half message can't be decided."""
    return TypeError(
        "a middleware did not call on: a transaction needs its half message; raise an error to "
        "refuse it"
    )
