"""One message on its way back: to come again later, or to the dead letters.

The ordinary way is a request that has the broker copy it. That request carries no properties and
knows steps of time only. A copy of ours, sent to the retry topic of the group, says why a message
was given up, and may be timed to the second. Brokers move such a copy to the dead letters when its
count of tries is above the limit that comes with it (4.9 and 5.x alike; the request compares with
"at least"), so the limit decides where it goes.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from typing import Final

from rocketwire.core.effects import Op, invoke
from rocketwire.core.group.membership import Group, log
from rocketwire.core.naming import RETRY_PREFIX
from rocketwire.errors import BrokerError, ConnectFailedError, InvalidMessageError
from rocketwire.log_fields import about
from rocketwire.stored_message import StoredMessage
from rocketwire.wire import headers
from rocketwire.wire.codes import STORED, RequestCode, ResponseCode, error_for
from rocketwire.wire.message_copy import MessageCopy, copy_of
from rocketwire.wire.properties import (
    MAX_PROPERTIES_BYTES,
    NAME_END,
    VALUE_END,
    Property,
    rewritten_bytes,
)

#: Seconds of the delay levels 1 to 18, as brokers have them unless they are configured otherwise.
DELAYS: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip

#: The broker chooses: the third level first, then one more with each try.
GROWING: Final = 0
DEAD: Final = -1
#: Why a message was given up that no error came of.
RETURNED: Final = "the handler returned Retry"
#: Brokers from this version on (5.0) have timed messages.
_TIMED_FROM: Final = 413
#: Their timers go by whole seconds, rounded down.
_TIMER_STEP: Final = 1000
#: Characters that are kept of an error's text, and of a reason as a whole.
_LONGEST_TEXT: Final = 1000
_LONGEST_REASON: Final = 2000
#: What brokers add to the properties of a message has room beside ours.
_MOST_BYTES: Final = MAX_PROPERTIES_BYTES - 512


def master_of(group: Group, broker: str) -> str:
    """The address of a broker's master.

    Raises:
        ConnectFailedError: it has none just now.
    """
    instance = group.instance
    address = instance.routes.masters().get(broker)
    if address is None:
        instance.route_wake_up.wake()
        raise ConnectFailedError(f"broker {broker} has no master to send a message back to")
    return address


def has_timed_messages(group: Group, broker: str) -> bool:
    """Whether a broker can deliver a message at a moment."""
    return group.versions.get(master_of(group, broker), 0) >= _TIMED_FROM


def delay_level(after: float | None) -> int:
    """The level whose delay is the shortest that is long enough."""
    if after is None:
        return GROWING
    return min(bisect_left(DELAYS, after) + 1, len(DELAYS))


def send_back(group: Group, message: StoredMessage, level: int) -> Op[None]:
    """Give a message back to the broker that has it.

    Raises:
        TransportError: it could not be reached.
        BrokerError: it refused.
    """
    instance = group.instance
    broker = message.queue.broker
    address = master_of(group, broker)
    fields = headers.send_message_back(
        group=group.wire_name,
        offset=message.commit_log_offset,
        delay_level=level,
        origin_message_id=message.offset_message_id,
        origin_topic=group.wire_topic(message.topic),
        max_reconsume_times=group.config.max_retries,
        broker=broker,
    )
    request = instance.request(RequestCode.CONSUMER_SEND_MESSAGE_BACK, fields)
    deadline = instance.clock() + max(5.0, instance.config.request_timeout)
    reply = yield from invoke(address, request, deadline)
    if reply.code != ResponseCode.SUCCESS:
        asked = RequestCode.CONSUMER_SEND_MESSAGE_BACK
        raise error_for(reply.code, reply.remark, broker, asked=asked)


def give_back(
    group: Group, message: StoredMessage, after: float | None, error: Exception | None = None
) -> Op[float | None]:
    """Have a message of a concurrent group come again.

    Args:
        group: whose it is.
        message: as it was read.
        after: seconds until then; None: longer with each try.
        error: what its handler raised, for the dead letter that its last try leaves behind.

    Returns:
        After how many seconds it comes, as far as that is known; infinity for a dead letter.

    Raises:
        TransportError: its broker could not be reached.
        BrokerError: it refused.
    """
    if message.reconsume_times >= group.config.max_retries:
        yield from bury(group, message, RETURNED if error is None else why_of(error))
        return math.inf
    if after is not None and group.config.exact_retries:
        is_done = yield from _return_exactly(group, message, after)
        if is_done:
            return after
    level = delay_level(after)
    yield from send_back(group, message, level)
    if after is None:
        return None
    step = float(DELAYS[level - 1])
    if step != after:
        log.info(
            "%s comes again after %g s: %s step of brokers to %g s",
            message.message_id,
            step,
            "the nearest longer" if step > after else "the longest",
            after,
            extra=about(message, group=group.name),
        )
    return step


def _return_exactly(group: Group, message: StoredMessage, after: float) -> Op[bool]:
    """Have a message come again to the second; False where its broker can't do that."""
    broker = message.queue.broker
    if after > 0 and not has_timed_messages(group, broker):
        # Said once of each broker: it is no news with the next message.
        level = logging.DEBUG if broker in group.without_timers else logging.WARNING
        group.without_timers.add(broker)
        log.log(level, "broker %s has no timed messages (5.0): exact_retries goes by steps", broker)
        return False
    try:
        yield from store_retry(group, message, after)
    except BrokerError as refusal:
        log.warning(
            "%s can't be retried exactly, by a step instead: %s",
            message.message_id,
            refusal,
            extra=about(message, group=group.name),
        )
        return False
    return True


def check_reason(reason: object) -> str:
    """The reason of a dead letter.

    Raises:
        InvalidMessageError: it is no text, or says nothing.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidMessageError(
            f"the reason of a dead letter is {reason!r}: say in words why, e.g. 'no such order'"
        )
    return reason


def bury(group: Group, message: StoredMessage, why: str) -> Op[None]:
    """Move a message to the dead letters of its group, with the reason.

    Where the group may not send, by the ordinary request, which has no place for a reason.

    Raises:
        TransportError: its broker could not be reached.
        BrokerError: it refused.
    """
    try:
        yield from store_dead_letter(group, message, why)
    except BrokerError as refusal:
        log.warning(
            "the dead letter of %s does not tell why: %s",
            message.message_id,
            refusal,
            extra=about(message, group=group.name),
        )
        yield from send_back(group, message, DEAD)


def store_dead_letter(group: Group, message: StoredMessage, why: str) -> Op[None]:
    """Store a message among the dead letters of its group, with the reason in a property.

    Raises:
        TransportError: its broker could not be reached, or did not answer.
        BrokerError: it refused.
    """
    copy = _copy(group, message)
    reason = _fitting(copy.properties, why)
    if reason:
        copy.properties[Property.ERROR] = reason
    tries = message.reconsume_times + 1
    yield from _store(group, message.queue.broker, copy, tries, limit=tries - 1)


def store_retry(group: Group, message: StoredMessage, after: float) -> Op[None]:
    """Store a message in the retry topic of its group so that it comes again after so long.

    Raises:
        TransportError: its broker could not be reached, or did not answer.
        BrokerError: it refused.
    """
    copy = _copy(group, message)
    if after > 0:
        due = (group.instance.wall() + after) * 1000
        # Rounded up, and 1 ms more: a broker takes the step before a whole one, and a message that
        # comes too early is worse than one that is a second late.
        moment = math.ceil(due / _TIMER_STEP) * _TIMER_STEP + 1
        copy.properties[Property.TIMER_DELIVER_MS] = str(moment)
    tries = message.reconsume_times + 1
    yield from _store(group, message.queue.broker, copy, tries, limit=group.config.max_retries)


def _copy(group: Group, message: StoredMessage) -> MessageCopy:
    copy = copy_of(message)
    copy.properties.setdefault(Property.RETRY_TOPIC, group.wire_topic(message.topic))
    copy.properties.setdefault(Property.ORIGIN_MESSAGE_ID, message.offset_message_id)
    return copy


def _store(group: Group, broker: str, copy: MessageCopy, tries: int, *, limit: int) -> Op[None]:
    instance = group.instance
    address = master_of(group, broker)
    try:
        properties = rewritten_bytes(copy.properties).decode()
    except InvalidMessageError as error:  # there is no room for what we add: leave it as it is
        raise BrokerError(ResponseCode.MESSAGE_ILLEGAL, str(error), broker) from error
    fields = headers.send_v2(
        group=group.wire_name,
        topic=RETRY_PREFIX + group.wire_name,
        queue_id=-1,
        born_ms=copy.born_ms,
        properties=properties,
        system_flag=copy.system_flag,
        flag=copy.flag,
        reconsume_times=tries,
        max_reconsume_times=limit,
        broker=broker,
    )
    request = instance.request(RequestCode.SEND_MESSAGE_V2, fields, copy.body)
    deadline = instance.clock() + max(5.0, instance.config.request_timeout)
    reply = yield from invoke(address, request, deadline)
    if reply.code not in STORED:
        asked = RequestCode.SEND_MESSAGE_V2
        raise error_for(reply.code, reply.remark, broker, asked=asked)


def why_of(error: BaseException) -> str:
    """An error as a dead letter tells it: its kind, its text, and where it was raised."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    trace = error.__traceback__
    if trace is None:
        return text
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    file = code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{_shortened(text, _LONGEST_TEXT)} ({file}, line {trace.tb_lineno}, in {code.co_name})"


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _fitting(properties: dict[str, str], why: str) -> str:
    """The reason as a property can hold it, and as short as the others leave room for."""
    plain = why.translate({ord(NAME_END): " ", ord(VALUE_END): " "})
    data = _shortened(plain, _LONGEST_REASON).encode(errors="replace")
    taken = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in properties.items())
    room = _MOST_BYTES - taken - len(Property.ERROR) - 2
    return data[: max(0, room)].decode(errors="ignore")
