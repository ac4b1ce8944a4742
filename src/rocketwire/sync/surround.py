"""A blocking producer whose sends are surrounded by middleware.

The methods here take the place of the producer's own, on that one object: a producer without
middleware runs not one instruction more. At the end of each chain stand the methods of its class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, Self

from rocketwire.core.sending.flush import done_callback
from rocketwire.core.sending.results import share_all
from rocketwire.core.sending.transactions import check_transactional
from rocketwire.core.sending.validate import as_batch, check_batch, check_message
from rocketwire.errors import InvalidMessageError, RocketMQError
from rocketwire.message import Message, SendResult
from rocketwire.middleware import Call, Operation, check_blocking, check_passed
from rocketwire.stored_message import StoredMessage
from rocketwire.sync.delivery import Delivery
from rocketwire.sync.nested_calls import call_nested
from rocketwire.sync.transaction import Transaction
from rocketwire.system.many_calls import WINDOW, ManyCalls, not_called_on

if TYPE_CHECKING:
    from rocketwire.sync.producer import Producer

_NONE: Final = type(None)
#: What each call gives, and so what its middleware returns.
_EXPECTED: Final[dict[Operation, type]] = {
    "send": SendResult,
    "submit": Delivery,
    "oneway": _NONE,
    "send_many": SendResult,
    "request": StoredMessage,
    "transaction": SendResult,
}


def surround(producer: Producer, layers: tuple[Callable[..., Any], ...]) -> None:
    """Put middleware around what a producer sends."""
    check_blocking(layers)
    surrounded = SurroundedSends(producer, layers)
    for name in ("send", "send_oneway", "submit", "send_many", "request", "transaction"):
        method = wraps(getattr(type(producer), name))(partial(getattr(surrounded, name)))
        setattr(producer, name, method)


class SurroundedSends:
    """What a producer with middleware sends, and how."""

    def __init__(self, producer: Producer, layers: tuple[Callable[..., Any], ...]) -> None:
        self._producer = producer
        self._plain = type(producer)
        self._layers = layers

    def _call(self, operation: Operation, end: Callable[[Message], Any], count: int = 1) -> Call:
        expected = _EXPECTED[operation]
        return Call(self._producer, operation, self._layers, end, expected, count)

    def send(self, message: Message | Sequence[Message], **how: Any) -> SendResult:
        """``Producer.send``, each message of a list with its own middleware."""
        producer, send = self._producer, self._plain.send
        if isinstance(message, Message):

            def end(passed: Message) -> SendResult:
                return send(producer, check_passed(passed), **how)

            result: SendResult = self._call("send", end)(message)
            return result

        def send_all(passed: list[Message]) -> tuple[SendResult, list[Any]]:
            result = send(producer, passed, **how)
            return result, share_all(result, len(passed))

        answer: SendResult = self._list("send", message, send_all)
        return answer

    def send_oneway(self, message: Message | Sequence[Message], **how: Any) -> None:
        """``Producer.send_oneway``."""
        producer, send = self._producer, self._plain.send_oneway
        if isinstance(message, Message):
            self._call("oneway", lambda passed: send(producer, check_passed(passed), **how))(
                message
            )
            return

        def send_all(passed: list[Message]) -> tuple[None, list[Any]]:
            send(producer, passed, **how)
            return None, [None] * len(passed)

        self._list("oneway", message, send_all)

    def submit(
        self,
        message: Message | Sequence[Message],
        *,
        on_success: Callable[[SendResult], Any] | None = None,
        on_error: Callable[[Exception], Any] | None = None,
        **how: Any,
    ) -> Delivery:
        """``Producer.submit``; callbacks belong to the delivery that the caller gets."""
        producer, submit = self._producer, self._plain.submit
        delivery: Delivery
        if isinstance(message, Message):
            call = self._call(
                "submit", lambda passed: submit(producer, check_passed(passed), **how)
            )
            delivery = call(message)
        else:

            def send_all(passed: list[Message]) -> tuple[Delivery, list[Any]]:
                given = submit(producer, passed, **how)
                return given, [given] * len(passed)

            delivery = self._list("submit", message, send_all)
        if on_success is not None or on_error is not None:
            delivery.add_done_callback(done_callback(on_success, on_error))
        return delivery

    def _list(
        self,
        operation: Operation,
        messages: Sequence[Message],
        send_all: Callable[[list[Message]], tuple[Any, list[Any]]],
    ) -> Any:
        self._producer._make_ready()  # noqa: SLF001
        given = self._checked(as_batch(messages), " of the batch")
        calls = ManyCalls(given, self._checked_one)
        call_nested(calls, partial(self._begin, operation, len(given)), send_all)
        return calls.answer_of_list()

    def _begin(
        self, operation: Operation, count: int, message: Message, end: Callable[[Message], Any]
    ) -> Any:
        return self._call(operation, end, count)(message)

    def _checked(self, messages: Sequence[Message], of: str = "") -> Sequence[Message]:
        """Refuse what can't be sent before any middleware runs, in the words of a plain send."""
        if of and not messages:
            check_batch(messages, 0)
        size = self._producer._config.max_message_size  # noqa: SLF001 - they are one thing
        for index, message in enumerate(messages):
            try:
                check_message(message, size)
            except InvalidMessageError as error:
                raise InvalidMessageError(f"message {index}{of}: {error}") from None
        return messages

    def _checked_one(self, message: Message) -> Message:
        self._producer._sender.checked(check_passed(message))  # noqa: SLF001 - they are one thing
        return message

    def send_many(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | str | None = None,
        return_errors: bool = False,
    ) -> list[SendResult | RocketMQError]:
        """``Producer.send_many``, in windows whose middleware is open at once."""
        producer = self._producer
        producer._make_ready()  # noqa: SLF001
        given = self._checked(self._all(messages))
        results: list[SendResult | RocketMQError] = []
        broken: dict[tuple[str, str], RocketMQError] = {}

        def send_all(passed: list[Message]) -> tuple[None, list[Any]]:
            return None, self._plain.send_many(
                producer, passed, timeout=timeout, return_errors=True
            )

        for start in range(0, len(given), WINDOW):
            calls = ManyCalls(given[start : start + WINDOW], self._checked_one, broken)
            call_nested(calls, partial(self._begin, "send_many", len(given)), send_all)
            results += calls.answers_of_many()
        return ManyCalls.finished(results, return_errors=return_errors)

    def _all(self, messages: Iterable[Message]) -> list[Message]:
        from rocketwire.core.sending.send_many import as_messages

        return list(as_messages(messages))

    def request(self, message: Any, **how: Any) -> StoredMessage:
        """``Producer.request``: the middleware gets the reply."""
        producer, request = self._producer, self._plain.request
        if not isinstance(message, Message):
            return request(producer, message, **how)  # which refuses it
        call = self._call("request", lambda passed: request(producer, check_passed(passed), **how))
        reply: StoredMessage = call(message)
        return reply

    def transaction(
        self, message: Message, *, timeout: float | str | None = None
    ) -> SurroundedTransaction:
        """``Producer.transaction``: the middleware surrounds the storing of the half message."""
        producer = self._producer
        producer._make_ready()  # noqa: SLF001
        transaction = SurroundedTransaction(
            producer._sender,  # noqa: SLF001
            message,
            timeout,
            producer._send_half,  # noqa: SLF001
            producer._carry_out,  # noqa: SLF001
        )
        transaction.begin = self._call("transaction", transaction.store)
        return transaction


class SurroundedTransaction(Transaction):
    """A transaction whose half message is stored by the last middleware."""

    begin: Callable[[Message], Any]

    def __enter__(self) -> Self:
        try:
            self.begin(self._message)
        except BaseException:
            if self._result is not None and self._wants_end:  # nobody enters the block
                self.rollback()
            raise
        if self._result is None:
            raise not_called_on()
        return self

    def store(self, message: Message) -> SendResult:
        """Store what the middleware passed on."""
        self._message = check_transactional(message)
        super().__enter__()
        return self.result
