"""Numbers that RocketMQ's peers exchange, and the one table that says which refusals to retry."""

from __future__ import annotations

from typing import Final

from rocketwire.errors import (
    BrokerError,
    PermissionDeniedError,
    ServiceNotAvailableError,
    SystemBusyError,
    UnknownTopicError,
    UnsupportedRequestError,
)

# Plain ints in a class, not IntEnum: these are compared on every send, and an IntEnum member
# costs a dictionary look-up and a slower comparison each time.


class RequestCode:
    """What a request asks for."""

    SEND_MESSAGE: Final = 10
    PULL_MESSAGE: Final = 11
    QUERY_MESSAGE: Final = 12
    QUERY_CONSUMER_OFFSET: Final = 14
    UPDATE_CONSUMER_OFFSET: Final = 15
    UPDATE_AND_CREATE_TOPIC: Final = 17
    GET_ALL_TOPIC_CONFIG: Final = 21
    UPDATE_BROKER_CONFIG: Final = 25
    GET_BROKER_CONFIG: Final = 26
    GET_BROKER_RUNTIME_INFO: Final = 28
    SEARCH_OFFSET_BY_TIMESTAMP: Final = 29
    GET_MAX_OFFSET: Final = 30
    GET_MIN_OFFSET: Final = 31
    GET_EARLIEST_MESSAGE_STORE_TIME: Final = 32
    VIEW_MESSAGE_BY_ID: Final = 33
    HEART_BEAT: Final = 34
    UNREGISTER_CLIENT: Final = 35
    CONSUMER_SEND_MESSAGE_BACK: Final = 36
    END_TRANSACTION: Final = 37
    GET_CONSUMER_LIST_BY_GROUP: Final = 38
    CHECK_TRANSACTION_STATE: Final = 39
    NOTIFY_CONSUMER_IDS_CHANGED: Final = 40
    LOCK_BATCH_QUEUES: Final = 41
    UNLOCK_BATCH_QUEUES: Final = 42
    GET_ALL_CONSUMER_OFFSET: Final = 43
    GET_ALL_DELAY_OFFSET: Final = 45
    CHECK_CLIENT_CONFIG: Final = 46
    UPDATE_AND_CREATE_ACL_CONFIG: Final = 50
    DELETE_ACL_CONFIG: Final = 51
    GET_BROKER_CLUSTER_ACL_CONFIG: Final = 54
    PUT_KV_CONFIG: Final = 100
    GET_KV_CONFIG: Final = 101
    DELETE_KV_CONFIG: Final = 102
    REGISTER_BROKER: Final = 103
    UNREGISTER_BROKER: Final = 104
    GET_ROUTE_BY_TOPIC: Final = 105
    GET_BROKER_CLUSTER_INFO: Final = 106
    UPDATE_AND_CREATE_SUBSCRIPTION_GROUP: Final = 200
    GET_ALL_SUBSCRIPTION_GROUP_CONFIG: Final = 201
    GET_TOPIC_STATS_INFO: Final = 202
    GET_CONSUMER_CONNECTION_LIST: Final = 203
    GET_PRODUCER_CONNECTION_LIST: Final = 204
    WIPE_WRITE_PERM_OF_BROKER: Final = 205
    GET_ALL_TOPICS_FROM_NAME_SERVER: Final = 206
    DELETE_SUBSCRIPTION_GROUP: Final = 207
    GET_CONSUME_STATS: Final = 208
    DELETE_TOPIC_IN_BROKER: Final = 215
    DELETE_TOPIC_IN_NAME_SERVER: Final = 216
    REGISTER_TOPIC_IN_NAME_SERVER: Final = 217
    GET_KV_LIST_BY_NAMESPACE: Final = 219
    RESET_CONSUMER_CLIENT_OFFSET: Final = 220
    GET_CONSUMER_STATUS_FROM_CLIENT: Final = 221
    INVOKE_BROKER_TO_RESET_OFFSET: Final = 222
    GET_TOPICS_BY_CLUSTER: Final = 224
    QUERY_TOPIC_CONSUME_BY_WHO: Final = 300
    GET_SYSTEM_TOPICS_FROM_NAME_SERVER: Final = 304
    GET_SYSTEM_TOPICS_FROM_BROKER: Final = 305
    GET_CONSUMER_RUNNING_INFO: Final = 307
    CONSUME_MESSAGE_DIRECTLY: Final = 309
    SEND_MESSAGE_V2: Final = 310
    CLONE_GROUP_OFFSET: Final = 314
    UPDATE_NAMESRV_CONFIG: Final = 318
    GET_NAMESRV_CONFIG: Final = 319
    SEND_BATCH_MESSAGE: Final = 320
    QUERY_DATA_VERSION: Final = 322
    SEND_REPLY_MESSAGE: Final = 324
    SEND_REPLY_MESSAGE_V2: Final = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT: Final = 326
    ADD_WRITE_PERM_OF_BROKER: Final = 327
    GET_TOPIC_CONFIG: Final = 351
    GET_SUBSCRIPTION_GROUP_CONFIG: Final = 352
    LITE_PULL_MESSAGE: Final = 361
    RECALL_MESSAGE: Final = 370
    QUERY_ASSIGNMENT: Final = 400
    SET_MESSAGE_REQUEST_MODE: Final = 401
    GET_BROKER_MEMBER_GROUP: Final = 901
    BROKER_HEARTBEAT: Final = 904
    AUTH_CREATE_USER: Final = 3001
    AUTH_UPDATE_USER: Final = 3002
    AUTH_DELETE_USER: Final = 3003
    AUTH_GET_USER: Final = 3004
    AUTH_LIST_USER: Final = 3005
    AUTH_CREATE_ACL: Final = 3006
    AUTH_UPDATE_ACL: Final = 3007
    AUTH_DELETE_ACL: Final = 3008
    AUTH_GET_ACL: Final = 3009
    AUTH_LIST_ACL: Final = 3010
    # Too large for a binary header, which has 16 bits for them: these travel with JSON headers.
    POP_MESSAGE: Final = 200050
    ACK_MESSAGE: Final = 200051
    CHANGE_MESSAGE_INVISIBLE_TIME: Final = 200053
    NOTIFICATION: Final = 200054
    BATCH_ACK_MESSAGE: Final = 200151


class ResponseCode:
    """What an answer says."""

    SUCCESS: Final = 0
    SYSTEM_ERROR: Final = 1
    SYSTEM_BUSY: Final = 2
    REQUEST_CODE_NOT_SUPPORTED: Final = 3
    TRANSACTION_FAILED: Final = 4
    FLUSH_DISK_TIMEOUT: Final = 10
    SLAVE_NOT_AVAILABLE: Final = 11
    FLUSH_SLAVE_TIMEOUT: Final = 12
    MESSAGE_ILLEGAL: Final = 13
    SERVICE_NOT_AVAILABLE: Final = 14
    VERSION_NOT_SUPPORTED: Final = 15
    NO_PERMISSION: Final = 16
    TOPIC_NOT_EXIST: Final = 17
    TOPIC_EXIST_ALREADY: Final = 18
    PULL_NOT_FOUND: Final = 19
    PULL_RETRY_IMMEDIATELY: Final = 20
    PULL_OFFSET_MOVED: Final = 21
    QUERY_NOT_FOUND: Final = 22
    SUBSCRIPTION_PARSE_FAILED: Final = 23
    SUBSCRIPTION_NOT_EXIST: Final = 24
    SUBSCRIPTION_NOT_LATEST: Final = 25
    SUBSCRIPTION_GROUP_NOT_EXIST: Final = 26
    FILTER_DATA_NOT_EXIST: Final = 27
    FILTER_DATA_NOT_LATEST: Final = 28
    INVALID_PARAMETER: Final = 29
    NO_BUYER_ID: Final = 204
    NOT_IN_CURRENT_UNIT: Final = 205
    CONSUMER_NOT_ONLINE: Final = 206
    CONSUME_MESSAGE_TIMEOUT: Final = 207
    NO_MESSAGE: Final = 208
    POLLING_FULL: Final = 209
    POLLING_TIMEOUT: Final = 210
    FLOW_CONTROL: Final = 215
    NOT_LEADER_FOR_QUEUE: Final = 501
    ILLEGAL_OPERATION: Final = 604
    GO_AWAY: Final = 1500


RESPONSE_NAMES: Final[dict[int, str]] = {
    value: name for name, value in vars(ResponseCode).items() if name.isupper()
}

#: A send that a broker refused with one of these is tried on another broker. Java's set, plus
#: flow control; the same for blocking and asynchronous sends, unlike Java.
RETRYABLE: Final[frozenset[int]] = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)

#: Codes that speak of the broker's own state, not of the message or the topic: they count as
#: failures in the fault table. One unwritable topic must not isolate a broker for all.
BROKER_UNWELL: Final[frozenset[int]] = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)

#: Answers to a send which mean that the message is stored.
STORED: Final[frozenset[int]] = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)

_ERROR_CLASSES: Final[dict[int, type[BrokerError]]] = {
    ResponseCode.SYSTEM_BUSY: SystemBusyError,
    ResponseCode.FLOW_CONTROL: SystemBusyError,
    ResponseCode.SERVICE_NOT_AVAILABLE: ServiceNotAvailableError,
    ResponseCode.NO_PERMISSION: PermissionDeniedError,
    ResponseCode.TOPIC_NOT_EXIST: UnknownTopicError,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: UnsupportedRequestError,
}

#: The action of ACL 2.0 for each request that brokers check.
ACTIONS: Final[dict[int, str]] = {
    RequestCode.SEND_MESSAGE: "Pub",
    RequestCode.SEND_MESSAGE_V2: "Pub",
    RequestCode.SEND_BATCH_MESSAGE: "Pub",
    RequestCode.END_TRANSACTION: "Pub",
    RequestCode.RECALL_MESSAGE: "Pub",
    RequestCode.PULL_MESSAGE: "Sub",
    RequestCode.LITE_PULL_MESSAGE: "Sub",
    RequestCode.QUERY_MESSAGE: "Sub",
    RequestCode.QUERY_CONSUMER_OFFSET: "Sub",
    RequestCode.UPDATE_CONSUMER_OFFSET: "Sub",
    RequestCode.HEART_BEAT: "Sub",
    RequestCode.CONSUMER_SEND_MESSAGE_BACK: "Sub",
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: "Sub",
    RequestCode.LOCK_BATCH_QUEUES: "Sub",
    RequestCode.UNLOCK_BATCH_QUEUES: "Sub",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: "Sub",
    RequestCode.POP_MESSAGE: "Sub",
    RequestCode.ACK_MESSAGE: "Sub",
    RequestCode.BATCH_ACK_MESSAGE: "Sub",
    RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME: "Sub",
    RequestCode.GET_ROUTE_BY_TOPIC: "Pub or Sub",
    RequestCode.GET_ALL_TOPIC_CONFIG: "List",
    RequestCode.UPDATE_AND_CREATE_TOPIC: "Create",
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP: "Create",
    RequestCode.DELETE_TOPIC_IN_BROKER: "Delete",
    RequestCode.DELETE_SUBSCRIPTION_GROUP: "Delete",
    RequestCode.UPDATE_BROKER_CONFIG: "Update",
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: "Update",
    RequestCode.CLONE_GROUP_OFFSET: "Update",
    RequestCode.UPDATE_NAMESRV_CONFIG: "Update",
    RequestCode.PUT_KV_CONFIG: "Update",
    RequestCode.DELETE_KV_CONFIG: "Update",
    RequestCode.DELETE_TOPIC_IN_NAME_SERVER: "Update",
    RequestCode.AUTH_CREATE_USER: "Update",
    RequestCode.AUTH_UPDATE_USER: "Update",
    RequestCode.AUTH_DELETE_USER: "Update",
    RequestCode.AUTH_CREATE_ACL: "Update",
    RequestCode.AUTH_UPDATE_ACL: "Update",
    RequestCode.AUTH_DELETE_ACL: "Update",
} | dict.fromkeys(
    (
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_EARLIEST_MESSAGE_STORE_TIME,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.GET_SUBSCRIPTION_GROUP_CONFIG,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
    ),
    "Get",
)

#: 4.x and proxies refuse for want of rights with the code for anything that went wrong.
_REFUSALS: Final = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION})
_ACL_REFUSAL: Final = "AclException"  # as 4.x names it
# Proxies take only messages of their topic's type; a batch has none but NORMAL.
_WRONG_TYPE: Final = "TopicMessageType validate failed"
# As brokers are by default.
_NO_MIXED: Final = "MIXED message type is not supported"


def error_for(
    code: int, remark: str | None, broker: str, *, asked: int | None = None
) -> BrokerError:
    """The exception for an answer that is an error; ``asked`` is the request that was refused."""
    cls, remedy = _ERROR_CLASSES.get(code, BrokerError), ""
    if remark and code in _REFUSALS:
        from rocketwire.wire.rights import is_about_rights, remedy_for

        if _ACL_REFUSAL in remark or is_about_rights(remark):
            cls = PermissionDeniedError
        if cls is PermissionDeniedError:
            remedy = remedy_for(remark, ACTIONS.get(asked or 0, ""))
    if remark and remark.startswith(_WRONG_TYPE):
        remark += "; a topic of message type MIXED takes every type"
    elif remark and remark.startswith(_NO_MIXED):
        remark += " Set enableMixedMessageType=true on the brokers, or choose one type"
    return cls(code, remark or "", broker, name=RESPONSE_NAMES.get(code, ""), remedy=remedy)


class Language:
    """Which client wrote a command."""

    JAVA: Final = 0
    CPP: Final = 1
    PYTHON: Final = 3
    OTHER: Final = 7
    GO: Final = 9


LANGUAGE_NAMES: Final[tuple[str, ...]] = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER",
    "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
)  # fmt: skip

#: The version number that we send. 475 (5.3.1) is the highest that promises no GO_AWAY handling.
CLIENT_VERSION: Final = 475


class SystemFlag:
    """Bits of a message's system flag."""

    COMPRESSED: Final = 0x1
    MULTI_TAGS: Final = 0x2
    TRANSACTION_MASK: Final = 0xC
    TRANSACTION_PREPARED: Final = 0x4
    TRANSACTION_COMMIT: Final = 0x8
    TRANSACTION_ROLLBACK: Final = 0xC
    BORN_HOST_V6: Final = 0x10
    STORE_HOST_V6: Final = 0x20
    NEED_UNWRAP: Final = 0x40
    INNER_BATCH: Final = 0x80
    COMPRESSION_MASK: Final = 0x700


class PullFlag:
    """Bits of a pull's system flag."""

    COMMIT_OFFSET: Final = 1
    SUSPEND: Final = 2
    SUBSCRIPTION: Final = 4
    CLASS_FILTER: Final = 8
    LITE_PULL: Final = 16


class Permission:
    """Bits of a queue's permission."""

    INHERIT: Final = 1
    WRITE: Final = 2
    READ: Final = 4
