"""What spans and metrics say of a message, in the words of the semantic conventions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from opentelemetry.semconv._incubating.attributes import messaging_attributes as words
from opentelemetry.util.types import AttributeValue

from rocketwire import Call, Message, SendResult, StoredMessage

SYSTEM: Final = "rocketmq"
#: What a retry's event is called, and its attributes.
RETRY: Final = "rocketwire.retry"

Attributes = dict[str, AttributeValue]


def common(call: Call, topic: str, kind: str) -> Attributes:
    """What every span and every metric has. No more: metrics are kept for each combination."""
    return {
        words.MESSAGING_SYSTEM: SYSTEM,
        words.MESSAGING_DESTINATION_NAME: topic,
        words.MESSAGING_OPERATION_NAME: call.operation,
        words.MESSAGING_OPERATION_TYPE: kind,
    }


def of_send(call: Call, message: Message) -> Attributes:
    """What is known before a message is sent."""
    found: Attributes = {
        words.MESSAGING_CLIENT_ID: call.client.client_id,
        words.MESSAGING_ROCKETMQ_CLIENT_GROUP: call.group,
        words.MESSAGING_MESSAGE_BODY_SIZE: len(message.body),
        words.MESSAGING_ROCKETMQ_MESSAGE_TYPE: _type_of(call, message),
    }
    if message.delay_level:
        found[words.MESSAGING_ROCKETMQ_MESSAGE_DELAY_TIME_LEVEL] = message.delay_level
    if message.deliver_at is not None:
        moment = int(message.deliver_at * 1000)
        found[words.MESSAGING_ROCKETMQ_MESSAGE_DELIVERY_TIMESTAMP] = moment
    return found | _of_content(message)


def _type_of(call: Call, message: Message) -> str:
    kinds = words.MessagingRocketmqMessageTypeValues
    kind = kinds.NORMAL
    if call.operation == "transaction":
        kind = kinds.TRANSACTION
    elif message.sharding_key is not None:
        kind = kinds.FIFO
    elif message.delay_level or message.deliver_at is not None:
        kind = kinds.DELAY
    return str(kind.value)


def _of_content(message: Message | StoredMessage) -> Attributes:
    found: Attributes = {}
    if message.tags is not None:
        found[words.MESSAGING_ROCKETMQ_MESSAGE_TAG] = message.tags
    if message.keys is not None:
        found[words.MESSAGING_ROCKETMQ_MESSAGE_KEYS] = message.keys.split()
    if message.sharding_key is not None:
        found[words.MESSAGING_ROCKETMQ_MESSAGE_GROUP] = message.sharding_key
    return found


def of_result(result: SendResult) -> Attributes:
    """Where a message was stored."""
    return {
        words.MESSAGING_MESSAGE_ID: result.message_id,
        words.MESSAGING_DESTINATION_PARTITION_ID: f"{result.queue.broker}:{result.queue.id}",
    }


def of_process(call: Call, messages: Sequence[StoredMessage]) -> Attributes:
    """What is known of messages that are handled."""
    found: Attributes = {
        words.MESSAGING_CLIENT_ID: call.client.client_id,
        words.MESSAGING_CONSUMER_GROUP_NAME: call.group,
    }
    if len(messages) > 1:
        return found | {words.MESSAGING_BATCH_MESSAGE_COUNT: len(messages)}
    message = messages[0]
    return found | of_message(message) | {words.MESSAGING_MESSAGE_BODY_SIZE: len(message.body)}


def of_message(message: StoredMessage) -> Attributes:
    """What is known of one message; of a batch, on its link."""
    return {
        words.MESSAGING_MESSAGE_ID: message.message_id,
        words.MESSAGING_DESTINATION_PARTITION_ID: f"{message.queue.broker}:{message.queue.id}",
    } | _of_content(message)
