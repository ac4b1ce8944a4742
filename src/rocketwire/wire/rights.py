"""Which right a request needs where brokers check rights, and how to give it.

Brokers refuse with the name of a resource; what was to be done with it they leave out.
"""

from __future__ import annotations

import re
from typing import Final

from rocketwire.wire.codes import RequestCode

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
#: How brokers and proxies of 5.x refuse clients that they know.
_DENIED: Final = re.compile(r"User:(\S+) has no permission to access (\w+:\S+) from ")
#: The same of 4.x, whose accounts have lists of topics and groups.
_PLAIN: Final = re.compile(r"No default permission for (topic|group):([^\s,]+)")
_NOT_ADMIN: Final = re.compile(r"Need admin permission for .*accessKey=(\S+) is not")


def remedy_for(remark: str, asked: int | None) -> str:
    """What is missing, and the call that gives it; empty where a refusal is about something else.

    Args:
        remark: what the broker said.
        asked: the request that it refused, if that is known.

    >>> remark = "User:shop has no permission to access Topic:orders from 10.0.0.1, no match"
    >>> remedy_for(remark, RequestCode.SEND_MESSAGE_V2)
    "it takes Pub on Topic:orders: Admin.set_policy('shop', 'Topic:orders', ['Pub', ...])"
    """
    if found := _NOT_ADMIN.search(remark):
        return f"it takes an account with admin: true in plain_acl.yml, and {found[1]} is none"
    if found := _PLAIN.search(remark):
        kind, name = found.groups()
        action = "PUB" if kind == "topic" and ACTIONS.get(asked or 0) == "Pub" else "SUB"
        return f"it takes {action} on the {kind} {name} in plain_acl.yml: Admin.put_plain_account"
    if found := _DENIED.search(remark):
        user, resource = found.groups()
        action = _action(resource, asked)
        if not action:
            what = "Pub or Sub" if asked == RequestCode.GET_ROUTE_BY_TOPIC else "a right"
            return f"it takes {what} on {resource}: Admin.set_policy"
        # A policy takes the place of the one before: what it allowed has to be said again.
        call = f"Admin.set_policy({user!r}, {resource!r}, [{action!r}, ...])"
        return f"it takes {action} on {resource}: {call}"
    return ""


def _action(resource: str, asked: int | None) -> str:
    action = ACTIONS.get(asked or 0, "")
    # What goes to a retry topic is the business of the group that reads it.
    return "Sub" if action == "Pub" and resource.startswith("Group:") else action


def is_about_rights(remark: str) -> bool:
    """Whether a proxy refuses for rights or keys; it has no code of its own for that."""
    return bool(_DENIED.search(remark)) or remark.startswith(_IDENTITY)


#: What brokers of 5.x say to clients that they do not know.
_IDENTITY: Final = (
    "username cannot be null",
    "check signature failed",
    "User:",
    "Authentication failed",
    "Authorization failed",
)
