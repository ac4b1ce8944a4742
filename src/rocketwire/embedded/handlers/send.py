"""Sends: one message, a batch, with or without an answer, to queues and to retry topics.

The checks are Apache's, in Apache's order (5.x). Not done: static topics, multi-dispatch queues
and inner batches; a batch is always stored as single messages.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.embedded.handlers.recall import make_handle
from rocketwire.embedded.store import Draft
from rocketwire.embedded.store.layout import Appended
from rocketwire.embedded.topics import (
    DEAD_LETTER_PREFIX,
    FORBIDDEN_TOPICS,
    RETRY_PREFIX,
    TopicConfig,
    name_problem,
)
from rocketwire.wire.codes import Permission, RequestCode, ResponseCode, SystemFlag
from rocketwire.wire.headers import SendRequest, decode_send_request
from rocketwire.wire.properties import TRANSIENT_PREFIX, decode_properties, rewritten

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

# Most messages have none of these, and their properties need not be taken apart.
_SPECIAL: Final = re.compile(r"DELAY|TIMER_|TRAN_MSG|POP_CK|__RMQ\.TRANSIENT")
_UNIQUE: Final = re.compile(r"(?:^|\x02)UNIQ_KEY\x01([^\x02]+)")
#: Clients since this version say how often a message may be retried.
_RETRIES_FROM: Final = 121


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    sender = SendHandler(broker)
    return {
        RequestCode.SEND_MESSAGE: sender.send,
        RequestCode.SEND_MESSAGE_V2: sender.send,
        RequestCode.SEND_BATCH_MESSAGE: sender.send,
    }


class SendHandler:
    """Stores what producers send."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sync = broker.options.flush == "sync"
        self._fixed = {"MSG_REGION": broker.options.region, "TRACE_ON": "true"}

    def send(self, call: Call) -> Answer | None:
        """Check, store, and answer once the message is as safe as the broker promises."""
        request = decode_send_request(call.command.code, call.command.ext)
        topic = self.check(request)
        queue_id = self._queue(request, topic)
        if request.batch or call.command.code == RequestCode.SEND_BATCH_MESSAGE:
            return self._send_batch(call, request, queue_id)
        return self._send_one(call, request, topic, queue_id)

    # Checks

    def check(self, request: SendRequest) -> TopicConfig:
        """The topic that a send goes to, made if that is allowed.

        Raises:
            Refusal: it may not go there.
        """
        broker, name = self._broker, request.topic
        if not broker.permission & Permission.WRITE:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.name}] sending message is forbidden",
            )
        topic = broker.topics.get(name)
        if topic is None or name in FORBIDDEN_TOPICS:
            topic = self._check_new(request)
        return topic

    def _check_new(self, request: SendRequest) -> TopicConfig:
        broker, name = self._broker, request.topic
        problem = name_problem(name)
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        if name in FORBIDDEN_TOPICS:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
            )
        topic = broker.topics.make_from_default(name, request.default_topic, request.default_queues)
        if topic is None and name.startswith(RETRY_PREFIX):
            topic = broker.topics.make_parked(name)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! Create it with updateTopic, or let "
                "the broker make topics automatically.",
            )
        broker.topics_changed()
        return topic

    def _queue(self, request: SendRequest, topic: TopicConfig) -> int:
        queue_id = request.queue_id
        if queue_id >= max(topic.write_queues, topic.read_queues):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, topic[{topic.name}] has "
                f"{topic.write_queues} queues to write",
            )
        if queue_id < 0:
            return self._broker.random.randrange(max(topic.write_queues, 1))
        return queue_id

    def _check_size(self, size: int) -> None:
        limit = self._broker.options.max_message_size
        if size > limit:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal, maybe msg body or properties length not matched. "
                f"msg body length {size}, limit {limit}",
            )

    # Storing

    def _send_one(
        self, call: Call, request: SendRequest, topic: TopicConfig, queue_id: int
    ) -> Answer | None:
        text = request.properties
        draft = self._draft(call, request, queue_id)
        if topic.filter_type == "MULTI_TAG":
            draft.system_flag |= SystemFlag.MULTI_TAGS
        if topic.attributes.get("cleanup.policy") == "COMPACTION" and "KEYS\x01" not in text:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing: set KEYS")
        if _SPECIAL.search(text) or request.topic.startswith(RETRY_PREFIX):
            return self._send_special(call, request, draft)
        text, unique = self._with_unique_id(text)
        draft.properties = self._stored(text)
        place = self._broker.put(draft)
        return self._answer(call, place, queue_id, unique, text)

    def _send_special(self, call: Call, request: SendRequest, draft: Draft) -> Answer | None:
        """A message whose properties say that it goes elsewhere first."""
        text, unique = self._with_unique_id(request.properties)
        properties = {
            name: value
            for name, value in decode_properties(text).items()
            if name != "POP_CK" and not name.startswith(TRANSIENT_PREFIX)
        }
        queue_id = draft.queue_id
        if request.topic.startswith(RETRY_PREFIX):
            self._route_retry(call, request, draft, properties)
        broker = self._broker
        if properties.get("TRAN_MSG", "").lower() == "true":
            place = broker.transactions.prepare(draft, properties, self.finish)
        else:
            place = broker.put(broker.schedule.park(draft, properties, self.finish))
        handle = ""
        if draft.topic == broker.schedule.wheel.topic:
            handle = make_handle(broker, request.topic, unique, properties["TIMER_OUT_MS"])
        return self._answer(call, place, queue_id, unique, text, handle=handle)

    def finish(self, draft: Draft, properties: dict[str, str]) -> Draft:
        """Put properties into a draft as they are stored."""
        draft.properties = self._stored(rewritten(properties))
        return draft

    def _stored(self, text: str) -> bytes:
        if text and text[-1] != "\x02":
            text += "\x02"
        return text.encode() + self._broker.suffix

    def _with_unique_id(self, text: str) -> tuple[str, str]:
        found = _UNIQUE.search(text)
        if found is not None:
            return text, found[1]
        unique = self._broker.make_unique_id()
        joint = "\x02" if text and text[-1] != "\x02" else ""
        return f"{text}{joint}UNIQ_KEY\x01{unique}\x02", unique

    def _route_retry(
        self, call: Call, request: SendRequest, draft: Draft, properties: dict[str, str]
    ) -> None:
        """A message to a retry topic goes to the dead letters when it was tried too often."""
        broker = self._broker
        group = request.topic[len(RETRY_PREFIX) :]
        limit = broker.groups.number(group, "retryMaxTimes")
        if call.command.version >= _RETRIES_FROM and request.max_reconsume_times is not None:
            limit = request.max_reconsume_times
        ordered = broker.locks.any_held(group, broker.loop.time())
        if request.reconsume_times > limit or ordered:
            topic = broker.topics.make_parked(DEAD_LETTER_PREFIX + group)
            broker.topics_changed()
            properties["DELAY"] = "-1"
            draft.topic, draft.queue_id = topic.name, 0

    def _draft(self, call: Call, request: SendRequest, queue_id: int) -> Draft:
        """What is to be stored, as far as the request tells it."""
        body = bytes(call.command.body)
        self._check_size(len(body))
        return Draft(
            request.topic,
            queue_id,
            body,
            b"",
            request.born_ms,
            call.connection.peer_host,
            request.flag,
            request.system_flag,
            request.reconsume_times,
        )

    def _send_batch(self, call: Call, request: SendRequest, queue_id: int) -> Answer | None:
        if request.topic.startswith(RETRY_PREFIX):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "batch request does not support retry group: send singly",
            )
        broker, draft = self._broker, self._draft(call, request, queue_id)
        place, offsets = broker.store.append_batch(draft, broker.suffix)
        broker.arrived(request.topic, queue_id)
        broker.messages_in += len(offsets) // 8 - 1
        prefix = broker.id_prefix
        ids = prefix + offsets.hex(",", 8).upper().replace(",", f",{prefix}")
        return self._answer(call, place, queue_id, "", request.properties, ids)

    # Answering

    def _answer(
        self,
        call: Call,
        place: Appended,
        queue_id: int,
        unique: str,
        text: str,
        ids: str = "",
        handle: str = "",
    ) -> Answer | None:
        answer = Answer(
            ResponseCode.SUCCESS,
            {
                "msgId": ids or f"{self._broker.id_prefix}{place.physical_offset:016X}",
                "queueId": str(queue_id),
                "queueOffset": str(place.queue_offset),
                **self._fixed,
            },
        )
        if unique:
            answer.ext["transactionId"] = unique
        if handle:
            answer.ext["recallHandle"] = handle
        if not self._sync or call.command.flag & 2 or "WAIT\x01false" in text:
            return answer
        self._broker.commit.wait(
            place.physical_offset + place.size, lambda synced: _acknowledge(call, answer, synced)
        )
        return None


def _acknowledge(call: Call, answer: Answer, synced: bool) -> None:  # noqa: FBT001 - a callback
    if not synced:
        answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
        answer.remark = "the message is stored, but not on disk yet"
    call.answer(answer)
