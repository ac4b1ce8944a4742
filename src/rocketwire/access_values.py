"""Who may do what, as ``Admin`` and ``AsyncAdmin`` show it: users, policies, 4.x accounts.

Secrets are written and never shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class User:
    """A user of brokers from 5.3.0 on, and the brokers that know it."""

    name: str
    is_super: bool = False
    is_enabled: bool = True
    brokers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """What a user may do, or must not, with a resource such as ``Topic:orders`` or ``Group:*``.

    ``sources`` are addresses and networks from which it counts; empty means from anywhere.
    """

    user: str
    resource: str
    actions: tuple[str, ...]
    is_allowed: bool = True
    sources: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlainAccount:
    """An account of the plain ACL of 4.x. Rights are PUB, SUB, ``PUB|SUB`` or DENY."""

    access_key: str
    is_admin: bool = False
    default_topic: str = "DENY"
    default_group: str = "DENY"
    topics: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    white_address: str | None = None
    brokers: tuple[str, ...] = ()
