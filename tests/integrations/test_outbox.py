"""The outbox on SQLite and PostgreSQL, relayed to the embedded cluster."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path

import pytest
from tests.integrations.databases import postgres

from rocketwire import InvalidMessageError, Message, Producer
from rocketwire.embedded import EmbeddedCluster

sa = pytest.importorskip(
    "sqlalchemy", reason="SQLAlchemy is not installed: pip install 'rocketwire[outbox]'"
)

from sqlalchemy.orm import Session  # noqa: E402

from rocketwire.integrations.outbox import ID_PROPERTY, Outbox, Relay  # noqa: E402
from rocketwire.integrations.outbox.alchemy import AlchemyDatabase  # noqa: E402
from rocketwire.integrations.outbox.rows import SHARDS, Row, row_of  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(2) as running:
        yield running


@pytest.fixture(scope="module")
def postgres_url():
    with postgres() as url:
        yield url


class Shared(AlchemyDatabase):
    """SQLite as if several could write, to see how shards are shared."""

    has_one_writer = False


class Shop:
    """An application with an outbox."""

    def __init__(self, cluster, url):
        self.cluster, self.url = cluster, url
        self.topic = f"shop-{uuid.uuid4().hex[:8]}"
        cluster.create_topic(self.topic, 4)
        self.engine = sa.create_engine(url)
        self.outbox = Outbox()
        self.outbox.metadata.drop_all(self.engine)
        self.outbox.create(self.engine)
        self.producer = Producer(cluster.name_server, send_timeout=1.0, retries=0).start()

    def write(self, *messages):
        with Session(self.engine) as session, session.begin():
            self.outbox.add(session, *messages)

    def relay(self, **how):
        return Relay(self.outbox.database(self.engine), self.producer, **how)

    def sent(self):
        return self.cluster.messages(self.topic)

    def bodies(self):
        return sorted(message.body for message in self.sent())

    def by_key(self):
        found = defaultdict(list)
        for message in self.sent():
            found[message.sharding_key].append(int(message.body))
        return found

    def close(self):
        self.producer.shutdown()
        self.engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request, cluster, tmp_path):
    url = (
        f"sqlite:///{tmp_path}/shop.db"
        if request.param == "sqlite"
        else request.getfixturevalue("postgres_url")
    )
    made = Shop(cluster, url)
    yield made
    made.close()


@pytest.fixture
def sqlite_shop(cluster, tmp_path):
    made = Shop(cluster, f"sqlite:///{tmp_path}/shop.db")
    yield made
    made.close()


@pytest.fixture
def postgres_shop(cluster, postgres_url):
    made = Shop(cluster, postgres_url)
    yield made
    made.close()


def wait_for(condition, timeout=30.0, what="it"):
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen in {timeout} s"
        time.sleep(0.05)


def drain(relay):
    while relay.run_once():
        pass


def test_what_was_committed_is_sent_once_and_what_was_not_never(shop):
    shop.write(Message(shop.topic, b"paid", tags="pay", keys="order-1", properties={"a": "b"}))
    with Session(shop.engine) as session:
        shop.outbox.add(session, Message(shop.topic, b"lost"))
        session.rollback()
    relay = shop.relay()
    drain(relay)
    drain(relay)
    (message,) = shop.sent()
    assert (message.body, message.tags, message.keys) == (b"paid", "pay", "order-1")
    assert message.properties["a"] == "b"
    assert len(message.properties[ID_PROPERTY]) == 36
    assert (relay.stats().sent, relay.stats().waiting, relay.stats().kept) == (1, 0, 1)


def test_a_row_is_the_message_again():
    message = Message(
        "orders", b"\0\xff", tags="t", keys=["a", "b"], properties={"x": "y"}, sharding_key="k",
        deliver_at=1e9, flag=7, wait_store_ok=False,
    )  # fmt: skip
    columns = row_of(message)
    names = ("outbox_id", "topic", "sharding_key", "body", "details")
    again = Row(1, *(columns[name] for name in names)).message()
    expected = message.replace(properties={"x": "y", ID_PROPERTY: columns["outbox_id"]})
    assert again == expected


def test_a_transaction_that_commits_late_is_not_skipped(postgres_shop):
    shop = postgres_shop
    relay = shop.relay()
    with Session(shop.engine) as early, early.begin():
        shop.outbox.add(early, Message(shop.topic, b"early"))
        shop.write(Message(shop.topic, b"late"))
        drain(relay)
        assert shop.bodies() == [b"late"]
    drain(relay)
    assert shop.bodies() == [b"early", b"late"]


def test_order_holds_for_each_key_with_several_relays_that_come_and_go(postgres_shop):
    shop = postgres_shop
    relays = [shop.relay(lease=1.0, poll=0.01, batch=20).start() for _ in range(2)]
    numbers = defaultdict(int)

    def write(rounds):
        for number in range(rounds):
            keys = [f"key-{number % 7}", f"key-{number % 5 + 10}"]
            shop.write(*(Message(shop.topic, str(numbers[key]), sharding_key=key) for key in keys))
            for key in keys:
                numbers[key] += 1

    write(60)
    relays.append(shop.relay(lease=1.0, poll=0.01, batch=20).start())
    write(60)
    relays[0].stop()
    write(60)
    wait_for(lambda: relays[1].stats().waiting == 0, what="the relaying")
    wait_for(
        lambda: {len(relay._leases.shards) for relay in relays[1:]} == {SHARDS // 2},
        what="an even share of the two that are left",
    )
    for relay in relays[1:]:
        relay.stop()
    assert {key: max(found) + 1 for key, found in shop.by_key().items()} == dict(numbers)
    for found in shop.by_key().values():
        assert found == sorted(found)


def test_newcomers_get_a_share_and_the_shards_of_the_dead_are_taken(sqlite_shop):
    shop = sqlite_shop
    database = Shared(shop.engine)
    clock = [0.0]
    from rocketwire.integrations.outbox.leases import Leases
    from rocketwire.integrations.outbox.store import Store

    one, two = (Leases(Store(database), 15.0, lambda: clock[0]) for _ in range(2))
    one.refresh()
    assert len(one.shards) == SHARDS
    two.refresh()
    assert two.shards == frozenset()
    for _ in range(2):
        clock[0] += 5
        one.refresh()
        two.refresh()
    assert (len(one.shards), len(two.shards)) == (SHARDS // 2, SHARDS // 2)
    assert not one.shards & two.shards
    # One dies. Nothing is taken before its time is over.
    for seconds in (5, 5, 4):
        clock[0] += seconds
        two.refresh()
    assert len(two.shards) == SHARDS // 2
    for _ in range(2):
        clock[0] += 5
        two.refresh()
    assert len(two.shards) == SHARDS
    # It was only away: what it had is not its own any more.
    one.refresh()
    assert one.shards == frozenset()


def test_with_sqlite_one_relay_works_and_the_other_stands_by(sqlite_shop):
    shop = sqlite_shop
    first, second = shop.relay(lease=1.0), shop.relay(lease=1.0)
    first.run_once()
    second.run_once()
    shop.write(Message(shop.topic, b"one"))
    assert second.run_once() == 0
    assert first.run_once() == 1
    first.give_back()
    shop.write(Message(shop.topic, b"two"))
    wait_for(lambda: second.run_once() == 1, 5, "the second relay's turn")
    assert shop.bodies() == [b"one", b"two"]


def relay_process(shop, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "rocketwire", "outbox", shop.url, "--lease", "1",
         "--name-server", shop.cluster.name_server, *words],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_nothing_is_lost_when_relays_are_killed(shop):
    total = 3000
    shop.write(
        *(Message(shop.topic, str(n // 10), sharding_key=f"k{n % 10}") for n in range(total))
    )
    for least in (1, 600):
        victim = relay_process(shop)
        wait_for(lambda least=least: len(shop.sent()) >= least, what="some messages")
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
    last = relay_process(shop)
    relay = shop.relay()
    wait_for(lambda: relay.stats().waiting == 0, 60, "the rest")
    last.terminate()
    out, err = last.communicate(timeout=30)
    assert last.returncode == 0, err
    sent = shop.sent()
    assert len({message.properties[ID_PROPERTY] for message in sent}) == total
    for found in shop.by_key().values():
        # Sent again means the same ones in the same order: without those, order holds.
        assert list(dict.fromkeys(found)) == list(range(total // 10))


def test_messages_wait_while_brokers_are_away_and_keep_their_order(cluster, tmp_path):
    with EmbeddedCluster(1) as own:
        shop = Shop(own, f"sqlite:///{tmp_path}/shop.db")
        shop.write(*(Message(shop.topic, str(n), sharding_key="k") for n in range(5)))
        own.broker("broker-a").refuse()
        relay = shop.relay()
        assert relay.run_once() == 0
        assert relay.stats().waiting == 5
        own.broker("broker-a").heal()
        wait_for(lambda: relay.run_once() or relay.stats().waiting == 0, what="the relaying")
        wait_for(lambda: relay.run_once() == 0 and relay.stats().waiting == 0)
        assert shop.by_key() == {"k": [0, 1, 2, 3, 4]}
        shop.close()


def test_a_topic_that_fails_does_not_keep_the_others(tmp_path, caplog):
    with EmbeddedCluster(1, auto_create_topics=False) as own:
        shop = Shop(own, f"sqlite:///{tmp_path}/shop.db")
        shop.write(*(Message("nowhere", b"x") for _ in range(30)))
        shop.write(Message(shop.topic, b"good"))
        relay = shop.relay(batch=10)
        wait_for(lambda: relay.run_once() == 1, 10, "the good one")
        assert relay.stats().waiting == 30
        assert "nowhere" in caplog.text
        own.create_topic("nowhere", 1)
        wait_for(lambda: relay.run_once() is None or relay.stats().waiting == 0, 20)
        assert len(own.messages("nowhere")) == 30
        shop.close()


def test_a_row_that_can_never_be_sent_is_put_aside(sqlite_shop, caplog):
    shop = sqlite_shop
    shop.producer.shutdown()
    shop.producer = Producer(shop.cluster.name_server, max_message_size=1000).start()
    shop.write(
        Message(shop.topic, b"a"), Message(shop.topic, b"x" * 2000), Message(shop.topic, b"b")
    )
    relay = shop.relay()
    drain(relay)
    assert shop.bodies() == [b"a", b"b"]
    assert (relay.stats().put_aside, relay.stats().waiting) == (1, 0)
    assert "put aside" in caplog.text
    assert relay.retry_failed() == 1
    shop.producer.shutdown()
    shop.producer = Producer(shop.cluster.name_server).start()
    relay._producer = shop.producer
    drain(relay)
    assert len(shop.sent()) == 3


def test_rows_that_were_sent_are_deleted_after_a_while(sqlite_shop):
    shop = sqlite_shop
    shop.write(*(Message(shop.topic, b"x") for _ in range(25)))
    relay = shop.relay(batch=10, keep=0.0)
    drain(relay)
    assert relay.stats().kept == 25
    relay._cleaned = float("-inf")
    drain(relay)
    wait_for(lambda: relay.run_once() or relay.stats().kept == 0, 5, "the cleaning")


def test_a_database_that_is_away_is_tried_again(sqlite_shop, caplog):
    shop = sqlite_shop
    shop.outbox.metadata.drop_all(shop.engine)
    with shop.relay():
        wait_for(lambda: "trying again" in caplog.text, 10, "the complaint")
        shop.outbox.create(shop.engine)
        shop.write(Message(shop.topic, b"after all"))
        wait_for(lambda: shop.bodies() == [b"after all"], 10, "the message")


def test_an_asyncio_session_writes_in_its_transaction(sqlite_shop):
    pytest.importorskip("aiosqlite", reason="aiosqlite is not installed")
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    shop = sqlite_shop

    async def work():
        engine = create_async_engine(shop.url.replace("sqlite:", "sqlite+aiosqlite:"))
        async with AsyncSession(engine) as session, session.begin():
            await shop.outbox.add_async(session, Message(shop.topic, b"kept"))
        async with AsyncSession(engine) as session:
            await shop.outbox.add_async(session, Message(shop.topic, b"lost"))
            await session.rollback()
        await engine.dispose()
        return engine

    engine = asyncio.run(work())
    with pytest.raises(TypeError, match="create_engine"):
        shop.outbox.database(engine)
    drain(shop.relay())
    assert shop.bodies() == [b"kept"]


def test_what_is_no_message_is_refused_when_it_is_written(sqlite_shop):
    refused = pytest.raises(InvalidMessageError, match=r"rocketwire\.Message")
    with Session(sqlite_shop.engine) as session, refused:
        sqlite_shop.outbox.add(session, b"paid")


@pytest.mark.parametrize(
    ("how", "word"), [({"lease": 0}, "lease"), ({"poll": 0}, "poll"), ({"batch": 0}, "batch")]
)
def test_settings_that_make_no_sense_are_named(sqlite_shop, how, word):
    with pytest.raises(ValueError, match=word):
        sqlite_shop.relay(**how)


# The command


def test_the_command_creates_counts_and_sends(cluster, tmp_path, capfd):
    from rocketwire.cli.application import run

    url = f"sqlite:///{tmp_path}/new.db"
    server = ["--name-server", cluster.name_server]
    assert run(["outbox", url, "--once", *server]) == 1
    assert "no such table" in capfd.readouterr().err
    assert run(["outbox", "nonsense", "--once", *server]) == 2
    shop = Shop(cluster, url)
    shop.write(Message(shop.topic, b"paid"))
    assert run(["outbox", url, "--count", "--json", *server]) == 0
    assert json.loads(capfd.readouterr().out)["waiting"] == 1
    assert run(["outbox", url, "--create", "--once", *server]) == 0
    assert shop.bodies() == [b"paid"]
    shop.close()


# Django


@pytest.fixture(scope="module")
def django(tmp_path_factory):
    pytest.importorskip("django", reason="Django is not installed")
    import django
    from django.conf import settings
    from django.core.management import call_command

    settings.configure(
        INSTALLED_APPS=["rocketwire.integrations.outbox.django"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": str(tmp_path_factory.mktemp("django") / "shop.db"),
            }
        },
    )
    django.setup()
    call_command("migrate", verbosity=0)
    yield django
    from django.db import connections

    connections.close_all()


def test_django_writes_in_its_transaction_and_relays(django, cluster):
    from django.core.management import call_command
    from django.db import transaction

    from rocketwire.integrations.outbox.django import add, database

    topic = f"django-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 2)
    with pytest.raises(RuntimeError, match="atomic"):
        add(Message(topic, b"alone"))
    with transaction.atomic():
        add(Message(topic, b"one", sharding_key="k", tags="t"), Message(topic, b"two"))
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        add(Message(topic, b"lost"))
        _ = 1 / 0
    call_command("rocketmq_outbox", "--once", "--name-server", cluster.name_server)
    assert sorted(m.body for m in cluster.messages(topic)) == [b"one", b"two"]
    with transaction.atomic():
        add(Message(topic, b"three"))
    with Producer(cluster.name_server) as producer, Relay(database(), producer):
        wait_for(lambda: len(cluster.messages(topic)) == 3, 20, "the message")


def test_the_migration_is_what_the_models_say(django):
    from django.core.management import call_command

    call_command("makemigrations", "rocketmq_outbox", check=True, dry_run=True, verbosity=0)
