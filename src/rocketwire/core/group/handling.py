"""What comes of calling a handler: the rules that both shells' loops share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.group.send_back import Retry
from rocketwire.core.group.trace import EXCEPTION, FAILED, SUCCESS
from rocketwire.core.group.workload import Limits, Workload
from rocketwire.log_fields import about
from rocketwire.stored_message import StoredMessage

log = logging.getLogger("rocketwire.consumer")


class Failure:
    """In place of a handler's result: it raised."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def cancelled(cause: BaseException) -> Failure:
    """A handler ended with a cancellation that nobody asked of its consumer: it failed."""
    error = RuntimeError("the handler was cancelled from within")
    error.__cause__ = cause
    return Failure(error)


def wanted_retry(
    result: object, given: StoredMessage | list[StoredMessage], group: str
) -> Retry | None:
    """What a handler's result asks for; a failure is logged."""
    if isinstance(result, Retry):
        return result
    if isinstance(result, Failure):
        log.warning(
            "a handler failed at %s",
            describe(given, group),
            exc_info=result.error,
            extra=about(given, group=group),
        )
        return Retry()
    return Retry() if result is Retry else None


def describe(given: StoredMessage | list[StoredMessage], group: str) -> str:
    """Messages as a log names them: which, where, and how often they were tried."""
    several = isinstance(given, list) and len(given) > 1
    first = given[0] if isinstance(given, list) else given
    text = (
        f"{first.message_id} (group {group}, topic {first.topic}, broker {first.queue.broker}, queue "
        f"{first.queue.id}, offset {first.offset}, keys {first.keys!r}, attempt "
        f"{first.reconsume_times + 1})"
    )
    return f"{text} and {len(given) - 1} more" if isinstance(given, list) and several else text


def error_of(result: object) -> Exception | None:
    """What a handler raised, if it did."""
    return result.error if isinstance(result, Failure) else None


def trace_code(result: object, retry: Retry | None) -> int:
    """What a trace says of a handler's result."""
    if isinstance(result, Failure):
        return EXCEPTION
    return SUCCESS if retry is None else FAILED


def make_workload(config: ConsumerConfig, lock: Any, clock: Callable[[], float]) -> Workload:
    """What handlers of a consumer take their messages from."""
    return Workload(
        lock=lock,
        clock=clock,
        ordered=config.ordered,
        batch=config.batch,
        limits=Limits(
            config.max_queue_messages,
            config.max_queue_bytes,
            config.max_queue_span,
            config.max_messages,
            config.max_bytes,
        ),
        needs_lock=not config.broadcast,
    )


def tell_of_waiting(workload: Workload, limit: float, group: str) -> None:
    """Say how long a consumer that was interrupted waits for its handlers."""
    count = workload.in_hand
    if count:
        log.warning(
            "interrupted: waiting up to %.0f s for %d %s; a second Ctrl-C gives %s up",
            limit,
            count,
            "handler" if count == 1 else "handlers",
            "it" if count == 1 else "them",
            extra=about(group=group),
        )
