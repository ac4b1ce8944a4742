"""Pulls, plain and lite, with long polling.

The checks are Apache's, in its order (5.x), with one exception: a pull that brings a wrong SQL
expression is refused; Apache gives it every message. Not done: slaves, cold-data control.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rocketwire.embedded.call import Answer, Call, Handler, Refusal
from rocketwire.embedded.consumers import SubscriptionEntry, sql_filter, tag_codes
from rocketwire.embedded.handlers.clients import no_filter
from rocketwire.embedded.pulls import HeldPull
from rocketwire.embedded.sql_filter import ExpressionError
from rocketwire.embedded.store.fetch import EVERYTHING, Fetched, FetchLimits, FetchStatus, Wanted
from rocketwire.embedded.store.fields import UNIT_SIZE
from rocketwire.embedded.topics import RETRY_PREFIX
from rocketwire.errors import RemoteProtocolError
from rocketwire.wire.codes import Permission, PullFlag, RequestCode, ResponseCode
from rocketwire.wire.headers import int_field, text_field

if TYPE_CHECKING:
    from rocketwire.embedded.broker import Broker

_CODES: Final = {
    FetchStatus.FOUND: ResponseCode.SUCCESS,
    FetchStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FetchStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    FetchStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    FetchStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    FetchStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    FetchStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
#: The longest that a pull is held, whatever it asks for.
_LONGEST: Final = 120.0


class PullRequest(NamedTuple):
    """The header of a pull."""

    group: str
    topic: str
    queue_id: int
    offset: int
    wanted: int
    flags: int
    commit_offset: int
    suspend_ms: int
    subscription: str | None
    version: int
    expression_type: str
    max_bytes: int


def handlers(broker: Broker) -> dict[int, Handler]:
    """The requests of this file."""
    puller = PullHandler(broker)
    return {
        RequestCode.PULL_MESSAGE: puller.pull,
        RequestCode.LITE_PULL_MESSAGE: puller.pull,
    }


def _decode(ext: dict[str, str]) -> PullRequest:
    return PullRequest(
        text_field(ext, "consumerGroup"),
        text_field(ext, "topic"),
        int_field(ext, "queueId"),
        int_field(ext, "queueOffset"),
        int_field(ext, "maxMsgNums"),
        int_field(ext, "sysFlag"),
        int_field(ext, "commitOffset", 0),
        int_field(ext, "suspendTimeoutMillis", 0),
        ext.get("subscription"),
        int_field(ext, "subVersion", 0),
        ext.get("expressionType") or "TAG",
        int_field(ext, "maxMsgBytes", -1),
    )


class PullHandler:
    """Gives messages back."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def pull(self, call: Call) -> Answer | None:
        """Answer with what there is, or hold the pull until there is something."""
        request = _decode(call.command.ext)
        self._check(request)
        wanted = self._filter(request)
        moved = self._broker.offsets.take_reset(request.group, request.topic, request.queue_id)
        if moved is not None:
            return self._reset(request, moved)
        limits = self._limits(request)
        answer = self._read(request, limits, wanted)
        if request.flags & PullFlag.COMMIT_OFFSET and request.commit_offset >= 0:
            self._broker.offsets.put(
                request.group, request.topic, request.queue_id, request.commit_offset
            )
        held = self._broker.pulls
        if (
            answer.code == ResponseCode.PULL_NOT_FOUND
            and request.flags & PullFlag.SUSPEND
            and request.suspend_ms > 0
            and not held.full
        ):
            pull = HeldPull(
                call, lambda last: self._again(call, request, limits, wanted, last=last)
            )
            seconds = min(request.suspend_ms / 1000, _LONGEST)
            held.hold((request.topic, request.queue_id), pull, seconds)
            return None
        return answer

    def _reset(self, request: PullRequest, offset: int) -> Answer:
        """Tell a member that its group was moved."""
        queue = self._broker.store.queues.get(request.topic, request.queue_id)
        minimum, maximum = (queue.minimum, queue.maximum) if queue is not None else (0, 0)
        found = Fetched(FetchStatus.OFFSET_RESET, offset, minimum, maximum)
        return Answer(
            ResponseCode.PULL_OFFSET_MOVED, _pull_ext(found), (), FetchStatus.OFFSET_RESET.value
        )

    def _again(
        self,
        call: Call,
        request: PullRequest,
        limits: FetchLimits,
        wanted: Wanted,
        *,
        last: bool,
    ) -> bool:
        """Try a held pull again; answer it if there is something, or if its time is up."""
        answer = self._read(request, limits, wanted)
        filtered = answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        if not last and (answer.code == ResponseCode.PULL_NOT_FOUND or filtered):
            return False
        call.answer(answer)
        return True

    def _check(self, request: PullRequest) -> None:
        broker = self._broker
        if not broker.permission & Permission.READ:
            raise _forbidden(1, f"the broker[{broker.name}] pulling message is forbidden")
        group = broker.groups.get(request.group)
        if group.get("consumeEnable") is False:
            raise _forbidden(2, f"subscription group no permission, {request.group}")
        topic = broker.topics.get(request.topic)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{request.topic}] not exist, apply first please!",
            )
        if not topic.permission & Permission.READ:
            raise _forbidden(3, f"the topic[{request.topic}] pulling message is forbidden")
        if not 0 <= request.queue_id < topic.read_queues:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queues}]",
            )

    def _filter(self, request: PullRequest) -> Wanted:
        """What is wanted, from the request or from the group's heartbeats."""
        if request.flags & PullFlag.SUBSCRIPTION:
            return self._own_filter(request)
        entry = self.subscription(request.group, request.topic)
        if entry.version < request.version:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if request.topic.startswith(RETRY_PREFIX):
            # A message to be consumed again matched the first time.
            return EVERYTHING
        return self.wanted(entry)

    def _own_filter(self, request: PullRequest) -> Wanted:
        try:
            if request.expression_type == "TAG":
                return Wanted(tag_codes(request.subscription))
            found = sql_filter(request.subscription, request.expression_type)
        except RemoteProtocolError:
            problem = ""
        except ExpressionError as error:
            problem = f": {error}"
        else:
            if not self._broker.options.property_filter:
                raise no_filter(request.expression_type)
            return Wanted(matches=found.matches)
        raise Refusal(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"parse the consumer's subscription failed{problem}",
        )

    def subscription(self, group: str, topic: str) -> SubscriptionEntry:
        """What heartbeats said that a group wants of a topic.

        Raises:
            Refusal: they said nothing.
        """
        live = self._broker.clients.consumers.get(group)
        entry = live.subscriptions.get(topic) if live is not None else None
        if entry is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's subscription not exist: send a heartbeat with it first",
            )
        return entry

    def wanted(self, entry: SubscriptionEntry) -> Wanted:
        """The filter of a subscription.

        Raises:
            Refusal: the expression was wrong, or filters are switched off.
        """
        if entry.by_tag:
            return Wanted(entry.codes)
        if entry.sql is None:
            raise Refusal(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if not self._broker.options.property_filter:
            raise no_filter(entry.expression_type)
        return Wanted(matches=entry.sql.matches)

    def _limits(self, request: PullRequest) -> FetchLimits:
        options = self._broker.options
        count = max(min(request.wanted, options.pull_messages), 1)
        size = options.pull_bytes
        if request.max_bytes > 0:
            size = min(size, request.max_bytes)
        return FetchLimits(count, size, max(16_000, UNIT_SIZE * max(request.wanted, 1)))

    def _read(self, request: PullRequest, limits: FetchLimits, wanted: Wanted) -> Answer:
        found = self._broker.store.fetch(
            request.topic, request.queue_id, request.offset, limits, wanted
        )
        self._broker.messages_out += found.count
        code = _CODES.get(found.status)
        if code is None:
            moved = request.offset != 0
            code = ResponseCode.PULL_OFFSET_MOVED if moved else ResponseCode.PULL_NOT_FOUND
        return Answer(code, _pull_ext(found), found.pieces, found.status.value)


def _pull_ext(found: Fetched) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(found.next_offset),
        "minOffset": str(found.minimum),
        "maxOffset": str(found.maximum),
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


def _forbidden(kind: int, remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(kind)})
