"""Replies: a message that goes straight back to the client which sent the request.

The reply is also stored, as Apache does by default. An answer of 1 means that the requester could
not be reached.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from rocketwire.embedded.call import Answer, Call, Handler
from rocketwire.embedded.handlers.send import SendHandler
from rocketwire.embedded.store import Draft, StoreError
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import JSON, Command
from rocketwire.wire.headers import SendRequest, decode_send_request
from rocketwire.wire.properties import decode_properties, rewritten

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

_PATIENCE: Final = 10.0


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    handler = ReplyHandler(broker)
    return {
        RequestCode.SEND_REPLY_MESSAGE: handler.reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: handler.reply,
    }


class ReplyHandler:
    """Passes replies on."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sender = SendHandler(broker)

    def reply(self, call: Call) -> None:
        """Push a reply to its requester and store it; answered when the requester has it."""
        request = decode_send_request(call.command.code, call.ext)
        topic = self._sender.check(request)
        queue_id = max(request.queue_id, 0)
        self._broker.spawn(self._pass_on(call, request, min(queue_id, topic.write_queues - 1)))

    async def _pass_on(self, call: Call, request: SendRequest, queue_id: int) -> None:
        properties = decode_properties(request.properties)
        problem = await self._push(call, request, properties)
        answer = Answer(
            ext={
                "msgId": "0",
                "queueId": str(queue_id),
                "queueOffset": "0",
                "MSG_REGION": self._broker.options.region,
                "TRACE_ON": "true",
            }
        )
        if problem is not None:
            answer.code, answer.remark = ResponseCode.SYSTEM_ERROR, problem
        self._store(call, request, queue_id, properties, answer)
        call.answer(answer)

    def _store(
        self,
        call: Call,
        request: SendRequest,
        queue_id: int,
        properties: dict[str, str],
        answer: Answer,
    ) -> None:
        draft = Draft(
            request.topic,
            queue_id,
            bytes(call.command.body),
            rewritten(properties).encode(),
            request.born_ms,
            call.connection.peer_host,
            request.flag,
            request.system_flag,
            request.reconsume_times,
        )
        try:
            place = self._broker.put(draft)
        except StoreError:
            # The requester has it; that is what counts.
            return
        answer.ext["msgId"] = self._broker.message_id(place.physical_offset)
        answer.ext["queueOffset"] = str(place.queue_offset)

    async def _push(
        self, call: Call, request: SendRequest, properties: dict[str, str]
    ) -> str | None:
        """Push to the requester; what went wrong, if anything."""
        client_id = properties.get("REPLY_TO_CLIENT")
        if client_id is None:
            return "reply message properties[REPLY_TO_CLIENT] is null: set it from the request"
        connection = self._broker.clients.connection_of(client_id)
        if connection is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        properties["PUSH_REPLY_TIME"] = str(self._broker.clock_ms())
        command = self._command(call, request, properties)
        future = connection.invoke(command)
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await asyncio.shield(future)
        except (TimeoutError, asyncio.CancelledError):
            connection.forget(command.opaque)
            if not future.cancelled() and not future.done():
                future.cancel()
            return f"push reply message to {client_id}fail."
        return None if answer.code == 0 else f"push reply message to {client_id}fail."

    def _command(self, call: Call, request: SendRequest, properties: dict[str, str]) -> Command:
        ext = {
            "producerGroup": request.group,
            "topic": request.topic,
            "defaultTopic": request.default_topic,
            "defaultTopicQueueNums": str(request.default_queues),
            "queueId": str(request.queue_id),
            "sysFlag": str(request.system_flag),
            "bornTimestamp": str(request.born_ms),
            "flag": str(request.flag),
            "properties": rewritten(properties),
            "reconsumeTimes": str(request.reconsume_times),
            "unitMode": "true" if request.unit_mode else "false",
            "bornHost": call.connection.peer,
            "storeHost": self._broker.address,
            "storeTimestamp": str(self._broker.clock_ms()),
        }
        return Command(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext, call.command.body, header=JSON
        )
