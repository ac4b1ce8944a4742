"""Decisions of transactions on an event loop: what follows an answer other than the usual one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from rocketwire import AsyncProducer, Message, TransactionError, TransactionState
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode, ResponseCode

END = RequestCode.END_TRANSACTION


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        running.create_topic("orders", queues=1)
        yield running


def make(cluster: EmbeddedCluster, **options: Any) -> AsyncProducer:
    return AsyncProducer(cluster.name_server, group="deciding", **options)


def texts(cluster: EmbeddedCluster) -> list[str]:
    return [message.text for message in cluster.messages("orders")]


def test_one_that_is_refused_is_unknown(run, cluster, caplog) -> None:
    async def main() -> None:
        async with make(cluster) as producer:
            cluster.brokers[0].reject(ResponseCode.SYSTEM_ERROR, code=END)
            with pytest.raises(TransactionError, match="was not confirmed") as caught:
                async with producer.transaction(Message("orders", "x")) as tx:
                    pass
            assert caught.value.state is tx.state is TransactionState.UNKNOWN

    run(main())
    assert "was not confirmed" in caplog.text


@pytest.mark.parametrize("fault", ["lose_replies", "drop_connections"])
def test_one_without_an_answer_is_unknown_and_told_once(run, cluster, fault) -> None:
    async def main() -> None:
        async with make(cluster, send_timeout=0.5) as producer:
            async with producer.transaction(Message("orders", "before")):
                pass
            getattr(cluster.brokers[0], fault)(code=END)
            with pytest.raises(TransactionError) as caught:
                async with producer.transaction(Message("orders", "x")):
                    pass
            assert caught.value.state is TransactionState.UNKNOWN
            assert await tx_rollback(producer) is TransactionState.UNKNOWN

    async def tx_rollback(producer: AsyncProducer) -> TransactionState:
        async with producer.transaction(Message("orders", "y")) as tx:
            return await tx.rollback()

    run(main())
    assert texts(cluster).count("x") <= 1


def test_one_that_can_not_be_written_waits_for_a_connection(run, cluster) -> None:
    async def main() -> None:
        async with make(cluster) as producer:
            async with producer.transaction(Message("orders", "x")) as tx:
                connections = list(producer._driver.connections.values())
                for connection in connections:
                    connection.abort()
                while any(c.is_connected for c in connections):
                    await asyncio.sleep(0)
            assert tx.state is TransactionState.COMMITTED

    run(main())
    assert texts(cluster) == ["x"]


def test_one_whose_caller_was_cancelled_is_told_all_the_same(run, cluster) -> None:
    async def main() -> None:
        async with make(cluster) as producer:
            tx = producer.transaction(Message("orders", "x"))
            await tx.__aenter__()
            task = asyncio.create_task(tx.commit())
            while tx.state is TransactionState.OPEN:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while tx.state is TransactionState.UNKNOWN:
                await asyncio.sleep(0.001)
            assert tx.state is TransactionState.COMMITTED

    run(main())
    assert texts(cluster) == ["x"]


def test_a_shutdown_tells_it(run, cluster) -> None:
    async def main() -> None:
        producer = make(cluster, shutdown_timeout=0.1)
        await producer.start()
        tx = producer.transaction(Message("orders", "x"))
        await tx.__aenter__()
        cluster.brokers[0].hang(code=END)
        task = asyncio.create_task(tx.commit())
        while tx.state is TransactionState.OPEN:
            await asyncio.sleep(0)
        await producer.shutdown()
        with pytest.raises(TransactionError) as caught:
            await task
        assert caught.value.state is TransactionState.UNKNOWN

    run(main())
