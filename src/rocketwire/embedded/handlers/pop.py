"""Receive and acknowledge: pop, ack, batch ack, and changes of the invisible time.

The checks are Apache's, in its order (5.x). Not done: ordered pops, and whether a message is given
up after many tries, which Apache's broker does not do either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.embedded.consumers import sql_filter, tag_codes
from rocketwire.embedded.handlers.clients import body_of, no_filter
from rocketwire.embedded.parked import read_parked
from rocketwire.embedded.pops import Key
from rocketwire.embedded.pulls import HeldPull
from rocketwire.embedded.sql_filter import ExpressionError
from rocketwire.embedded.store.fetch import EVERYTHING, FetchLimits, FetchStatus, Wanted
from rocketwire.embedded.store.fields import QUEUE_OFFSET, SIZE
from rocketwire.embedded.store.layout import encode_record
from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.codes import Permission, RequestCode, ResponseCode
from rocketwire.wire.headers import int_field, text_field
from rocketwire.wire.pop import (
    ANY_QUEUE,
    MOST,
    PopRequest,
    Receipt,
    decode_batch_ack,
    decode_pop_request,
    decode_receipt,
    retry_topics,
    topic_mark,
)
from rocketwire.wire.properties import Property

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

#: Of a hundred pops, so many look into the retry topics first, as with Apache.
_RETRY_FIRST: Final = 20
_REVIVE_QUEUES: Final = 8
_LONGEST: Final = 120.0
#: How often a queue is searched for one pop while a filter leaves everything out.
_SCANS: Final = 64


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    handler = PopHandler(broker)
    return {
        RequestCode.POP_MESSAGE: handler.pop,
        RequestCode.ACK_MESSAGE: handler.ack,
        RequestCode.BATCH_ACK_MESSAGE: handler.batch_ack,
        RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME: handler.change,
    }


class _Basket:
    """What one pop has found so far."""

    def __init__(self, now: int, revive_queue: int) -> None:
        self.now = now
        self.revive_queue = revive_queue
        self.count = 0
        self.size = 0
        self.rest = 0
        self.pieces: list[bytes | memoryview] = []
        self.starts: list[str] = []
        self.offsets: list[str] = []

    def ext(self, invisible_ms: int) -> dict[str, str]:
        """The header of the answer."""
        return {
            "popTime": str(self.now),
            "invisibleTime": str(invisible_ms),
            "reviveQid": str(self.revive_queue),
            "restNum": str(self.rest),
            "startOffsetInfo": ";".join(self.starts),
            "msgOffsetInfo": ";".join(self.offsets),
        }


class PopHandler:
    """Gives messages away for a while."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turn = 0

    def pop(self, call: Call) -> Answer | None:
        """Answer with what there is, or hold the request until there is something."""
        request = decode_pop_request(call.ext)
        self._check(request)
        wanted = self._wanted(request)
        basket = self._collect(request, wanted)
        if basket.count:
            return self._found(basket, request)
        held = self._broker.held_pops
        if request.poll_ms <= 0:
            return _nothing(basket, request, ResponseCode.POLLING_TIMEOUT)
        if held.full:
            return _nothing(basket, request, ResponseCode.POLLING_FULL)
        pull = HeldPull(call, lambda last: self._again(call, request, wanted, last=last))
        held.hold((request.topic, ANY_QUEUE), pull, min(request.poll_ms / 1000, _LONGEST))
        return None

    def _again(self, call: Call, request: PopRequest, wanted: Wanted, *, last: bool) -> bool:
        basket = self._collect(request, wanted)
        if basket.count:
            call.answer(self._found(basket, request))
        elif last:
            call.answer(_nothing(basket, request, ResponseCode.POLLING_TIMEOUT))
        return bool(basket.count or last)

    def _found(self, basket: _Basket, request: PopRequest) -> Answer:
        self._broker.messages_out += basket.count
        if basket.rest > 0:
            # There is something for others who wait, too.
            self._broker.held_pops.arrived(request.topic, ANY_QUEUE)
        ext = basket.ext(request.invisible_ms)
        return Answer(ResponseCode.SUCCESS, ext, basket.pieces, FetchStatus.FOUND.value)

    def _check(self, request: PopRequest) -> None:
        broker, name = self._broker, request.topic
        if not broker.permission & Permission.READ:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"the broker[{broker.name}] pop message is forbidden"
            )
        if request.most > MOST:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"the broker[{broker.name}] pop message's num is greater than {MOST}",
            )
        topic = broker.topics.get(name)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
            )
        if not topic.permission & Permission.READ:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden"
            )
        if request.queue_id >= topic.read_queues:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{request.queue_id}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}]",
            )
        if broker.groups.get(request.group).get("consumeEnable") is False:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {request.group}"
            )

    def _wanted(self, request: PopRequest) -> Wanted:
        try:
            if request.kind == "TAG":
                return Wanted(tag_codes(request.expression))
            found = sql_filter(request.expression, request.kind)
        except (RemoteProtocolError, ExpressionError) as error:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error}",
            ) from None
        if not self._broker.options.property_filter:
            raise no_filter(request.kind)
        return Wanted(matches=found.matches)

    # Collecting

    def _collect(self, request: PopRequest, wanted: Wanted) -> _Basket:
        broker = self._broker
        self._turn += 1
        basket = _Basket(broker.clock_ms(), self._turn % _REVIVE_QUEUES)
        retries = retry_topics(request.topic, request.group)
        ordinary = [(request.topic, wanted)]
        again = [(topic, EVERYTHING) for topic in retries if broker.topics.get(topic) is not None]
        retry_first = broker.random.randrange(100) < _RETRY_FIRST
        for topic, filtered in again + ordinary if retry_first else ordinary + again:
            for queue_id in self._queues(topic, request):
                self._take(basket, request, (request.group, topic, queue_id), filtered)
        return basket

    def _queues(self, topic: str, request: PopRequest) -> Iterator[int]:
        if topic == request.topic and request.queue_id >= 0:
            return iter((request.queue_id,))
        config = self._broker.topics.get(topic)
        count = config.read_queues if config is not None else 0
        # Another queue first each time, so that none waits behind the others.
        return ((self._turn + n) % count for n in range(count))

    def _take(self, basket: _Basket, request: PopRequest, key: Key, wanted: Wanted) -> None:
        broker = self._broker
        _, topic, queue_id = key
        stored = broker.store.queues.get(topic, queue_id)
        if stored is None:
            return
        queue = broker.pops.queue(key, from_first=request.from_first)
        queue.next = max(queue.next, stored.minimum)
        for _ in range(_SCANS):
            room = request.most - basket.count
            size = broker.options.pull_bytes - basket.size
            if room <= 0 or (size <= 0 and basket.count) or queue.next >= stored.maximum:
                break
            begin = queue.next
            found = broker.store.fetch(
                topic, queue_id, begin, FetchLimits(room, max(size, 1)), wanted
            )
            records = list(_records(found.pieces))
            offsets = [int.from_bytes(record[QUEUE_OFFSET], "big") for record in records]
            broker.pops.give(
                key, queue, offsets, found.next_offset, basket.now, request.invisible_ms
            )
            if records:
                self._add(basket, request, key, begin, offsets, records)
                break
        basket.rest += max(stored.maximum - queue.next, 0)

    def _add(self, basket: _Basket, request: PopRequest, key: Key, begin: int,
             offsets: list[int], records: list[memoryview]) -> None:  # fmt: skip
        _, topic, queue_id = key
        mark = topic_mark(topic)
        basket.starts.append(f"{mark} {queue_id} {begin}")
        basket.offsets.append(f"{mark} {queue_id} {','.join(map(str, offsets))}")
        basket.count += len(records)
        basket.size += sum(map(len, records))
        if topic == request.topic:
            basket.pieces += records
            return
        for offset, record in zip(offsets, records, strict=True):
            receipt = Receipt(
                begin, basket.now, request.invisible_ms, basket.revive_queue, mark,
                self._broker.name, queue_id, offset,
            )  # fmt: skip
            basket.pieces.append(self._renamed(record, request.topic, receipt))

    def _renamed(self, record: memoryview, topic: str, receipt: Receipt) -> bytes:
        """A message of a retry topic as one of the topic that was asked for, with its receipt."""
        parked = read_parked(record)
        parked.note(Property.POP_CK, receipt.encode())
        parked.draft.topic = topic
        return encode_record(
            parked.draft,
            parked.queue_offset,
            parked.log_offset,
            parked.store_ms,
            self._broker.host_bytes,
        )

    # Receipts

    def ack(self, call: Call) -> Answer:
        """A message is done with."""
        group, topic, receipt = self._receipt(call)
        self._broker.pops.acknowledge(group, topic, receipt)
        return Answer()

    def batch_ack(self, call: Call) -> Answer:
        """Several are."""
        for group, receipt, topic in decode_batch_ack(body_of(call)):
            self._broker.pops.acknowledge(group, receipt.topic(topic, group), receipt)
        return Answer()

    def change(self, call: Call) -> Answer:
        """A message stays invisible longer, or comes back sooner."""
        group, topic, receipt = self._receipt(call)
        invisible_ms = max(int_field(call.ext, "invisibleTime"), 0)
        now = self._broker.pops.change(group, topic, receipt, invisible_ms)
        if now is None:
            raise Refusal(
                ResponseCode.NO_MESSAGE,
                "the receipt does not count any more: the message was acknowledged, or has come "
                "back and was given to another member",
            )
        return Answer(
            ext={
                "popTime": str(now),
                "invisibleTime": str(invisible_ms),
                "reviveQid": str(receipt.revive_queue),
            }
        )

    def _receipt(self, call: Call) -> tuple[str, str, Receipt]:
        broker, topic = self._broker, text_field(call.ext, "topic")
        config = broker.topics.get(topic)
        if config is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        queue_id, offset = int_field(call.ext, "queueId"), int_field(call.ext, "offset")
        if not 0 <= queue_id < config.read_queues:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queues}]",
            )
        stored = broker.store.queues.get(topic, queue_id)
        if stored is None or not stored.minimum <= offset <= stored.maximum:
            raise Refusal(
                ResponseCode.NO_MESSAGE, f"offset is illegal, key:{topic}@{queue_id}: {offset}"
            )
        receipt = decode_receipt(text_field(call.ext, "extraInfo"))
        group = text_field(call.ext, "consumerGroup")
        return group, topic, receipt._replace(queue_id=queue_id, offset=offset)


def _records(pieces: list[memoryview]) -> Iterator[memoryview]:
    for piece in pieces:
        at = 0
        while at < len(piece):
            size = int.from_bytes(piece[at : at + SIZE.stop], "big")
            yield piece[at : at + size]
            at += size


def _nothing(basket: _Basket, request: PopRequest, code: int) -> Answer:
    return Answer(code, basket.ext(request.invisible_ms), (), FetchStatus.NO_MESSAGE_IN_QUEUE.value)
