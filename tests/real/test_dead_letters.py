"""Dead letters on signed clusters, and on the newest release."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest
from tests.conformance.members import eventually
from tests.real import running
from tests.real.apache import ApacheCluster
from tests.real.running import unique
from tests.real.settings import ADMIN

from rocketwire import (
    Admin,
    Consumer,
    Credentials,
    Message,
    PermissionDeniedError,
    PlainAccount,
    Producer,
    Retry,
)

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


@pytest.mark.parametrize("version", ["5.3.3"], indirect=True)
def test_narrow_rights_are_enough_to_send_letters_back_and_too_narrow_ones_send_nothing(
    guarded: ApacheCluster,
):
    topic, group, name = unique("topic"), unique("group"), unique("mender")
    keys = Credentials(name, "mender-secret")
    server = guarded.name_server
    with Admin(server, credentials=ADMIN_KEYS) as admin, Admin(server, credentials=keys) as mender:
        admin.create_topic(topic, 1)
        with Producer(server, credentials=ADMIN_KEYS) as producer:
            producer.send(Message(topic, "42"))
        give_up(server, topic, group, credentials=ADMIN_KEYS)
        eventually(lambda: bool(list(admin.dead_letters(group))))
        (letter,) = admin.dead_letters(group)
        admin.create_user(name, "mender-secret")
        # One that may write only can't look for the copy first, and so sends none.
        admin.set_policy(name, f"Topic:%RETRY%{group}", ["Pub"])
        admin.set_policy(name, f"Group:{group}", ["Sub"])
        with pytest.raises(PermissionDeniedError, match=f"%DLQ%{group}"):
            list(mender.dead_letters(group))
        with pytest.raises(PermissionDeniedError, match="no permission to access Topic:%"):
            mender.redrive(letter)
        admin.set_policy(name, f"Topic:%DLQ%{group}", ["Sub", "Get"])
        admin.set_policy(name, f"Topic:%RETRY%{group}", ["Sub"])
        admin.set_policy(name, "Group:rocketwire-reader", ["Sub"])
        eventually(lambda: bool(read_as(mender, group)))
        (seen,) = mender.dead_letters(group)
        # The original's place takes the right to read the original.
        assert (seen.last_error, seen.original_queue) == (letter.last_error, None)
        assert mender.redrive(seen).is_new
        assert not mender.redrive(seen).is_new
        assert not admin.redrive(letter).is_new


@pytest.mark.parametrize("version", ["4.9.7"], indirect=True)
def test_narrow_rights_of_a_plain_account_are_enough_and_too_narrow_ones_send_nothing(
    guarded: ApacheCluster,
):
    topic, group, server = unique("topic"), unique("group"), guarded.name_server
    dead, reader = f"%DLQ%{group}", {"rocketwire-reader": "SUB"}
    rights = {
        unique("writer"): ({dead: "PUB"}, {group: "PUB"} | reader),
        unique("looker"): ({dead: "SUB"}, reader),
        unique("mender"): ({dead: "SUB"}, {group: "SUB"} | reader),
    }
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(Admin(server, credentials=ADMIN_KEYS))
        admin.create_topic(topic, 1)
        with Producer(server, credentials=ADMIN_KEYS) as producer:
            producer.send(Message(topic, "42"))
        give_up(server, topic, group, credentials=ADMIN_KEYS)
        eventually(lambda: bool(list(admin.dead_letters(group))))
        (letter,) = admin.dead_letters(group)
        for name, (topics, groups) in rights.items():
            admin.put_plain_account(PlainAccount(name, topics=topics, groups=groups), "a-secret")
        writer, looker, mender = (
            stack.enter_context(Admin(server, credentials=Credentials(name, "a-secret")))
            for name in rights
        )
        # Brokers read their file again after seconds.
        eventually(lambda: not refusal(mender, group))
        # One that may write only can't look for the copy first, and so sends none.
        assert f"it takes SUB on the topic {dead}" in refusal(writer, group)
        with pytest.raises(PermissionDeniedError, match=r"broker-a.*it takes SUB on the"):
            writer.redrive(letter)
        # One that may read the dead letters, and not as the group, sends none, either.
        assert not refusal(looker, group)
        with pytest.raises(PermissionDeniedError, match=f"it takes SUB on the group {group}"):
            looker.redrive(letter)
        assert mender.redrive(letter).is_new
        assert not mender.redrive(letter).is_new
        assert not admin.redrive(letter).is_new


def refusal(admin: Admin, group: str) -> str:
    """Why dead letters can't be read; empty when they can."""
    try:
        list(admin.dead_letters(group))
    except PermissionDeniedError as error:
        return str(error)
    return ""


def read_as(admin: Admin, group: str) -> list[Any]:
    """The dead letters, once brokers have noticed the new rights."""
    with contextlib.suppress(PermissionDeniedError):
        return list(admin.dead_letters(group))
    return []


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
