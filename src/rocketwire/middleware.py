"""Middleware: functions that surround what a client does with a message.

A middleware is called with a message and with ``call_next``, and returns what ``call_next(message)``
gives. It may pass another message on, look at the result or the error, do something before and
after, or not call on at all. The first of the list is the outermost. Unlike a hook it is part of
the way: what it raises, the caller gets.

Here is what a middleware sees and how one calls the next. What begins the chain, and what stands at
its end, is in ``sync/surround.py`` and ``aio/surround.py`` for producers, and in
``system/surrounded_handler.py`` for handlers.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import BuiltinFunctionType, CoroutineType, FunctionType, MethodType
from typing import Any, ClassVar, Final, Literal, TypeAlias

from rocketwire.errors import ConfigError, InvalidMessageError
from rocketwire.message import Message
from rocketwire.stored_message import Reply, StoredMessage

#: What is promised under this name; classes and types are so as names of ``rocketwire``.
__all__ = ["install", "uninstall"]

#: What the client does: how a message is sent, or that it is handled.
Operation: TypeAlias = Literal[
    "send", "submit", "oneway", "send_many", "request", "transaction", "process"
]


class Call:
    """What a middleware calls to go on: the next one, or the client itself.

    It returns the ``SendResult`` (send, send_many, transaction), the ``Delivery`` (submit), None
    (oneway) or the reply (request); for a handler what that returned.
    """

    __slots__ = ("_end", "_expected", "_given", "_layers", "_place", "client", "count", "operation")

    #: Whether what it returns must be awaited.
    is_async: ClassVar[bool] = False

    #: The producer or consumer.
    client: Any
    #: How the message is sent, or ``process``.
    operation: Operation
    #: How many messages are handed over together: those of a list, or of ``send_many``.
    count: int
    #: What a handler's gave when it was called last; None before that.
    _given: Any

    def __init__(
        self,
        client: Any,
        operation: Operation,
        layers: tuple[Callable[..., Any], ...],
        end: Callable[[Any], Any],
        expected: type | None,
        count: int = 1,
        place: int = 0,
    ) -> None:
        self.client = client
        self.operation = operation
        self.count = count
        self._given = None
        self._layers = layers
        self._end = end
        self._expected = expected
        self._place = place

    def __call__(self, message: Any) -> Any:
        """Go on with this message; give back what comes of it."""
        place, layers = self._place, self._layers
        if place == len(layers):
            self._given = result = self._end(message)
            return result
        layer = layers[place]
        following = Call(
            self.client, self.operation, layers, self._end, self._expected, self.count, place + 1
        )
        result = layer(message, following)
        if self._expected is None:
            if result is None and following._given is not None:
                _refuse_loss(layer, following._given)
        elif not isinstance(result, self._expected):
            raise _wrong_result(layer, result, self.operation, self._expected)
        self._given = result
        return result

    @property
    def group(self) -> str:
        """The group of the producer or consumer."""
        found: str = self.client._config.group  # noqa: SLF001 - clients are ours
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.operation}, {self._place} of {len(self._layers)})"


class AsyncCall(Call):
    """The ``Call`` of asyncio: what it returns is awaited."""

    __slots__ = ()

    is_async: ClassVar[bool] = True

    def __call__(self, message: Any) -> Awaitable[Any]:
        """Go on with this message; what comes of it is awaited."""
        if self._expected is not None and self._place == len(self._layers):
            return self._end(message)  # type: ignore[no-any-return]  # a coroutine less
        return self._go_on(message)

    async def _go_on(self, message: Any) -> Any:
        place, layers = self._place, self._layers
        if place == len(layers):
            self._given = result = await self._end(message)
            return result
        layer = layers[place]
        following = AsyncCall(
            self.client, self.operation, layers, self._end, self._expected, self.count, place + 1
        )
        waiting = layer(message, following)
        if type(waiting) is not CoroutineType and not isinstance(waiting, Awaitable):
            raise TypeError(
                f"the middleware {name_of(layer)} gave nothing to await: in asyncio it is a "
                "coroutine function"
            )
        result = await waiting
        if self._expected is None:
            if result is None and following._given is not None:
                _refuse_loss(layer, following._given)
        elif not isinstance(result, self._expected):
            raise _wrong_result(layer, result, self.operation, self._expected)
        self._given = result
        return result


#: What ``middleware=[...]`` of a client holds.
ProducerMiddleware: TypeAlias = Callable[[Message, Call], Any]
AsyncProducerMiddleware: TypeAlias = Callable[[Message, AsyncCall], Awaitable[Any]]
ConsumerMiddleware: TypeAlias = Callable[[StoredMessage, Call], Any]
BatchMiddleware: TypeAlias = Callable[[list[StoredMessage], Call], Any]
AsyncConsumerMiddleware: TypeAlias = Callable[[StoredMessage, AsyncCall], Awaitable[Any]]
AsyncBatchMiddleware: TypeAlias = Callable[[list[StoredMessage], AsyncCall], Awaitable[Any]]

#: Surrounds every client that is made from now on, outside of its own: see ``install``.
installed: Final[list[Callable[..., Any]]] = []


def install(layer: Callable[..., Any]) -> None:
    """Surround every producer and consumer that is made from now on, in both shells.

    For instrumentation: the middleware must serve all of them, so it looks at
    ``call_next.is_async`` and ``call_next.operation``.
    """
    if not callable(layer):
        raise ConfigError(f"middleware is {layer!r}: give a function (message, call_next)")
    if layer not in installed:
        installed.append(layer)


def uninstall(layer: Callable[..., Any]) -> None:
    """Take back what was installed; clients that exist keep it."""
    if layer in installed:
        installed.remove(layer)


def around(own: tuple[Callable[..., Any], ...]) -> tuple[Callable[..., Any], ...]:
    """What surrounds a client: what is installed, outside of its own.

    An object of a class of which the client has one itself is left out, so that a program that is
    instrumented as a whole may give one client an instrument with other settings.
    """
    kinds = {type(layer) for layer in own} - {FunctionType, MethodType, BuiltinFunctionType}
    return (*(found for found in installed if type(found) not in kinds and found not in own), *own)


def check_blocking(layers: tuple[Callable[..., Any], ...]) -> None:
    """Refuse what a blocking client could only call, and never await.

    Raises:
        ConfigError: one of them is a coroutine function.
    """
    for layer in layers:
        call = getattr(layer, "__call__", None)  # noqa: B004 - an object with an asynchronous call
        if inspect.iscoroutinefunction(layer) or inspect.iscoroutinefunction(call):
            raise ConfigError(
                f"middleware {name_of(layer)} is a coroutine function: blocking clients call "
                "plain functions"
            )


def check_passed(message: object) -> Message:
    """What a middleware passed on, if it can be sent.

    Raises:
        InvalidMessageError: it is no message.
    """
    if not isinstance(message, Message):
        raise InvalidMessageError(
            f"a middleware passed a {type(message).__name__} on: call_next takes one Message"
        )
    return message


def name_of(layer: object) -> str:
    """A middleware as errors name it."""
    return getattr(layer, "__qualname__", None) or type(layer).__qualname__


def _wrong_result(layer: object, result: object, operation: str, expected: type) -> TypeError:
    return TypeError(
        f"the middleware {name_of(layer)} returned {result!r} for a {operation}: return what "
        f"call_next gives, a {expected.__name__}"
    )


def _refuse_loss(layer: object, lost: object) -> None:
    """A retry that is forgotten would be a message that is lost."""
    from rocketwire.core.group.send_back import Retry

    if isinstance(lost, (Retry, Reply, list, tuple)) or lost is Retry:
        raise TypeError(
            f"the middleware {name_of(layer)} returned None, but the handler returned {lost!r}: "
            "return what call_next gives (True, if the message is to be done with all the same)"
        )
