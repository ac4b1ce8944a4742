"""Checks of a topic, and of a message that goes there and back."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Final

from rocketwire.cli.admin import Inspector
from rocketwire.cli.doctor.brokers import Known
from rocketwire.cli.doctor.findings import Report
from rocketwire.cli.doctor.servers import is_about_identity, report_credentials
from rocketwire.cli.output import milliseconds
from rocketwire.cli.topic import permission_text
from rocketwire.errors import (
    BrokerError,
    PermissionDeniedError,
    RocketMQError,
    SendFailedError,
    TopicNotFoundError,
)
from rocketwire.message import Message, MessageQueue, SendResult
from rocketwire.wire.codes import Permission
from rocketwire.wire.route import TopicRoute

if TYPE_CHECKING:
    from rocketwire.sync.producer import Producer

#: Every broker of Apache's has this topic from the start, and nobody's consumers read it.
PROBE_TOPIC: Final = "BenchmarkTest"
_TEMPLATE_TOPIC: Final = "TBW102"
_TAG: Final = "rocketwire-doctor"
_SKEW: Final = 1.0


def check_topic_route(report: Report, admin: Inspector, topic: str) -> TopicRoute | None:
    """Where a topic lives, and whether it can be written to and read."""
    check = f"topic {topic}"
    try:
        route = admin.route(topic)
    except TopicNotFoundError:
        _report_missing(report, admin, check, topic)
        return None
    except RocketMQError as error:
        report.ill(check, str(error), "the name server gave no route", "see above")
        return None
    masters = {data.broker for data in route.brokers if data.master}
    places = []
    for data in sorted(route.queues):
        may = permission_text(
            read=bool(data.permission & Permission.READ),
            write=bool(data.permission & Permission.WRITE),
        )
        places.append(f"{data.broker}: {data.write_queues} queues, {may}")
        if not data.permission & Permission.WRITE:
            report.remark(
                f"{check} on {data.broker}",
                f"it may only: {may}",
                "nothing is written to this broker's queues",
                f"rocketwire topic alter {topic} --can-write --broker {data.broker}, or give the "
                "broker write permission (brokerPermission=6)",
            )
    writable = [d for d in route.queues if d.permission & Permission.WRITE and d.broker in masters]
    if writable:
        report.well(check, "; ".join(places))
    else:
        report.ill(
            check,
            "; ".join(places) or "the route is empty",
            "no queue takes messages: no permission, or no master",
            f"rocketwire topic alter {topic} --can-write, and see that masters are up",
        )
    return route


def _report_missing(report: Report, admin: Inspector, check: str, topic: str) -> None:
    try:
        admin.route(_TEMPLATE_TOPIC)
    except RocketMQError:
        report.ill(
            check,
            "the name server does not know it",
            "it has not been created, and brokers here do not create topics by themselves",
            f"rocketwire topic create {topic}",
        )
    else:
        report.remark(
            check,
            "the name server does not know it",
            "the first message will create it, on the broker that gets it",
            f"better: rocketwire topic create {topic}, which makes it on every broker",
        )


def check_probe(
    report: Report, admin: Inspector, producer: Producer, topic: str, broker: Known
) -> None:
    """Send a message to a broker, read it back, and compare clocks."""
    check = f"probe of {broker.name}"
    text = f"rocketwire doctor {uuid.uuid4()}"
    queue = MessageQueue(topic, broker.name, 0)
    before = time.time()
    begun = time.monotonic()
    try:
        result = producer.send(Message(topic, text, tags=_TAG), queue=queue)
    except SendFailedError as error:
        _report_send(report, check, topic, error)
        return
    except RocketMQError as error:
        report.ill(check, str(error), "the message was not even sent", "see above")
        return
    sent_in, after = time.monotonic() - begun, time.time()
    stored = _read_back(report, check, admin, result, text)
    if stored is None:
        return
    read_in = time.monotonic() - begun - sent_in
    report.well(
        check,
        f"sent to {topic} in {milliseconds(sent_in)}, read back in {milliseconds(read_in)}",
    )
    _check_clock(report, broker.name, stored, before, after)


def _read_back(
    report: Report, check: str, admin: Inspector, result: SendResult, text: str
) -> float | None:
    try:
        fetched = admin.fetch(result.queue, result.offset, max_messages=8, wait=1.0)
    except RocketMQError as error:
        if isinstance(error, PermissionDeniedError):
            report_credentials(report, f"{check}, reading", error.remark)
        else:
            report.ill(check, f"sent, but not read back: {error}",
                       "producers work, readers do not", "see above")  # fmt: skip
        return None
    for message in fetched.messages:
        if message.body.decode(errors="replace") == text:
            return message.stored_at.timestamp()
    report.ill(
        check,
        f"sent, acknowledged as offset {result.offset}, and not found there",
        "the broker acknowledged a message that it does not give back",
        "look at the broker's log; is its disk well?",
    )
    return None


def _report_send(report: Report, check: str, topic: str, error: SendFailedError) -> None:
    causes = [attempt.error for attempt in error.attempts if attempt.error is not None]
    refusals = [cause for cause in causes if isinstance(cause, BrokerError)]
    refusal = refusals[-1] if refusals else None
    if refusal is None or not _is_denied(refusal):
        report.ill(check, str(error), "this broker does not take messages now", "look at its log")
    elif topic == PROBE_TOPIC and not is_about_identity(refusal.remark):
        # Keys that may write to their own topics only are as they should be.
        report.skipped(check, f"these keys may not write to {topic}: use TOPIC --probe")
    else:
        report_credentials(report, f"{check}, sending", refusal.remark)


def _is_denied(refusal: BrokerError) -> bool:
    words = ("acl", "permission", "authoriz")
    return (
        isinstance(refusal, PermissionDeniedError)
        or is_about_identity(refusal.remark)
        or any(word in refusal.remark.lower() for word in words)
    )


def _check_clock(report: Report, broker: str, stored: float, before: float, after: float) -> None:
    # Store times are in milliseconds, rounded down.
    skew = stored - after if stored > after else min(0.0, stored + 0.001 - before)
    check = f"clock of {broker}"
    if abs(skew) <= _SKEW:
        report.well(check, f"within {max(abs(skew), 0.001):.3f} s of ours")
        return
    report.remark(
        check,
        f"it is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} ours",
        "messages by time, delays and reading from a moment are off by as much",
        "set the clocks by NTP, on the broker and here",
    )
