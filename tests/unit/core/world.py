"""A simulated cluster for tests of core: a name server that knows routes, brokers that store."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from rocketwire import selectors
from rocketwire.config import ProducerConfig
from rocketwire.core.effects import Op
from rocketwire.core.faults.positions import RoundRobinCounter
from rocketwire.core.instance import Instance, Surroundings
from rocketwire.core.sending.mode import SendMode
from rocketwire.core.sending.sender import Sender
from rocketwire.fault_policy import FaultPolicy
from rocketwire.message import Message, SendResult
from rocketwire.testing.simulation import SimulatedDriver, SimulatedNetwork
from rocketwire.wire.codes import RequestCode, ResponseCode
from rocketwire.wire.command import RESPONSE, Command, Reply, decode_command, encode_command
from rocketwire.wire.route import BrokerData, QueueData, TopicRoute, encode_route

NAME_SERVER = "10.0.0.100:9876"


def address(broker: str) -> str:
    return f"10.0.0.{ord(broker[-1]) - ord('a') + 1}:10911"


def route_of(queues: dict[str, int], *, permission: int = 6, **addresses: str) -> TopicRoute:
    return TopicRoute(
        tuple(QueueData(b, n, n, permission, 0) for b, n in queues.items()),
        tuple(
            BrokerData("c", b, {0: addresses.get(b.replace("-", "_"), address(b))}, None, False)
            for b in queues
        ),
        None,
        {},
    )


def decoded(request: Any) -> Command:
    return decode_command((request.head(1) + bytes(request.body))[4:])


class World:
    """One name server, some brokers, one producer."""

    def __init__(
        self,
        brokers: int = 3,
        queues: int = 4,
        *,
        seed: int = 1,
        latency: Any = 0.002,
        name_servers: tuple[str, ...] = (NAME_SERVER,),
        topics: dict[str, TopicRoute | None] | None = None,
        **options: Any,
    ) -> None:
        self.network = SimulatedNetwork(seed, respond=self.answer)
        self.clock = self.network.clock
        self.driver = SimulatedDriver(self.network)
        self.names = [f"broker-{chr(ord('a') + i)}" for i in range(brokers)]
        self.brokers = {n: self.network.add_broker(address(n), latency=latency) for n in self.names}
        self.servers = {s: self.network.add_broker(s, latency=0.001) for s in name_servers}
        default = route_of(dict.fromkeys(self.names, queues))
        self.routes: dict[str, TopicRoute | None] = {"T": default} if topics is None else topics
        self.route_code = ResponseCode.TOPIC_NOT_EXIST
        self.asked: list[str] = []
        self.stored: list[tuple[str, int, Command]] = []
        self.codes: dict[str, list[int]] = {}
        self.extra_answer: Callable[[Command], Command | None] | None = None
        self._offsets = count()
        self.config = ProducerConfig(
            name_servers=name_servers, group="g", **({"background": False} | options)
        )
        surroundings = Surroundings(
            clock=self.clock,
            wall=lambda: 1_700_000_000.0 + self.clock(),
            random=Random(seed),
            make_lock=self.driver.make_lock,
            address=b"\x0a\x00\x00\x09",
            pid=77,
            named_selector=selectors.named,
        )
        self.instance = Instance(self.config, "client-1", surroundings)
        self.sender = Sender(self.instance, self.config, RoundRobinCounter(Random(seed)))

    # -- the servers ------------------------------------------------------------------------

    def answer(self, request: Any, code: int) -> Reply:
        command = decoded(request)
        reply = self._answer(command, code)
        reply.flag |= RESPONSE
        return Reply(encode_command(reply)[4:])

    def _answer(self, command: Command, code: int) -> Command:
        if self.extra_answer is not None and (extra := self.extra_answer(command)) is not None:
            return extra
        if command.code == RequestCode.GET_ROUTE_BY_TOPIC:
            topic = command.ext["topic"]
            self.asked.append(topic)
            route = self.routes.get(topic)
            if route is None:
                return Command(self.route_code, remark="no route")
            return Command(0, body=encode_route(route, standard=True))
        if command.code in {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}:
            broker = command.ext["n"]
            planned = self.codes.get(broker)
            answer = planned.pop(0) if planned else code
            if answer in {0, 10, 11, 12}:
                self.stored.append((broker, int(command.ext["e"]), command))
            place = {"msgId": "0A00000100002A9F00000000000000AB", "queueId": command.ext["e"]}
            place["queueOffset"] = str(next(self._offsets))
            return Command(answer, place, remark=f"answer {answer}")
        return Command(code)

    # -- the producer -----------------------------------------------------------------------

    def operation(
        self, message: Any = None, mode: SendMode = SendMode.BLOCKING, **how: Any
    ) -> Op[SendResult | None]:
        given = Message("T", b"hello") if message is None else message
        attempt = self.sender.start(given, mode, **how)
        if mode is SendMode.ONEWAY:
            return self.sender.oneway(attempt)
        return self.sender.operation(attempt)

    def send(self, message: Any = None, mode: SendMode = SendMode.BLOCKING, **how: Any) -> Any:
        return self.driver.run(self.operation(message, mode, **how))

    def where(self) -> list[str]:
        """The brokers of everything that was stored, in order."""
        return [broker for broker, _, _ in self.stored]


def on_trial(brokers: int, broker: str, **options: Any) -> World:
    """A world in which one message may try out a broker that had failed."""
    world = World(brokers, fault=FaultPolicy(failure_isolation=1.0), **options)
    for _ in range(3):
        world.send()
    table = world.instance.faults
    table.failed(table.begin(broker, world.clock()), world.clock(), "refused the connection")
    while table._entries[broker].state != "trial":
        world.clock.advance(0.2)
        table.refresh(world.clock())
        for name in table.probe_due(world.clock()):
            table.probe_started(name)
            table.probe_finished(name, world.clock(), 0.001, good=True)
    return world
