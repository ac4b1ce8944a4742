"""Messages that a group gave up: why, from where, and back again. Both shells, all clusters."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.cli.letters import run_until
from tests.conformance.admins import ADMINS
from tests.conformance.interrupted import (
    cut_off_at_every_step,
    run_losing_answers,
    run_without_index,
)
from tests.conformance.members import MEMBERS, eventually, unique_group
from tests.embedded.wire_client import WireClient

from rocketwire import (
    Admin,
    BrokerError,
    ClientClosedError,
    Consumer,
    GroupNotFoundError,
    InvalidMessageError,
    Message,
    PermissionDeniedError,
    Producer,
    Reader,
    Retry,
    TopicNotFoundError,
    TransportError,
)
from rocketwire.core.admin.redrive import redrive
from rocketwire.core.group import returning
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.headers import create_topic
from rocketwire.wire.lazy_message import broker_property


@pytest.fixture(params=list(MEMBERS))
def member(request: pytest.FixtureRequest, target: Any) -> Iterator[Callable[..., Any]]:
    """Starts members of groups, which are stopped in the end."""
    started: list[Any] = []

    def start(group: str, topic: str, **options: Any) -> Any:
        kind = MEMBERS[request.param]
        one = kind(target.name_server, group, topic, **({"start": "earliest"} | options)).start()
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop()


#: A try that ends too early on a busy machine would store a message twice.
PATIENT: dict[str, Any] = {"send_timeout": 30.0, "attempt_timeout": None}


@pytest.fixture
def producer(target: Any) -> Iterator[Producer]:
    with Producer(target.name_server, group="conformance-letters", **PATIENT) as producer:
        yield producer


def stored_letters(target: Any, group: str) -> list[Any]:
    """What lies in the dead-letter topic as soon as anything does."""
    with Reader(target.name_server) as reader:
        found: list[Any] = []

        def look() -> bool:
            try:
                found[:] = reader.read(f"%DLQ%{group}")
            except TopicNotFoundError:
                return False
            return bool(found)

        eventually(look)
        return list(found)


@pytest.mark.parametrize("ordered", [False, True])
def test_the_last_return_of_a_message_tells_its_error(target, producer, member, ordered):
    topic, group = target.topic(queues=1), unique_group()

    def handle(message: Any) -> None:
        raise LookupError(f"no such order: {message.text}")

    # Large enough to be compressed: the body must come through as it was stored.
    body = "42 " * 3000
    sent = producer.send(Message(topic, body, keys="k", tags="t", properties={"own": "1"}))
    one = member(group, topic, handler=handle, max_attempts=1, ordered=ordered)
    eventually(lambda: one.stats().dead_lettered == 1)
    (letter,) = stored_letters(target, group)
    assert (letter.text, letter.keys, letter.tags) == (body, "k", "t")
    assert letter.properties == {"own": "1"}
    assert letter.message_id == sent.message_id
    assert letter.reconsume_times == 1
    assert letter.undecodable is None
    error = broker_property(letter, "ROCKETWIRE_ERROR")
    assert error is not None
    assert error.startswith("LookupError: no such order: 42 42")
    assert broker_property(letter, "RETRY_TOPIC") == topic
    assert broker_property(letter, "ORIGIN_MESSAGE_ID") == sent.offset_message_id


def test_the_dead_letter_of_a_retried_message_has_its_count_and_its_first_origin(
    target, producer, member
):
    topic, group = target.topic(queues=1), unique_group()
    sent = producer.send(Message(topic, "hopeless"))
    one = member(group, topic, handler=lambda _: Retry(after=1.0), max_attempts=2)
    eventually(lambda: one.stats().dead_lettered == 1)
    (letter,) = stored_letters(target, group)
    assert letter.reconsume_times == 2
    assert broker_property(letter, "ROCKETWIRE_ERROR") == "the handler returned Retry"
    assert broker_property(letter, "RETRY_TOPIC") == topic
    assert broker_property(letter, "ORIGIN_MESSAGE_ID") == sent.offset_message_id


def test_an_exact_retry_comes_to_the_second(target, producer, member):
    topic, group = target.topic(queues=1), unique_group()
    seen: list[tuple[float, int, str]] = []

    def handle(message: Any) -> Retry | None:
        seen.append((time.monotonic(), message.reconsume_times, message.topic))
        return None if message.reconsume_times == 2 else Retry(after=0 if len(seen) > 1 else 2)

    producer.send(Message(topic, "again"))
    one = member(group, topic, handler=handle, exact_retries=True)
    eventually(lambda: one.stats().handled == 1)
    assert [(tries, name) for _, tries, name in seen] == [(0, topic), (1, topic), (2, topic)]
    first, second, third = (moment for moment, _, _ in seen)
    if not target.is_4x:  # which has no timed messages, and takes the step
        assert 1.9 <= second - first < 4.5
    assert third - second < 4.5


# -- looking at them, and sending them again ---------------------------------------------------


@pytest.fixture(params=list(ADMINS))
def admin(request: pytest.FixtureRequest, target: Any) -> Iterator[Any]:
    one = ADMINS[request.param](target.name_server).start()
    yield one
    one.close()


def fail(message: Any) -> None:
    raise LookupError(f"no such order: {message.text}")


def kill_messages(target: Any, topic: str, group: str, count: int, **options: Any) -> None:
    """Have a group give up so many messages."""
    with Consumer(
        target.name_server, group=group, start="earliest", max_attempts=1, **options
    ) as consumer:
        consumer.subscribe(topic).join()
        thread = threading.Thread(target=consumer.run, args=(fail,))
        thread.start()
        eventually(lambda: consumer.stats().dead_lettered >= count)
        consumer.stop()
        thread.join(60)


def listed(admin: Any, group: str, count: int, **how: Any) -> list[Any]:
    """The dead letters, once so many can be read: queues follow the log."""
    found: list[Any] = []

    def look() -> bool:
        found[:] = admin.dead_letters(group, **how)
        return len(found) >= count

    eventually(look)
    return list(found)


def receive_all(target: Any, group: str, topic: str, count: int) -> list[Any]:
    seen: list[Any] = []
    member = MEMBERS["blocking"](
        target.name_server, group, topic, handler=seen.append, start="earliest"
    ).start()
    try:
        eventually(lambda: len(seen) >= count)
        time.sleep(0.3)
    finally:
        member.stop()
    return seen


def test_a_lost_order_is_found_explained_and_sent_back_to_its_group_only(target, producer, admin):
    topic, group, other = target.topic(queues=1), unique_group(), unique_group()
    sent = producer.send(Message(topic, "42", keys="order-42", properties={"own": "1"}))
    kill_messages(target, topic, group, 1)
    (letter,) = listed(admin, group, 1)
    assert (letter.original_topic, letter.original_id) == (topic, sent.message_id)
    assert (letter.original_queue, letter.original_offset) == (sent.queue, sent.offset)
    assert letter.attempts == 1
    assert letter.last_error.startswith("LookupError: no such order: 42 (test_dead_letters.py")
    assert (letter.message.text, letter.group) == ("42", group)

    done = admin.redrive(letter)
    assert (done.is_new, done.queue.topic) == (True, f"%RETRY%{group}")
    again = admin.redrive(letter)
    assert (again.is_new, again.queue, again.offset) == (False, done.queue, done.offset)

    (back,) = receive_all(target, group, topic, 1)
    assert (back.text, back.topic, back.keys) == ("42", topic, "order-42")
    assert (back.message_id, back.properties) == (sent.message_id, {"own": "1"})
    assert back.reconsume_times == 0
    assert [m.queue.topic for m in receive_all(target, other, topic, 1)] == [topic]


def test_a_second_death_is_told_apart_from_the_first(target, producer, admin):
    topic, group = target.topic(queues=1), unique_group()
    producer.send(Message(topic, "42"))
    kill_messages(target, topic, group, 1)
    (first,) = listed(admin, group, 1)
    assert admin.redrive(first).is_new
    kill_messages(target, topic, group, 1)
    _, second = listed(admin, group, 2)
    assert second.original_id == first.original_id
    assert second.original_topic == topic
    assert second.attempts == 1
    assert not admin.redrive(first).is_new
    assert admin.redrive(second).is_new
    assert not admin.redrive(second).is_new


def test_a_dead_letter_may_go_to_another_topic(target, producer, admin):
    topic, group, into = target.topic(queues=1), unique_group(), target.topic(queues=4)
    sent = producer.send(Message(topic, "x" * 5000, sharding_key="k", tags="t"))
    kill_messages(target, topic, group, 1)
    (letter,) = listed(admin, group, 1)
    # Both brokers tell the name server of a new topic a little after they have made it.
    eventually(lambda: has_queues(target, into, 8))
    assert admin.redriven(letter, to=into) is None
    done = admin.redrive(letter, to=into)
    assert done.is_new
    found = admin.redriven(letter, to=into)
    assert (found.is_new, found.queue, found.offset) == (False, done.queue, done.offset)
    assert admin.redriven(letter) is None
    assert not admin.redrive(letter, to=into).is_new
    assert done.queue == producer.send(Message(into, "next", sharding_key="k")).queue
    with Reader(target.name_server) as reader:
        found = [m for m in reader.read(into) if m.text != "next"]
    assert [(m.text, m.tags, m.message_id) for m in found] == [("x" * 5000, "t", sent.message_id)]
    with pytest.raises(TopicNotFoundError, match="topic create"):
        admin.redrive(letter, to="no-such-topic")
    for wrong in (5, "", b"orders", "a b", f"%DLQ%{group}"):
        with pytest.raises(InvalidMessageError, match="topic"):
            admin.redrive(letter, to=wrong)


def has_queues(target: Any, topic: str, count: int) -> bool:
    with Reader(target.name_server) as reader:
        return len(reader.queues(topic)) == count


def test_purging_hides_what_is_there_and_deletes_nothing(target, producer, admin):
    topic, group = target.topic(queues=1), unique_group()
    for number in range(3):
        producer.send(Message(topic, f"{number}"))
    kill_messages(target, topic, group, 3)
    assert len(listed(admin, group, 3)) == 3
    planned = admin.purge_dead_letters(group, dry_run=True)
    assert sum(p.messages for p in planned) == 3
    assert len(listed(admin, group, 3)) == 3
    assert admin.purge_dead_letters(group) == planned
    assert listed(admin, group, 0) == []
    assert sum(p.messages for p in admin.purge_dead_letters(group)) == 0
    assert len(listed(admin, group, 3, purged=True)) == 3
    producer.send(Message(topic, "new"))
    kill_messages(target, topic, group, 1)
    assert [letter.message.text for letter in listed(admin, group, 1)] == ["new"]
    # Where they were purged is no progress of the group, and "new" is nothing that it has to do.
    assert all(queue.topic != f"%DLQ%{group}" for queue in admin.group(group).lag)
    if target.is_embedded:
        target.cluster.wait_idle(group, 10)
    assert listed(admin, group, 0, since=time.time() + 60) == []


def test_an_ordered_group_at_work_is_told_of_and_nothing_is_lost(target, producer, admin):
    topic, group = target.topic(queues=1), unique_group()
    producer.send(Message(topic, "42"))
    kill_messages(target, topic, group, 1, ordered=True)
    (letter,) = listed(admin, group, 1)
    one = MEMBERS["blocking"](
        target.name_server, group, topic, start="earliest", ordered=True
    ).start()
    try:
        # The broker of the letter moves it straight back once the member has a lock there, not elsewhere.
        broker = letter.message.queue.broker
        eventually(lambda: broker in {queue.broker for queue in one.assignment()})
        if target.is_4x:
            assert admin.redrive(letter).is_new
        else:
            with pytest.raises(BrokerError, match="straight back"):
                admin.redrive(letter)
            assert admin.redrive(letter, to=topic).is_new
        assert len(listed(admin, group, 1)) == 1
        eventually(lambda: "42" in one.seen.bodies())
    finally:
        one.stop()


def test_what_is_no_group_no_letter_or_no_client_is_told(target, admin):
    with pytest.raises(GroupNotFoundError, match="no broker knows the group nobody-knows"):
        list(admin.dead_letters("nobody-knows"))
    with pytest.raises(GroupNotFoundError):
        admin.purge_dead_letters("nobody-knows")
    with pytest.raises(InvalidMessageError, match="group"):
        list(admin.dead_letters("a b"))
    with pytest.raises(InvalidMessageError, match="give a DeadLetter"):
        admin.redrive("order-42")
    admin.shutdown()
    with pytest.raises(ClientClosedError):
        list(admin.dead_letters("any"))


def test_a_group_that_gave_nothing_up_has_no_dead_letters(target, admin, member):
    topic, group = target.topic(queues=1), unique_group()
    member(group, topic)

    def known() -> bool:
        try:
            return list(admin.dead_letters(group)) == []
        except GroupNotFoundError:  # the name server hears of the retry topic a little later
            return False

    eventually(known)


@pytest.mark.parametrize("shell", list(ADMINS))
def test_letters_that_nobody_may_read_come_with_the_command_that_opens_them(shell):
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("t", 1)
        with Producer(cluster.name_server) as producer:
            producer.send(Message("t", "42"))
        kill_messages(cluster, "t", "shut", 1)
        close_topic(cluster, "%DLQ%shut")
        admin = ADMINS[shell](cluster.name_server).start()
        try:
            with pytest.raises(PermissionDeniedError) as caught:
                list(admin.dead_letters("shut"))
            assert "rocketwire topic alter '%DLQ%shut' --can-read" in str(caught.value)
            admin.alter_topic("%DLQ%shut", can_read=True)
            assert [letter.message.text for letter in listed(admin, "shut", 1)] == ["42"]
        finally:
            admin.close()


def close_topic(cluster: Any, topic: str) -> None:
    """Make a topic write-only, as some brokers make those of dead letters."""
    fields = create_topic(topic, read_queues=1, write_queues=1, permission=2)
    with WireClient(cluster.brokers[0].address) as client:
        assert client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0


def test_a_redrive_that_ends_at_any_step_is_made_good_by_the_next(target, producer):
    if not target.is_embedded:
        pytest.skip("its steps are the same everywhere, and every one takes its time")
    topic, group = target.topic(queues=1), unique_group()
    for number in range(40):
        producer.send(Message(topic, f"{number}"))
    kill_messages(target, topic, group, 40)
    with Admin(target.name_server) as admin:
        letters = iter(listed(admin, group, 40))
        used: list[Any] = []

        def make() -> Any:
            used.append(next(letters))
            return redrive(admin._instance, used[-1], to=None, reader="admin", timeout=5.0)

        steps = 0
        for _ in cut_off_at_every_step(admin._run, make):
            admin.redrive(used[-1])
            steps += 1
        assert steps > 8
        copies = Counter(m.text for m in admin.read(f"%RETRY%{group}"))
    assert copies == {letter.message.text: 1 for letter in used}


def test_a_copy_is_recognised_where_the_index_is_off(target, producer):
    if not target.is_embedded:
        pytest.skip("the others' tests need their index")
    topic, group = target.topic(queues=1), unique_group()
    producer.send(Message(topic, "42"))
    kill_messages(target, topic, group, 1)
    with Admin(target.name_server) as admin:
        (letter,) = listed(admin, group, 1)

        def blindly() -> Any:
            operation = redrive(admin._instance, letter, to=None, reader="admin", timeout=5.0)
            return run_without_index(admin._run, operation)

        assert blindly().is_new
        assert not blindly().is_new
        assert len(list(admin.read(f"%RETRY%{group}"))) == 1


def test_what_could_not_be_told_is_none_and_the_letter_is_there(
    target, producer, admin, monkeypatch
):
    """A group that may not send gives up by the ordinary request, as other clients do."""

    def refused(group: Any, message: Any, why: str) -> Any:
        raise PermissionDeniedError(16, "no permission to send", message.queue.broker)
        yield

    monkeypatch.setattr(returning, "store_dead_letter", refused)
    topic, group = target.topic(queues=1), unique_group()
    sent = producer.send(Message(topic, "42"))
    kill_messages(target, topic, group, 1)
    (letter,) = listed(admin, group, 1)
    assert letter.last_error is None
    assert (letter.original_topic, letter.original_id) == (topic, sent.message_id)
    assert (letter.original_queue, letter.attempts) == (sent.queue, 1)
    assert admin.redrive(letter).is_new
    assert not admin.redrive(letter).is_new


def test_the_reason_of_a_program_is_told(target, producer, admin):
    topic, group = target.topic(queues=1), unique_group()
    producer.send(Message(topic, "42"))
    with Consumer(target.name_server, group=group, start="earliest") as consumer:
        consumer.subscribe(topic)
        for delivery in consumer.deliveries():
            delivery.dead_letter("customer 7 is unknown")
            break
    (letter,) = listed(admin, group, 1)
    assert (letter.last_error, letter.attempts) == ("customer 7 is unknown", 1)


def test_namespaces_are_hidden_here_too(target):
    space, topic, group = unique_group(), f"t-{unique_group()}", unique_group()
    target.cluster.create_topic(f"{space}%{topic}", 1)
    with Producer(target.name_server, namespace=space) as producer:
        producer.send(Message(topic, "42"))
    kill_messages(target, topic, group, 1, namespace=space)
    with Admin(target.name_server, namespace=space) as admin:
        (letter,) = listed(admin, group, 1)
        assert (letter.original_topic, letter.message.topic) == (topic, f"%DLQ%{group}")
        assert letter.original_queue is not None
        assert letter.original_queue.topic == topic
        assert admin.redrive(letter).is_new
        assert not admin.redrive(letter).is_new
        assert sum(p.messages for p in admin.purge_dead_letters(group)) == 1
    with Consumer(target.name_server, group=group, start="earliest", namespace=space) as consumer:
        consumer.subscribe(topic)
        (back,) = itertools.islice(consumer, 1)
    assert (back.text, back.topic, back.reconsume_times) == ("42", topic, 0)


def test_commands_that_are_killed_send_each_once(target, producer, tmp_path):
    topic, group, into = target.topic(queues=2), unique_group(), target.topic(queues=2)
    for number in range(60):
        producer.send(Message(topic, f"{number}"))
    kill_messages(target, topic, group, 60)
    for source, words in {
        f"%RETRY%{group}": ["dlq", "redrive", group],
        into: ["replay", topic, "--into", into],
    }.items():

        def count(source: str = source) -> Counter[str]:
            with Reader(target.name_server) as reader:
                return Counter(message.text for message in reader.read(source))

        words += ["--name-server", target.name_server]
        for least in (1, 25):
            run_until(
                lambda n=least, c=count: c().total() >= n, *words, "--rate", "100", cwd=tmp_path
            )
        assert 0 < count().total() < 60
        assert run_until(lambda: False, *words, cwd=tmp_path).returncode == 0
        assert count() == {f"{number}": 1 for number in range(60)}


@pytest.mark.parametrize("shell", list(ADMINS))
def test_a_dead_broker_is_named_and_its_letters_go_back_once_it_is_up(shell):
    with EmbeddedCluster(brokers=1) as cluster:
        cluster.create_topic("t", 1)
        with Producer(cluster.name_server) as producer:
            producer.send(Message("t", "42"))
        kill_messages(cluster, "t", "g", 1)
        admin = ADMINS[shell](cluster.name_server, request_timeout=1.0, pull_timeout=1.0).start()
        try:
            (letter,) = listed(admin, "g", 1)
            broker = cluster.broker("broker-a")
            broker.hang()
            for call in (
                lambda: list(admin.dead_letters("g")),
                lambda: admin.redrive(letter),
                lambda: admin.purge_dead_letters("g"),
            ):
                with pytest.raises(TransportError):
                    call()
            broker.heal()
            assert admin.redrive(letter).is_new
            assert not admin.redrive(letter).is_new
        finally:
            admin.close()


def test_a_send_without_an_answer_is_looked_for_and_never_repeated_blindly():
    with EmbeddedCluster(brokers=1) as cluster, Admin(cluster.name_server) as admin:
        cluster.create_topic("t", 1)
        with Producer(cluster.name_server) as producer:
            producer.send(Message("t", "42"))
        kill_messages(cluster, "t", "g", 1)
        (letter,) = listed(admin, "g", 1)

        def make() -> Any:
            return redrive(admin._instance, letter, to=None, reader="admin", timeout=5.0)

        done = run_losing_answers(admin._run, make(), RequestCode.SEND_MESSAGE_V2)
        assert done.is_new
        assert not admin.redrive(letter).is_new
        assert len(list(admin.read("%RETRY%g"))) == 1
