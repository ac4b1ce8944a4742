"""Every exception that Rocketwire raises.

::

    RocketMQError                        .retryable
    ├─ ConfigError (ValueError)          a setting is wrong; nothing was started
    ├─ InvalidMessageError (ValueError)  a message breaks a rule; nothing was sent
    ├─ ClientClosedError                 used before start or after shutdown
    ├─ RouteError                        nobody told us where the topic lives
    │  ├─ TopicNotFoundError
    │  ├─ NoWritableQueueError
    │  ├─ NameServerUnavailableError
    │  └─ MissingQueuesError             .queues: a read would have returned less
    ├─ TransportError                    .written: whether the request may have reached the peer
    │  ├─ ConnectFailedError
    │  ├─ ConnectionLostError
    │  └─ RequestTimeoutError (TimeoutError)
    ├─ ProtocolError
    │  ├─ LocalProtocolError             we were about to break the protocol
    │  └─ RemoteProtocolError            the peer broke it
    ├─ BrokerError                       .code .remark .broker: a broker or name server said no
    │  ├─ PermissionDeniedError
    │  ├─ SystemBusyError
    │  ├─ ServiceNotAvailableError
    │  ├─ UnknownTopicError
    │  └─ UnsupportedRequestError        too old for it, a proxy, or switched off
    ├─ GroupNotFoundError                no broker knows the consumer group
    ├─ TransactionError                  .state .result: a transaction did not end as it should
    ├─ ReplyTimeoutError (TimeoutError)  .outcome: whether the request was stored
    ├─ RecallError                       .problem: why a timed message was not called back
    └─ SendFailedError                   .attempts .outcome: what send() raises at the end
       ├─ SendTimeoutError (TimeoutError)
       └─ SendManyError                  .results .failed: what send_many() raises at the end

All of them survive pickling, so that they cross process boundaries (Spark, multiprocessing) whole.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from rocketwire.message import MessageQueue, SendResult, TransactionState


class Outcome(enum.Enum):
    """What became of a message whose send failed. The order is that of severity."""

    NOT_SENT = "not sent"
    REJECTED = "rejected"
    MAYBE_STORED = "maybe stored"
    #: Only of a request whose reply did not come: a send that is stored has not failed.
    STORED = "stored"

    @classmethod
    def worst(cls, outcomes: Sequence[Outcome]) -> Outcome:
        """The outcome of a whole send, from those of its attempts."""
        if cls.MAYBE_STORED in outcomes:
            return cls.MAYBE_STORED
        return cls.REJECTED if cls.REJECTED in outcomes else cls.NOT_SENT


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a send: where it went, how long it took, what came of it."""

    queue: MessageQueue
    latency: float
    error: Exception | None
    outcome: Outcome | None

    @property
    def broker(self) -> str:
        """The broker that was tried."""
        return self.queue.broker


def _rebuild(cls: type[RocketMQError], text: str, fields: dict[str, Any]) -> RocketMQError:
    error = cls.__new__(cls, text)
    Exception.__init__(error, text)
    error.__dict__.update(fields)
    return error


class RocketMQError(Exception):
    """The root of all of them."""

    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        fields = dict(self.__dict__)
        # The cause goes along: "what did the broker say" is the first question asked of a
        # failure that comes out of another process.
        return _rebuild_with_cause, (type(self), str(self), fields, self.__cause__)


def _rebuild_with_cause(
    cls: type[RocketMQError],
    text: str,
    fields: dict[str, Any],
    cause: BaseException | None,
) -> RocketMQError:
    error = _rebuild(cls, text, fields)
    error.__cause__ = cause
    return error


class ConfigError(RocketMQError, ValueError):
    """A setting is wrong. The text names it, its value and the remedy."""


class InvalidMessageError(RocketMQError, ValueError):
    """A message, or a batch of them, breaks a rule. Nothing was sent."""


class ClientClosedError(RocketMQError):
    """The client was used before its start or after its shutdown."""


class RouteError(RocketMQError):
    """No queue could be found for a topic."""

    retryable = True


class TopicNotFoundError(RouteError):
    """No name server knows the topic, and it can't be made automatically."""


class NoWritableQueueError(RouteError):
    """The topic exists, but none of its queues takes messages now."""


class NameServerUnavailableError(RouteError):
    """None of the name servers answered."""


class MissingQueuesError(RouteError):
    """Queues that a topic is known to have can't be read, so a read would return less.

    ``queues`` names them; an id of -1 stands for all queues of a broker.
    """

    def __init__(self, message: str, queues: Sequence[MessageQueue] = ()) -> None:
        super().__init__(message)
        self.queues = tuple(queues)


class TransportError(RocketMQError):
    """A connection failed. ``written`` tells whether any byte of the request may have left."""

    retryable = True

    def __init__(self, text: str, *, written: bool = False) -> None:
        super().__init__(text)
        self.written = written


class ConnectFailedError(TransportError):
    """No connection could be made."""


class ConnectionLostError(TransportError):
    """The connection closed before the answer came."""


class RequestTimeoutError(TransportError, TimeoutError):
    """No answer came in time."""


class ProtocolError(RocketMQError):
    """Bytes that are not RocketMQ's protocol."""


class LocalProtocolError(ProtocolError):
    """We were asked to write something that the protocol can't carry."""


class RemoteProtocolError(ProtocolError):
    """The peer wrote something that the protocol does not allow; its connection was closed."""


class BrokerError(RocketMQError):
    """A broker (or a name server) answered with an error code."""

    remedy: str = ""

    def __init__(
        self, code: int, remark: str = "", broker: str = "", *, name: str = "", remedy: str = ""
    ) -> None:
        label = f"{name or 'code'} {code}" if name else f"code {code}"
        text = f"{broker or 'server'} answered {label}: {remark or 'no remark'}"
        self.remedy = remedy or type(self).remedy
        super().__init__(f"{text}; {self.remedy}" if self.remedy else text)
        self.code = code
        self.remark = remark
        self.broker = broker
        self.code_name = name


class PermissionDeniedError(BrokerError):
    """Credentials are wrong or missing, or the topic may not be used this way."""

    remedy = "check the credentials, and what they may do"


class SystemBusyError(BrokerError):
    """The broker has too much to do just now."""

    retryable = True


class ServiceNotAvailableError(BrokerError):
    """The broker is shutting down, its disk is full, or it is a slave."""

    retryable = True


class UnknownTopicError(BrokerError):
    """The broker does not know the topic."""

    retryable = True


class UnsupportedRequestError(BrokerError):
    """The broker, or the proxy in front of it, can't do this."""

    remedy = "ask a newer broker, ask it directly where this is a proxy, or switch the feature on"


class GroupNotFoundError(RocketMQError):
    """No broker knows the consumer group."""


class RecallProblem(enum.Enum):
    """Why a message could not be called back."""

    MALFORMED = "malformed handle"
    TOO_LATE = "too late"
    SWITCHED_OFF = "switched off"
    BROKER_TOO_OLD = "broker too old"


class RecallError(RocketMQError):
    """A timed message was not called back. ``problem`` tells why."""

    def __init__(self, text: str, problem: RecallProblem) -> None:
        super().__init__(text)
        self.problem = problem


class ReplyTimeoutError(RocketMQError, TimeoutError):
    """No reply came to a request in time. ``outcome`` tells whether the request was stored."""

    def __init__(self, text: str, *, outcome: Outcome = Outcome.NOT_SENT) -> None:
        super().__init__(text)
        self.outcome = outcome


class TransactionError(RocketMQError):
    """A transaction did not end as it should.

    ``state`` is what is known of it; ``result`` tells where the half message is, if it was stored.
    """

    def __init__(
        self, text: str, state: TransactionState, result: SendResult | None = None
    ) -> None:
        super().__init__(text)
        self.state = state
        self.result = result


class SendFailedError(RocketMQError):
    """A send did not succeed.

    ``outcome`` answers the question whether the message may be in the topic all the same;
    ``attempts`` lists every try in order, ``attempt_count`` is their number.
    """

    def __init__(
        self,
        text: str,
        *,
        attempts: Sequence[Attempt] = (),
        outcome: Outcome = Outcome.NOT_SENT,
    ) -> None:
        super().__init__(text)
        self.attempts = tuple(attempts)
        self.outcome = outcome

    @property
    def attempt_count(self) -> int:
        """How often it was tried."""
        return len(self.attempts)


class SendTimeoutError(SendFailedError, TimeoutError):
    """The deadline ran out before a send succeeded."""


class SendManyError(SendFailedError):
    """Some messages of a ``send_many`` failed.

    ``results`` has one result or error per message, in the order given; ``failed`` is the number of
    errors among them. ``outcome`` is the worst of them, ``attempts`` are those of the first one.
    """

    def __init__(self, results: Sequence[SendResult | RocketMQError]) -> None:
        errors = [result for result in results if isinstance(result, RocketMQError)]
        known = [error for error in errors if isinstance(error, SendFailedError)]
        super().__init__(
            f"{len(errors)} of {len(results)} messages failed, the first one: {errors[0]}; "
            "results tells what became of each (return_errors=True returns it instead)",
            attempts=known[0].attempts if known else (),
            outcome=Outcome.worst([error.outcome for error in known]),
        )
        self.results = list(results)
        self.failed = len(errors)
        self.__cause__ = errors[0]
