"""Transactions: both shells, all clusters."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.members import unique_group
from tests.conformance.shells import SHELLS, read_all

from rocketwire import (
    AsyncProducer,
    ClientClosedError,
    ConfigError,
    InvalidMessageError,
    Message,
    Outcome,
    Producer,
    Reader,
    RocketMQError,
    SendFailedError,
    StoredMessage,
    TransactionError,
    TransactionState,
)
from rocketwire.core.sending.checks import Check
from rocketwire.embedded import EmbeddedCluster
from rocketwire.wire.codes import RequestCode
from rocketwire.wire.message_id import decode_offset_message_id

OPEN, COMMITTED = TransactionState.OPEN, TransactionState.COMMITTED
ROLLED_BACK, UNKNOWN = TransactionState.ROLLED_BACK, TransactionState.UNKNOWN


def texts(shell: Any, topic: str, count: int = 0) -> list[str]:
    return sorted(message.text for message in read_all(shell, topic, count))


# -- the block -----------------------------------------------------------------------------------


def test_the_end_of_the_block_commits(target, shell):
    topic = target.topic(queues=1)
    message = Message(topic, "x", tags="t", keys="k", properties={"a": "b"})
    seen = []
    with Reader(target.name_server) as reader:
        tx = shell.transact(message, lambda: seen.extend([list(reader.read(topic))]))
    assert seen == [[]]
    assert tx.state is COMMITTED
    (found,) = read_all(shell, topic, 1)
    assert (found.text, found.tags, found.keys, found.properties) == ("x", "t", "k", {"a": "b"})
    assert found.message_id == tx.result.message_id == tx.transaction_id
    assert found.transaction_id == tx.transaction_id


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), asyncio.CancelledError(), SystemExit(3)]
)
def test_a_block_that_raises_rolls_back(target, open_shell, error):
    shell = open_shell()
    topic = target.topic(queues=1)
    if shell.name == "asyncio" and isinstance(error, (KeyboardInterrupt, SystemExit)):
        pytest.skip("these end the event loop itself")
    # What is cancelled on a loop is told to other threads by another class.
    with pytest.raises((type(error), concurrent.futures.CancelledError)):
        shell.transact(Message(topic, "gone"), error)
    assert shell.tx.state is ROLLED_BACK
    shell.transact(Message(topic, "kept"))
    assert texts(shell, topic, 1) == ["kept"]


def test_decisions_by_hand(target, shell):
    topic = target.topic(queues=1)
    assert shell.transact(Message(topic, "kept"), "commit", "commit").state is COMMITTED
    assert shell.transact(Message(topic, "gone"), "rollback", "rollback").state is ROLLED_BACK
    assert shell.transact(Message(topic, "open"), "leave_open").state is OPEN
    with pytest.raises(ValueError, match="later"):
        shell.transact(Message(topic, "done"), "commit", ValueError("later"))
    assert shell.tx.state is COMMITTED
    assert texts(shell, topic, 2) == ["done", "kept"]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (("commit", "rollback"), "COMMITTED already"),
        (("rollback", "commit"), "ROLLED_BACK already"),
    ],
)
def test_a_decision_is_final(target, shell, steps, words):
    with pytest.raises(TransactionError, match=words):
        shell.transact(Message(target.topic(), "x"), *steps)


def test_a_large_body_is_compressed_and_whole_again(target, shell):
    topic = target.topic(queues=1)
    shell.transact(Message(topic, b"a" * 100_000))
    (found,) = read_all(shell, topic, 1)
    assert found.body == b"a" * 100_000


# -- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"delay_level": 2}, "delay_level is 2: .* can't be delayed"),
        ({"deliver_at": 2e9}, "deliver_at is 2000000000.0: .* can't be timed"),
        ({"sharding_key": "k"}, "sharding_key is 'k': .* can't be ordered"),
    ],
)
def test_what_no_transaction_can_be_is_refused_by_name(shell, how, words):
    with pytest.raises(InvalidMessageError, match=words):
        shell.transact(Message("t", "x", **how))


@pytest.mark.parametrize("given", [[Message("t", "x")], None, "text"])
def test_only_one_message_is_taken(shell, given):
    with pytest.raises(InvalidMessageError, match="batches can't be transactional"):
        shell.transact(given)


def test_wrong_settings_are_told(shell):
    with pytest.raises(ConfigError, match="timeout is -1"):
        shell.transact(Message("t", "x"), timeout=-1)
    with pytest.raises(ConfigError, match="timeout is True"):
        shell.transact(Message("t", "x"), timeout=True)
    for kind in (Producer, AsyncProducer):
        with pytest.raises(ConfigError, match="checker is 5"):
            kind("127.0.0.1:1", checker=5)
        for wrong in (lambda: True, lambda message, more: True):
            with pytest.raises(ConfigError, match="can't be called with one argument"):
                kind("127.0.0.1:1", checker=wrong)
        kind("127.0.0.1:1", checker=lambda message, more=None: True)
        with pytest.raises(ConfigError, match="checker needs background=True"):
            kind("127.0.0.1:1", checker=lambda m: True, background=False)


def test_a_producer_that_does_not_run_says_so():
    with pytest.raises(ClientClosedError):
        Producer("127.0.0.1:1").transaction(Message("t", "x"))

    async def ask() -> None:
        AsyncProducer("127.0.0.1:1").transaction(Message("t", "x"))

    with pytest.raises(ClientClosedError):
        asyncio.run(ask())


def test_an_unknown_topic_fails_as_a_send_does(target, shell):
    if not target.is_embedded:
        pytest.skip("these create topics")
    with (
        pytest.raises(SendFailedError, match="unknown"),
        EmbeddedCluster(auto_create_topics=False) as cluster,
        SHELLS[shell.name](cluster.name_server) as other,
    ):
        other.transact(Message("nowhere", "x"))


# -- brokers that break --------------------------------------------------------------------------


@pytest.fixture(params=list(SHELLS))
def broken(request: pytest.FixtureRequest) -> Iterator[tuple[EmbeddedCluster, Any]]:
    with EmbeddedCluster(
        brokers=2, transaction_check_interval=0.2, transaction_timeout=0.2
    ) as cluster:
        cluster.create_topic("t", 1)
        with SHELLS[request.param](cluster.name_server, send_timeout=0.6) as shell:
            yield cluster, shell


def test_a_commit_without_an_answer_raises_with_the_state(broken, caplog):
    cluster, shell = broken
    with pytest.raises(TransactionError, match="checkers of the group decide") as caught:
        shell.transact(Message("t", "x"), *(b.hang for b in cluster.brokers))
    assert caught.value.state is shell.tx.state is UNKNOWN
    assert caught.value.result == shell.tx.result
    assert "was not confirmed" in caplog.text
    with pytest.raises(TransactionError, match="no answer to an earlier decision"):
        shell.run_step(shell.tx.rollback)


def test_a_rollback_without_an_answer_warns_and_lets_the_error_through(broken, caplog):
    cluster, shell = broken
    with pytest.raises(ValueError, match="the real problem"):
        shell.transact(
            Message("t", "x"), *(b.kill for b in cluster.brokers), ValueError("the real problem")
        )
    assert shell.tx.state is UNKNOWN
    assert "rollback" in caplog.text


def test_a_half_message_that_may_be_stored_is_not_sent_again(broken):
    cluster, shell = broken
    for broker in cluster.brokers:
        broker.hang()
    with pytest.raises(SendFailedError) as caught:
        shell.transact(Message("t", "x"))
    assert caught.value.outcome is Outcome.MAYBE_STORED
    assert len(caught.value.attempts) == 1


def test_a_half_message_that_was_not_stored_is_tried_elsewhere(broken):
    cluster, shell = broken
    cluster.brokers[0].busy(code=RequestCode.SEND_MESSAGE_V2)
    for number in range(4):
        assert shell.transact(Message("t", f"{number}")).state is COMMITTED
    assert texts(shell, "t", 4) == ["0", "1", "2", "3"]


def test_a_closed_producer_ends_no_transaction(broken):
    _, shell = broken
    with pytest.raises(TransactionError):
        shell.transact(Message("t", "x"), shell.producer.shutdown)
    assert shell.tx.state is UNKNOWN


# -- checkers ------------------------------------------------------------------------------------


class Notes:
    """A checker that notes what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[StoredMessage] = []
        self.threads: set[str] = set()

    def __call__(self, message: StoredMessage) -> Any:
        self.asked.append(message)
        self.threads.add(threading.current_thread().name)
        answer = self.answer
        if isinstance(answer, BaseException):
            raise answer
        return answer.pop(0) if isinstance(answer, list) and answer else answer

    async def awaited(self, message: StoredMessage) -> Any:
        await asyncio.sleep(0)
        return self(message)


def ends(cluster: EmbeddedCluster, topic: str) -> int:
    """How many decisions brokers were told."""
    return sum(e.code == RequestCode.END_TRANSACTION and e.topic == topic for e in cluster.journal)


def wait_until(condition: Any, limit: float = 20.0) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def asking() -> Iterator[EmbeddedCluster]:
    """Asks for open transactions at once, and again and again."""
    with EmbeddedCluster(
        brokers=2, transaction_check_interval=0.1, transaction_timeout=0.1
    ) as cluster:
        yield cluster


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_checker_decides_what_was_left_open(asking, name, kind):
    topic = unique_group()
    asking.create_topic(topic, 1)
    notes = Notes([None, UNKNOWN, True])
    checker = notes if kind == "function" else notes.awaited
    with SHELLS[name](asking.name_server, group=unique_group(), checker=checker) as shell:
        tx = shell.transact(Message(topic, "x", keys="k", properties={"a": "b"}), "leave_open")
        (found,) = read_all(shell, topic, 1)
        assert found.text == "x"
        wait_until(lambda: len(notes.asked) >= 3)
    message = notes.asked[0]
    assert (message.topic, message.text, message.keys) == (topic, "x", "k")
    assert message.properties == {"a": "b"}
    assert message.message_id == message.transaction_id == tx.transaction_id
    assert message.queue.broker == tx.result.queue.broker
    if kind == "function" or name == "blocking":
        assert notes.threads == {"rocketwire-checker"}


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("answer", [False, ROLLED_BACK])
def test_a_checker_may_roll_back(asking, name, answer):
    topic = unique_group()
    asking.create_topic(topic, 1)
    notes = Notes(answer)
    with SHELLS[name](asking.name_server, group=unique_group(), checker=notes) as shell:
        shell.transact(Message(topic, "x"), "leave_open")
        wait_until(lambda: notes.asked)
        wait_until(lambda: ends(asking, topic))
        assert shell.read(topic) == []


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize(
    ("answer", "words"), [(ValueError("broken"), "checker failed"), ("yes", "returned 'yes'")]
)
def test_a_checker_that_fails_is_logged_and_asked_again(asking, name, answer, words, caplog):
    topic = unique_group()
    asking.create_topic(topic, 1)
    notes = Notes(answer)
    with SHELLS[name](asking.name_server, group=unique_group(), checker=notes) as shell:
        shell.transact(Message(topic, "x"), "leave_open")
        wait_until(lambda: len(notes.asked) >= 2)
        assert words in caplog.text
        notes.answer = True
        assert len(read_all(shell, topic, 1)) == 1


@pytest.mark.parametrize("name", SHELLS)
def test_any_member_of_the_group_answers_even_one_that_never_sends(asking, name):
    topic, group = unique_group(), unique_group()
    asking.create_topic(topic, 4)
    with SHELLS[name](asking.name_server, group=group) as sender:
        for number in range(8):
            sender.transact(Message(topic, f"{number}"), "leave_open")
    notes = Notes(COMMITTED)
    with SHELLS[name](asking.name_server, group=group, checker=notes) as other:
        assert len(read_all(other, topic, 8)) == 8
    assert {m.queue.broker for m in notes.asked} == {"broker-a", "broker-b"}


def test_a_namespace_is_not_shown_to_checkers(asking):
    notes = Notes(True)
    asking.create_topic("ns%orders", 1)
    options = {"group": "g", "namespace": "ns", "checker": notes}
    with SHELLS["blocking"](asking.name_server, **options) as shell:
        shell.transact(Message("orders", "x"), "leave_open")
        assert len(read_all(shell, "orders", 1)) == 1
    assert notes.asked[0].topic == notes.asked[0].queue.topic == "orders"


def test_errors_are_of_the_family():
    assert issubclass(TransactionError, RocketMQError)


@pytest.mark.parametrize("name", SHELLS)
def test_a_question_that_crossed_with_the_decision_is_not_answered(name):
    """Brokers of 5.x note decisions late; a second commit would deliver the message twice."""
    notes = Notes(None)
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1)
        with SHELLS[name](cluster.name_server, group="g", checker=notes) as shell:
            tx = shell.transact(Message("t", "x"))
            runner = shell.producer._instance.check_runners["g"]
            offset = decode_offset_message_id(tx.result.offset_message_id).offset
            address = cluster.brokers[0].address
            check = Check(address, "b", "g", "t", None, 0, offset + 100, tx.transaction_id)
            runner.post(check)
            runner.post(check._replace(transaction_id="another"))
            wait_until(lambda: len(notes.asked) == 1)
            time.sleep(0.1)
            assert len(notes.asked) == 1
            assert len(shell.read("t")) == 1
