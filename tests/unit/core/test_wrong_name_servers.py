"""An address that is no name server is told within a second of its first answer, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.core.world import NAME_SERVER, World

from rocketwire.core.effects import Op
from rocketwire.core.lookup import cluster_info, locate_topic
from rocketwire.core.sending.mode import SendMode
from rocketwire.errors import RemoteProtocolError, RocketMQError
from rocketwire.testing import simulated_network
from rocketwire.testing.simulated_network import Reset
from rocketwire.wire.codes import ResponseCode
from rocketwire.wire.command import Command

#: As long as a wrong server takes to answer, in seconds.
SLUGGISH = 0.4
LIMIT = 60.0
WEB = "it is a web server: give the port of the name server, usually 9876"


def send(world: World, mode: SendMode = SendMode.BLOCKING) -> Op[Any]:
    return world.operation(None, mode, timeout=LIMIT)


OPERATIONS: dict[str, Callable[[World], Op[Any]]] = {
    "send": send,
    "submit": lambda world: send(world, SendMode.ASYNC),
    "oneway": lambda world: send(world, SendMode.ONEWAY),
    "queues": lambda world: locate_topic(world.instance, "T", world.clock() + LIMIT, "TBW102", 4),
    "brokers": lambda world: cluster_info(world.instance, world.clock() + LIMIT),
}


def a_web_server(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(address: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"{address}: {WEB}")

    monkeypatch.setattr(simulated_network, "_lost", broken)
    world.servers[NAME_SERVER].break_now(Reset(after=SLUGGISH))


def a_broker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.servers[NAME_SERVER].latency = lambda _: SLUGGISH
    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    world.extra_answer = lambda _: Command(code, remark="request type not supported")


@pytest.mark.parametrize("wrong", [a_web_server, a_broker])
@pytest.mark.parametrize("what", OPERATIONS)
def test_what_is_no_name_server_is_told_within_a_second(what, wrong, monkeypatch) -> None:
    world = World(1)
    wrong(world, monkeypatch)
    began = world.clock()
    with pytest.raises(RocketMQError) as raised:
        world.driver.run(OPERATIONS[what](world))
    assert SLUGGISH <= world.clock() - began <= 1.0
    assert "web server" in str(raised.value) or "broker" in str(raised.value) or what == "brokers"
