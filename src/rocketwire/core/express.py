"""The fast lane: plain messages while all is well.

Most messages have nothing unusual about them: one message, the default strategy, a known route,
brokers that are all usable, nobody who listens to each attempt. For those everything that can be
decided beforehand is decided once per topic, and what is left is done in a handful of calls: no
plan, no generator, no effect (15 µs of CPU for a submitted message become 6).

The lane knows one end only: the broker says "stored". Whatever else happens, the *parcel* turns
into the operation that it would have been in the first place (``Sender.take_over``), standing at
its first attempt. So deadlines, retries, faults and outcomes are decided in one place, and a
message that can't take the lane (``prepare`` says None) goes that way from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, TypeVar

from rocketwire.core.attempts import result_fields
from rocketwire.core.effects import Op
from rocketwire.core.encode import Outgoing
from rocketwire.core.fault_entries import NEVER
from rocketwire.core.faults import FaultTable, Flight
from rocketwire.core.plan import Begun
from rocketwire.core.retry import SendMode
from rocketwire.core.routes import TopicEntry
from rocketwire.core.selection import best_queue
from rocketwire.core.send import Sender
from rocketwire.core.stats import bucket_of
from rocketwire.core.targets import SendTarget
from rocketwire.core.validate import check_message
from rocketwire.message import PLAIN, Message, MessageQueue, SendResult
from rocketwire.wire.command import ONEWAY, Reply
from rocketwire.wire.framing import MAX_FRAME
from rocketwire.wire.send_request import PlainFrames, moment_of

P = TypeVar("P", bound="Parcel")

_new = object.__new__
#: Bodies above this would have to be checked against the largest frame.
_LARGEST: Final = MAX_FRAME // 2


class Stop:
    """One queue of a topic, with all that a parcel to it needs."""

    __slots__ = (
        "address", "allowance", "allowance_per_byte", "counters", "entry", "faults", "flag",
        "frames", "owner", "seen", "target",
    )  # fmt: skip

    def __init__(
        self, lane: Lane, target: SendTarget, sender: Sender, id_size: int, flag: int
    ) -> None:
        self.owner = lane
        self.target = target
        self.flag = flag
        self.frames: PlainFrames = target.frames(id_size, flag)
        self.address = target.address
        self.faults: FaultTable = sender.instance.faults
        #: What is known of the broker; the table has another one when the lane is over.
        self.entry = self.faults.entry_of(target.broker)
        #: What the broker is allowed for every request, and for each byte before its answer.
        self.allowance = self.entry.expected
        self.allowance_per_byte = self.entry.allow_per_byte
        self.counters = sender.counters
        self.seen = sender.counters.of(target.broker)


class Lane:
    """A topic whose messages may take the fast lane, as long as nothing changes."""

    __slots__ = ("entry", "fresh_until", "limit", "name", "stops", "topic", "version")

    def __init__(self, entry: TopicEntry, topic: str, version: int, limit: float) -> None:
        self.entry = entry
        #: Until when the route may be used without being asked for again.
        self.fresh_until = NEVER
        #: As users say it, which is how positions are counted.
        self.topic = topic
        self.name = entry.topic
        #: The fault table's, when it was made.
        self.version = version
        #: Seconds for the first attempt.
        self.limit = limit
        self.stops: tuple[Stop, ...] = ()


class Parcel(Flight):
    """A message in the fast lane. It is its own flight in the fault table, and its own result."""

    __slots__ = (
        "answer", "deadline", "message", "moment", "number", "properties", "stop",
    )  # fmt: skip

    stop: Stop
    message: Message
    #: When it was born, as number and as part of frames and ids.
    moment: tuple[int, str, bytes]
    number: int
    #: Encoded, id included; None for a message that has none but its id.
    properties: bytes | None
    #: Until when the first attempt may take.
    deadline: float
    #: The broker's answer, which says "stored".
    answer: bytes

    def frame(self, opaque: int) -> bytes:
        """The request, body included."""
        stop = self.stop
        if self.properties is None:
            return stop.frames.frame(opaque, self.moment[2], self.number, self.message.body)
        request = stop.target.request(self.outgoing(), self.moment[0])
        return request.head(opaque, stop.flag) + self.message.body

    @property
    def message_id(self) -> str:
        """The unique id."""
        return f"{self.moment[1]}{self.number:04X}"

    def outgoing(self) -> Outgoing:
        """The message as any other send has it."""
        message, message_id = self.message, self.message_id
        properties = self.properties
        if properties is None:
            properties = f"UNIQ_KEY\x01{message_id}\x02".encode()
        return Outgoing(
            (message,),
            self.stop.owner.name,
            message.body,
            properties,
            0,
            message.flag,
            (message_id,),
            is_batch=False,
            sharding_keys=(),
        )

    def receipt(self) -> SendResult:
        """Where it is; read from the answer when somebody asks.

        It does not keep the parcel: who keeps the result would keep all that this knows, and
        a parcel that keeps its result would be left to the garbage collector.
        """
        queue = self.stop.target.queue
        return SendResult.read_by(partial(_fields, self.answer, self.moment[1], self.number, queue))


def _fields(answer: bytes, id_head: str, number: int, queue: MessageQueue) -> dict[str, Any]:
    """The fields of a result.

    Raises:
        RemoteProtocolError: the answer makes no sense.
    """
    return result_fields(Reply(answer), (f"{id_head}{number:04X}",), queue, is_batch=False)


def settle(parcels: Sequence[Parcel], now: float) -> int:
    """Brokers have stored these of one producer, and said so at ``now``.

    The fault table and the statistics learn it.

    Returns:
        The bytes of their bodies.
    """
    first = parcels[0].stop
    first.faults.answered_all(parcels, now)
    seen, entry, size = first.seen, first.entry, 0
    counts, place, least, most = seen.counts, 0, 0.0, -1.0
    for parcel in parcels:
        latency = now - parcel.began
        if parcel.entry is not entry:
            entry, seen, most = parcel.entry, parcel.stop.seen, -1.0
        if not least <= latency < most:
            # Answers that are read together took much the same time: most need no look here.
            place, least, most = bucket_of(latency)
            counts = seen.counts
        counts[place] += 1
        seen.answers += 1
        seen.seconds += latency
        size += len(parcel.message.body)
        del parcel.message  # whoever keeps the result does not keep the body
    first.counters.add(len(parcels), size)
    return size


def settle_one(parcel: Parcel, now: float) -> None:
    """As ``settle``, for one parcel."""
    stop, latency = parcel.stop, now - parcel.began
    stop.faults.answered(parcel, now)
    stop.seen.answered(latency)
    stop.counters.add(1, len(parcel.message.body))
    del parcel.message


def settle_oneway(parcel: Parcel, now: float) -> None:
    """A parcel that gets no answer is written.

    Under most policies the table learns nothing from that, and if writing took no time it has
    never heard of the parcel.
    """
    stop = parcel.stop
    if parcel.written_at != NEVER or stop.faults.heeds_oneway:
        stop.faults.settled(parcel, now)
    stop.counters.oneway += 1


def express_for(sender: Sender, mode: SendMode) -> Express | None:
    """The fast lane of a producer; None if its settings make every message unusual."""
    hooks = sender.hooks
    is_watched = hooks.before_send or hooks.after_send or hooks.after_attempt
    is_usual = sender.instance.is_plain and not sender.config.namespace
    if is_watched or not is_usual or sender.default_selector is not best_queue:
        return None
    return Express(sender, mode)


class Express:
    """The fast lane of one producer."""

    def __init__(self, sender: Sender, mode: SendMode) -> None:
        config, instance = sender.config, sender.instance
        self._sender = sender
        self._mode = mode
        self._flag = ONEWAY if mode is SendMode.ONEWAY else 0
        self._clock = instance.clock
        self._wall = instance.wall
        self._watch = instance.faults.watch
        self._route = instance.routes.get
        self._positions = sender.positions
        self._ids = instance.ids
        self._next_number = instance.ids.numbers.__next__
        self._stale_after = sender.stale_after
        self._timeout = config.send_timeout
        self._max_size = config.max_message_size
        self._too_large = min(config.compress_over or _LARGEST, self._max_size + 1, _LARGEST)
        #: The millisecond that messages are born in, and until when it surely lasts.
        self._moment = ((-1, "", b""), NEVER)
        self._lanes: dict[str, Lane] = {}

    def prepare(self, message: Message, kind: type[P]) -> P | None:
        """A parcel that is to be written to ``stop.address`` now; None: send it another way.

        Args:
            message: what is in it.
            kind: what it is to be; the caller sets what that has beside a parcel's fields.

        Raises:
            InvalidMessageError: something is wrong with the message.
        """
        extras = message.extras
        if not 0 < len(message.body) < self._too_large:
            return None
        if extras is not PLAIN:
            if extras.sharding_key is not None:
                return None
            check_message(message, self._max_size)
        now, watch = self._clock(), self._watch
        lane = self._lanes.get(message.topic)
        if (
            lane is None
            or lane.version != watch.version
            or now >= watch.at
            or now > lane.fresh_until
            or self._route(lane.name) is not lane.entry
        ):
            lane = self._renew(message, now)
            if lane is None:
                return None
        moment, until = self._moment
        if now >= until:
            moment = self._look_at_clock(now)
        parcel = _new(kind)
        parcel.message = message
        parcel.moment = moment
        parcel.number = self._next_number() & 0xFFFF
        parcel.properties = None
        if extras is not PLAIN:
            parcel.properties = self._sender.encoder.properties(message, parcel.message_id)
        stops = lane.stops
        parcel.stop = stop = stops[self._positions.next(lane.topic) % len(stops)]
        entry = parcel.entry = stop.entry
        parcel.epoch = entry.epoch
        parcel.began = now
        parcel.written_at = NEVER
        parcel.allowance = 0.0
        parcel.deadline = now + lane.limit
        return parcel

    def _look_at_clock(self, now: float) -> tuple[int, str, bytes]:
        """The present moment, kept for as long as the time of day has the same millisecond.

        Looking for every message would cost 0.2 µs. The last µs of a moment is not trusted,
        because the two clocks are not read at once.
        """
        wall = self._wall()
        born_ms = int(wall * 1000)
        head = self._ids.head_at(born_ms)
        moment = (born_ms, head, moment_of(born_ms, head))
        self._moment = (moment, now + (born_ms + 1) / 1000 - wall - 1e-6)
        return moment

    def take_over(self, parcel: Parcel) -> Op[SendResult | None]:
        """The operation that a parcel would have been; its first effect is the first attempt.

        If that is under way already, the driver does not perform the effect, but goes on with
        what became of it.
        """
        stop, sender = parcel.stop, self._sender
        outgoing = parcel.outgoing()
        plan = sender.plan_outgoing(outgoing, self._mode, self._timeout, None)
        request = stop.target.request(outgoing, parcel.moment[0])
        begun = Begun(stop.owner.entry, stop.target, parcel, request, parcel.deadline)
        return sender.go_on(plan, parcel.began, begun)

    def start_over(self, parcel: Parcel) -> Op[SendResult | None]:
        """The operation that chooses again where a parcel goes that was not written yet."""
        plan = self._sender.plan_outgoing(parcel.outgoing(), self._mode, self._timeout, None)
        return self._sender.go_on(plan, parcel.began, None)

    def is_current(self, parcel: Parcel) -> bool:
        """Whether the same queues would be chosen from, as when the parcel was made."""
        return parcel.stop.owner.version == self._watch.version

    def _renew(self, message: Message, now: float) -> Lane | None:
        """The lane of a topic as things are now; None if it has none."""
        sender, topic = self._sender, message.topic
        check_message(message, self._max_size)
        entry = self._route(topic)
        if entry is None or not entry.queues or now - entry.fetched_at > self._stale_after:
            return None
        queues = sender.queues_of(entry)
        choice = queues.choice(now)
        lane = self._lanes.get(topic)
        if lane is not None and lane.entry is entry and lane.version == choice.version:
            lane.fresh_until = entry.fetched_at + self._stale_after
            return lane
        if not choice.in_turn or choice.candidates != choice.usable or entry.owners:
            return None
        limit = sender.chooser.first_limit(entry, self._mode, now)
        lane = Lane(entry, queues.topic, choice.version, self._timeout if limit is None else limit)
        lane.fresh_until = entry.fetched_at + self._stale_after
        lane.stops = tuple(
            Stop(lane, target, sender, len(self._ids.prefix) + 12, self._flag)
            for queue in choice.in_turn
            for target in [sender.chooser.target_of(entry, queue, is_batch=False)]
        )
        if len(self._lanes) > 1000:  # topics are few; whoever has more keeps the latest
            self._lanes.clear()
        self._lanes[topic] = lane
        return lane
