"""Apache RocketMQ for Python and Spark.

Importing this starts nothing, opens nothing and logs nothing; what needs asyncio or TLS is loaded
when it is first used.
"""

from typing import TYPE_CHECKING, Any

from rocketwire.config import AutoBatch, Credentials, Tls
from rocketwire.errors import (
    Attempt,
    BrokerError,
    ClientClosedError,
    ConfigError,
    ConnectFailedError,
    ConnectionLostError,
    GroupNotFoundError,
    InvalidMessageError,
    LocalProtocolError,
    MissingQueuesError,
    NameServerUnavailableError,
    NoWritableQueueError,
    Outcome,
    PermissionDeniedError,
    ProtocolError,
    RecallError,
    RecallProblem,
    RemoteProtocolError,
    ReplyTimeoutError,
    RequestTimeoutError,
    RocketMQError,
    RouteError,
    SendFailedError,
    SendManyError,
    SendTimeoutError,
    ServiceNotAvailableError,
    SystemBusyError,
    TopicNotFoundError,
    TransactionError,
    TransportError,
    UnknownTopicError,
    UnsupportedRequestError,
)
from rocketwire.fault_policy import FaultPolicy
from rocketwire.message import Message, MessageQueue, SendResult, SendStatus, TransactionState
from rocketwire.stored_message import Reply, StoredMessage
from rocketwire.telemetry_config import TelemetryConfig
from rocketwire.version import __version__

if TYPE_CHECKING:
    from rocketwire.admin_values import (
        Broker,
        Connection,
        DeadLetter,
        Group,
        GroupQueue,
        GroupSummary,
        OffsetChange,
        Purged,
        Redriven,
        Topic,
        TopicBroker,
        TopicQueue,
        TopicSummary,
    )
    from rocketwire.aio.admin import AsyncAdmin
    from rocketwire.aio.consumer import AsyncConsumer
    from rocketwire.aio.deliveries import AsyncReceivedDelivery
    from rocketwire.aio.producer import AsyncProducer
    from rocketwire.aio.reader import AsyncReader
    from rocketwire.aio.simple_consumer import AsyncReceivedMessage, AsyncSimpleConsumer
    from rocketwire.aio.transaction import AsyncTransaction
    from rocketwire.core.group.send_back import Retry
    from rocketwire.sync.admin import Admin
    from rocketwire.sync.consumer import Consumer
    from rocketwire.sync.deliveries import ReceivedDelivery
    from rocketwire.sync.producer import Producer
    from rocketwire.sync.reader import Reader
    from rocketwire.sync.simple_consumer import ReceivedMessage, SimpleConsumer
    from rocketwire.sync.transaction import Transaction

_LAZY = {
    "Admin": "rocketwire.sync.admin",
    "AsyncAdmin": "rocketwire.aio.admin",
    "AsyncConsumer": "rocketwire.aio.consumer",
    "AsyncProducer": "rocketwire.aio.producer",
    "AsyncReader": "rocketwire.aio.reader",
    "AsyncReceivedDelivery": "rocketwire.aio.deliveries",
    "AsyncReceivedMessage": "rocketwire.aio.simple_consumer",
    "AsyncSimpleConsumer": "rocketwire.aio.simple_consumer",
    "AsyncTransaction": "rocketwire.aio.transaction",
    "Broker": "rocketwire.admin_values",
    "Connection": "rocketwire.admin_values",
    "Consumer": "rocketwire.sync.consumer",
    "Group": "rocketwire.admin_values",
    "GroupQueue": "rocketwire.admin_values",
    "GroupSummary": "rocketwire.admin_values",
    "OffsetChange": "rocketwire.admin_values",
    "Producer": "rocketwire.sync.producer",
    "DeadLetter": "rocketwire.admin_values",
    "Purged": "rocketwire.admin_values",
    "Redriven": "rocketwire.admin_values",
    "TopicQueue": "rocketwire.admin_values",
    "Reader": "rocketwire.sync.reader",
    "ReceivedDelivery": "rocketwire.sync.deliveries",
    "ReceivedMessage": "rocketwire.sync.simple_consumer",
    "Retry": "rocketwire.core.group.send_back",
    "SimpleConsumer": "rocketwire.sync.simple_consumer",
    "Topic": "rocketwire.admin_values",
    "TopicBroker": "rocketwire.admin_values",
    "TopicSummary": "rocketwire.admin_values",
    "Transaction": "rocketwire.sync.transaction",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncReader",
    "AsyncReceivedDelivery",
    "AsyncReceivedMessage",
    "AsyncSimpleConsumer",
    "AsyncTransaction",
    "Attempt",
    "AutoBatch",
    "Broker",
    "BrokerError",
    "ClientClosedError",
    "ConfigError",
    "ConnectFailedError",
    "Connection",
    "ConnectionLostError",
    "Consumer",
    "Credentials",
    "DeadLetter",
    "FaultPolicy",
    "Group",
    "GroupNotFoundError",
    "GroupQueue",
    "GroupSummary",
    "InvalidMessageError",
    "LocalProtocolError",
    "Message",
    "MessageQueue",
    "MissingQueuesError",
    "NameServerUnavailableError",
    "NoWritableQueueError",
    "OffsetChange",
    "Outcome",
    "PermissionDeniedError",
    "Producer",
    "ProtocolError",
    "Purged",
    "Reader",
    "RecallError",
    "RecallProblem",
    "ReceivedDelivery",
    "ReceivedMessage",
    "Redriven",
    "RemoteProtocolError",
    "Reply",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "Retry",
    "RocketMQError",
    "RouteError",
    "SendFailedError",
    "SendManyError",
    "SendResult",
    "SendStatus",
    "SendTimeoutError",
    "ServiceNotAvailableError",
    "SimpleConsumer",
    "StoredMessage",
    "SystemBusyError",
    "TelemetryConfig",
    "Tls",
    "Topic",
    "TopicBroker",
    "TopicNotFoundError",
    "TopicQueue",
    "TopicSummary",
    "Transaction",
    "TransactionError",
    "TransactionState",
    "TransportError",
    "UnknownTopicError",
    "UnsupportedRequestError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Load a client when it is first asked for."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
