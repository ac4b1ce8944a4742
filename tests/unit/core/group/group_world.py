"""A simulated cluster for tests of groups: brokers that store, lock, remember and tell.

Everything happens in virtual time. The world watches what members do and fails the test when a
promise is broken: two owners of an ordered queue, an offset committed past an unhandled message, a
message skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

from tests.unit.core.world import NAME_SERVER, address, decoded, route_of

from rocketwire.consumer_config import ConsumerConfig
from rocketwire.core.effects import Op, sleep
from rocketwire.core.group.membership import Group
from rocketwire.core.group.offsets import keep_commits
from rocketwire.core.group.queue_locks import keep_locks
from rocketwire.core.group.rebalance import keep_rebalancing
from rocketwire.core.group.requests import answer
from rocketwire.core.group.send_back import Retry, keep_watch, return_work
from rocketwire.core.group.upkeep import join, keep_heartbeats, leave
from rocketwire.core.group.workload import Limits, Work, Workload
from rocketwire.core.instance import Instance, Surroundings
from rocketwire.core.reading.pull import tag_filter
from rocketwire.hooks import HookSet
from rocketwire.message import MessageQueue
from rocketwire.testing.simulated_network import Call, Hang, Refuse, SimulatedBroker, steady
from rocketwire.testing.simulation import SimulatedDriver, SimulatedNetwork, Task
from rocketwire.wire.client_bodies import queue_json
from rocketwire.wire.codes import PullFlag, RequestCode, ResponseCode
from rocketwire.wire.command import RESPONSE, Command, Reply, encode_command
from rocketwire.wire.lenient_json import dumps, loads
from rocketwire.wire.properties import decode_properties, rewritten
from rocketwire.wire.route import encode_route
from rocketwire.wire.stored_message import encode_record

GROUP = "g"
LOCK_LIFE = 60.0


class Stored:
    """A message in a simulated queue."""

    def __init__(self, body: str, retry_of: tuple[str, int] | None = None, tries: int = 0) -> None:
        self.body = body
        self.topic, self.tries = retry_of[0] if retry_of else None, tries


class GroupBroker(SimulatedBroker):
    """A broker with queues, offsets, members and locks."""

    def __init__(self, world: GroupWorld, name: str) -> None:
        super().__init__(world.network, address(name), latency=steady(0.002))
        self.world = world
        self.name = name
        self.queues: dict[tuple[str, int], list[Stored]] = {}
        self.first: dict[tuple[str, int], int] = {}
        self.places: list[Stored] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self.members: dict[str, None] = {}
        self.locks: dict[tuple[str, int], tuple[str, float]] = {}
        self.held: dict[tuple[str, int], list[tuple[Call, int, Command]]] = {}
        self.dead_letters: list[str] = []
        #: The properties of dead letters that members stored themselves.
        self.told: list[dict[str, str]] = []
        self.refuse_send_back = False
        self.refuse_sends = False
        self.version = 479
        self.seen: list[Command] = []

    # -- what a test does ----------------------------------------------------------------------

    def store(self, topic: str, queue_id: int, message: Stored) -> int:
        queue = self.queues.setdefault((topic, queue_id), [])
        queue.append(message)
        for call, offset, command in self.held.pop((topic, queue_id), []):
            if call.pending:
                self._reply(call, self._read(command, offset), 0.001)
        return len(queue) - 1

    def restart(self) -> None:
        """Forget what is only in memory: members, locks, held pulls. Connections are lost."""
        self.break_now(Refuse())
        self.members.clear()
        self.locks.clear()
        self.held.clear()

    # -- requests ----------------------------------------------------------------------------

    def _decide(self, call: Call) -> None:
        if isinstance(self.fault, Hang):
            return
        command = decoded(call.request)
        self.seen.append(command)
        if command.code == RequestCode.PULL_MESSAGE:
            self._pull(call, command)
            return
        handler = getattr(self, f"_code_{command.code}", None)
        assert handler is not None, command
        self._reply(call, handler(command), 0.002)

    def _reply(self, call: Call, reply: Command, delay: float) -> None:
        reply.flag |= RESPONSE
        self._later(delay, call, Reply(encode_command(reply)[4:]))

    def _pull(self, call: Call, command: Command) -> None:
        ext = command.ext
        key, offset = (ext["topic"], int(ext["queueId"])), int(ext["queueOffset"])
        reply = self._read(command, offset)
        if reply.code == ResponseCode.PULL_NOT_FOUND and int(ext["sysFlag"]) & PullFlag.SUSPEND:
            self.held.setdefault(key, []).append((call, offset, command))
            wait = int(ext["suspendTimeoutMillis"]) / 1000
            self._later(wait, call, Reply(encode_command(_response(reply))[4:]))
            return
        self._reply(call, reply, 0.002)

    def _read(self, command: Command, offset: int) -> Command:
        topic, queue_id = command.ext["topic"], int(command.ext["queueId"])
        queue = self.queues.get((topic, queue_id), [])
        first, end = self.first.get((topic, queue_id), 0), len(queue)
        found = queue[offset : offset + int(command.ext["maxMsgNums"])]
        code, following = ResponseCode.SUCCESS, offset + len(found)
        if offset > end or offset < first:
            code, found = ResponseCode.PULL_OFFSET_MOVED, []
            following = end if offset > end else first
        elif not found:
            code = ResponseCode.PULL_NOT_FOUND
        body = b"".join(
            self._record(message, topic, queue_id, offset + n) for n, message in enumerate(found)
        )
        ext = {"nextBeginOffset": following, "minOffset": first, "maxOffset": end}
        ext["suggestWhichBrokerId"] = 0
        return Command(code, {name: str(value) for name, value in ext.items()}, body)

    def _record(self, message: Stored, topic: str, queue_id: int, offset: int) -> bytes:
        if message not in self.places:
            self.places.append(message)
        properties = {"UNIQ_KEY": message.body}
        if message.topic is not None:
            properties["RETRY_TOPIC"] = message.topic
        return encode_record(
            topic=topic,
            body=message.body.encode(),
            properties=rewritten(properties).encode(),
            queue_id=queue_id,
            queue_offset=offset,
            physical_offset=self.places.index(message),
            reconsume_times=message.tries,
        )

    def _code_34(self, command: Command) -> Command:
        client_id = loads(command.body)["clientID"]
        reply = Command(0, version=self.version)
        if client_id not in self.members:
            self.members[client_id] = None
            self.queues.setdefault((f"%RETRY%{GROUP}", 0), [])
            self.world.tell_members(self)
        return reply

    def _code_35(self, command: Command) -> Command:
        self.lost(command.ext["clientID"])
        return Command(0)

    def lost(self, client_id: str) -> None:
        if client_id in self.members:
            del self.members[client_id]
            self.world.tell_members(self)

    def _code_38(self, command: Command) -> Command:
        if not self.members:
            return Command(ResponseCode.SYSTEM_ERROR, remark="no consumer for this group")
        return Command(0, body=dumps({"consumerIdList": list(self.members)}))

    def _code_41(self, command: Command) -> Command:
        body, now = loads(command.body), self.world.clock()
        mine = []
        for item in body["mqSet"]:
            key = (item["topic"], item["queueId"])
            owner, until = self.locks.get(key, ("", 0.0))
            if owner in {"", body["clientId"]} or until <= now:
                self.locks[key] = (body["clientId"], now + LOCK_LIFE)
                mine.append(queue_json(MessageQueue(key[0], self.name, key[1])))
        return Command(0, body=dumps({"lockOKMQSet": mine}))

    def _code_42(self, command: Command) -> Command:
        body = loads(command.body)
        for item in body["mqSet"]:
            key = (item["topic"], item["queueId"])
            if self.locks.get(key, ("", 0.0))[0] == body["clientId"]:
                del self.locks[key]
        return Command(0)

    def _code_14(self, command: Command) -> Command:
        key = (command.ext["topic"], int(command.ext["queueId"]))
        if key not in self.offsets:
            return Command(ResponseCode.QUERY_NOT_FOUND, remark="not found")
        return Command(0, {"offset": str(self.offsets[key])})

    def _code_15(self, command: Command) -> Command:
        key, offset = (
            (command.ext["topic"], int(command.ext["queueId"])),
            int(command.ext["commitOffset"]),
        )
        self.world.check_commit(self, key, offset)
        self.offsets[key] = offset
        return Command(0)

    def _code_30(self, command: Command) -> Command:
        queue = self.queues.get((command.ext["topic"], int(command.ext["queueId"])), [])
        return Command(0, {"offset": str(len(queue))})

    def _code_31(self, command: Command) -> Command:
        key = (command.ext["topic"], int(command.ext["queueId"]))
        return Command(0, {"offset": str(self.first.get(key, 0))})

    def _code_36(self, command: Command) -> Command:
        if self.refuse_send_back:
            return Command(ResponseCode.SYSTEM_ERROR, remark="no")
        message = self.places[int(command.ext["offset"])]
        level = int(command.ext["delayLevel"])
        self.world.sent_back.append((message.body, level))
        if level < 0 or message.tries >= int(command.ext["maxReconsumeTimes"]):
            self.dead_letters.append(message.body)
            self.world.gone(message)
        else:
            again = Stored(
                message.body, (message.topic or command.ext["originTopic"], 0), message.tries + 1
            )
            self.world.gone(message)
            self.world.clock.call_at(
                self.world.clock() + 10.0, lambda: self.store(f"%RETRY%{GROUP}", 0, again)
            )
        return Command(0)

    def _code_310(self, command: Command) -> Command:
        """A copy that a member stores itself, in the retry topic or beyond."""
        ext = command.ext
        assert ext["b"] == f"%RETRY%{GROUP}"
        if self.refuse_sends or self.refuse_send_back:
            return Command(ResponseCode.NO_PERMISSION, remark="no")
        properties = decode_properties(ext["i"])
        body, tries = bytes(command.body).decode(), int(ext["j"])
        self.world.gone_body(body)
        if tries > int(ext["l"]):
            self.dead_letters.append(body)
            self.told.append(properties)
            return Command(0)
        due = int(properties.get("TIMER_DELIVER_MS", 0)) / 1000 - 1_700_000_000.0
        again = Stored(body, (properties["RETRY_TOPIC"], 0), tries)
        self.world.clock.call_at(
            max(due, self.world.clock()), lambda: self.store(f"%RETRY%{GROUP}", 0, again)
        )
        return Command(0)


def _response(command: Command) -> Command:
    command.flag |= RESPONSE
    return command


class SimulatedNameServer(SimulatedBroker):
    def __init__(self, world: GroupWorld) -> None:
        super().__init__(world.network, NAME_SERVER, latency=steady(0.001))
        self.world = world

    def _decide(self, call: Call) -> None:
        command = call.request
        assert isinstance(command, Command)
        topic = command.ext["topic"]
        counts = self.world.topics.get(topic)
        if topic == f"%RETRY%{GROUP}":
            known = [
                b
                for b in self.world.brokers.values()
                if (topic, 0) in b.queues and b.name not in self.world.late_to_register
            ]
            counts = {b.name: 1 for b in known} or None
        reply = Command(ResponseCode.TOPIC_NOT_EXIST, remark="no route")
        if counts:
            reply = Command(0, body=encode_route(route_of(counts), standard=True))
        self._later(0.001, call, Reply(encode_command(_response(reply))[4:]))


class Member:
    """One simulated consumer: its operations, and workers that take random time."""

    def __init__(self, world: GroupWorld, name: str, **options: Any) -> None:
        self.world = world
        self.name = name
        self.random = Random(f"{world.seed}-{name}")
        self.config = ConsumerConfig(
            name_servers=(NAME_SERVER,),
            group=GROUP,
            **({"start": "earliest", "background": False, "workers": 2} | options),
        )
        driver = world.driver
        surroundings = Surroundings(
            clock=world.clock,
            wall=lambda: 1_700_000_000.0 + world.clock(),
            random=self.random,
            make_lock=driver.make_lock,
            address=b"\x0a\x00\x00\x09",
            pid=77,
        )
        instance = Instance(self.config, name, surroundings)
        self.workload = Workload(
            lock=driver.make_lock(),
            clock=world.clock,
            ordered=self.config.ordered,
            batch=self.config.batch,
            limits=Limits(self.config.max_queue_messages, queue_span=self.config.max_queue_span),
        )
        self.group = Group(instance, self.config, self.workload, HookSet(self.config.hooks))
        self.group.start = self.group.start_pulling = self._start
        self.group.subscribe({"T": tag_filter(world.tags)})
        # Ringing wakes one worker, who looks and rings on: as in the shells.
        self.ready = self.group.make_wake_up()
        self.workload.on_ready = self.ready.wake
        self.tasks: set[Task[Any]] = set()
        self.in_hand: set[Work] = set()
        self.is_alive = True
        #: Decides what a handler does: seconds, then None, a Retry, or an exception.
        self.behave: Callable[[Any], tuple[float, Any]] = lambda _: (0.0003, None)

    def _start(self, operation: Op[Any]) -> Task[Any]:
        task = self.world.driver.spawn(operation)
        if not task.done:
            self.tasks.add(task)
            task.on_done = self._ended
        elif task.error is not None:
            raise task.error
        return task

    def _ended(self, task: Task[Any]) -> None:
        self.tasks.discard(task)
        if task.error is not None:
            self.world.errors.append(task.error)

    def begin(self) -> Member:
        group = self.group

        def live() -> Op[None]:
            while True:
                try:
                    yield from join(group)
                    break
                except Exception:
                    yield from sleep(self.world.clock() + 1.0)
            self._start(keep_heartbeats(group))
            self._start(keep_rebalancing(group))
            self._start(keep_commits(group))
            self._start(keep_watch(group))
            if group.needs_locks:
                self._start(keep_locks(group))
            for _ in range(self.config.workers):
                self._start(self._work())

        self.world.members[self.name] = self
        self._start(live())
        return self

    def _work(self) -> Op[None]:
        while self.is_alive:
            with self.workload.lock:
                work = self.workload.next_work()
            if work is None:
                yield from self.ready.wait(self.world.clock() + 5.0)
                continue
            self.in_hand.add(work)
            given: object = work.given
            while given is not None:
                given = yield from self._handle(work)

    def _handle(self, work: Work) -> Op[object]:
        """Call the handler; returns what it gets next of the same work."""
        self.world.begins(self, work)
        seconds, result = self.behave(work.messages[0])
        yield from sleep(self.world.clock() + seconds)
        self.world.ends(self, work, is_good=result is None)
        if result is None:
            following = self.workload.go_on(work)
            if following is not None:
                return following
            self.workload.finish(work)
        elif not work.is_abandoned:
            retry = result if isinstance(result, Retry) else Retry()
            error = result if isinstance(result, Exception) else None
            self._start(return_work(self.group, work, retry, error))
        self.in_hand.discard(work)
        return None

    def leave(self) -> Task[bool]:
        """Go in peace."""
        return self._start(self._leave())

    def _leave(self) -> Op[bool]:
        clean = yield from leave(self.group, self.world.clock() + 10.0)
        self.die()
        return clean

    def die(self) -> None:
        """Vanish: connections break, whatever was under way."""
        self.is_alive = False
        self.world.members.pop(self.name, None)
        for work in self.in_hand:
            self.world.ends(self, work, is_good=False)
        for task in list(self.tasks):
            with suppress(ValueError):  # the one that is calling
                task.cancel()
        for broker in self.world.brokers.values():
            broker.lost(self.name)


class GroupWorld:
    """Brokers, a topic T, and members of one group."""

    def __init__(
        self, brokers: int = 2, queues: int = 4, *, seed: int = 1, tags: str = "*"
    ) -> None:
        #: Brokers whose retry queue no name server knows yet.
        self.late_to_register: set[str] = set()
        self.seed = seed
        self.tags = tags
        self.random = Random(seed)
        self.network = SimulatedNetwork(seed)
        self.clock = self.network.clock
        self.driver = SimulatedDriver(self.network)
        names = [f"broker-{chr(ord('a') + i)}" for i in range(brokers)]
        self.brokers = {name: GroupBroker(self, name) for name in names}
        for broker in self.brokers.values():
            self.network.brokers[broker.address] = broker
        self.network.brokers[NAME_SERVER] = SimulatedNameServer(self)
        self.topics: dict[str, dict[str, int]] = {"T": dict.fromkeys(names, queues)}
        self.members: dict[str, Member] = {}
        self.errors: list[BaseException] = []
        self.sent_back: list[tuple[str, int]] = []
        #: Every start of a handler: (member, queue, offset, body).
        self.handled: list[tuple[str, MessageQueue, int, str]] = []
        self.done: set[tuple[MessageQueue, int]] = set()
        self.bodies: set[str] = set()
        self._busy: dict[MessageQueue, Member] = {}
        self._numbers = iter(range(10**9))

    def member(self, name: str | None = None, **options: Any) -> Member:
        return Member(self, name or f"client-{next(self._numbers)}", **options)

    def send(self, count: int = 1, queue: tuple[str, int] | None = None) -> list[str]:
        """Store messages on random queues, or on one."""
        bodies = []
        for _ in range(count):
            body = f"m{next(self._numbers)}"
            broker, queue_id = queue or self._any_queue()
            self.brokers[broker].store("T", queue_id, Stored(body))
            bodies.append(body)
        return bodies

    def _any_queue(self) -> tuple[str, int]:
        counts = self.topics["T"]
        broker = self.random.choice(sorted(counts))
        return broker, self.random.randrange(counts[broker])

    def run(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.raise_errors()

    def raise_errors(self) -> None:
        for error in self.errors:
            raise error

    def assignments(self) -> dict[str, list[MessageQueue]]:
        return {
            name: sorted(q for q in member.group.queues if q.topic == "T")
            for name, member in sorted(self.members.items())
        }

    def messages(self) -> Iterator[tuple[MessageQueue, int, Stored]]:
        for broker in self.brokers.values():
            for (topic, queue_id), queue in broker.queues.items():
                for offset, message in enumerate(queue):
                    yield MessageQueue(topic, broker.name, queue_id), offset, message

    # -- watching -------------------------------------------------------------------------------

    def tell_members(self, broker: GroupBroker) -> None:
        for name in list(broker.members):
            member = self.members.get(name)
            if member is not None:
                command = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": GROUP})
                self.clock.call_at(
                    self.clock() + 0.001,
                    lambda m=member, c=command: m.is_alive and answer(m.group, c),
                )

    def begins(self, member: Member, work: Work) -> None:
        queue, pauses = work.process_queue.queue, member.group.pauses
        assert not pauses.hold(queue), f"{queue} is handed out while {member.name} has paused it"
        for message in work.messages:
            if queue.topic == member.group.retry_topic:
                assert message.topic not in pauses.topics, f"{message.topic} is paused"
            self.handled.append((member.name, queue, message.offset, message.text))
        if member.config.ordered:
            other = self._busy.get(queue)
            assert other is None, f"{queue} is handled by {other and other.name} and {member.name}"
            self._busy[queue] = member
            owners = [
                m.name
                for m in self.members.values()
                for held in m.group.every_queue()
                if held.queue == queue and held.locked_until > self.clock()
            ]
            assert owners == [member.name], f"{queue} is locked by {owners}"

    def ends(self, member: Member, work: Work, *, is_good: bool) -> None:
        queue = work.process_queue.queue
        if member.config.ordered and self._busy.get(queue) is member:
            del self._busy[queue]
        if is_good:
            for message in work.messages:
                self.settled(queue, message.offset)
                self.bodies.add(message.text)

    def settled(self, queue: MessageQueue, offset: int) -> None:
        """A message need not be handled any more."""
        self.done.add((queue, offset))

    def gone(self, message: Stored) -> None:
        """A message was sent back: it need not be handled where it lies."""
        for queue, offset, other in self.messages():
            if other is message:
                self.settled(queue, offset)

    def gone_body(self, body: str) -> None:
        """The same, told by its body."""
        for broker in self.brokers.values():
            for message in [m for m in broker.places if m.body == body]:
                self.gone(message)

    def check_commit(self, broker: GroupBroker, key: tuple[str, int], offset: int) -> None:
        queue = MessageQueue(key[0], broker.name, key[1])
        first = broker.first.get(key, 0)
        missing = [o for o in range(first, offset) if (queue, o) not in self.done]
        assert not missing, f"{queue}: {offset} was committed, but {missing[:5]} is not handled"

    def check_order(self) -> None:
        """No queue was handled with a gap: each message follows one that was handled before."""
        reached: dict[MessageQueue, int] = {}
        for _, queue, offset, _ in self.handled:
            if queue.topic == "T":
                assert offset <= reached.get(queue, -1) + 1, (queue, offset, reached.get(queue))
                reached[queue] = max(offset, reached.get(queue, -1))
