"""One broker of three goes wrong, in every way there is, during every kind of send."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.members import eventually
from tests.conformance.shells import SHELLS

from rocketwire import Message, Outcome, RequestTimeoutError, SendFailedError, SendResult
from rocketwire.embedded import EmbeddedCluster

FAULTS: dict[str, Callable[[Any], object]] = {
    "slow": lambda b: b.slow(0.2),
    "hang": lambda b: b.hang(),
    "refuse": lambda b: b.refuse(),
    "busy": lambda b: b.busy(),
    "drop now": lambda b: b.drop_connections(),
    "drop requests": lambda b: b.drop_connections(next=20),
    "drop after storing": lambda b: b.drop_connections(next=20, after_handling=True),
    "half replies": lambda b: b.half_replies(),
    "wrong replies": lambda b: b.wrong_replies(),
    "garbage": lambda b: b.wrong_replies(garbage=True),
    "late replies": lambda b: b.late_replies(1.3),
    "lost replies": lambda b: b.lose_replies(),
    "disk full": lambda b: b.disk_full(),
    "read only": lambda b: b.read_only(),
    "kill": lambda b: b.kill(),
    "restart": lambda b: b.restart(),
}
FORMS = ["send", "submit", "batch", "oneway"]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as cluster:
        cluster.create_topic("T", 4)
        yield cluster


@pytest.fixture(params=list(SHELLS))
def shell(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> Iterator[Any]:
    # A broker that comes back under another port is found by the next refresh. The machine that
    # runs clients and brokers may pause for longer than a broker may: nobody's deadline ends then.
    options = {"send_timeout": 30.0, "attempt_timeout": 1.0, "route_refresh": 1.0}
    with SHELLS[request.param](cluster.name_server, **options) as shell:
        yield shell


def mend(broker: Any) -> None:
    if broker.running:
        broker.heal()
    else:
        broker.restart()


def send_all(shell: Any, form: str, numbers: range) -> tuple[dict[int, SendResult], list[Any]]:
    """Send; returns the results by number, and the failures."""
    results: dict[int, SendResult] = {}
    failures: list[Any] = []
    waiting = []
    for number in numbers:
        message = Message("T", b"%d" % number)
        try:
            if form == "send":
                results[number] = shell.send(message)
            elif form == "submit":
                waiting.append((number, shell.submit(message)))
            elif form == "batch":
                results[number] = shell.send([message, Message("T", b"and-%d" % number)])
            else:
                shell.send_oneway(message)
        except SendFailedError as error:
            failures.append(error)
    for number, answer in waiting:
        try:
            results[number] = answer()
        except SendFailedError as error:
            failures.append(error)
    return results, failures


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fault", list(FAULTS))
def test_no_send_fails_and_nothing_acknowledged_is_missing(shell, cluster, fault, form) -> None:
    before, failures = send_all(shell, form, range(30))
    assert failures == []
    broker = cluster.broker("broker-b")
    FAULTS[fault](broker)
    during, failures = send_all(shell, form, range(30, 70))
    if form == "oneway":  # never retried: at most one is told, and the broker is left then
        assert len(failures) <= 2
    else:
        assert failures == []
    mend(broker)
    stored = [m.body for m in cluster.messages("T")]
    for number, result in {**before, **during}.items():
        copies = stored.count(b"%d" % number)
        assert copies >= 1
        if not result.maybe_duplicate:
            assert copies == 1
        tried = {a.broker for a in result.attempts}
        if tried == {"broker-b"}:
            assert result.queue.broker != "broker-b"
        # The other two are well: on a busy machine they may be late, but they never fail.
        late = {a.broker for a in result.attempts if isinstance(a.error, RequestTimeoutError)}
        assert tried - late <= {"broker-b"}


@pytest.mark.parametrize("fault", ["hang", "refuse", "kill", "busy"])
def test_the_bad_broker_is_left_and_used_again(shell, cluster, fault) -> None:
    send_all(shell, "send", range(30))
    broker = cluster.broker("broker-b")
    FAULTS[fault](broker)
    results, failures = send_all(shell, "send", range(30, 90))
    assert failures == []
    tries = [a.broker for r in results.values() for a in r.attempts]
    assert 1 <= tries.count("broker-b") <= 3
    mend(broker)
    used = False
    number = 1000
    while not used and number < 20_000:
        result = shell.send(Message("T", b"%d" % number))
        used = result.queue.broker == "broker-b"
        number += 1
    assert used


def test_a_send_never_fails_because_every_broker_is_isolated(shell, cluster) -> None:
    send_all(shell, "send", range(12))
    for broker in cluster.brokers:
        broker.busy(next=2)
    _, failures = send_all(shell, "send", range(12, 24))
    assert len(failures) <= 2  # three tries may all meet a busy broker at first
    assert {h.state for h in shell.health().values()} & {"isolated", "trial"}
    results, failures = send_all(shell, "send", range(24, 48))
    assert failures == []
    assert len(results) == 24


def test_a_dead_cluster_is_told_with_every_attempt(shell, cluster) -> None:
    send_all(shell, "send", range(3))
    for broker in cluster.brokers:
        broker.refuse()
    with pytest.raises(SendFailedError, match="refused the connection") as caught:
        shell.send(Message("T", b"x"))
    assert len(caught.value.attempts) == 3
    assert caught.value.outcome in {Outcome.NOT_SENT, Outcome.MAYBE_STORED}


def test_ordered_messages_never_move_to_another_queue(shell, cluster) -> None:
    first = shell.send(Message("T", b"0", sharding_key="order-7"))
    cluster.broker(first.queue.broker).busy(next=1)
    with pytest.raises(SendFailedError) as caught:
        shell.send(Message("T", b"1", sharding_key="order-7"))
    assert caught.value.outcome is Outcome.REJECTED
    assert [a.queue for a in caught.value.attempts] == [first.queue]
    assert shell.send(Message("T", b"2", sharding_key="order-7")).queue == first.queue


def test_a_dead_name_server_does_not_stop_known_topics(shell, cluster) -> None:
    send_all(shell, "send", range(3))
    cluster.name_servers[0].refuse()
    _, failures = send_all(shell, "send", range(3, 12))
    assert failures == []
    with pytest.raises(SendFailedError, match="no name server answered"):
        shell.send(Message("unheard-of", b"x"))


def test_health_says_why(shell, cluster) -> None:
    send_all(shell, "send", range(30))
    cluster.broker("broker-c").refuse()
    numbers = itertools.count(30)

    def is_told() -> bool:
        """At first it may be known by the connection that it closed, or by a pause of ours."""
        shell.send(Message("T", b"%d" % next(numbers)))
        return "refused the connection" in shell.health()["broker-c"].why

    eventually(is_told)
    assert shell.health()["broker-c"].state in {"isolated", "trial"}
