"""Dead letters on signed clusters, and on the newest release."""

from __future__ import annotations

import threading
from typing import Any

from tests.conformance.members import eventually
from tests.real import running
from tests.real.apache import ApacheCluster
from tests.real.running import unique
from tests.real.settings import ADMIN

from rocketwire import Admin, Consumer, Credentials, Message, Producer, Retry

ADMIN_KEYS = Credentials(ADMIN.access_key, ADMIN.secret_key)


def give_up(name_server: str, topic: str, group: str, **options: Any) -> None:
    def fail(message: Any) -> None:
        raise LookupError(f"no such order: {message.text}")

    with Consumer(
        name_server, group=group, start="earliest", max_attempts=1, **options
    ) as consumer:
        consumer.subscribe(topic).join()
        thread = threading.Thread(target=consumer.run, args=(fail,))
        thread.start()
        eventually(lambda: consumer.stats().dead_lettered == 1)
        consumer.stop()
        thread.join(60)


def bring_back(name_server: str, topic: str, group: str, **options: Any) -> None:
    """Find the dead letter, see why it died, send it back once, and have it handled."""
    give_up(name_server, topic, group, **options)
    with Admin(name_server, **options) as admin:
        eventually(lambda: bool(list(admin.dead_letters(group))))
        (letter,) = admin.dead_letters(group)
        assert letter.last_error is not None
        assert letter.last_error.startswith("LookupError: no such order: 42")
        assert letter.original_topic == topic
        assert letter.original_queue is not None
        assert admin.redrive(letter).is_new
        assert not admin.redrive(letter).is_new
        assert sum(p.messages for p in admin.purge_dead_letters(group)) == 1
    with Consumer(name_server, group=group, start="earliest", **options) as consumer:
        consumer.subscribe(topic)
        for message in consumer:
            assert (message.text, message.topic, message.reconsume_times) == ("42", topic, 0)
            break


def test_a_signed_group_tells_its_errors_and_gets_its_letters_back(guarded: ApacheCluster):
    topic, group = unique("topic"), unique("group")
    with Producer(guarded.name_server, credentials=ADMIN_KEYS) as producer:
        producer.create_topic(topic, 1)
        producer.send(Message(topic, "42"))
    bring_back(guarded.name_server, topic, group, credentials=ADMIN_KEYS)


def test_the_newest_release_does_the_same() -> None:
    cluster = running.cluster("5.5.0")
    topic, group, into = unique("topic"), unique("group"), unique("into")
    for name in (topic, into):
        cluster.create_topic(name, 1)
    with Producer(cluster.name_server) as producer:
        producer.send(Message(topic, "42"))
    bring_back(cluster.name_server, topic, group)
    with Admin(cluster.name_server) as admin:
        messages = list(admin.read(topic))
        assert [r.status for r in admin.replay(messages, into)] == ["sent"]
        assert [r.status for r in admin.replay(messages, into)] == ["already there"]
    seen: list[int] = []

    def handle(message: Any) -> Retry | None:
        seen.append(message.reconsume_times)
        if len(seen) == 2:
            consumer.stop()
        return Retry(after=1) if len(seen) == 1 else None

    consumer = Consumer(
        cluster.name_server, group=unique("group"), start="earliest", exact_retries=True
    )
    consumer.subscribe(into)
    consumer.run(handle)
    assert seen == [0, 1]
