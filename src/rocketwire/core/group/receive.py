"""Receive and acknowledge: the operations of simple consumers.

Members of a group share no queues. The one that asks gets messages of any queue, which are
invisible to the others for a while; what is not acknowledged in time comes again, to the next that
asks. So any number of members works on any number of queues, and one that dies loses nothing.

A broker is asked for all queues of a topic at once. While nothing is found, one broker holds the
question; several are asked again and again in short turns, because what one gives while another
still holds must not wait for that.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rocketwire.core.effects import Invoke, Op, invoke, invoke_all, sleep
from rocketwire.core.group.receive_start import Beginnings, ReceivePlace, Rests
from rocketwire.core.instance import Instance
from rocketwire.core.lookup import proxy_in_the_way
from rocketwire.core.naming import with_namespace
from rocketwire.core.reading.pull import read_queues
from rocketwire.errors import (
    BrokerError,
    ClientClosedError,
    ConnectFailedError,
    RemoteProtocolError,
    RocketMQError,
    ServiceNotAvailableError,
    TransportError,
    UnsupportedRequestError,
)
from rocketwire.log_fields import about
from rocketwire.message import StoredMessage
from rocketwire.wire import pop
from rocketwire.wire.client_bodies import ConsumerData, Subscription
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for
from rocketwire.wire.command import JSON, Command, Reply, Request
from rocketwire.wire.lazy_message import broker_property, messages_in
from rocketwire.wire.pop import PopReply, Receipt
from rocketwire.wire.properties import Property
from rocketwire.wire.route import MASTER_ID

_log: Final = logging.getLogger("rocketwire.consumer")

#: Seconds for which one of several brokers holds a question, first and at most.
_FIRST_TURN: Final = 0.05
_LONGEST_TURN: Final = 0.5
#: Seconds for which one broker holds a question at most: so late is a shutdown noticed.
_LONGEST_HOLD: Final = 5.0
_PAUSE: Final = 0.2
#: What answers have in which a message brings its receipt along: those from retry topics.
_RECEIPT: Final = f"{Property.POP_CK}\x01".encode()
_EMPTY: Final = frozenset(
    {ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND}
)


class Taken(NamedTuple):
    """A message that was received, its receipt, and the topic that was subscribed to."""

    message: StoredMessage
    receipt: Receipt
    topic: str


class _Round(NamedTuple):
    """What one round of questions gave; ``trouble`` when nobody could be reached."""

    found: list[Taken]
    trouble: RocketMQError | None


class Receiver:
    """What a simple consumer knows: its subscriptions, and how brokers behave.

    Args:
        instance: the client instance.
        group: the consumer group, as users know it.
        start: where a new group begins: ``earliest``, ``latest``, or a moment.
    """

    def __init__(self, instance: Instance, group: str, start: str | float) -> None:
        self._instance = instance
        self._group = group
        self._subscriptions: dict[str, Subscription] = {}
        self._rests = Rests(instance)
        self._beginnings = Beginnings(instance, group, start, self._rests)
        self._turn = 0
        self._without_batches: set[str] = set()
        self._is_over = False
        #: When what is wanted last changed: brokers take the later of two subscriptions.
        self._version = 0
        # Heartbeats tell of it, so that operators see who receives.
        instance.receivers[self] = self.data

    def end(self) -> None:
        """Let calls that wait for messages wait no longer, and heartbeats tell nothing more."""
        self._is_over = True
        self._instance.receivers.pop(self, None)

    def data(self) -> ConsumerData:
        """What heartbeats tell of this member."""
        wanted = [
            Subscription(self._wired(topic), item.expression, self._version, item.kind)
            for topic, item in sorted(self._subscriptions.copy().items())
        ]
        # As a proxy tells of simple consumers: they ask by themselves, nothing is pushed to them.
        return ConsumerData(self._wired(self._group), wanted, consume_type="CONSUME_ACTIVELY")

    def subscribe(self, subscription: Subscription) -> None:
        """Want a topic; a later subscription to the same one replaces it."""
        self._subscriptions[subscription.topic] = subscription
        self._beginnings.forget(subscription.topic)
        self._version = max(self._version + 1, int(self._instance.wall() * 1000))
        self._instance.heartbeat_wake_up.wake()

    @property
    def has_subscriptions(self) -> bool:
        """Whether anything is wanted."""
        return bool(self._subscriptions)

    # Beginning

    def prepare(self) -> Op[None]:
        """Check what was subscribed to since the last time, and set where a new group begins.

        Raises:
            TopicNotFoundError: a topic is unknown.
            ConfigError: a broker can't read an expression.
            UnsupportedRequestError: a proxy is in the way.
        """
        instance = self._instance
        deadline = instance.clock() + instance.config.request_timeout
        # Before a position is written. A proxy leaves some of the requests unanswered.
        if (proxy := (yield from proxy_in_the_way(instance, deadline))) is not None:
            raise _explained(proxy)
        wanted = list(self._subscriptions.values())
        for subscription in [s for s in wanted if not self._beginnings.is_over(s.topic)]:
            yield from self._beginnings.prepare(subscription)

    def _wired(self, name: str) -> str:
        return with_namespace(name, self._instance.config.namespace)

    # Receiving

    def receive(self, count: int, wait: float, invisible: float) -> Op[list[Taken]]:
        """Up to so many messages; waits for the first one if asked to.

        Raises:
            ClientClosedError: the consumer was shut down meanwhile.
            TransportError: no broker could be reached.
            BrokerError: one refused.
        """
        clock = self._instance.clock
        deadline = clock() + wait
        yield from self.prepare()
        found, trouble = yield from self._quick_round(count, invisible)
        turn = pause = _FIRST_TURN
        while not found and (left := deadline - clock()) > 0:
            places = yield from self._places()
            hold = min(left, _LONGEST_HOLD if len(places) == 1 else turn)
            turn = min(turn * 2, _LONGEST_TURN)
            asked_at = clock()
            found, trouble = yield from self._poll(places, count, invisible, hold)
            if self._is_over and not found:
                raise ClientClosedError("this simple consumer was shut down while it waited")
            if found or trouble is not None or clock() - asked_at >= hold / 2:
                pause = _FIRST_TURN
            else:
                # Brokers that hold too many questions answer at once: they get time to recover.
                yield from sleep(min(deadline, clock() + pause))
                pause = min(pause * 2, _LONGEST_TURN)
        if trouble is not None and not found:
            raise trouble
        return found

    def _places(self) -> Op[list[ReceivePlace]]:
        """Where to ask, another one first each time; without those that could not be reached."""
        instance, found = self._instance, []
        for topic in self._subscriptions:
            deadline = instance.clock() + instance.config.request_timeout
            queues = yield from read_queues(instance, topic, deadline)
            found += [
                ReceivePlace(topic, broker) for broker in dict.fromkeys(q.broker for q in queues)
            ]
        ready = [place for place in found if self._beginnings.is_set(place)]
        chosen = self._rests.awake(ready) or ready
        self._turn += 1
        first = self._turn % max(len(chosen), 1)
        return chosen[first:] + chosen[:first]

    def _quick_round(self, count: int, invisible: float) -> Op[_Round]:
        """What there is now: one broker after the other until there is enough."""
        found: list[Taken] = []
        failures: list[RocketMQError] = []
        places = yield from self._places()
        for place in places:
            while len(found) < count:
                most = min(count - len(found), pop.MOST)
                try:
                    call = self._call(place, most, invisible, 0.0)
                    reply = yield from invoke(call.address, call.request, call.deadline)
                    taken = yield from self._read(place, reply)
                except (TransportError, BrokerError) as error:
                    self._bear(place, error, failures)
                    break
                found += taken
                if len(taken) < most:
                    break
        return _judged(found, failures, places)

    def _poll(
        self, places: Sequence[ReceivePlace], count: int, invisible: float, hold: float
    ) -> Op[_Round]:
        """Ask several at once, and have each hold the question for a while."""
        asked, calls = [], []
        failures: list[RocketMQError] = []
        for place, share in _shares(places, count):
            try:
                calls.append(self._call(place, share, invisible, hold))
            except TransportError as error:
                self._bear(place, error, failures)
            else:
                asked.append(place)
        replies = (yield from invoke_all(tuple(calls))) if calls else []
        found: list[Taken] = []
        for place, reply in zip(asked, replies, strict=True):
            try:
                if not isinstance(reply, Reply):
                    raise reply
                found += yield from self._read(place, reply)
            except (TransportError, BrokerError) as error:
                self._bear(place, error, failures)
        judged = _judged(found, failures, places)
        if failures and not found:
            yield from sleep(self._instance.clock() + _PAUSE)
        return judged

    def _call(self, place: ReceivePlace, most: int, invisible: float, hold: float) -> Invoke:
        instance, subscription = self._instance, self._subscriptions[place.topic]
        fields = pop.pop_fields(
            group=self._wired(self._group),
            topic=self._wired(place.topic),
            count=most,
            invisible_ms=max(round(invisible * 1000), 1),
            poll_ms=round(hold * 1000),
            expression=subscription.expression,
            kind=subscription.kind,
            born_ms=0 if instance.config.credentials is None else int(instance.wall() * 1000),
        )
        deadline = instance.clock() + hold + instance.config.request_timeout
        request = self._request(RequestCode.POP_MESSAGE, fields)
        return Invoke(self._address(place.broker), request, deadline)

    def _request(self, code: int, fields: dict[str, str], body: bytes = b"") -> Request:
        request = self._instance.request(code, fields, body)
        if isinstance(request, Command):
            # The code has more bits than a binary header has for it.
            request.header = JSON
        return request

    def _address(self, broker: str) -> str:
        addresses = self._instance.routes.addresses_of(broker)
        if MASTER_ID not in addresses:
            self._instance.route_wake_up.wake()
            raise ConnectFailedError(f"broker {broker} has no master in any route just now")
        return addresses[MASTER_ID]

    def _read(self, place: ReceivePlace, reply: Reply) -> Op[list[Taken]]:
        self._rests.end(place.broker)
        if reply.code in _EMPTY:
            return []
        if reply.code != ResponseCode.SUCCESS:
            raise _refusal(reply, place.broker)
        told = pop.decode_pop_reply(reply.ext)
        data = bytes(reply.body)
        has_receipts = _RECEIPT in data
        taken = [
            Taken(message, _receipt(message, told, has_own=has_receipts), place.topic)
            for message in messages_in(data, broker=place.broker)
        ]
        tags = frozenset(self._subscriptions[place.topic].tags)
        # Brokers compare hashes of tags only. What nobody wants must not come again.
        others = [t for t in taken if tags and t.message.tags not in tags]
        if others:
            yield from self.acknowledge([(t.receipt, t.topic) for t in others])
            taken = [t for t in taken if t not in others]
        return taken

    def _bear(
        self, place: ReceivePlace, error: RocketMQError, failures: list[RocketMQError]
    ) -> None:
        failures.append(error)
        if isinstance(error, (TransportError, ServiceNotAvailableError)):
            self._rests.begin(place.broker)
            _log.debug(
                "%s: broker %s can't be asked: %s",
                place.topic,
                place.broker,
                error,
                extra=about(topic=place.topic, broker=place.broker, group=self._group),
            )

    # What becomes of messages

    def acknowledge(self, receipts: Sequence[tuple[Receipt, str]]) -> Op[None]:
        """Be done with messages: one request for each broker where it has that.

        Args:
            receipts: with the topics that users know.

        Raises:
            TransportError: a broker could not be reached; what it has comes again.
            BrokerError: it refused.
        """
        by_broker: dict[str, list[tuple[Receipt, str]]] = {}
        for receipt, topic in receipts:
            by_broker.setdefault(receipt.broker, []).append((receipt, self._wired(topic)))
        failure: RocketMQError | None = None
        for broker, items in by_broker.items():
            try:
                yield from self._acknowledge_at(broker, items)
            except (TransportError, BrokerError) as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _acknowledge_at(self, broker: str, items: list[tuple[Receipt, str]]) -> Op[None]:
        group, instance = self._wired(self._group), self._instance
        deadline = instance.clock() + instance.config.request_timeout
        address = self._address(broker)
        if len(items) > 1 and broker not in self._without_batches:
            body = pop.batch_ack_body(items, broker, group)
            request = self._request(RequestCode.BATCH_ACK_MESSAGE, {}, body)
            reply = yield from invoke(address, request, deadline)
            if reply.code == ResponseCode.SUCCESS:
                return
            if reply.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                asked = RequestCode.BATCH_ACK_MESSAGE
                raise error_for(reply.code, reply.remark, broker, asked=asked)
            self._without_batches.add(broker)
        calls = tuple(
            Invoke(
                address,
                self._request(RequestCode.ACK_MESSAGE, pop.ack_fields(receipt, topic, group)),
                deadline,
            )
            for receipt, topic in items
        )
        for reply_or_error in (yield from invoke_all(calls)):
            if not isinstance(reply_or_error, Reply):
                raise reply_or_error
            if reply_or_error.code != ResponseCode.SUCCESS:
                raise _refusal(reply_or_error, broker)

    def change(self, receipt: Receipt, topic: str, invisible: float) -> Op[Receipt]:
        """Have a message stay invisible for so long from now on; the receipt that counts then.

        Raises:
            TransportError: the broker could not be reached.
            BrokerError: it refused; the message may be another member's by now.
        """
        instance = self._instance
        fields = pop.change_fields(
            receipt, self._wired(topic), self._wired(self._group), round(invisible * 1000)
        )
        request = self._request(RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME, fields)
        deadline = instance.clock() + instance.config.request_timeout
        reply = yield from invoke(self._address(receipt.broker), request, deadline)
        if reply.code != ResponseCode.SUCCESS:
            raise _refusal(reply, receipt.broker)
        return pop.decode_change_reply(reply.ext, receipt)


def _judged(
    found: list[Taken], failures: list[RocketMQError], places: Sequence[ReceivePlace]
) -> _Round:
    """What a round gave: messages, or why nobody could be asked.

    Raises:
        BrokerError: there are no messages, and a broker refused.
    """
    refusals = [failure for failure in failures if isinstance(failure, BrokerError)]
    if refusals and not found:
        raise refusals[0]
    return _Round(found, failures[0] if failures and len(failures) >= len(places) else None)


def _shares(places: Sequence[ReceivePlace], count: int) -> Iterator[tuple[ReceivePlace, int]]:
    """How many messages each place is asked for, so that all together are not too many."""
    asked = places[:count]
    for number, place in enumerate(asked):
        share = count // len(asked) + (number < count % len(asked))
        yield place, min(share, pop.MOST)


def _receipt(message: StoredMessage, told: PopReply, *, has_own: bool) -> Receipt:
    """What a broker wrote into the message, or what its answer tells of all of them."""
    queue, offset = message.queue, message.offset
    text = broker_property(message, Property.POP_CK) if has_own else None
    if text is not None:
        with contextlib.suppress(RemoteProtocolError):
            receipt = pop.decode_receipt(text)
            if told.has_given(receipt, queue.broker, queue.id, offset):
                return receipt
    is_retried = message.reconsume_times > 0
    return told.receipt(queue.topic, queue.broker, queue.id, offset, is_retried=is_retried)


def _refusal(reply: Reply, broker: str) -> BrokerError:
    # Receiving and what follows it take the same right.
    asked = RequestCode.POP_MESSAGE
    return _explained(error_for(reply.code, reply.remark, broker, asked=asked))


def _explained(error: BrokerError) -> BrokerError:
    """What is behind an answer of a server that does not have this: say so."""
    if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return error
    return UnsupportedRequestError(
        error.code,
        f"{error.remark} - receiving and acknowledging needs a broker of RocketMQ 5, asked directly "
        "and not through a proxy: use Consumer instead",
        error.broker,
        name=error.code_name,
    )
