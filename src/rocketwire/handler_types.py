"""The types of handlers: what a consumer gives them, and what they may return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, Union

from rocketwire.stored_message import Reply, StoredMessage

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from rocketwire.core.group.send_back import Retry

    #: What a handler gets, and what an iteration gives: a message, with ``batch=`` a list of them.
    Given = TypeVar("Given", default=StoredMessage)
else:  # a default is for type checkers only, before Python 3.13
    from typing import TypeVar

    Given = TypeVar("Given")

#: What a handler may return: nothing, a wish to get the message again, or a reply to a request.
HandlerResult: TypeAlias = Union["Retry", "type[Retry]", Reply, Sequence[Reply], None]
#: Handlers of one message, and of a list of them (``batch=``); functions or coroutine functions.
Handler: TypeAlias = Callable[[StoredMessage], HandlerResult | Awaitable[HandlerResult]]
BatchHandler: TypeAlias = Callable[[list[StoredMessage]], HandlerResult | Awaitable[HandlerResult]]
