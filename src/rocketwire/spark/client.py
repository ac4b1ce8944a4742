"""What the data source needs of RocketMQ: clients that outlive a task, and questions to brokers.

Python workers are reused between tasks, queries and micro-batches, so clients are kept here by
their options, made when first needed, and never closed: a worker ends without notice.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from rocketwire.columns.client_parts import parts_of
from rocketwire.config import ProducerConfig, ReaderConfig
from rocketwire.core.effects import Oneway, Op, invoke
from rocketwire.core.lookup import ask_name_servers, cluster_info, fetch_route
from rocketwire.core.naming import with_namespace
from rocketwire.core.reading.filters import check_filter
from rocketwire.core.reading.pull import (
    TagFilter,
    address_of,
    max_offset,
    min_offset,
    offset_for_time,
)
from rocketwire.core.side_by_side import run_together
from rocketwire.errors import (
    BrokerError,
    RocketMQError,
    RouteError,
    TopicNotFoundError,
    TransportError,
)
from rocketwire.message import MessageQueue
from rocketwire.spark.options import ClientOptions, TopicChoice
from rocketwire.spark.topic_view import TopicView, ask_all, learn_route, view_of
from rocketwire.sync.client import BlockingClient
from rocketwire.sync.reader import Reader
from rocketwire.wire import headers
from rocketwire.wire.codes import RequestCode, ResponseCode, error_for
from rocketwire.wire.command import Reply
from rocketwire.wire.lenient_json import loads

if TYPE_CHECKING:
    from rocketwire.sync.producer import Producer

_log = logging.getLogger("rocketwire.spark")

_GROUP: Final = "rocketwire-spark"
#: Seconds for which an answer of the name servers is believed.
_VIEW_FRESH: Final = 2.0
_SYSTEM_PREFIXES: Final = ("%", "rmq_sys_", "RMQ_SYS_")
_SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX",
        "TRANS_CHECK_MAX_TIME_TOPIC", "CHECKPOINT_TOPIC",
    }
)  # fmt: skip

K = TypeVar("K", bound=BlockingClient[Any])
_clients: dict[Any, Any] = {}
_lock = threading.Lock()


def producer_for(options: ClientOptions) -> Producer:
    """The producer of this process for some options."""
    config = options.make(ProducerConfig)
    group = config.group if config.group != "rocketwire" else _GROUP
    return _kept(("producer", options), lambda: _make_producer(options, group))


def reader_for(options: ClientOptions, group: str | None = None) -> Reader:
    """The reader of this process for some options."""
    return _kept(("reader", options, group), lambda: _make_reader(options, group or _GROUP))


def _kept(key: object, make: Callable[[], K]) -> K:
    # A forked worker must not use what its parent made, locks included.
    with _lock:
        found = _clients.get((os.getpid(), key))
        if found is None:
            found = _clients[os.getpid(), key] = make().start()
        return cast("K", found)


def _make_producer(options: ClientOptions, group: str) -> Producer:
    from rocketwire.sync.producer import Producer

    config = options.make(ProducerConfig, group=group)
    return Producer(config=_as_mapping(config))


def _make_reader(options: ClientOptions, group: str) -> Reader:
    # Routes are refreshed when they are needed; a thread for it would only stay behind.
    config = options.make(ReaderConfig, group=group, background=False)
    return Reader(config=_as_mapping(config))


def _as_mapping(config: Any) -> dict[str, Any]:
    return {spec.name: getattr(config, spec.name) for spec in dataclasses.fields(config)}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets that brokers have: ``first`` and ``end`` of each queue that answered."""

    first: Mapping[MessageQueue, int]
    end: Mapping[MessageQueue, int]
    #: Why the others did not.
    silent: Mapping[MessageQueue, RocketMQError]


class Cluster:
    """Questions that the driver asks."""

    def __init__(
        self,
        reader: Reader,
        group: str | None = None,
        *,
        retries: int = 3,
        interval: float = 0.1,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._reader = reader
        self._group = group or _GROUP
        self._retries = retries
        self._interval = interval
        self._sleep = sleep
        #: Brokers that did not answer when they were last asked; they are not asked again at once.
        self._silent: set[str] = set()
        #: Groups, topics and brokers that an offset was written to.
        self._told: set[tuple[str, str, str]] = set()
        self._views: dict[str, tuple[float, TopicView | None]] = {}
        #: When name servers were last asked for all topics, and their answer.
        self._listed: tuple[float, tuple[str, ...]] = (-_VIEW_FRESH, ())
        #: When name servers were last asked who is registered, and their answer.
        self._registered: tuple[float, frozenset[str] | None] = (-_VIEW_FRESH, None)

    def check_reachable(self, topic: str | None) -> None:
        """Ask a name server for the route of a topic, or of the default one; any answer will do.

        Raises:
            NameServerUnavailableError: none answers.
            BrokerError: it refuses us.
        """
        parts = parts_of(self._reader)
        deadline = parts.clock() + parts.request_timeout
        name = with_namespace(topic, parts.instance.config.namespace) if topic else "TBW102"
        parts.run(fetch_route(parts.instance, name, deadline))

    def topics(self, choice: TopicChoice) -> tuple[str, ...]:
        """The topics chosen, those by pattern as they are now."""
        if choice.pattern is None:
            return choice.topics or tuple(sorted({queue.topic for queue in choice.queues}))
        return tuple(topic for topic in self._users_topics() if choice.matches(topic))

    def _users_topics(self) -> tuple[str, ...]:
        """All topics that any name server lists, but for RocketMQ's own."""
        parts = parts_of(self._reader)
        asked_at, known = self._listed
        if parts.clock() - asked_at < _VIEW_FRESH:
            return known
        listed = self._topic_list(RequestCode.GET_ALL_TOPICS_FROM_NAME_SERVER)
        try:
            system = self._topic_list(RequestCode.GET_SYSTEM_TOPICS_FROM_NAME_SERVER)
        except BrokerError:  # an old name server
            system = set()
        known = tuple(
            topic
            for topic in sorted(listed - system - _SYSTEM_TOPICS)
            if not topic.startswith(_SYSTEM_PREFIXES)
        )
        self._listed = (parts.clock(), known)
        return known

    def _topic_list(self, code: int) -> set[str]:
        parts = parts_of(self._reader)
        deadline = parts.clock() + parts.request_timeout
        first: Reply = parts.run(ask_name_servers(parts.instance, code, {}, deadline))
        if first.code != ResponseCode.SUCCESS:
            raise error_for(first.code, first.remark, "the name server")
        servers = parts.instance.servers_in_turn()
        # One that was restarted lists only topics of brokers that have registered since.
        others = ask_all(parts, servers, code, {}).values() if len(servers) > 1 else ()
        found: set[str] = set()
        for reply in (first, *others):
            content = loads(reply.body) if reply.code == ResponseCode.SUCCESS else None
            names = content.get("topicList") if isinstance(content, dict) else None
            found |= {name for name in names or () if isinstance(name, str)}
        return found

    def check_filter(self, choice: TopicChoice, wanted: TagFilter) -> None:
        """Have brokers check an SQL expression, so that a wrong one is told before any job.

        Raises:
            ConfigError: a broker can't read it, or has such filters switched off.
        """
        parts = parts_of(self._reader)
        for topic in self.topics(choice) if wanted.kind != "TAG" else ():
            self.view_of(topic)
            deadline = parts.clock() + parts.request_timeout
            parts.run(check_filter(parts.instance, self._group, topic, wanted, deadline))

    def queues(self, choice: TopicChoice) -> tuple[MessageQueue, ...]:
        """The queues chosen that can be read now.

        Raises:
            TopicNotFoundError: a topic does not exist.
        """
        found: list[MessageQueue] = []
        for topic in self.topics(choice):
            aims = {queue.broker for queue in choice.queues if queue.topic == topic}
            if self.view_of(topic) is None and aims and not self.has_any(aims):
                continue
            found += self._reader.queues(topic)
        if not choice.queues:
            return tuple(found)
        missing = sorted(set(choice.queues) - set(found))
        # A broker that is registered does not have them; one that is away may well.
        if wrong := [queue for queue in missing if self.has_any({queue.broker})]:
            queue = wrong[0]
            raise TopicNotFoundError(
                f"assign: topic {queue.topic} has no queue {queue.id} on broker {queue.broker}"
            )
        return choice.queues

    def queues_of(self, topic: str) -> tuple[MessageQueue, ...] | None:
        """The queues of one topic; None when no name server knows it."""
        return None if self.view_of(topic) is None else self._reader.queues(topic)

    def view_of(self, topic: str) -> TopicView | None:
        """What all name servers say of a topic; None when none of them knows it.

        Raises:
            RouteError: none of them answers.
        """
        parts = parts_of(self._reader)
        asked_at, known = self._views.get(topic, (-_VIEW_FRESH, None))
        if parts.clock() - asked_at < _VIEW_FRESH:
            return known
        route = learn_route(parts, topic)
        view = None
        if route is not None:
            view = view_of(parts, topic, route, self._reader.queues(topic))
        self._views[topic] = (parts.clock(), view)
        return view

    def has_any(self, brokers: Set[str]) -> bool:
        """Whether one of some brokers is registered; True where that can't be told."""
        parts = parts_of(self._reader)
        asked_at, known = self._registered
        if parts.clock() - asked_at >= _VIEW_FRESH:
            deadline = parts.clock() + parts.request_timeout
            try:
                info = parts.run(cluster_info(parts.instance, deadline))
                known = frozenset(info.brokers)
            except RocketMQError:
                known = None
            self._registered = (parts.clock(), known)
        return known is None or not known.isdisjoint(brokers)

    def bounds(self, queues: Iterable[MessageQueue]) -> Bounds:
        """What brokers have of some queues: all are asked for both ends at once."""
        found, silent = self._ask(list(queues), min_offset, max_offset)
        return Bounds(
            {queue: first for queue, (first, _) in found.items()},
            # Messages may come and expire between the two answers.
            {queue: max(both) for queue, both in found.items()},
            silent,
        )

    def offsets_at(self, moments: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The first offset of each queue stored at or after its moment, in milliseconds.

        Raises:
            TransportError: a broker did not answer.
        """

        def ask(instance: Any, queue: MessageQueue, deadline: float) -> Op[int]:
            return offset_for_time(instance, queue, moments[queue] / 1000, self._group, deadline)

        found, silent = self._ask(list(moments), ask)
        for error in silent.values():
            raise error
        return {queue: offset for queue, (offset,) in found.items()}

    def _ask(
        self, queues: list[MessageQueue], *questions: Any
    ) -> tuple[dict[MessageQueue, tuple[int, ...]], dict[MessageQueue, RocketMQError]]:
        """Ask once, and those again that do not answer, unless they did not the last time, either."""
        found, silent = self._ask_once(queues, questions)
        for _ in range(self._retries):
            again = [queue for queue in silent if queue.broker not in self._silent]
            if not again:
                break
            self._sleep(self._interval)
            more, still = self._ask_once(again, questions)
            found |= more
            silent = {q: e for q, e in silent.items() if q not in more} | still
        self._silent = {queue.broker for queue in silent}
        return found, silent

    def _ask_once(
        self, queues: list[MessageQueue], questions: Sequence[Any]
    ) -> tuple[dict[MessageQueue, tuple[int, ...]], dict[MessageQueue, RocketMQError]]:
        """The answers of each queue to all questions, which go out together."""
        parts = parts_of(self._reader)
        deadline = parts.clock() + parts.request_timeout
        found: list[dict[MessageQueue, int]] = [{} for _ in questions]
        silent: dict[MessageQueue, RocketMQError] = {}

        def ask(queue: MessageQueue, number: int) -> Op[None]:
            try:
                answer = yield from questions[number](parts.instance, queue, deadline)
            except (TransportError, BrokerError, RouteError) as error:
                silent[queue] = error
            else:
                found[number][queue] = answer

        asked = [ask(queue, number) for queue in queues for number in range(len(questions))]
        parts.run(run_together(asked))
        heard = [queue for queue in queues if queue not in silent]
        return {queue: tuple(answers[queue] for answers in found) for queue in heard}, silent

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Tell brokers how far a group has read; failing is harmless.

        Nobody waits for it but once: a busy broker may lose one of several first offsets of a
        group that come at the same time, so the first one of each topic goes ahead.
        """
        parts = parts_of(self._reader)
        deadline = parts.clock() + parts.request_timeout

        def tell() -> Op[None]:
            instance = parts.instance
            name = with_namespace(group, instance.config.namespace)
            for queue, offset in offsets.items():
                topic = with_namespace(queue.topic, instance.config.namespace)
                fields = headers.update_consumer_offset(
                    name, topic, queue.id, offset, broker=queue.broker
                )
                request = instance.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
                address = yield from address_of(instance, queue, deadline)
                place = (name, topic, queue.broker)
                if place in self._told:
                    yield Oneway(address, request, deadline)
                else:
                    yield from invoke(address, request, deadline)
                    self._told.add(place)

        try:
            parts.run(tell())
        except RocketMQError as error:
            _log.warning("progress of group %s was not reported: %s", group, error)
