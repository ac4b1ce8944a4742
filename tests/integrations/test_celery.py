"""Celery over RocketMQ, with real workers on the embedded cluster."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("celery", reason="Celery is not installed: pip install 'rocketwire[celery]'")

from celery import Celery
from kombu import Connection, Exchange, Queue

import rocketwire.integrations.celery
from rocketwire import Admin, ConfigError, Message, Producer
from rocketwire.embedded import EmbeddedCluster
from rocketwire.integrations.celery.intake import Intake

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def wait_for(condition, timeout=30.0, what="it"):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen in {timeout} s")


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(2) as running:
        yield running


class Workplace:
    """Celery on a cluster: an application of the test's own, and workers as processes."""

    def __init__(self, cluster, folder):
        self.cluster = cluster
        self.folder = folder
        self.name = uuid.uuid4().hex[:8]
        self.options = {"topic_prefix": f"t{self.name}-", "visibility_timeout": 2}
        self.journal = folder / "journal"
        self.processes = []
        self.app = self.application()

    def application(self, **conf):
        app = Celery(broker=f"rocketmq://{self.cluster.name_server}", backend="rpc://")
        app.conf.update(broker_transport_options=self.options, **conf)
        return app

    def send(self, name, *arguments, **options):
        return self.app.send_task(f"celery_tasks.{name}", arguments, **options)

    def lone_worker(self, name="one", pool="prefork", **environment):
        """One that begins faster, because it does not look for others."""
        quiet = ("--without-mingle", "--without-gossip", "--without-heartbeat")
        return self.worker(*quiet, name=name, pool=pool, **environment)

    def worker(self, *words, name="one", pool="prefork", **environment):
        log = (self.folder / f"{name}.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "--pool", pool,
             "-c", "1", "--hostname", f"{name}@{self.name}", "-l", "INFO", *words],
            cwd=HERE,
            env=os.environ | {
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(HERE)]),
                "TASKS_BROKER": f"rocketmq://{self.cluster.name_server}",
                "TASKS_OPTIONS": json.dumps(self.options),
                "TASKS_JOURNAL": str(self.journal),
                # With pickle, Celery refuses to run as root, which it may be here.
                "C_FORCE_ROOT": "1",
            } | environment,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        log.close()
        self.processes.append(process)
        try:
            wait_for(lambda: " ready." in self.log(name), 30)
        except AssertionError:
            raise AssertionError(f"worker {name} did not begin:\n{self.log(name)}") from None
        return process

    def log(self, name="one"):
        return (self.folder / f"{name}.log").read_text()

    def noted(self):
        if not self.journal.exists():
            return []
        return [line.split()[0] for line in self.journal.read_text().splitlines()]

    def kill(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self):
        self.app.close()
        for process in self.processes:
            self.kill(process)


@pytest.fixture
def place(cluster, tmp_path):
    made = Workplace(cluster, tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shop(cluster, tmp_path_factory):
    """A workplace with a worker that is there already."""
    made = Workplace(cluster, tmp_path_factory.mktemp("shop"))
    made.worker()
    yield made
    made.close()


def test_a_task_returns_its_result(shop):
    results = [shop.send("add", number, 1) for number in range(20)]
    assert [result.get(timeout=30) for result in results] == list(range(1, 21))


def test_a_task_is_retried(shop):
    assert shop.send("stubborn").get(timeout=30) == 2
    assert {"try-0", "try-1", "try-2"} <= set(shop.noted())


def test_remote_control_reaches_every_worker(place):
    place.worker(name="one")
    place.worker(name="two")
    inspected = place.app.control.inspect(timeout=5.0, limit=2).ping()
    assert inspected == {
        f"one@{place.name}": {"ok": "pong"},
        f"two@{place.name}": {"ok": "pong"},
    }
    only = place.app.control.inspect([f"two@{place.name}"], timeout=5.0, limit=1).registered()
    assert "celery_tasks.add" in only[f"two@{place.name}"]


def test_replies_leave_no_topic_behind(shop):
    assert shop.app.control.inspect(timeout=5.0, limit=1).ping()  # all of them share a topic
    before = topics(shop)
    for _ in range(3):
        with shop.application() as app:
            assert app.send_task("celery_tasks.add", (1, 2)).get(timeout=30) == 3
            assert app.control.inspect(timeout=5.0, limit=1).ping()
    assert topics(shop) == before


def topics(shop):
    with Admin(shop.cluster.name_server) as admin:
        return {t.name for t in admin.topics() if t.name.startswith(f"t{shop.name}-")}


def test_pickle_is_refused_unless_it_was_asked_for(shop):
    shop.app.conf.accept_content = ["json"]
    refused = shop.send("remember", 1, serializer="pickle")
    wait_for(lambda: "ContentDisallowed" in shop.log(), what="the refusal")
    assert not refused.ready()
    shop.worker("-Q", "trusted", "--without-mingle", name="three", TASKS_ACCEPT="json,pickle")
    shop.send("remember", 2, serializer="pickle", queue="trusted")
    wait_for(lambda: "remember-2" in shop.noted(), what="the task")
    assert "remember-1" not in shop.noted()


def test_a_task_that_was_sent_before_any_worker_is_not_lost(place):
    place.send("remember", 5)
    place.lone_worker(pool="solo")
    wait_for(lambda: "remember-5" in place.noted(), what="the task")


def test_the_tasks_of_a_killed_worker_are_done_by_another(place):
    first = place.lone_worker(name="one")
    for number in range(3):
        place.send("slow", number, 2.0 if number == 0 else 0.0)
    wait_for(lambda: "begin-0-first" in place.noted(), what="the first task")
    place.kill(first)
    place.lone_worker(name="two")
    wait_for(lambda: {"end-0", "end-1", "end-2"} <= set(place.noted()), 60, "the rest")
    assert "begin-0-again" in place.noted()


def test_a_task_may_take_longer_than_messages_stay_invisible(place):
    place.lone_worker(name="one", pool="solo")
    place.lone_worker(name="two", pool="solo")
    place.send("slow", 7, 5.0)
    wait_for(lambda: "end-7" in place.noted(), 30, "the task")
    time.sleep(1.0)
    assert [line for line in place.noted() if line.startswith("begin-7")] == ["begin-7-first"]


def test_a_worker_takes_no_more_than_it_may_prefetch(place):
    place.lone_worker(name="one", TASKS_PREFETCH="1")
    for number in range(4):
        place.send("slow", number, 60.0)  # longer than a worker takes to begin on a busy machine
    wait_for(lambda: len(place.noted()) == 1, what="the first task")
    # The rest is still there for another worker.
    place.lone_worker(name="two", TASKS_PREFETCH="1")
    wait_for(lambda: len({line for line in place.noted() if line.endswith("first")}) >= 2)
    assert not [line for line in place.noted() if line.startswith("end")]


# What kombu itself may ask for


@pytest.fixture
def connection(cluster):
    options = {"topic_prefix": f"k{uuid.uuid4().hex[:8]}-", "visibility_timeout": 3}
    with Connection(f"rocketmq://{cluster.name_server}", transport_options=options) as made:
        yield made


def test_a_message_that_is_rejected_comes_again_or_not(connection):
    with connection.SimpleQueue("jobs") as jobs:
        jobs.put({"number": 1})
        message = jobs.get(timeout=10)
        assert not message.delivery_info["redelivered"]
        message.requeue()
        message = jobs.get(timeout=10)
        assert (message.payload, message.delivery_info["redelivered"]) == ({"number": 1}, True)
        message.reject()
        with pytest.raises(jobs.Empty):
            jobs.get(timeout=4)


def test_what_was_not_acknowledged_is_given_back_when_a_channel_closes(connection):
    with connection.SimpleQueue("jobs") as jobs:
        jobs.put("again")
    with connection.channel() as channel:
        assert wait_for(lambda: channel.basic_get("jobs")).payload == "again"
    with connection.channel() as channel:
        again = wait_for(lambda: channel.basic_get("jobs"), 2.5, "the same message")
        again.ack()


def test_a_queue_is_counted_purged_and_deleted(connection):
    channel = connection.default_channel
    queue = Queue("jobs.of.today", channel=channel)
    queue.declare()
    producer = connection.Producer()
    for number in range(40):
        producer.publish({"n": number}, routing_key="jobs.of.today")
    assert queue.queue_declare(passive=True).message_count == 40
    assert queue.purge() == 40
    assert queue.get() is None
    queue.delete()
    with pytest.raises(connection.channel_errors):
        queue.queue_declare(passive=True)


def test_a_durable_queue_can_not_hear_a_fanout(connection):
    queue = Queue("durable", Exchange("news", "fanout"), channel=connection.default_channel)
    with pytest.raises(ConfigError, match="auto_delete=True"):
        queue.declare()


def test_exchanges_route_to_mailboxes(connection):
    heard = {name: [] for name in ("direct", "topic", "fanout")}
    keys = {"direct": "red", "topic": "sun.#", "fanout": ""}
    consumers, exchanges = [], {}
    for kind, got in heard.items():
        exchanges[kind] = Exchange(f"{kind}.exchange", kind)
        queue = Queue(f"ear.{kind}", exchanges[kind], routing_key=keys[kind], auto_delete=True)
        consumer = connection.Consumer(queue, callbacks=[lambda b, m, got=got: got.append(b)])
        consumer.no_ack = True
        consumer.consume()
        consumers.append(consumer)
    producer = connection.Producer()
    for exchange in exchanges.values():
        for key in ("red", "green", "sun.rise.early", "moon.rise"):
            producer.publish(key, exchange=exchange, routing_key=key)
    expected = {
        "direct": ["red"],
        "topic": ["sun.rise.early"],
        "fanout": ["green", "moon.rise", "red", "sun.rise.early"],
    }

    def done():
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=0.2)
        return {kind: sorted(got) for kind, got in heard.items()} == expected

    wait_for(done, 10, f"{heard}")


@pytest.mark.parametrize("body", [b"hello", b"[1]", b'{"body": 1}', b"\xff", b'{"properties": 7}'])
def test_what_kombu_did_not_write_stops_no_queue(cluster, connection, body, caplog):
    prefix = connection.transport_options["topic_prefix"]
    with connection.SimpleQueue("jobs") as jobs:
        with Producer(cluster.name_server) as producer:
            strange = producer.send(Message(f"{prefix}jobs", body))
        jobs.put("fine")
        message = jobs.get(timeout=10)
        assert message.payload == "fine"
        message.ack()
        with contextlib.suppress(jobs.Empty):
            jobs.get(timeout=0.2)
    assert strange.message_id in caplog.text


def test_a_timed_message_waits_on_the_broker(cluster, connection):
    with connection.SimpleQueue("later") as later:
        later.put("now")
        later.put("soon", deliver_at=time.time() + 2.0)
        now = later.get(timeout=5)
        now.ack()
        with pytest.raises(later.Empty):
            later.get(timeout=0.5)
        soon = later.get(timeout=10)
        soon.ack()
        assert [now.payload, soon.payload] == ["now", "soon"]


@pytest.mark.parametrize(
    ("options", "word"),
    [({"visibilty_timeout": 3}, "visibilty_timeout"), ({"visibility_timeout": 0}, "1 or more")],
)
def test_options_that_make_no_sense_are_named(cluster, options, word):
    connection = Connection(f"rocketmq://{cluster.name_server}", transport_options=options)
    with pytest.raises(ConfigError, match=word):
        connection.connect()


def test_a_cluster_that_is_not_there_is_a_connection_error():
    connection = Connection("rocketmq://127.0.0.1:1")
    with pytest.raises(connection.connection_errors):
        connection.connect()
    connection.release()


@pytest.mark.parametrize(
    "queue", ["celery", "a_b", "job_10", "w@h.celery.pidbox", "Größe", "a_2E", "a.", "_", "__40"]
)
def test_queue_names_become_topics_and_back(queue):
    topic = rocketwire.integrations.celery.topic_name(queue, "p-")
    assert set(topic) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    assert rocketwire.integrations.celery.queue_name(topic, "p-") == queue


def test_long_names_are_cut_and_stay_different():
    names = [rocketwire.integrations.celery.topic_name("q" * 200 + end) for end in "ab"]
    assert len(set(names)) == 2
    assert {len(name) for name in names} == {127}


class Unkept:
    """A message that is extended; the first time in some other way than it should."""

    topic = "t"

    def __init__(self):
        self.extended = 0

    def extend(self, _):
        self.extended += 1
        if self.extended == 1:
            raise OSError("the vault of the keys is sealed")


def test_a_message_that_can_not_be_kept_once_does_not_end_the_keeping_of_all():
    settings = SimpleNamespace(visibility_timeout=0.06)
    intake = Intake(SimpleNamespace(settings=settings))
    messages = [Unkept(), Unkept()]
    for number, message in enumerate(messages):
        intake.keep(str(number), message)
    try:
        wait_for(lambda: all(message.extended > 1 for message in messages))
    finally:
        intake._over.set()
