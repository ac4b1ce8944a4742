"""What a log record of ours says beside its text: topic, queue, broker, group, offset, keys, attempt.

Every record has all of these attributes, None where one does not apply, so that a formatter may name
them and a JSON log can be searched by them. What a record's arguments tell (a queue, a message, an
error of a broker) is taken from there; what they do not tell is given by ``extra=about(...)``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from rocketwire.errors import BrokerError, SendFailedError
from rocketwire.message import Message, MessageQueue
from rocketwire.stored_message import StoredMessage

#: The attributes that every record has.
FIELDS: Final = ("topic", "queue", "broker", "group", "offset", "keys", "attempt")

#: All loggers, with what they tell and what is worth a person's attention at which level.
LOGGERS: Final[Mapping[str, str]] = {
    "rocketwire.aio": "connections and operations on an event loop: broken protocols, failed callbacks of ours",
    "rocketwire.background": "the background thread of a blocking client",
    "rocketwire.celery": "the Celery transport: what can't be read, acknowledged or sent",
    "rocketwire.columns": "Arrow: rows that are left out, offsets that have no message",
    "rocketwire.config": "settings that are hardly meant so",
    "rocketwire.consumer": "handlers that fail or hang, retries, dead letters, queues gained and lost, offsets that moved",
    "rocketwire.embedded": "the embedded cluster",
    "rocketwire.faults": "brokers that are steadily slow, and listeners of the fault table that fail",
    "rocketwire.hooks": "hooks that fail, or whose methods are never called",
    "rocketwire.outbox": "the outbox: rows that could not be sent, relays that begin, end and fail",
    "rocketwire.producer": "callbacks that fail, transactions without an answer, messages left at the end",
    "rocketwire.reader": "queues that can't be read, offsets that are gone",
    "rocketwire.routes": "the queues of a topic changed",
    "rocketwire.spark": "the Spark source and the pipelines",
    "rocketwire.status": "the status file can't be written",
    "rocketwire.telemetry": "the telemetry's disk hangs or is full",
    "rocketwire.trace": "message traces are lost",
    "rocketwire.upkeep": "heartbeats, route refresh and probes that fail",
}


def about(subject: object = None, *, group: str | None = None, **more: Any) -> dict[str, Any]:
    """The fields of a record, for ``extra=``.

    Args:
        subject: a queue, a message, or a list of them, whose first counts.
        group: of producers or consumers.
        **more: further fields, by their names.
    """
    found = {name: value for name, value in _fields_of(subject).items() if value is not None}
    if group is not None:
        found["group"] = group
    return found | more


def _fields_of(subject: object) -> dict[str, Any]:
    """What something tells of the fields; nothing of those that it does not know."""
    if isinstance(subject, list):
        return _fields_of(subject[0]) if subject else {}
    if isinstance(subject, MessageQueue):
        return {"topic": subject.topic, "broker": subject.broker, "queue": subject.id}
    if isinstance(subject, StoredMessage):
        return _fields_of(subject.queue) | {
            "topic": subject.topic,
            "offset": subject.offset,
            "keys": subject.keys,
            "attempt": subject.reconsume_times + 1,
        }
    if isinstance(subject, Message):
        return {"topic": subject.topic, "keys": subject.keys}
    if isinstance(subject, BrokerError):
        return {"broker": subject.broker}
    if isinstance(subject, SendFailedError):
        return {"attempt": subject.attempt_count}
    return {}


class FieldFilter(logging.Filter):
    """Gives every record its fields. It lets all of them pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Fill in what is missing."""
        found = record.__dict__
        arguments = record.args if isinstance(record.args, tuple) else ()
        for argument in arguments:
            for name, value in _fields_of(argument).items():
                found.setdefault(name, value)
        for name in FIELDS:
            found.setdefault(name, None)
        return True


def fill_in_fields() -> None:
    """Let all loggers of ours fill in the fields; a second call does nothing."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(found, FieldFilter) for found in logger.filters):
            logger.addFilter(FieldFilter())
