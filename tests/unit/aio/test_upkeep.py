"""Upkeep on the loop: one per instance, handed on, started again, ended."""

import asyncio

import pytest

from rocketwire.aio import upkeep as module
from rocketwire.aio.upkeep import Upkeep
from rocketwire.config import ClientConfig
from rocketwire.core.instance import Instance
from rocketwire.system.surroundings import surroundings


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 0.005)


def make_instance(address="127.0.0.1:9"):
    return Instance(ClientConfig(name_servers=address), "me@1", surroundings())


def test_an_instance_is_kept_up_by_one_and_handed_on(run, driving):
    async def main():
        async with driving() as driver:
            instance = make_instance()
            first, second = Upkeep(instance, driver), Upkeep(instance, driver)
            first.start()
            second.start()
            assert len(first._runs) == 3
            assert not second._runs
            first.stop()
            while not second._runs:
                await asyncio.sleep(0.001)
            assert len(second._runs) == 3
            second.stop()
            assert instance.claim_upkeep(first)

    run(main())


def test_a_part_that_fails_is_started_again(run, driving, caplog, monkeypatch):
    calls = []

    def broken(instance):
        calls.append(instance)
        raise RuntimeError("oh dear")
        yield

    monkeypatch.setattr(module, "keep_heartbeats", broken)

    async def main():
        async with driving() as driver:
            upkeep = Upkeep(make_instance(), driver)
            upkeep.start()
            while len(calls) < 3:
                await asyncio.sleep(0.001)
            upkeep.stop()
            count = len(calls)
            await asyncio.sleep(0.02)
            assert len(calls) == count

    run(main())
    assert "oh dear" in caplog.text


def test_stopping_while_another_keeps_the_instance_up_ends_the_waiting(run, driving):
    async def main():
        async with driving() as driver:
            instance = make_instance()
            first, second = Upkeep(instance, driver), Upkeep(instance, driver)
            first.start()
            second.start()
            second.stop()
            first.stop()
            await asyncio.sleep(0.02)
            assert not second._runs
            assert instance.claim_upkeep(first)

    run(main())
