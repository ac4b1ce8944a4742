"""Valid keys that lack a right: each feature says which right, on what, and at which broker.

4.x checks sends, reads and five requests of operators; the rest is open to every account that it knows.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.conformance.admins import ADMINS
from tests.conformance.members import MEMBERS, eventually
from tests.conformance.receivers import RECEIVERS
from tests.conformance.shells import SHELLS
from tests.real import jars, running
from tests.real.apache import ApacheCluster
from tests.real.running import unique
from tests.real.settings import ADMIN
from tests.real.test_dead_letters import give_up

from rocketwire import (
    Admin,
    Credentials,
    Message,
    PermissionDeniedError,
    PlainAccount,
    Producer,
    RocketMQError,
)
from rocketwire.admin_values import DeadLetter

ADMIN_KEYS = Credentials(ADMIN.access_key, ADMIN.secret_key)


@pytest.fixture(params=["4.9.7-blocking", "5.3.3-asyncio"])
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each release with one shell: what is refused is decided in what both share."""
    version, _, kind = str(request.param).partition("-")
    jars.require_tools(version)
    return version, kind


@pytest.fixture
def version(way: tuple[str, str]) -> str:
    return way[0]


@dataclass(frozen=True)
class Place:
    """A topic with a message, a group with a dead letter, and somebody who may do nothing."""

    server: str
    topic: str
    group: str
    keys: Credentials
    letter: DeadLetter
    handle: str | None
    offset_id: str


@pytest.fixture
def place(guarded: ApacheCluster, version: str) -> Place:
    return running.shared(
        f"rights-{version}", lambda: contextlib.nullcontext(prepare(guarded, version))
    )


def prepare(cluster: ApacheCluster, version: str) -> Place:
    server, topic, group = cluster.name_server, unique("topic"), unique("group")
    keys = Credentials(unique("nobody"), "nobody-secret")
    with Admin(server, credentials=ADMIN_KEYS) as admin:
        admin.create_topic(topic, 1)
        handle = None
        with Producer(server, credentials=ADMIN_KEYS) as producer:
            sent = producer.send(Message(topic, "42", keys="k"))
            if not version.startswith("4."):
                timed = Message(topic, "later", deliver_at=time.time() + 3600)
                handle = producer.send(timed).recall_handle
        give_up(server, topic, group, credentials=ADMIN_KEYS)
        eventually(lambda: bool(list(admin.dead_letters(group))))
        (letter,) = admin.dead_letters(group)
        if version.startswith("4."):
            admin.put_plain_account(PlainAccount(keys.access_key), keys.secret_key)
        else:
            admin.create_user(keys.access_key, keys.secret_key)
        eventually(lambda: is_known(server, keys, topic))
    return Place(server, topic, group, keys, letter, handle, sent.offset_message_id)


def is_known(server: str, keys: Credentials, topic: str) -> bool:
    """Whether brokers have noticed the new account: they look at their file now and then."""
    with Producer(server, credentials=keys, retries=0) as producer:
        try:
            producer.send(Message(topic, b"x"))
        except RocketMQError as error:
            return "it takes" in str(error)
    return False


def denial(call: Callable[[], Any]) -> str:
    """What a refusal says, which is one for want of a right."""
    with pytest.raises(RocketMQError) as caught:
        call()
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, PermissionDeniedError):
        error = error.__cause__
    assert error is not None, repr(caught.value)
    assert "broker-a" in str(caught.value), caught.value
    return str(caught.value)


def right(version: str, action: str, topic: str) -> str:
    """How a missing right is told: 5.x has policies, 4.x a list of topics."""
    if not version.startswith("4."):
        return f"it takes {action} on Topic:{topic}"
    if action == "Pub":
        return f"it takes PUB on the topic {topic}"
    # A pull takes two rights, and which of them it lacks first is chance.
    return f"it takes SUB on the (topic {topic}|group rocketwire-reader)"


@pytest.fixture
def shell(place: Place, way: tuple[str, str]) -> Iterator[Any]:
    with SHELLS[way[1]](place.server, group=unique("ours"), credentials=place.keys) as shell:
        yield shell


def submitted(shell: Any, message: Message) -> Any:
    return shell.submit(message)()


def test_every_form_of_sending_names_what_is_missing(shell: Any, place: Place, version: str):
    message = Message(place.topic, b"x")
    calls = [
        lambda: shell.send(message),
        lambda: submitted(shell, message),
        lambda: shell.transact(message),
        lambda: shell.request(message, timeout=5.0),
    ]
    if not version.startswith("4."):  # which checks no batches, and has no recalls
        calls += [
            lambda: shell.send([message, message]),
            lambda: shell.recall(place.topic, place.handle),
        ]
    for call in calls:
        assert right(version, "Pub", place.topic) in denial(call)


def test_reading_names_what_is_missing(shell: Any, place: Place, version: str):
    queue = place.letter.message.queue._replace(topic=place.topic, id=0)
    wanted = {
        "fetch": (lambda: shell.ask_reader("fetch", queue, 0), "Sub"),
        "read": (lambda: shell.read(place.topic), "Sub" if version.startswith("4.") else "Get"),
        "keys": (lambda: shell.ask_reader("messages_by_key", place.topic, "k"), "Sub"),
    }
    if not version.startswith("4."):
        wanted |= {
            "max_offset": (lambda: shell.ask_reader("max_offset", queue), "Get"),
            "time": (lambda: shell.ask_reader("offset_for_time", queue, time.time()), "Get"),
        }
    for name, (call, action) in wanted.items():
        assert re.search(right(version, action, place.topic), denial(call)), name


def test_a_member_that_may_not_consume_is_told_when_it_joins(
    place: Place, way: tuple[str, str], version: str, caplog: pytest.LogCaptureFixture
):
    for ordered in (False, True):
        group = unique("group")
        options = {"credentials": place.keys, "ordered": ordered, "start": "earliest"}
        # A heartbeat tells of both, and brokers name the first that they come across.
        told = rf"broker-a.*it takes \w+ on .*({group}|{place.topic})"
        with contextlib.ExitStack() as stack:
            member = MEMBERS[way[1]](place.server, group, place.topic, **options)
            if way[1] == "blocking":
                stack.enter_context(member.consumer)
            with pytest.raises(PermissionDeniedError, match=told):
                member.start()
    assert "gets no messages: broker-a" in caplog.text


def test_receiving_names_what_is_missing(place: Place, version: str):
    if version.startswith("4."):
        pytest.skip("4.x has no such requests")
    for kind, make in RECEIVERS.items():
        receiver = make(
            place.server, group=unique("group"), start="earliest", credentials=place.keys
        )
        receiver.subscribe(place.topic)
        try:
            receiver.start()
            assert "it takes Sub on " in denial(lambda r=receiver: r.receive(wait=0.0)), kind
        finally:
            receiver.shutdown()


VERBS: dict[str, tuple[str, Callable[[Any, Place], Any]]] = {
    "topic": ("Get", lambda admin, p: admin.topic(p.topic)),
    "create_topic": ("Create", lambda admin, p: admin.create_topic(p.topic)),
    "alter_topic": ("Get", lambda admin, p: admin.alter_topic(p.topic, queues=9)),
    "delete_topic": ("Delete", lambda admin, p: admin.delete_topic(p.topic)),
    "group": ("Get", lambda admin, p: admin.group(p.group)),
    "reset": ("Get", lambda admin, p: admin.reset(p.group, p.topic, "earliest")),
    "clone_offsets": ("Get", lambda admin, p: admin.clone_offsets(p.group, "other", p.topic)),
    "delete_group": ("Get", lambda admin, p: admin.delete_group(p.group)),
    "connections": ("Get", lambda admin, p: admin.connections(p.group)),
    "message": ("Sub", lambda admin, p: admin.message("7F" * 16, p.topic)),
    "find": ("Sub", lambda admin, p: admin.find(p.topic, "k")),
    "messages_by_key": ("Sub", lambda admin, p: admin.messages_by_key(p.topic, "k")),
    "trace": ("Sub", lambda admin, _: admin.trace("7F" * 16)),
    "users": ("Get", lambda admin, _: admin.users()),
    "create_user": ("Get", lambda admin, _: admin.create_user("u", "secret-123")),
    "change_user": ("Get", lambda admin, _: admin.change_user("u", password="secret-123")),
    "delete_user": ("Get", lambda admin, _: admin.delete_user("u")),
    "policies": ("Get", lambda admin, _: admin.policies()),
    "set_policy": ("Get", lambda admin, _: admin.set_policy("u", "Topic:t", ["Pub"])),
    "delete_policy": ("Get", lambda admin, _: admin.delete_policy("u")),
    "dead_letters": ("Get", lambda admin, p: list(admin.dead_letters(p.group))),
    "redrive": ("Sub", lambda admin, p: admin.redrive(p.letter)),
    "purge": ("Get", lambda admin, p: admin.purge_dead_letters(p.group)),
    "replay": ("Sub", lambda admin, p: list(admin.replay([p.letter.message], p.topic))),
}
"""What an operator asks for, and the first right of ACL 2.0 that it takes."""
PLAIN_VERBS = {
    "create_topic": "admin: true",
    "alter_topic": "admin: true",
    "delete_topic": "admin: true",
    "delete_group": "admin: true",
    "message": "SUB on the topic",
    "find": "SUB on the topic",
    "messages_by_key": "SUB on the topic",
    "trace": "SUB on the topic",
    "reset": "SUB on the (topic|group)",
    "dead_letters": "SUB on the (topic %DLQ%|group rocketwire-reader)",
    "redrive": "SUB on the (topic|group)",
    "purge": "SUB on the (topic|group)",
    "replay": "SUB on the topic",
}
"""The same of 4.x, which names the topic or the group of a pull by chance.

The others it lets every account do.
"""


def test_every_verb_of_an_operator_names_what_is_missing(
    place: Place, way: tuple[str, str], version: str
):
    is_plain = version.startswith("4.")
    admin = ADMINS[way[1]](place.server, credentials=place.keys).start()
    try:
        for name, (action, call) in VERBS.items():
            if not is_plain:
                assert f"it takes {action} on " in denial(lambda c=call: c(admin, place)), name
            elif name in PLAIN_VERBS:
                text = denial(lambda c=call: c(admin, place))
                assert "it takes " in text, name
                assert re.search(PLAIN_VERBS[name], text), (name, text)
        if is_plain:
            change = {"maxMessageSize": 4194304}
            text = denial(lambda: admin.change_broker_settings("broker-a", change))
            assert "admin: true" in text
    finally:
        admin.close()
    with Admin(place.server, credentials=ADMIN_KEYS) as boss:
        assert len(boss.topic(place.topic).queues) == 1
        assert boss.group(place.group).name == place.group
