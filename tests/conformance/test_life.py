"""Start and shutdown, sharing, threads, cancellation, and what a client leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import pytest
from tests.conformance.shells import SHELLS

from rocketwire import (
    AsyncProducer,
    ClientClosedError,
    ConfigError,
    InvalidMessageError,
    Message,
    Outcome,
    Producer,
    Reader,
    SendFailedError,
    SendStatus,
)
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("T", 4)
        yield cluster


def threads() -> set[str]:
    """Threads of clients; the cluster in this process has its own."""
    names = {t.name for t in threading.enumerate()}
    return {n for n in names if not n.startswith(("rocketwire-embedded", "rocketwire-flush"))}


def open_sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed in between
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


def settled(count: Callable[[], int]) -> int:
    """A number when it has stopped falling: the cluster closes its ends a moment later."""
    last, same = count(), 0
    while same < 5:
        time.sleep(0.05)
        now = count()
        same = same + 1 if now >= last else 0
        last = min(last, now)
    return last


@pytest.mark.parametrize("kind", list(SHELLS))
def test_a_closed_client_leaves_no_thread_and_no_socket(cluster, kind) -> None:
    with SHELLS[kind](cluster.name_server) as shell:  # whatever is made once is made now
        shell.submit(Message("T", b"x"))()
    before, sockets = threads(), settled(open_sockets)
    for _ in range(3):
        with SHELLS[kind](cluster.name_server) as shell:
            shell.send(Message("T", b"x"))
            shell.submit(Message("T", b"x"))()
            shell.read("T")
    gc.collect()
    assert threads() <= before
    for _ in range(400):  # a busy machine may let the cluster close its ends much later
        if open_sockets() <= sockets:
            break
        time.sleep(0.05)
    assert open_sockets() <= sockets


def test_using_a_producer_before_start_or_after_shutdown_is_a_clear_error(cluster) -> None:
    producer = Producer(cluster.name_server, group="g")
    for use in (producer.send, producer.submit, producer.send_oneway):
        with pytest.raises(ClientClosedError, match="not started"):
            use(Message("T", b"x"))
    with pytest.raises(ClientClosedError, match="not started"):
        producer.health()
    producer.start()
    assert producer.start() is producer
    assert producer.send(Message("T", b"x")).status is SendStatus.OK
    producer.shutdown()
    producer.shutdown()
    for use in (producer.send, producer.submit, producer.send_oneway, producer.send_many):
        with pytest.raises(ClientClosedError, match="shut down"):
            use(Message("T", b"x"))
    with pytest.raises(ClientClosedError, match="make a new one"):
        producer.start()


def test_a_reader_has_the_same_life(cluster) -> None:
    reader = Reader(cluster.name_server)
    with pytest.raises(ClientClosedError, match="this reader was not started"):
        reader.queues("T")
    with reader:
        assert len(reader.queues("T")) == 8
    with pytest.raises(ClientClosedError, match="this reader was shut down"):
        reader.queues("T")


def test_an_asyncio_producer_has_the_same_life(cluster) -> None:
    async def run() -> None:
        producer = AsyncProducer(cluster.name_server, group="g")
        with pytest.raises(ClientClosedError, match="not started"):
            await producer.send(Message("T", b"x"))
        await producer.start()
        await producer.start()
        assert (await producer.send(Message("T", b"x"))).status is SendStatus.OK
        await producer.shutdown()
        await producer.shutdown()
        with pytest.raises(ClientClosedError, match="shut down"):
            await producer.send(Message("T", b"x"))
        with pytest.raises(ClientClosedError):
            await producer.start()

    asyncio.run(run())


def test_no_name_server_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        Producer(group="g")


def test_the_environment_names_the_name_server(cluster, monkeypatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
    with Producer(group="g") as producer:
        assert producer.send(Message("T", b"x")).status is SendStatus.OK


def test_an_unclosed_producer_warns(cluster) -> None:
    producer = Producer(cluster.name_server, group="g").start()
    producer.send(Message("T", b"x"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del producer
        gc.collect()
    assert [w.category for w in caught] == [ResourceWarning]
    assert "unclosed producer" in str(caught[0].message)


def test_shutdown_waits_for_what_is_in_flight(cluster) -> None:
    for broker in cluster.brokers:
        broker.slow(0.3, code=RequestCode.SEND_MESSAGE_V2)
    producer = Producer(cluster.name_server, group="g").start()
    deliveries = [producer.submit(Message("T", b"%d" % n)) for n in range(10)]
    producer.shutdown()
    assert [d.result(0).status for d in deliveries] == [SendStatus.OK] * 10


@pytest.mark.parametrize("message", [Message("T", b"x"), Message("T", b"x", sharding_key="k")])
def test_shutdown_waits_for_sends_in_other_threads(cluster, message) -> None:
    ends: list[object] = []
    with Producer(cluster.name_server, group="g", send_timeout=60.0) as producer:
        producer.send(message)
        for broker in cluster.brokers:
            broker.slow(0.5, code=RequestCode.SEND_MESSAGE_V2)
        senders = [
            threading.Thread(target=lambda: ends.append(producer.send(message))) for _ in range(3)
        ]
        for sender in senders:
            sender.start()
        while sum(h.in_flight for h in producer.health()) < (1 if message.sharding_key else 3):
            time.sleep(0.001)
        producer.shutdown()
        assert len(ends) == 3
    for sender in senders:
        sender.join()


@pytest.mark.parametrize("error", [TimeoutError, InterruptedError, KeyboardInterrupt])
def test_what_a_signal_handler_raises_ends_a_send_and_comes_through(cluster, error) -> None:
    def end(*_: object) -> None:
        raise error("enough")

    with Producer(cluster.name_server, group="g", send_timeout=30.0) as producer:
        producer.send(Message("T", b"x"))
        for broker in cluster.brokers:
            broker.hang()
        before = signal.signal(signal.SIGUSR1, end)
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(error, match="enough"):
                producer.send(Message("T", b"y"))
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert sum(h.in_flight for h in producer.health()) == 0
        for broker in cluster.brokers:
            broker.heal()
        assert producer.send(Message("T", b"z"))


def test_a_shutdown_by_a_signal_does_not_wait_for_the_send_that_it_interrupts(cluster) -> None:
    waited: list[bool] = []
    with Producer(cluster.name_server, group="g", send_timeout=60.0) as producer:
        producer.send(Message("T", b"x"))
        for broker in cluster.brokers:
            broker.hang()
        is_quiet = producer._pool.is_quiet

        def end(*_: object) -> None:
            producer._pool.is_quiet = lambda: waited.append(True) or is_quiet()
            producer.shutdown()
            raise InterruptedError("the end")

        before = signal.signal(signal.SIGUSR1, end)
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(InterruptedError, match="the end"):
                producer.send(Message("T", b"y"))
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert not waited


def test_shutdown_ends_what_hangs_with_an_outcome(cluster) -> None:
    producer = Producer(cluster.name_server, group="g", shutdown_timeout=0.3).start()
    producer.send(Message("T", b"x"))
    for broker in cluster.brokers:
        broker.hang(code=RequestCode.SEND_MESSAGE_V2)
    delivery = producer.submit(Message("T", b"x"), timeout=30.0)
    producer.shutdown()
    with pytest.raises(SendFailedError) as caught:
        delivery.result(5)
    assert caught.value.outcome is Outcome.MAYBE_STORED


def test_heartbeats_name_the_group_and_shutdown_takes_it_back(cluster) -> None:
    with Producer(cluster.name_server, group="beating", heartbeat_interval=0.2) as producer:
        producer.send(Message("T", b"x"))
        done = threading.Event()
        for _ in range(100):
            if cluster.journal.requests(code=RequestCode.HEART_BEAT):
                break
            done.wait(0.1)
        beats = cluster.journal.requests(code=RequestCode.HEART_BEAT)
        assert {b.server for b in beats} <= {"broker-a", "broker-b"}
        assert beats
    goodbyes = cluster.journal.requests(code=RequestCode.UNREGISTER_CLIENT)
    assert {g.server for g in goodbyes} == {"broker-a", "broker-b"}


def test_producers_with_one_explicit_id_share_an_instance(cluster) -> None:
    options = {"client_id": "shared-1"}
    with (
        Producer(cluster.name_server, group="one", **options) as one,
        Producer(cluster.name_server, group="two", **options) as two,
    ):
        one.send(Message("T", b"x"))
        asked = len(cluster.journal.requests(code=RequestCode.GET_ROUTE_BY_TOPIC))
        two.send(Message("T", b"x"))
        assert len(cluster.journal.requests(code=RequestCode.GET_ROUTE_BY_TOPIC)) == asked
        assert one.client_id == two.client_id == "shared-1"
        with pytest.raises(ConfigError, match="group 'one' exists already"):
            Producer(cluster.name_server, group="one", **options).start()
        with pytest.raises(ConfigError, match="another route_refresh"):
            Producer(cluster.name_server, group="x", route_refresh=5, **options).start()
        two.shutdown()
        assert one.send(Message("T", b"x")).status is SendStatus.OK


def sent_from(cluster: EmbeddedCluster) -> set[str]:
    """Addresses from which messages came."""
    return {entry.client for entry in cluster.journal.sends()}


def test_blocking_clients_of_one_explicit_id_share_connections(cluster) -> None:
    options = {"client_id": "shared-2", "background": False}
    before = open_sockets()
    with (
        Producer(cluster.name_server, group="one", **options) as one,
        Producer(cluster.name_server, group="two", **options) as two,
    ):
        with pytest.raises(ConfigError, match="group 'one' exists already"):
            Producer(cluster.name_server, group="one", **options).start()
        queue = one.publish_queues("T")[0]
        cluster.journal.clear()
        for producer in (one, two, one):
            producer.send(Message("T", b"x"), queue=queue)
        assert len(sent_from(cluster)) == 1
        one.shutdown()
        two.send(Message("T", b"x"), queue=queue)
        assert len(sent_from(cluster)) == 1
    assert settled(open_sockets) == before


def test_asyncio_clients_of_one_explicit_id_share_connections_on_one_loop(cluster) -> None:
    options = {"client_id": "shared-3", "background": False, "shutdown_timeout": 0.05}

    async def main() -> None:
        two = await AsyncProducer(cluster.name_server, group="two", **options).start()
        async with AsyncProducer(cluster.name_server, group="one", **options) as one:
            with pytest.raises(ConfigError, match="group 'one' exists already"):
                await AsyncProducer(cluster.name_server, group="one", **options).start()
            queue = (await one.publish_queues("T"))[0]
            cluster.journal.clear()
            for producer in (one, two, one):
                await producer.send(Message("T", b"x"), queue=queue)
            assert len(sent_from(cluster)) == 1
            cluster.broker(queue.broker).hang()
            ours = await one.submit(Message("T", b"x"), queue=queue)
            theirs = await two.submit(Message("T", b"x"), queue=queue)
            await two.shutdown()
            assert theirs.exception().outcome is Outcome.MAYBE_STORED
            assert not ours.done()
            cluster.broker(queue.broker).heal()
            assert (await ours).status is SendStatus.OK
            assert len(sent_from(cluster)) == 1

    before = open_sockets()
    asyncio.run(main())
    assert settled(open_sockets) == before


def test_producers_on_one_connection_count_their_own_messages(cluster) -> None:
    options = {"client_id": "shared-5", "background": False}

    async def main() -> None:
        async with (
            AsyncProducer(cluster.name_server, group="one", **options) as one,
            AsyncProducer(cluster.name_server, group="two", **options) as two,
        ):
            for producer in (one, two):
                await producer.send(Message("T", b"first"))
            for producer in (one, two, two, one, two):
                await producer.submit(Message("T", b"1234"))
            await one.flush()
            await two.flush()
            counts = [(p.stats().sent, p.stats().messages, p.stats().bytes) for p in (one, two)]
            assert counts == [(3, 3, 13), (4, 4, 17)]
            answers = [sum(b.answers for b in p.stats().brokers) for p in (one, two)]
            assert answers == [3, 4]

    asyncio.run(main())


def test_asyncio_clients_of_one_explicit_id_on_two_loops_share_no_connection(cluster) -> None:
    options = {"client_id": "shared-4", "background": False}

    async def send(producer: AsyncProducer) -> None:
        queue = (await producer.publish_queues("T"))[0]
        await producer.send(Message("T", b"x"), queue=queue)

    async def on_another_loop() -> None:
        async with AsyncProducer(cluster.name_server, group="two", **options) as producer:
            await send(producer)

    async def main() -> None:
        async with AsyncProducer(cluster.name_server, group="one", **options) as producer:
            await send(producer)
            await asyncio.to_thread(asyncio.run, on_another_loop())
            await send(producer)

    cluster.journal.clear()
    asyncio.run(main())
    assert len(sent_from(cluster)) == 2


def test_producers_without_an_id_are_instances_of_their_own(cluster) -> None:
    with (
        Producer(cluster.name_server, group="same") as one,
        Producer(cluster.name_server, group="same") as two,
    ):
        assert one.client_id != two.client_id
        assert str(os.getpid()) in one.client_id


def test_one_producer_serves_many_threads(cluster) -> None:
    results: list = []
    # Time enough for a machine that pauses: a retry would store a message twice.
    with Producer(cluster.name_server, group="g", send_timeout=60.0) as producer:

        def work(number: int) -> None:
            for n in range(40):
                body = b"%d-%d" % (number, n)
                if n % 2:
                    results.append(producer.send(Message("T", body)))
                else:
                    results.append(producer.submit(Message("T", body)).result(30))

        workers = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert len({r.message_id for r in results}) == 320
    assert len(cluster.messages("T")) == 320


def test_cancelling_a_send_leaves_the_connection_usable(cluster) -> None:
    events = []

    class Hook:
        def after_attempt(self, event) -> None:
            events.append(event)

    async def run() -> None:
        options = {"group": "g", "hooks": (Hook(),), "background": False}
        async with AsyncProducer(cluster.name_server, **options) as producer:
            for _ in range(8):  # to both brokers
                await producer.send(Message("T", b"first"))
            for broker in cluster.brokers:
                broker.late_replies(0.5, next=2)
            sends = [asyncio.ensure_future(producer.send(Message("T", b"x"))) for _ in range(2)]
            await asyncio.sleep(0.1)
            for send in sends:
                send.cancel()
            await asyncio.gather(*sends, return_exceptions=True)
            before = sum(b.connections for b in cluster.brokers)
            results = await asyncio.gather(
                *(producer.send(Message("T", b"%d" % n)) for n in range(20))
            )
            assert {r.status for r in results} == {SendStatus.OK}
            assert sum(b.connections for b in cluster.brokers) == before

    asyncio.run(run())
    cancelled = [e for e in events if e.error == "cancelled"]
    assert [e.outcome for e in cancelled] == ["maybe stored"] * 2


def test_callbacks_tell_success_and_failure(cluster) -> None:
    good, bad, chained = [], [], []
    done = threading.Event()
    with Producer(cluster.name_server, group="g", max_in_flight=1) as producer:

        def again(result) -> None:
            good.append(result)
            # With room for one message, a submit that waited here would wait for itself.
            chained.append(producer.submit(Message("T", b"y")))
            done.set()

        producer.submit(Message("T", b"x"), on_success=again).result(10)
        assert done.wait(10)
        assert chained[0].result(10).status is SendStatus.OK
        for broker in cluster.brokers:
            broker.reject(13, next=1)
        producer.submit(Message("T", b"x"), on_error=bad.append)
        producer.flush(10)
    assert good[0].status is SendStatus.OK
    assert isinstance(bad[0], SendFailedError)


def test_a_callback_that_raises_harms_nobody(cluster, caplog) -> None:
    with Producer(cluster.name_server, group="g") as producer:
        producer.submit(Message("T", b"x"), on_success=lambda _: 1 / 0)
        assert producer.submit(Message("T", b"x")).result(10).status is SendStatus.OK
        producer.flush(10)
    assert "a callback of a submitted message failed" in caplog.text


def test_room_is_bounded_and_running_out_is_told(cluster) -> None:
    with Producer(cluster.name_server, group="g", max_in_flight=2) as producer:
        producer.send(Message("T", b"x"))
        for broker in cluster.brokers:
            broker.hang(code=RequestCode.SEND_MESSAGE_V2)
        stuck = [producer.submit(Message("T", b"x"), timeout=5.0) for _ in range(2)]
        with pytest.raises(SendFailedError, match="max_in_flight") as caught:
            producer.submit(Message("T", b"x"), timeout=0.2)
        assert caught.value.outcome is Outcome.NOT_SENT
        for wrong in (Message("T", b""), [Message("T", b"x"), Message("T", b"")]):
            with pytest.raises(InvalidMessageError):  # without waiting for room
                producer.submit(wrong, timeout=5.0)
        with pytest.raises(TimeoutError):
            producer.flush(0.1)
        for broker in cluster.brokers:
            broker.heal()
        assert [d.result(20).status for d in stuck] == [SendStatus.OK] * 2


@pytest.mark.parametrize("auto_batch", [False, True])
def test_messages_that_have_to_wait_for_room_all_arrive(cluster, auto_batch) -> None:
    options = {"max_in_flight": 3, "auto_batch": auto_batch, "send_timeout": 30.0}
    with Producer(cluster.name_server, group="g", **options) as producer:
        deliveries = [producer.submit(Message("T", b"%d" % n)) for n in range(60)]
        assert len({d.result(30).message_id for d in deliveries}) == 60
        assert producer.stats().in_flight == 0

    async def main() -> None:
        async with AsyncProducer(cluster.name_server, group="g", **options) as producer:
            deliveries = [await producer.submit(Message("T", b"%d" % n)) for n in range(60, 120)]
            await producer.flush(30)
            assert len({d.result().message_id for d in deliveries}) == 60
            assert producer.stats().in_flight == 0

    asyncio.run(main())
    assert sorted(int(m.body) for m in cluster.messages("T")) == list(range(120))


def test_a_bad_message_does_not_wait_for_room(cluster) -> None:
    options = {"max_in_flight": 1, "send_timeout": 30.0, "shutdown_timeout": 0.05}
    with Producer(cluster.name_server, group="g", **options) as producer:
        producer.send(Message("T", b"x"))
        for name in ("broker-a", "broker-b"):
            cluster.broker(name).hang()
        producer.submit(Message("T", b"x"))
        with pytest.raises(InvalidMessageError, match="body is empty"):
            producer.submit(Message("T", b""))

    async def main() -> None:
        async with AsyncProducer(cluster.name_server, group="g", **options) as producer:
            await producer.submit(Message("T", b"x"))
            with pytest.raises(InvalidMessageError, match="body is empty"):
                await producer.submit(Message("T", b""))

    asyncio.run(main())


def test_an_address_map_leads_around_what_brokers_advertise(cluster) -> None:
    port = cluster.broker("broker-a").port
    elsewhere = {"group": "g", "address_map": lambda a: a.replace("127.0.0.1", "127.0.0.2")}
    with (
        Producer(cluster.name_server, **elsewhere) as producer,
        pytest.raises(SendFailedError, match="refused the connection"),
    ):
        producer.send(Message("T", b"x"))
    mapping = {f"127.0.0.1:{port}": f"127.0.0.1:{port}"}
    with Producer(cluster.name_server, group="g", address_map=mapping) as producer:
        assert producer.send(Message("T", b"x")).status is SendStatus.OK


LAST_WORDS = """
import atexit, sys
from rocketwire import Message, Producer

producer = Producer(sys.argv[1], group="last").start()
producer.send(Message("T", b"first"))


def end():
    print(producer.submit(Message("T", b"last")).result(60).status.name)
    producer.shutdown()


atexit.register(end)
"""


def test_a_message_can_be_submitted_when_the_interpreter_ends(cluster) -> None:
    command = [sys.executable, "-c", LAST_WORDS, cluster.name_server]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "OK\n", "")
    assert [m.body for m in cluster.messages("T")].count(b"last") == 1


NO_GOODBYE = """
import json, sys
from rocketwire import Message, Producer

producer = Producer(sys.argv[1], group="last", **json.loads(sys.argv[2])).start()
producer.send(Message("T", b"first"))
for number in range(2000):
    producer.submit(Message("T", b"%d" % number))
"""


@pytest.mark.parametrize("settings", ["{}", '{"auto_batch": true}'])
def test_what_was_submitted_is_sent_when_the_program_just_ends(cluster, settings) -> None:
    command = [sys.executable, "-c", NO_GOODBYE, cluster.name_server, settings]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    expected = {b"first", *(b"%d" % number for number in range(2000))}
    assert {m.body for m in cluster.messages("T")} == expected


TOO_LATE = """
import sys
from rocketwire import Message, Producer

producer = Producer(sys.argv[1], group="last", shutdown_timeout=0.05).start()
print(producer.send(Message("T", b"first")).status.name, flush=True)
sys.stdin.readline()
producer.submit(Message("T", b"never"))
"""


def test_a_program_that_just_ends_tells_what_had_no_answer(cluster) -> None:
    command = [sys.executable, "-c", TOO_LATE, cluster.name_server]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as program:
        assert program.stdout.readline() == "OK\n"
        for name in ("broker-a", "broker-b"):
            cluster.broker(name).hang()
        _, told = program.communicate("go on\n", timeout=100)
    assert program.returncode == 0
    assert "1 submitted messages have no answer yet: they may be lost" in told
