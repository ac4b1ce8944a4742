"""The asyncio producer over an embedded cluster."""

import asyncio
import gc
import logging
from collections import deque

import pytest

from rocketwire import (
    AsyncProducer,
    AsyncReader,
    ClientClosedError,
    ConfigError,
    Credentials,
    InvalidMessageError,
    Message,
    MessageQueue,
    Outcome,
    SendFailedError,
    SendResult,
    SendStatus,
)
from rocketwire.embedded import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(brokers=2) as running:
        yield running


@pytest.fixture
def breakable():
    with EmbeddedCluster(brokers=1) as running:
        running.create_topic("orders", queues=2)
        yield running


topics = iter(range(10_000))


@pytest.fixture
def topic(cluster):
    name = f"async-{next(topics)}"
    cluster.create_topic(name, queues=2)
    return name


async def bodies_of(cluster, topic):
    async with AsyncReader(cluster.name_server) as reader:
        return [message.body async for message in reader.read(topic)]


def test_a_message_is_sent_and_read_back(run, cluster, topic):
    async def main():
        async with AsyncProducer(cluster.name_server, group="g") as producer:
            result = await producer.send(Message(topic, "paid", tags="pay", keys="order-42"))
            assert result.status is SendStatus.OK
            assert result.attempts == ()
            async with AsyncReader(cluster.name_server) as reader:
                message = await reader.message_by_id(result.offset_message_id)
                assert (message.text, message.tags, message.keys) == ("paid", "pay", "order-42")
                assert message.message_id == result.message_id

    run(main())


def test_many_sends_at_once_share_one_connection_per_broker(run, cluster, topic):
    async def main():
        async with AsyncProducer(cluster.name_server, send_timeout=20.0) as producer:
            sends = (producer.send(Message(topic, str(n))) for n in range(300))
            results = await asyncio.gather(*sends)
            assert {r.status for r in results} == {SendStatus.OK}
            assert len({r.message_id for r in results}) == 300
            assert producer.stats().sent == 300
            assert len(producer._driver.connections) <= 3
        assert sorted(await bodies_of(cluster, topic)) == sorted(b"%d" % n for n in range(300))

    run(main())


def test_a_batch_is_one_result_with_all_ids(run, cluster, topic):
    async def main():
        async with AsyncProducer(cluster.name_server) as producer:
            result = await producer.send([Message(topic, "a"), Message(topic, "b")])
            assert len(result.message_ids) == 2
            assert len(result.offset_message_ids) == 2

    run(main())


def test_a_queue_or_a_selector_decides_where_it_goes(run, cluster, topic):
    async def main():
        async with AsyncProducer(cluster.name_server) as producer:
            queues = await producer.publish_queues(topic)
            assert [q.topic for q in queues] == [topic] * 4
            assert list(queues) == sorted(queues)
            for queue in queues:
                assert (await producer.send(Message(topic, "x"), queue=queue)).queue == queue
                chosen = await producer.send(
                    Message(topic, "x"),
                    selector=lambda qs, m, a: qs[a],
                    argument=queues.index(queue),
                )
                assert chosen.queue == queue

    run(main())


def test_submitted_messages_are_answered_in_their_deliveries(run, cluster, topic):
    async def main():
        async with AsyncProducer(cluster.name_server) as producer:
            deliveries = [await producer.submit(Message(topic, str(n))) for n in range(500)]
            first = await deliveries[0]
            assert isinstance(first, SendResult)
            await producer.flush()
            assert all(d.done() for d in deliveries)
            assert all(d.exception() is None for d in deliveries)
            assert len({d.result().message_id for d in deliveries}) == 500
            assert producer.stats().in_flight == 0

    run(main())


def test_a_delivery_may_be_awaited_by_several_and_its_wait_cancelled(run, cluster, topic):
    async def main():
        async with AsyncProducer(cluster.name_server) as producer:
            delivery = await producer.submit(Message(topic, "x"))
            with pytest.raises(asyncio.InvalidStateError, match="await the delivery"):
                delivery.result()
            with pytest.raises(asyncio.InvalidStateError, match="await the delivery"):
                delivery.exception()

            async def wait():
                return await delivery

            tasks = [asyncio.create_task(wait()) for _ in range(3)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results[0], asyncio.CancelledError)
            assert results[1] is results[2] is delivery.result()

    run(main())


def test_callbacks_are_called_on_the_loop_and_may_fail(run, cluster, topic, caplog):
    async def main():
        async with AsyncProducer(cluster.name_server) as producer:
            seen, failed = [], []
            delivery = await producer.submit(
                Message(topic, "x"), on_success=seen.append, on_error=failed.append
            )
            delivery.add_done_callback(lambda d: 1 / 0)
            await delivery
            delivery.add_done_callback(seen.append)
            assert seen == [delivery.result(), delivery]
            assert failed == []

    with caplog.at_level(logging.ERROR):
        run(main())
    assert "callback of a submitted message failed" in caplog.text


def test_submit_waits_for_room_and_gives_up_at_the_deadline(run, breakable):
    async def main():
        options = {"max_in_flight": 2, "send_timeout": 5.0, "background": False}
        async with AsyncProducer(breakable.name_server, **options) as producer:
            await producer.send(Message("orders", "x"))
            breakable.broker("broker-a").hang()
            held = [await producer.submit(Message("orders", "x")) for _ in range(2)]
            with pytest.raises(SendFailedError, match="2 messages are in flight") as caught:
                await producer.submit(Message("orders", "x"), timeout=0.05)
            assert caught.value.outcome is Outcome.NOT_SENT
            breakable.broker("broker-a").heal()
            await asyncio.gather(*held, return_exceptions=True)
            assert await (await producer.submit(Message("orders", "x")))

    run(main())


def test_a_submit_in_a_callback_never_waits_for_room(run, cluster, topic):
    async def main():
        async with AsyncProducer(cluster.name_server, max_in_flight=1) as producer:
            inner = []

            def again(result):
                inner.extend(
                    asyncio.ensure_future(producer.submit(Message(topic, "more"))) for _ in range(5)
                )

            outer = await producer.submit(Message(topic, "x"), on_success=again)
            await outer
            deliveries = await asyncio.gather(*inner)
            assert len(deliveries) == 5
            await producer.flush()
            assert all(d.done() for d in deliveries)

    run(main())


def test_a_failed_delivery_raises_where_it_is_awaited(run, breakable):
    async def main():
        options = {"send_timeout": 0.3, "background": False}
        async with AsyncProducer(breakable.name_server, **options) as producer:
            await producer.send(Message("orders", "x"))
            breakable.broker("broker-a").hang()
            errors = []
            delivery = await producer.submit(Message("orders", "x"), on_error=errors.append)
            with pytest.raises(SendFailedError) as caught:
                await delivery
            assert caught.value.outcome is Outcome.MAYBE_STORED
            assert errors == [caught.value] == [delivery.exception()]
            with pytest.raises(SendFailedError):
                delivery.result()

    run(main())


def test_flush_has_a_limit(run, breakable):
    async def main():
        options = {"send_timeout": 1.0, "background": False}
        async with AsyncProducer(breakable.name_server, **options) as producer:
            await producer.send(Message("orders", "x"))
            breakable.broker("broker-a").hang()
            delivery = await producer.submit(Message("orders", "x"))
            with pytest.raises(TimeoutError, match="1 messages have no answer"):
                await producer.flush(timeout=0.02)
            delivery.cancel()
            await producer.flush(timeout=0)
            assert delivery.exception().outcome is Outcome.MAYBE_STORED
            delivery.cancel()

    run(main())


def test_a_cancelled_send_is_reported_and_leaves_the_connection_usable(run, breakable):
    class Hook:
        def __init__(self):
            self.outcomes = []

        def after_attempt(self, event):
            self.outcomes.append(event.outcome)

    hook = Hook()

    async def main():
        options = {"background": False, "hooks": [hook], "send_timeout": 20.0}
        async with AsyncProducer(breakable.name_server, **options) as producer:
            await producer.send(Message("orders", "x"))
            (connection,) = [
                c for a, c in producer._driver.connections.items() if a != breakable.name_server
            ]
            breakable.broker("broker-a").hang()
            task = asyncio.create_task(producer.send(Message("orders", "y")))
            while not connection.session.pending:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            breakable.broker("broker-a").heal()
            await producer.send(Message("orders", "z"))
            assert connection in producer._driver.connections.values()

    run(main())
    assert hook.outcomes == ["stored", "maybe stored", "stored"]


def test_keys_that_can_not_be_had_for_a_moment_end_one_send(run, cluster, topic):
    """Its connection was told, which did not know that error: the send had no end."""
    fails = [False]

    def keys():
        if fails[0]:
            fails[0] = False
            raise OSError("no keys")
        return Credentials("access", "secret")

    async def main():
        async with AsyncProducer(cluster.name_server, group="keys", credentials=keys) as producer:
            await producer.send(Message(topic, "before"))
            fails[0] = True
            with pytest.raises(SendFailedError, match="no keys") as caught:
                await asyncio.wait_for(producer.send(Message(topic, "x")), 20)
            assert caught.value.outcome is Outcome.NOT_SENT
            await producer.send(Message(topic, "behind"))

    run(main())


def test_oneway_messages_arrive(run, cluster, topic):
    async def main():
        async with AsyncProducer(cluster.name_server) as producer:
            for number in range(10):
                assert await producer.send_oneway(Message(topic, str(number))) is None
            assert producer.stats().oneway == 10
        bodies = []
        while len(bodies) < 10:
            bodies = await bodies_of(cluster, topic)
        assert sorted(bodies) == [b"%d" % n for n in range(10)]

    run(main())


def test_send_many_keeps_order_per_key_and_answers_each(run, cluster, topic):
    async def main():
        messages = [
            Message(topic, f"{n}", sharding_key=f"key-{n % 5}" if n % 2 else None)
            for n in range(400)
        ]
        async with AsyncProducer(cluster.name_server) as producer:
            results = await producer.send_many(messages)
            assert all(isinstance(r, SendResult) for r in results)
        async with AsyncReader(cluster.name_server) as reader:
            read = [m async for m in reader.read(topic)]
        assert len(read) == 400
        for key in {m.sharding_key for m in messages if m.sharding_key}:
            mine = [m for m in read if m.sharding_key == key]
            assert len({m.queue for m in mine}) == 1
            assert [int(m.body) for m in mine] == [
                int(m.body) for m in messages if m.sharding_key == key
            ]

    run(main())


def test_submitted_messages_of_one_key_stay_in_order(run, cluster, topic):
    async def main():
        async with AsyncProducer(cluster.name_server, max_in_flight=20) as producer:
            for number in range(100):
                await producer.submit(Message(topic, str(number), sharding_key="k"))
            await producer.flush()
        assert [int(b) for b in await bodies_of(cluster, topic)] == list(range(100))

    run(main())


def test_what_is_invalid_is_refused_before_anything_is_sent(run, cluster, topic):
    async def main():
        async with AsyncProducer(cluster.name_server) as producer:
            for call in (producer.send, producer.submit, producer.send_oneway):
                with pytest.raises(InvalidMessageError):
                    await call(Message(topic, b""))
            with pytest.raises(InvalidMessageError, match="message 1"):
                await producer.send_many([Message(topic, "x"), Message(topic, b"")])
            with pytest.raises(InvalidMessageError, match="belongs to topic"):
                await producer.send(Message(topic, "x"), queue=MessageQueue("other", "b", 0))
            assert producer.stats().sent == 0

    run(main())


def test_send_many_takes_what_an_iterator_has_before_others_have_their_turn(run, cluster, topic):
    async def main():
        buffer = deque(Message(topic, b"x") for _ in range(2500))
        async with AsyncProducer(cluster.name_server) as producer:
            sending = asyncio.ensure_future(producer.send_many(iter(buffer)))
            await asyncio.sleep(0)
            buffer.append(Message(topic, b"later"))
            assert len(await sending) == 2500

    run(main())


def test_a_topic_can_be_created(run, cluster):
    async def main():
        async with AsyncProducer(cluster.name_server) as producer:
            await producer.create_topic("made-here", queues=3)
            queues = await producer.publish_queues("made-here")
            assert len(queues) == 6

    run(main())


def test_use_before_start_and_after_shutdown_is_an_error(run, cluster, topic):
    async def main():
        producer = AsyncProducer(cluster.name_server)
        assert producer.client_id == ""
        calls = [
            lambda: producer.send(Message(topic, "x")),
            lambda: producer.submit(Message(topic, "x")),
            lambda: producer.send_oneway(Message(topic, "x")),
            lambda: producer.send_many([Message(topic, "x")]),
            lambda: producer.publish_queues(topic),
            lambda: producer.create_topic("t"),
        ]
        for call in [*calls, producer.flush]:
            with pytest.raises(ClientClosedError, match="not started"):
                await call()
        for call in (producer.health, producer.stats):
            with pytest.raises(ClientClosedError, match="not started"):
                call()
        assert await producer.start() is producer
        assert await producer.start() is producer
        await producer.send(Message(topic, "x"))
        assert producer.client_id in producer._instance.client_id
        await producer.shutdown()
        await producer.shutdown()
        for call in calls:
            with pytest.raises(ClientClosedError, match="shut down"):
                await call()
        with pytest.raises(ClientClosedError, match="shut down"):
            await producer.start()
        assert producer.stats().sent == 1
        assert producer.health()[0].state == "usable"

    run(main())


def test_shutdown_waits_for_what_is_in_flight(run, cluster, topic):
    async def main():
        producer = await AsyncProducer(cluster.name_server).start()
        send = asyncio.create_task(producer.send(Message(topic, "x")))
        await asyncio.sleep(0)
        deliveries = [await producer.submit(Message(topic, "x")) for _ in range(10)]
        await producer.shutdown()
        assert all(d.exception() is None for d in deliveries)
        assert (await send).status is SendStatus.OK

    run(main())


def test_shutdown_fails_what_gets_no_answer_with_its_outcome(run, breakable):
    async def main():
        options = {"shutdown_timeout": 0.1, "send_timeout": 20.0, "background": False}
        producer = await AsyncProducer(breakable.name_server, **options).start()
        await producer.send(Message("orders", "x"))
        breakable.broker("broker-a").hang()
        delivery = await producer.submit(Message("orders", "x"))
        ordered = [
            await producer.submit(Message("orders", "x", sharding_key="k")) for _ in range(3)
        ]
        send = asyncio.create_task(producer.send(Message("orders", "x")))
        await asyncio.sleep(0.01)
        await producer.shutdown()
        assert delivery.exception().outcome is Outcome.MAYBE_STORED
        assert "shut down" in str(delivery.exception())
        with pytest.raises(SendFailedError) as caught:
            await send
        assert caught.value.outcome is Outcome.MAYBE_STORED
        for _ in range(5):
            await asyncio.sleep(0)
        outcomes = [d.exception().outcome for d in ordered]
        assert outcomes == [Outcome.MAYBE_STORED, Outcome.NOT_SENT, Outcome.NOT_SENT]

    run(main())


def test_a_producer_that_was_not_closed_warns(run, cluster, topic):
    async def main():
        producer = await AsyncProducer(cluster.name_server).start()
        await producer.send(Message(topic, "x"))
        drivers = producer._driver, producer._upkeep_driver
        with pytest.warns(ResourceWarning, match="unclosed producer"):  # noqa: PT031
            del producer
            gc.collect()
        for driver in drivers:
            while driver.table._alive or driver.table._dials:
                await asyncio.sleep(0.001)

    run(main())


def test_producers_of_one_client_id_share_an_instance_but_no_group(run, cluster, topic):
    async def main():
        shared = {"client_id": "me@1"}
        async with AsyncProducer(cluster.name_server, group="one", **shared) as first:
            with pytest.raises(ConfigError, match="exists already"):
                await AsyncProducer(cluster.name_server, group="one", **shared).start()
            async with AsyncProducer(cluster.name_server, group="two", **shared) as second:
                await first.send(Message(topic, "x"))
                await second.send(Message(topic, "x"))
                assert first._instance is second._instance
                assert first.health() == second.health()

    run(main())


def test_brokers_hear_heartbeats_and_the_goodbye(run, breakable):
    async def main():
        async with AsyncProducer(breakable.name_server, group="heard") as producer:
            await producer.send(Message("orders", "x"))
            producer._instance.heartbeat_wake_up.wake()
            while not any(entry.code == 34 for entry in breakable.journal):
                await asyncio.sleep(0.005)
        assert any(entry.code == 35 for entry in breakable.journal)

    run(main())


def test_a_submit_that_is_cancelled_has_handed_nothing_over(run, cluster, topic):
    async def main():
        # Time enough for a machine that pauses: none of these may fail.
        async with AsyncProducer(cluster.name_server, send_timeout=25.0) as producer:
            await producer.send(Message(topic, "first"))
            accepted = 0

            async def flood():
                nonlocal accepted
                while True:
                    await producer.submit(Message(topic, "x"))
                    accepted += 1

            task = asyncio.create_task(flood())
            while accepted < 300:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await producer.flush()
            assert producer.stats().sent == 1 + accepted

    run(main())


FORMS = {
    "send": lambda p, topic: p.send(Message(topic, "x")),
    "send slowly": lambda p, topic: p.send(Message(topic, "x"), timeout=5.0),
    "oneway": lambda p, topic: p.send_oneway(Message(topic, "x")),
    "submit": lambda p, topic: p.submit(Message(topic, "x")),
    "many": lambda p, topic: p.send_many([Message(topic, "x")]),
    "flush": lambda p, topic: p.flush(),
    "queues": lambda p, topic: p.publish_queues(topic),
}


@pytest.mark.parametrize("form", FORMS)
def test_another_loop_is_told_that_the_producer_is_not_its_own(run, cluster, topic, form):
    producer = AsyncProducer(cluster.name_server, background=False)

    async def at_home():
        async with producer:
            await producer.send(Message(topic, "x"))
            elsewhere = asyncio.to_thread(asyncio.run, FORMS[form](producer, topic))
            with pytest.raises(ClientClosedError, match="belongs to another event loop"):
                await elsewhere
            with pytest.raises(ClientClosedError, match="belongs to another event loop"):
                await asyncio.to_thread(asyncio.run, producer.shutdown())
            await producer.send(Message(topic, "x"))

    run(at_home())


def use_after_its_loop(cluster, topic):
    producer = AsyncProducer(cluster.name_server, client_id="lost", background=False)

    async def leave_open():
        await producer.start()
        await producer.send(Message(topic, "x"))

    async def elsewhere():
        with pytest.raises(ClientClosedError, match="belongs to another event loop"):
            await producer.send(Message(topic, "x"))
        await producer.shutdown()
        with pytest.raises(ClientClosedError, match="was shut down"):
            await producer.send(Message(topic, "x"))
        # Nothing of it is left in the way of a new one with its id and its group.
        async with AsyncProducer(cluster.name_server, client_id="lost", background=False) as other:
            await other.send(Message(topic, "x"))

    asyncio.run(leave_open())
    asyncio.run(elsewhere())


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_producer_whose_loop_is_closed_says_so_and_can_be_shut_down(cluster, topic):
    use_after_its_loop(cluster, topic)
    for _ in range(3):  # its transports, here, where their warnings are expected
        gc.collect()
