"""Which right a request needs where brokers check rights, and how to give it.

Brokers refuse with the name of a resource; what was to be done with it they leave out.
"""

from __future__ import annotations

import re
from typing import Final

#: How brokers and proxies of 5.x refuse clients that they know.
_DENIED: Final = re.compile(r"User:(\S+) has no permission to access (\w+:\S+) from ")
#: The same of 4.x, whose accounts have lists of topics and groups.
_PLAIN: Final = re.compile(r"No default permission for (topic|group):([^\s,]+)")
_NOT_ADMIN: Final = re.compile(r"Need admin permission for .*accessKey=(\S+) is not")


def remedy_for(remark: str, action: str) -> str:
    """What is missing, and the call that gives it; empty where a refusal is about something else.

    Args:
        remark: what the broker said.
        action: what the refused request needs (``codes.ACTIONS``), empty if that is not known.

    >>> remark = "User:shop has no permission to access Topic:orders from 10.0.0.1, no match"
    >>> remedy_for(remark, "Pub")
    "it takes Pub on Topic:orders: Admin.set_policy('shop', 'Topic:orders', ['Pub', ...])"
    """
    if found := _NOT_ADMIN.search(remark):
        return f"it takes an account with admin: true in plain_acl.yml, and {found[1]} is none"
    if found := _PLAIN.search(remark):
        kind, name = found.groups()
        right = "PUB" if kind == "topic" and action == "Pub" else "SUB"
        return f"it takes {right} on the {kind} {name} in plain_acl.yml: Admin.put_plain_account"
    if found := _DENIED.search(remark):
        user, resource = found.groups()
        # What goes to a retry topic is the business of the group that reads it.
        if action == "Pub" and resource.startswith("Group:"):
            action = "Sub"
        if not action.isalpha():  # none, or a choice of two
            return f"it takes {action or 'a right'} on {resource}: Admin.set_policy"
        # A policy takes the place of the one before: what it allowed has to be said again.
        call = f"Admin.set_policy({user!r}, {resource!r}, [{action!r}, ...])"
        return f"it takes {action} on {resource}: {call}"
    return ""


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
