"""Through the remoting port of Apache's own proxy: what it serves works, the rest is told in words."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.conformance.admins import ADMINS
from tests.conformance.members import MEMBERS, eventually
from tests.conformance.shells import SHELLS
from tests.real import jars, running
from tests.real.grpc_proxy import GrpcProxy, grpc_proxy
from tests.real.running import unique

from rocketwire import (
    Admin,
    InvalidMessageError,
    Message,
    MessageQueue,
    Producer,
    Reader,
    RecallError,
    SendFailedError,
    SimpleConsumer,
    TopicNotFoundError,
    TransactionState,
    UnsupportedRequestError,
)
from rocketwire.access_values import PlainAccount
from rocketwire.admin_values import DeadLetter


@pytest.fixture(params=["5.3.3-blocking", "5.3.3-asyncio", "5.5.0-asyncio"])
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The release, and our shell; the newest has one only, because each takes half a minute."""
    version, _, kind = str(request.param).partition("-")
    jars.require_tools(version, jars.PROXY_POM)
    return version, kind


@pytest.fixture
def version(way: tuple[str, str]) -> str:
    return way[0]


@pytest.fixture
def kind(way: tuple[str, str]) -> str:
    return way[1]


@pytest.fixture
def proxy(version: str) -> GrpcProxy:
    return running.shared(f"proxy-{version}", lambda: grpc_proxy(running.cluster(version)))


@pytest.fixture
def shell(proxy: GrpcProxy, kind: str) -> Iterator[Any]:
    with SHELLS[kind](proxy.remoting, group=unique("ours")) as shell:
        yield shell


@pytest.fixture
def make_topic(version: str) -> Callable[..., str]:
    """Makes a topic at the brokers, of the type that a proxy asks for."""

    def make(message_type: str = "NORMAL", queues: int = 2) -> str:
        name = unique("topic")
        attributes = f"+message.type={message_type}"
        running.cluster(version).create_topic(name, queues, attributes=attributes)
        return name

    return make


def direct(version: str, topic: str) -> list[str]:
    """What the brokers have, asked without the proxy."""
    with Reader(running.cluster(version).name_server) as reader:
        return sorted(message.text for message in reader.read(topic))


def test_every_form_of_sending(shell: Any, version: str, make_topic: Callable[..., str]):
    topic = make_topic()
    results = [
        shell.send(Message(topic, "one", tags="t", keys="k", properties={"p": "ü"})),
        shell.submit(Message(topic, "submitted"))(),
        *shell.send_many([Message(topic, f"many {n}") for n in range(20)]),
    ]
    shell.send([Message(topic, f"batch {n}") for n in range(3)])
    shell.send(Message(topic, "x" * 100_000))
    shell.send_oneway(Message(topic, "oneway"))
    eventually(lambda: len(direct(version, topic)) == 27)
    assert {result.queue.broker for result in results} == {"broker-a", "broker-b"}
    assert sorted(m.text for m in shell.read(topic)) == direct(version, topic)
    assert {health.state for health in shell.health().values()} == {"usable"}


def test_offsets_times_tags_and_queues(shell: Any, make_topic: Callable[..., str]):
    topic = make_topic()
    queue = MessageQueue(topic, "broker-b", 1)
    began = datetime.now(UTC) - timedelta(minutes=1)
    for number in range(10):
        shell.send(Message(topic, f"{number}", tags=f"t{number % 2}"), queue=queue)
    assert len(shell.ask_reader("queues", topic)) == 4
    assert shell.ask_reader("min_offset", queue) == 0
    assert shell.ask_reader("max_offset", queue) == 10
    assert shell.ask_reader("offset_for_time", queue, began) == 0
    assert shell.ask_reader("fetch", queue, 7).messages[0].text == "7"
    assert [m.text for m in shell.read(topic, tags="t1")] == ["1", "3", "5", "7", "9"]
    assert [m.text for m in shell.read(queue, start={queue: 8})] == ["8", "9"]
    assert len(shell.read(topic, start=began)) == 10


def test_arrow_tables_are_read(proxy: GrpcProxy, make_topic: Callable[..., str]):
    columns = pytest.importorskip("rocketwire.columns")
    topic = make_topic()
    with Producer(proxy.remoting) as producer, Reader(proxy.remoting) as reader:
        producer.send_many([Message(topic, f"{n}") for n in range(500)])
        # Brokers show what they have stored a moment later.
        eventually(lambda: columns.read_table(reader, topic).num_rows == 500)
        table = columns.read_table(reader, topic)
    assert sorted(int(body) for body in table["body"].to_pylist()) == list(range(500))


def test_a_group_shares_retries_and_gives_up(
    proxy: GrpcProxy, version: str, kind: str, make_topic: Callable[..., str]
):
    topic, group = make_topic(), unique("group")
    tried: list[str] = []
    members = []

    def handle(message: Any) -> None:
        tried.append(message.text)
        if message.text == "7" and message.reconsume_times < 1:
            raise LookupError("try it again")
        if message.text == "8":
            raise LookupError("no customer 8")

    def handle_batch(message: Any) -> None:
        handle(message)
        members[0].seen.add("", message)

    options = {"start": "earliest", "max_attempts": 2, "commit_interval": 0.5}
    for _ in range(2):
        member = MEMBERS[kind](proxy.remoting, group, topic, handler=handle_batch, **options)
        members.append(member.start())
    eventually(lambda: all(len(member.assignment()) >= 2 for member in members), 90)
    with Producer(proxy.remoting) as producer:
        producer.send_many([Message(topic, f"{n}") for n in range(50)])
    wanted = {str(n) for n in range(50)} - {"8"}
    members[0].seen.wait_for_bodies(wanted, 90)
    with Admin(proxy.remoting) as admin:
        # They are read through the proxy, but for the queue of the original.
        eventually(lambda: bool(found(admin, group)), 90)
        # Members that share queues anew may both have it: at least once, as ever.
        letter = found(admin, group)[0]
        assert (letter.message.text, letter.original_topic) == ("8", topic)
        assert "no customer 8" in letter.last_error
        assert letter.original_queue is None
        admin.purge_dead_letters(group)
        assert found(admin, group) == []
    for member in members:
        member.stop()
    assert tried.count("7") >= 2
    with Admin(running.cluster(version).name_server) as admin:
        assert sum(n for q, n in admin.group(group).lag.items() if q.topic == topic) == 0


def found(admin: Admin, group: str) -> list[Any]:
    """The dead letters; a proxy can't tell whether there is a group that has none."""
    with contextlib.suppress(UnsupportedRequestError):
        return list(admin.dead_letters(group))
    return []


def test_order_is_kept_in_a_topic_of_that_type(
    shell: Any, proxy: GrpcProxy, kind: str, make_topic: Callable[..., str]
):
    topic, group = make_topic("FIFO"), unique("group")
    member = MEMBERS[kind](proxy.remoting, group, topic, start="earliest", ordered=True).start()
    for number in range(40):
        shell.send(Message(topic, f"{number}", sharding_key=f"key {number % 4}"))
    member.seen.wait(lambda seen: len(seen.all) >= 40)
    member.stop()
    for key in range(4):
        mine = [m for m in member.seen.messages() if m.sharding_key == f"key {key}"]
        assert [int(m.text) for m in mine] == list(range(key, 40, 4))
        assert len({m.queue for m in mine}) == 1


def test_a_message_of_another_type_than_its_topic_is_refused_with_the_remedy(
    shell: Any, make_topic: Callable[..., str]
):
    topic = make_topic()
    with pytest.raises(SendFailedError, match=r"expected type is NORMAL.*MIXED takes") as caught:
        shell.send(Message(topic, "x", sharding_key="k"))
    assert caught.value.outcome.name == "REJECTED"


def test_transactions_are_committed_rolled_back_and_asked_about(
    proxy: GrpcProxy, version: str, kind: str, make_topic: Callable[..., str]
):
    topic = make_topic("TRANSACTION")
    asked: list[str] = []

    def check(message: Any) -> bool:
        asked.append(message.text)
        return message.text != "dropped"

    with SHELLS[kind](proxy.remoting, group=unique("ours"), checker=check) as shell:
        assert shell.transact(Message(topic, "kept")).state is TransactionState.COMMITTED
        with contextlib.suppress(KeyError):
            shell.transact(Message(topic, "dropped"), KeyError("no"))
        shell.transact(Message(topic, "open"), "leave_open")
        eventually(lambda: direct(version, topic) == ["kept", "open"], 90)
    # The proxy says yes to decisions and drops them: it passes on answers to questions only.
    assert {"kept", "open"} <= set(asked)


def test_a_transaction_that_nobody_could_end_is_refused(
    shell: Any, version: str, make_topic: Callable[..., str]
):
    topic = make_topic("TRANSACTION")
    for _ in range(2):
        with pytest.raises(UnsupportedRequestError, match="give Producer\\(checker="):
            shell.transact(Message(topic, "lost"))
    assert direct(version, topic) == []


def test_delayed_messages_come_later_and_are_called_back(
    shell: Any, version: str, make_topic: Callable[..., str]
):
    topic = make_topic("DELAY")
    sent = shell.send(Message(topic, "later", delay_level=1))
    assert sent.status.name == "OK"
    timed = shell.send(Message(topic, "never", deliver_at=time.time() + 20))
    assert timed.recall_handle
    assert shell.recall(topic, timed.recall_handle) == timed.message_id
    with pytest.raises(RecallError):
        shell.recall(topic, "nonsense")
    eventually(lambda: direct(version, topic) == ["later"], 30)


def test_an_unknown_topic_is_told(shell: Any):
    with pytest.raises(TopicNotFoundError, match="unknown"):
        shell.read(unique("no-such-topic"))


def test_a_running_doctor_sends_and_reads_through_it(
    proxy: GrpcProxy, make_topic: Callable[..., str]
):
    topic = make_topic()
    words = ["doctor", topic, "--probe", "--json", "-n", proxy.remoting]
    done = subprocess.run(
        [sys.executable, "-m", "rocketwire", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = json.loads(done.stdout)
    assert (done.returncode, told["well"]) == (0, True), done.stdout
    seen = {each["check"]: each for each in told["findings"]}
    assert "proxy" in seen[f"name server {proxy.remoting}"]["saw"]
    assert seen[f"topic {topic}"]["verdict"] == "well"
    for broker in ("broker-a", "broker-b"):
        assert f"sent to {topic}" in seen[f"probe of {broker}"]["saw"]


REFUSED: dict[str, Callable[[Any, str], Any]] = {
    "topics": lambda admin, _: admin.topics(),
    "topic": lambda admin, topic: admin.topic(topic),
    "create_topic": lambda admin, topic: admin.create_topic(topic),
    "alter_topic": lambda admin, topic: admin.alter_topic(topic, queues=9),
    "delete_topic": lambda admin, topic: admin.delete_topic(topic),
    "groups": lambda admin, _: admin.groups(),
    "group": lambda admin, _: admin.group("g"),
    "reset": lambda admin, topic: admin.reset("g", topic, "earliest"),
    "clone_offsets": lambda admin, topic: admin.clone_offsets("g", "h", topic),
    "delete_group": lambda admin, _: admin.delete_group("g"),
    "connections": lambda admin, _: admin.connections("g"),
    "brokers": lambda admin, _: admin.brokers(),
    "broker_settings": lambda admin, _: admin.broker_settings("broker-a"),
    "change_broker_settings": lambda admin, _: admin.change_broker_settings("broker-a", {"x": 1}),
    "name_server_settings": lambda admin, _: admin.name_server_settings(),
    "change_name_server_settings": lambda admin, _: admin.change_name_server_settings({"x": 1}),
    "message": lambda admin, topic: admin.message("7F00000100002A9F0000000000000000", topic),
    "find": lambda admin, topic: admin.find(topic, "k"),
    "messages_by_key": lambda admin, topic: admin.messages_by_key(topic, "k"),
    "trace": lambda admin, _: admin.trace("7F0000010000000000000000000000AA"),
    "users": lambda admin, _: admin.users(),
    "create_user": lambda admin, _: admin.create_user("u", "secret-123"),
    "change_user": lambda admin, _: admin.change_user("u", password="secret-123"),
    "delete_user": lambda admin, _: admin.delete_user("u"),
    "policies": lambda admin, _: admin.policies(),
    "set_policy": lambda admin, _: admin.set_policy("u", "Topic:t", ["Pub"]),
    "delete_policy": lambda admin, _: admin.delete_policy("u"),
    "plain_accounts": lambda admin, _: admin.plain_accounts(),
    "put_plain_account": lambda admin, _: admin.put_plain_account(
        PlainAccount("rocketwire"), "secret-123"
    ),
    "delete_plain_account": lambda admin, _: admin.delete_plain_account("rocketwire"),
}


def test_what_operators_want_is_refused_in_words(
    proxy: GrpcProxy, version: str, kind: str, make_topic: Callable[..., str]
):
    topic = make_topic()
    with Producer(proxy.remoting) as producer, Reader(proxy.remoting) as reader:
        producer.send(Message(topic, b"x", keys="k"))
        (stored,) = reader.read(topic)
    letter = DeadLetter("g", stored, topic, stored.message_id, 1, None, None, None)
    second = make_topic()
    calls = REFUSED | {
        "replay": lambda admin, _: list(admin.replay([stored], second)),
        "redrive": lambda admin, _: admin.redrive(letter),
        "redrive to a topic": lambda admin, _: admin.redrive(letter, to=second),
    }
    admin = ADMINS[kind](proxy.remoting).start()
    try:
        for name, call in calls.items():
            with pytest.raises(UnsupportedRequestError, match="proxy") as caught:
                call(admin, topic)
            assert "proxy" in str(caught.value), name
    finally:
        admin.close()
    with Admin(running.cluster(version).name_server) as direct_admin:
        assert len(direct_admin.topic(topic).queues) == 4


def test_what_a_proxy_never_answers_is_refused_before_anything_is_sent(
    shell: Any, proxy: GrpcProxy, version: str, make_topic: Callable[..., str]
):
    topic, group = make_topic(), unique("group")
    for _ in range(2):
        with pytest.raises(UnsupportedRequestError, match="passes no replies on"):
            shell.request(Message(topic, b"question"), timeout=20)
    with pytest.raises(UnsupportedRequestError, match="proxy"):
        shell.create_topic(unique("topic"), 1)
    assert direct(version, topic) == []
    for start in ("earliest", "latest"):
        consumer = SimpleConsumer(proxy.remoting, group=group, start=start)
        refused = pytest.raises(UnsupportedRequestError, match="not through a proxy: use Consumer")
        with refused, consumer.subscribe(topic) as started:
            started.receive(wait=0)
    with Admin(running.cluster(version).name_server) as admin:
        assert group not in {each.name for each in admin.groups()}


def test_an_admin_with_a_namespace_does_through_it_what_it_does_without(
    proxy: GrpcProxy, version: str, kind: str
):
    """Dead letters are read and purged under the names that users know; the rest is told in words."""
    space, name, group = unique("space"), unique("topic"), unique("group")
    running.cluster(version).create_topic(f"{space}%{name}", 1)
    within = {"namespace": space}

    def fail(message: Any) -> None:
        raise LookupError("no customer 42")

    with SHELLS[kind](proxy.remoting, group=unique("ours"), **within) as shell:
        shell.send(Message(name, "42"))
    member = MEMBERS[kind](
        proxy.remoting, group, name, handler=fail, start="earliest", max_attempts=1, **within
    ).start()
    with Admin(proxy.remoting, **within) as admin:
        eventually(lambda: bool(found(admin, group)), 90)
        member.stop()
        (letter,) = found(admin, group)
        assert (letter.message.text, letter.original_topic, letter.group) == ("42", name, group)
        assert letter.message.topic == f"%DLQ%{group}"
        assert [m.text for m in admin.read(name)] == ["42"]
        assert sum(purged.messages for purged in admin.purge_dead_letters(group)) == 1
        assert found(admin, group) == []
    admin = ADMINS[kind](proxy.remoting, **within).start()
    try:
        for call in REFUSED.values():
            with pytest.raises(UnsupportedRequestError, match="proxy"):
                call(admin, name)
    finally:
        admin.close()


def test_the_reader_says_what_only_brokers_know(shell: Any, make_topic: Callable[..., str]):
    topic = make_topic()
    sent = shell.send(Message(topic, b"x", keys="k"))
    with pytest.raises(UnsupportedRequestError, match="proxy"):
        shell.ask_reader("messages_by_key", topic, "k")
    with pytest.raises((UnsupportedRequestError, InvalidMessageError), match="proxy"):
        shell.ask_reader("message_by_id", sent.offset_message_id)
