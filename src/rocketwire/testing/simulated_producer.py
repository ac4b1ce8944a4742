"""A producer without a shell: the client's own instance, fault table and senders in virtual time.

What a shell would bring (sockets, threads, a name server's first answer) is left out; every decision
about a send is made by ``core`` itself. Models, replays and simulations run on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from rocketwire import selectors
from rocketwire.config import ProducerConfig
from rocketwire.core.effects import Op
from rocketwire.core.faults.entries import RandomSource
from rocketwire.core.faults.positions import RoundRobinCounter
from rocketwire.core.instance import Instance, Surroundings
from rocketwire.core.routes import TopicEntry
from rocketwire.core.sending.attempt import SendAttempt
from rocketwire.core.sending.sender import Sender
from rocketwire.core.upkeep import keep_probing
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.command import JSON, RESPONSE, Command, Reply, encode_command
from rocketwire.wire.reply_layout import Layout
from rocketwire.wire.route import BrokerData, QueueData, TopicRoute, encode_route

#: Where the name server of every simulated producer listens.
NAME_SERVER: Final = "name-server:9876"
#: Routes stay as they are told; asking for them again is no part of what is modelled.
ROUTE_REFRESH: Final = 7 * 86_400.0
#: What virtual time 0.0 is on the wall.
_WALL: Final = 1_700_000_000.0
_READ_AND_WRITE: Final = 6


class SimulatedProducer:
    """One client instance, and as many senders as threads are modelled.

    Args:
        config: the producer's settings; see ``settings``.
        clock: the virtual time.
        random: where chance comes from.
        make_lock: of the driver.
        client_id: what it is called.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        clock: Callable[[], float],
        random: RandomSource,
        make_lock: Callable[[], AbstractContextManager[Any]],
        client_id: str = "simulated",
    ) -> None:
        self.config: Final = config
        self._random = random
        surroundings = Surroundings(
            clock=clock,
            wall=lambda: _WALL + clock(),
            random=random,
            make_lock=make_lock,
            address=b"\x7f\x00\x00\x01",
            pid=1,
            named_selector=selectors.named,
        )
        self.instance: Final = Instance(config, client_id, surroundings)
        self.instance.producer_groups.add(config.group)

    def learn(self, topic: str, route: TopicRoute) -> TopicEntry:
        """Take a route as if a name server had told it."""
        change = self.instance.routes.update(topic, route)
        self.instance.learned(change)
        return change.entry

    def sender(self, positions: RoundRobinCounter | None = None) -> Sender:
        """A sender: one for each thread that is modelled, each with its own round-robin counter."""
        counter = RoundRobinCounter(self._random) if positions is None else positions
        return Sender(self.instance, self.config, counter)

    def probing(self, start: Callable[[Op[None]], Any]) -> Op[None] | None:
        """The upkeep's probes as an operation that never ends; None where there are none."""
        if not (self.config.background and self.config.fault.probes):
            return None
        return keep_probing(self.instance, start)


def settings(**options: Any) -> ProducerConfig:
    """A producer's settings for virtual time; options as those of a producer."""
    fixed: dict[str, Any] = {"name_servers": NAME_SERVER}
    made = ProducerConfig(**(fixed | options))
    if "route_refresh" not in options:
        # Set afterwards: a caller who gives a week is warned that times are seconds.
        object.__setattr__(made, "route_refresh", ROUTE_REFRESH)
    return made


def route_of(queues: Mapping[str, int]) -> TopicRoute:
    """The route of a topic with so many queues on each broker; brokers listen at their names."""
    return TopicRoute(
        tuple(QueueData(name, n, n, _READ_AND_WRITE, 0) for name, n in queues.items()),
        tuple(
            BrokerData("c", name, {0: name}, None, False)  # noqa: FBT003 - a row of a table
            for name in queues
        ),
        None,
        {},
    )


class Answers:
    """Answers as they come from a socket; their bytes are made once for each code and queue.

    Args:
        routes: what the name server knows.
    """

    def __init__(self, routes: Mapping[str, TopicRoute]) -> None:
        self._routes = dict(routes)
        self._frames: dict[tuple[int, int, str], tuple[bytes, Layout | None]] = {}

    def to(self, request: Any, code: int, remark: str = "") -> Reply:
        """The answer to a request."""
        if request.code == RequestCode.GET_ROUTE_BY_TOPIC:
            return Reply(self._route_frame(request))
        queue = request.where.queue.id if isinstance(request, SendAttempt) else 0
        try:
            return Reply(*self._frames[code, queue, remark])
        except KeyError:
            fields = {"msgId": "7F0000010000000000000000000000AB", "queueId": str(queue)}
            fields["queueOffset"] = "0"
            command = Command(code, fields, remark=remark or None, opaque=1, header=JSON)
            frame = _encoded(command)
            # As after the first answer on a connection: the layout of the others is known.
            self._frames[code, queue, remark] = frame, Reply(frame).layout
            return Reply(frame)

    def _route_frame(self, request: Command) -> bytes:
        route = self._routes.get(request.ext["topic"])
        if route is None:
            return _encoded(Command(17, remark="no route"))
        return _encoded(Command(0, body=encode_route(route, standard=True)))


def _encoded(command: Command) -> bytes:
    command.flag |= RESPONSE
    return encode_command(command)[4:]
