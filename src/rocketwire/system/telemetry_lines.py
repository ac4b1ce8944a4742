"""The lines of the delivery telemetry: what each kind holds.

Every line is a JSON object with a ``kind``, a ``time`` (seconds since 1970) and a ``clientId``.
Version 2 has all of these, version 1 had neither headers, routes nor probes, nor the last four
fields of an attempt:

* ``header``, the first line of a file: ``version``, ``policy`` (every number of the fault policy),
  ``sendTimeout``, ``attemptTimeout`` (seconds, null for none, ``"auto"`` for an even share),
  ``retries``, ``asyncRetries``, ``orderedRetries``, ``background`` (whether brokers are probed);
* ``route``: ``topic``, and ``queues``: how many can be written to on each broker;
* ``attempt``: ``topic``, ``broker``, ``queueId``, ``offset``, ``messageId``, ``shardingKey``,
  ``bytes``, ``latency`` (seconds), ``outcome`` (``stored``, ``oneway``, ``rejected``,
  ``maybe stored``, ``not sent``), ``error``, ``attempt`` (1 is the first), ``messages`` (in a
  batch), ``state`` (of the broker when the attempt ended), ``mode`` (``blocking``, ``async``,
  ``oneway``), ``pinned`` (to its queue), ``sendTime`` (when the send began), ``timeout`` (of it);
* ``probe``: ``broker``, ``latency`` (null where no answer came), ``good``, ``reason``;
* ``isolated`` and ``returned``: ``broker``, ``reason``, and ``until`` (seconds since 1970, or null)
  when the broker is avoided for a known time;
* ``dropped``: ``dropped``, records lost since the last such line.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from rocketwire.config import AUTO, ProducerConfig
from rocketwire.hooks import AttemptEvent, ProbeEvent, RouteEvent

VERSION: Final = 2
Record = AttemptEvent | ProbeEvent | RouteEvent | tuple[str, float, str, str, float | None]

#: Topics whose routes a file begins with; a file should hold more than its head.
_MOST_ROUTES: Final = 200
_quote: Final = lru_cache(maxsize=4096)(json.JSONEncoder().encode)
_quote_once: Final = json.JSONEncoder().encode
DROPPED: Final = b'{"kind":"dropped"'


def settings_of(config: ProducerConfig) -> dict[str, Any]:
    """What a header tells of a producer: all that decides how it sends."""
    return {
        "policy": dataclasses.asdict(config.fault),
        "sendTimeout": config.send_timeout,
        "attemptTimeout": "auto" if config.attempt_timeout == AUTO else config.attempt_timeout,
        "retries": config.retries,
        "asyncRetries": config.async_retries,
        "orderedRetries": config.ordered_retries,
        "background": config.background,
    }


class Formatter:
    """Makes lines of records.

    Args:
        client_id: stands in each of them.
        sharding_key: in which form a sharding key is written.
        settings: for the header.
    """

    def __init__(
        self, client_id: str, sharding_key: str, settings: Mapping[str, Any] | None = None
    ) -> None:
        self._client = _quote_once(client_id)
        self._key: Callable[[str], str | None] = _KEYS[sharding_key]
        self._settings = "".join(
            f",{_quote_once(name)}:{_quote_once(value)}" for name, value in (settings or {}).items()
        )
        #: The newest route line of each topic, the newest last.
        self._routes: dict[str, bytes] = {}

    def head(self, at: float, room: int) -> bytes:
        """The lines that a file begins with: the header, and the newest routes that fit."""
        lines = [f'{self._begin("header", at)},"version":{VERSION}{self._settings}}}\n'.encode()]
        for route in reversed(self._routes.values()):
            room -= len(route)
            if room < 0:
                break
            lines.append(route)
        return b"".join(lines)

    def line(self, record: Record) -> bytes:
        """The line of a record."""
        if isinstance(record, AttemptEvent):
            return self._attempt(record)
        if isinstance(record, ProbeEvent):
            return self._probe(record)
        if isinstance(record, RouteEvent):
            return self._route(record)
        kind, at, broker, reason, until = record
        moment = "null" if until is None else f"{until:.3f}"
        return (
            f"{self._begin(kind, at)},"
            f'"broker":{_quote(broker)},"reason":{_quote_once(reason)},"until":{moment}}}\n'
        ).encode()

    def _begin(self, kind: str, at: float) -> str:
        return f'{{"kind":"{kind}","time":{at:.6f},"clientId":{self._client}'

    def _attempt(self, e: AttemptEvent) -> bytes:
        # By hand, since json.dumps of a dict takes three times as long and holds up the senders.
        key = None if e.sharding_key is None else self._key(e.sharding_key)
        return (
            f'{{"kind":"attempt","time":{e.at:.6f},"clientId":{self._client},'
            f'"topic":{_quote(e.topic)},"broker":{_quote(e.broker)},"queueId":{e.queue_id},'
            f'"offset":{"null" if e.offset is None else e.offset},'
            f'"messageId":{_quote_once(e.message_id)},'
            f'"shardingKey":{"null" if key is None else _quote_once(key)},'
            f'"bytes":{e.size},"latency":{e.latency:.6f},"outcome":{_quote(e.outcome)},'
            f'"error":{"null" if e.error is None else _quote_once(e.error)},"attempt":{e.attempt},'
            f'"messages":{e.messages},"state":{_quote(e.state)},'
            f'"mode":{_quote(e.mode)},"pinned":{"true" if e.is_pinned else "false"},'
            f'"sendTime":{"null" if e.send_at is None else f"{e.send_at:.6f}"},'
            f'"timeout":{"null" if e.timeout is None else f"{e.timeout:.6g}"}}}\n'
        ).encode()

    def _probe(self, e: ProbeEvent) -> bytes:
        latency = "null" if e.latency is None else f"{e.latency:.6f}"
        return (
            f'{self._begin("probe", e.at)},"broker":{_quote(e.broker)},"latency":{latency},'
            f'"good":{"true" if e.is_good else "false"},"reason":{_quote_once(e.why)}}}\n'
        ).encode()

    def _route(self, e: RouteEvent) -> bytes:
        topic = e.after[0].topic if e.after else e.topic
        queues = json.dumps(Counter(queue.broker for queue in e.after))
        line = (
            f'{self._begin("route", e.at)},"topic":{_quote(topic)},"queues":{queues}}}\n'.encode()
        )
        self._routes.pop(topic, None)
        self._routes[topic] = line
        if len(self._routes) > _MOST_ROUTES:
            del self._routes[next(iter(self._routes))]
        return line

    def dropped(self, at: float, count: int) -> bytes:
        """A line that tells how many there should have been."""
        return f'{self._begin("dropped", at)},"dropped":{count}}}\n'.encode()


@lru_cache(maxsize=4096)
def hashed_key(key: str) -> str:
    """16 hexadecimal digits that stand for a sharding key, the same in every process."""
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


_KEYS: Final[dict[str, Callable[[str], str | None]]] = {
    "plain": lambda key: key,
    "hashed": hashed_key,
    "off": lambda _: None,
}
