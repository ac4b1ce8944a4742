"""Client instances of this process: who shares one, and who keeps it up.

Every client is its own instance unless it was given an explicit id. Clients with the same
explicit id share one, and must then agree on everything that belongs to it.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from rocketwire.config import ClientConfig, ProducerConfig, from_mapping
from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.instance import Instance
from rocketwire.errors import ConfigError
from rocketwire.middleware import around, installed
from rocketwire.system.surroundings import make_client_id, surroundings

_lock = threading.RLock()
_shared: dict[str, tuple[Instance, int]] = {}

#: What all clients of one instance must agree on.
_COMMON = tuple(spec.name for spec in dataclasses.fields(ClientConfig) if spec.name != "hooks")


C = TypeVar("C", bound=ClientConfig)


def make_config(
    kind: type[C],
    name_servers: str | Sequence[str] | None,
    group: str | None,
    mapping: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> C:
    """A client's settings from its arguments, a mapping and the environment.

    Raises:
        ConfigError: something is wrong with them, or nobody said where the name servers are.
    """
    arguments = dict(options)
    if name_servers is not None:
        arguments["name_servers"] = name_servers
    if group is not None:
        arguments["group"] = group
    config = from_mapping(kind, arguments, mapping=mapping, environ=os.environ)
    if not config.name_servers:
        raise ConfigError(
            "name_servers is empty: give 'host:port' of a name server, or set NAMESRV_ADDR"
        )
    if installed and isinstance(config, (ProducerConfig, ConsumerConfig)):
        layers = around(config.middleware)
        config = cast("C", dataclasses.replace(config, middleware=layers))
    return config


def join_instance(config: ClientConfig) -> Instance:
    """The instance of a client: its own, or the one that others with its explicit id have.

    Raises:
        ConfigError: others with that id have other settings.
    """
    if config.client_id is None and config.instance_name is None:
        client_id = make_client_id(None, config.unit_name)
        return Instance(config, client_id, surroundings())
    client_id = config.client_id or make_client_id(config.instance_name, config.unit_name)
    with _lock:
        found = _shared.get(client_id)
        if found is None:
            instance = Instance(config, client_id, surroundings())
            _shared[client_id] = (instance, 1)
            return instance
        instance, count = found
        _check_agreement(instance.config, config, client_id)
        instance.watch(config.hooks)
        _shared[client_id] = (instance, count + 1)
        return instance


def leave_instance(instance: Instance, hooks: Iterable[object] = ()) -> bool:
    """A client is done with its instance, and so are its hooks; True if it was the last one."""
    instance.unwatch(hooks)
    with _lock:
        found = _shared.get(instance.client_id)
        if found is None or found[0] is not instance:
            return True
        if found[1] > 1:
            _shared[instance.client_id] = (instance, found[1] - 1)
            return False
        del _shared[instance.client_id]
        return True


def join_group(instance: Instance, group: str) -> None:
    """Register a producer group.

    Raises:
        ConfigError: another producer of the instance has the same one.
    """
    is_ours = False
    try:
        with instance.lock:
            _check_free(instance, group)
            is_ours = True
            instance.producer_groups.add(group)
        instance.heartbeat_wake_up.wake()
    except BaseException:  # an interrupt may come at any moment
        if is_ours:
            leave_group(instance, group)
        raise


def _check_free(instance: Instance, group: str) -> None:
    if group in instance.producer_groups:
        raise ConfigError(
            f"group {group!r} exists already in client {instance.client_id!r}: "
            "share the producer, or give it another group or client_id"
        )


def leave_group(instance: Instance, group: str) -> None:
    """Take a producer group back."""
    with instance.lock:
        instance.producer_groups.discard(group)


def _check_agreement(ours: ClientConfig, theirs: ClientConfig, client_id: str) -> None:
    for name in _COMMON:
        if getattr(ours, name) != getattr(theirs, name):
            raise ConfigError(
                f"client {client_id!r} exists already with another {name}: clients that share "
                "an id share their settings; use another client_id"
            )


def _forget() -> None:
    """In a forked child nothing is shared yet."""
    global _lock  # noqa: PLW0603 - the old one may have been held when the process forked
    _lock = threading.RLock()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
