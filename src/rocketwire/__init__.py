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
from rocketwire.log_fields import fill_in_fields
from rocketwire.message import Message, MessageQueue, SendResult, SendStatus, TransactionState
from rocketwire.stored_message import Reply, StoredMessage
from rocketwire.telemetry_config import TelemetryConfig
from rocketwire.version import __version__

if TYPE_CHECKING:
    from rocketwire.access_values import PlainAccount, Policy, User
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
        Replayed,
        Topic,
        TopicBroker,
        TopicQueue,
        TopicSummary,
        TraceEvent,
    )
    from rocketwire.aio.admin import AsyncAdmin
    from rocketwire.aio.consumer import AsyncConsumer
    from rocketwire.aio.deliveries import AsyncReceivedDelivery
    from rocketwire.aio.delivery import AsyncDelivery
    from rocketwire.aio.producer import AsyncProducer
    from rocketwire.aio.reader import AsyncReader
    from rocketwire.aio.simple_consumer import AsyncReceivedMessage, AsyncSimpleConsumer
    from rocketwire.aio.transaction import AsyncTransaction
    from rocketwire.core.faults.selection import QueueList, Selector
    from rocketwire.core.group.send_back import Retry
    from rocketwire.core.group.stats import ConsumerStats, QueueState
    from rocketwire.core.reading.pull import Fetched
    from rocketwire.core.sending.stats import BrokerStats, ProducerStats
    from rocketwire.fault_policy import BrokerHealth
    from rocketwire.handler_types import BatchHandler, Handler, HandlerResult
    from rocketwire.hooks import (
        AfterAttempt,
        AfterSend,
        AssignmentWatcher,
        AttemptEvent,
        BeforeSend,
        BrokerEvent,
        BrokerWatcher,
        Hook,
        ProbeEvent,
        ProbeWatcher,
        QueueEvent,
        QueuesEvent,
        QueueWatcher,
        RetryEvent,
        RetryWatcher,
        RevocationWatcher,
        RouteEvent,
        RouteLearner,
        RouteWatcher,
        SendEvent,
    )
    from rocketwire.middleware import (
        AsyncBatchMiddleware,
        AsyncCall,
        AsyncConsumerMiddleware,
        AsyncProducerMiddleware,
        BatchMiddleware,
        Call,
        ConsumerMiddleware,
        ProducerMiddleware,
    )
    from rocketwire.options import (
        ClientOptions,
        ConsumerOptions,
        ProducerOptions,
        ReaderOptions,
        SimpleConsumerOptions,
    )
    from rocketwire.sync.admin import Admin
    from rocketwire.sync.consumer import Consumer
    from rocketwire.sync.deliveries import ReceivedDelivery
    from rocketwire.sync.delivery import Delivery
    from rocketwire.sync.producer import Producer
    from rocketwire.sync.reader import Reader
    from rocketwire.sync.simple_consumer import ReceivedMessage, SimpleConsumer
    from rocketwire.sync.transaction import Transaction

#: What is loaded when it is first asked for, and where it is.
_LAZY = {
    "Admin": "rocketwire.sync.admin",
    "AfterAttempt": "rocketwire.hooks",
    "AfterSend": "rocketwire.hooks",
    "AssignmentWatcher": "rocketwire.hooks",
    "AsyncAdmin": "rocketwire.aio.admin",
    "AsyncBatchMiddleware": "rocketwire.middleware",
    "AsyncCall": "rocketwire.middleware",
    "AsyncConsumer": "rocketwire.aio.consumer",
    "AsyncConsumerMiddleware": "rocketwire.middleware",
    "AsyncDelivery": "rocketwire.aio.delivery",
    "AsyncProducer": "rocketwire.aio.producer",
    "AsyncProducerMiddleware": "rocketwire.middleware",
    "AsyncReader": "rocketwire.aio.reader",
    "AsyncReceivedDelivery": "rocketwire.aio.deliveries",
    "AsyncReceivedMessage": "rocketwire.aio.simple_consumer",
    "AsyncSimpleConsumer": "rocketwire.aio.simple_consumer",
    "AsyncTransaction": "rocketwire.aio.transaction",
    "AttemptEvent": "rocketwire.hooks",
    "BatchHandler": "rocketwire.handler_types",
    "BatchMiddleware": "rocketwire.middleware",
    "BeforeSend": "rocketwire.hooks",
    "Broker": "rocketwire.admin_values",
    "BrokerEvent": "rocketwire.hooks",
    "BrokerHealth": "rocketwire.fault_policy",
    "BrokerStats": "rocketwire.core.sending.stats",
    "BrokerWatcher": "rocketwire.hooks",
    "Call": "rocketwire.middleware",
    "ClientOptions": "rocketwire.options",
    "Connection": "rocketwire.admin_values",
    "Consumer": "rocketwire.sync.consumer",
    "ConsumerMiddleware": "rocketwire.middleware",
    "ConsumerOptions": "rocketwire.options",
    "ConsumerStats": "rocketwire.core.group.stats",
    "DeadLetter": "rocketwire.admin_values",
    "Delivery": "rocketwire.sync.delivery",
    "Fetched": "rocketwire.core.reading.pull",
    "Group": "rocketwire.admin_values",
    "GroupQueue": "rocketwire.admin_values",
    "GroupSummary": "rocketwire.admin_values",
    "Handler": "rocketwire.handler_types",
    "HandlerResult": "rocketwire.handler_types",
    "Hook": "rocketwire.hooks",
    "OffsetChange": "rocketwire.admin_values",
    "PlainAccount": "rocketwire.access_values",
    "Policy": "rocketwire.access_values",
    "ProbeEvent": "rocketwire.hooks",
    "ProbeWatcher": "rocketwire.hooks",
    "Producer": "rocketwire.sync.producer",
    "ProducerMiddleware": "rocketwire.middleware",
    "ProducerOptions": "rocketwire.options",
    "ProducerStats": "rocketwire.core.sending.stats",
    "Purged": "rocketwire.admin_values",
    "QueueEvent": "rocketwire.hooks",
    "QueueList": "rocketwire.core.faults.selection",
    "QueueState": "rocketwire.core.group.stats",
    "QueueWatcher": "rocketwire.hooks",
    "QueuesEvent": "rocketwire.hooks",
    "Reader": "rocketwire.sync.reader",
    "ReaderOptions": "rocketwire.options",
    "ReceivedDelivery": "rocketwire.sync.deliveries",
    "ReceivedMessage": "rocketwire.sync.simple_consumer",
    "Redriven": "rocketwire.admin_values",
    "Replayed": "rocketwire.admin_values",
    "Retry": "rocketwire.core.group.send_back",
    "RetryEvent": "rocketwire.hooks",
    "RetryWatcher": "rocketwire.hooks",
    "RevocationWatcher": "rocketwire.hooks",
    "RouteEvent": "rocketwire.hooks",
    "RouteLearner": "rocketwire.hooks",
    "RouteWatcher": "rocketwire.hooks",
    "Selector": "rocketwire.core.faults.selection",
    "SendEvent": "rocketwire.hooks",
    "SimpleConsumer": "rocketwire.sync.simple_consumer",
    "SimpleConsumerOptions": "rocketwire.options",
    "Topic": "rocketwire.admin_values",
    "TopicBroker": "rocketwire.admin_values",
    "TopicQueue": "rocketwire.admin_values",
    "TopicSummary": "rocketwire.admin_values",
    "TraceEvent": "rocketwire.admin_values",
    "Transaction": "rocketwire.sync.transaction",
    "User": "rocketwire.access_values",
}

__all__ = [
    "Admin",
    "AfterAttempt",
    "AfterSend",
    "AssignmentWatcher",
    "AsyncAdmin",
    "AsyncBatchMiddleware",
    "AsyncCall",
    "AsyncConsumer",
    "AsyncConsumerMiddleware",
    "AsyncDelivery",
    "AsyncProducer",
    "AsyncProducerMiddleware",
    "AsyncReader",
    "AsyncReceivedDelivery",
    "AsyncReceivedMessage",
    "AsyncSimpleConsumer",
    "AsyncTransaction",
    "Attempt",
    "AttemptEvent",
    "AutoBatch",
    "BatchHandler",
    "BatchMiddleware",
    "BeforeSend",
    "Broker",
    "BrokerError",
    "BrokerEvent",
    "BrokerHealth",
    "BrokerStats",
    "BrokerWatcher",
    "Call",
    "ClientClosedError",
    "ClientOptions",
    "ConfigError",
    "ConnectFailedError",
    "Connection",
    "ConnectionLostError",
    "Consumer",
    "ConsumerMiddleware",
    "ConsumerOptions",
    "ConsumerStats",
    "Credentials",
    "DeadLetter",
    "Delivery",
    "FaultPolicy",
    "Fetched",
    "Group",
    "GroupNotFoundError",
    "GroupQueue",
    "GroupSummary",
    "Handler",
    "HandlerResult",
    "Hook",
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
    "PlainAccount",
    "Policy",
    "ProbeEvent",
    "ProbeWatcher",
    "Producer",
    "ProducerMiddleware",
    "ProducerOptions",
    "ProducerStats",
    "ProtocolError",
    "Purged",
    "QueueEvent",
    "QueueList",
    "QueueState",
    "QueueWatcher",
    "QueuesEvent",
    "Reader",
    "ReaderOptions",
    "RecallError",
    "RecallProblem",
    "ReceivedDelivery",
    "ReceivedMessage",
    "Redriven",
    "RemoteProtocolError",
    "Replayed",
    "Reply",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "Retry",
    "RetryEvent",
    "RetryWatcher",
    "RevocationWatcher",
    "RocketMQError",
    "RouteError",
    "RouteEvent",
    "RouteLearner",
    "RouteWatcher",
    "Selector",
    "SendEvent",
    "SendFailedError",
    "SendManyError",
    "SendResult",
    "SendStatus",
    "SendTimeoutError",
    "ServiceNotAvailableError",
    "SimpleConsumer",
    "SimpleConsumerOptions",
    "StoredMessage",
    "SystemBusyError",
    "TelemetryConfig",
    "Tls",
    "Topic",
    "TopicBroker",
    "TopicNotFoundError",
    "TopicQueue",
    "TopicSummary",
    "TraceEvent",
    "Transaction",
    "TransactionError",
    "TransactionState",
    "TransportError",
    "UnknownTopicError",
    "UnsupportedRequestError",
    "User",
    "__version__",
]


fill_in_fields()

if not TYPE_CHECKING:  # to type checkers every name would be there

    def __getattr__(name: str) -> Any:
        """Load a client when it is first asked for."""
        if name in _LAZY:
            from importlib import import_module

            return getattr(import_module(_LAZY[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
