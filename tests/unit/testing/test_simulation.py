"""The simulated driver does what real drivers do, and notices operations that break the rules."""

import pytest
from tests.operations import oneway

from rocketwire.core.effects import (
    Event,
    Invoke,
    InvokeAll,
    invoke,
    invoke_all,
    sleep,
    wait,
)
from rocketwire.errors import ConnectFailedError, ConnectionLostError, RequestTimeoutError
from rocketwire.testing.simulated_network import (
    Answer,
    Hang,
    Refuse,
    Reset,
    Slow,
    Unreachable,
    with_pauses,
)
from rocketwire.testing.simulation import (
    OperationRuleError,
    SimulatedDriver,
    SimulatedLock,
    SimulatedNetwork,
)
from rocketwire.wire.command import Command, Reply

A, B = "10.0.0.1:10911", "10.0.0.2:10911"
REQUEST = Command(310, body=b"x" * 400)
BEAT = Command(34)


class Observer:
    def __init__(self):
        self.calls = []

    def written(self, now, unanswered):
        self.calls.append((now, unanswered))


@pytest.fixture
def network():
    network = SimulatedNetwork(seed=1)
    network.add_broker(A, latency=0.25)
    network.add_broker(B, latency=0.5)
    return network


@pytest.fixture
def driver(network):
    return SimulatedDriver(network, record=True)


def test_a_request_is_answered_after_the_brokers_latency(driver):
    reply = driver.run(invoke(A, REQUEST, 3.0))
    assert isinstance(reply, Reply)
    assert (reply.code, reply.arrived, driver.clock()) == (0, 0.25, 0.25)
    assert reply.ext["queueId"] == "0"


def test_the_flight_hears_when_its_request_was_written_and_what_was_unanswered(network, driver):
    network.brokers[A].connect_latency = 0.125
    first, second = Observer(), Observer()
    driver.spawn(invoke(A, REQUEST, 3.0, first))
    driver.clock.advance(0.25)
    driver.spawn(invoke(A, REQUEST, 3.0, second))
    assert first.calls == [(0.125, 500)]
    assert second.calls == [(0.25, 1000)]
    driver.clock.advance(1.0)
    assert network.brokers[A].unanswered == 0


def test_a_deadline_comes_before_an_answer_that_takes_longer(driver):
    with pytest.raises(RequestTimeoutError) as caught:
        driver.run(invoke(B, REQUEST, 0.375))
    assert caught.value.written
    assert driver.clock() == 0.375


def test_a_deadline_that_has_passed_sends_nothing(network, driver):
    driver.clock.advance(1.0)
    with pytest.raises(RequestTimeoutError) as caught:
        driver.run(invoke(A, REQUEST, 1.0))
    assert not caught.value.written
    assert network.brokers[A].arrivals == {}


def test_several_requests_at_once_take_as_long_as_the_slowest(network, driver):
    network.brokers[A].break_now(Refuse())
    calls = tuple(Invoke(address, REQUEST, 3.0) for address in (A, B, "nowhere:1"))
    replies = driver.run(invoke_all(calls))
    assert isinstance(replies[0], ConnectFailedError)
    assert replies[1].code == 0
    assert isinstance(replies[2], ConnectFailedError)
    assert driver.clock() == 0.5
    assert driver.run(invoke_all(())) == []


def test_a_oneway_request_is_over_when_it_is_written(network, driver):
    observer = Observer()
    assert driver.run(oneway(A, REQUEST, 3.0, observer)) is None
    assert driver.clock() == 0.0
    assert observer.calls == [(0.0, 500)]
    assert network.brokers[A].arrivals == {310: 1}


def test_sleeping_takes_virtual_time(driver):
    assert driver.run(sleep(7.5)) is None
    assert driver.clock() == 7.5


def test_a_gate_wakes_who_waits_or_its_deadline_does(driver):
    event = Event()
    driver.clock.call_at(1.0, event.set)
    assert driver.run(wait(event, 5.0)) is True
    assert driver.clock() == 1.0
    assert driver.run(wait(event, 5.0)) is True
    assert driver.run(wait(Event(), 5.0)) is False
    assert driver.clock() == 5.0


def test_many_operations_run_side_by_side(driver):
    tasks = [driver.spawn(invoke(address, REQUEST, 3.0)) for address in (A, B) * 50]
    driver.clock.run_until(0.25)
    assert sum(task.done for task in tasks) == 50
    driver.clock.run_until(0.5)
    assert all(task.result().code == 0 for task in tasks)


def test_effects_are_recorded_with_their_moment(driver):
    driver.run(sleep(1.0))
    driver.run(invoke(A, REQUEST, 3.0))
    assert [(moment, type(effect).__name__) for moment, effect in driver.effects] == [
        (0.0, "Sleep"),
        (1.0, "Invoke"),
    ]


def test_an_operation_that_raises_ends_with_its_error(driver):
    def broken():
        yield from sleep(1.0)
        raise LookupError("mine")

    task = driver.spawn(broken())
    with pytest.raises(OperationRuleError, match="still under way"):
        task.result()
    driver.clock.advance(1.0)
    assert isinstance(task.error, LookupError)
    with pytest.raises(LookupError, match="mine"):
        task.result()


def test_waiting_for_what_never_comes_is_told(driver):
    with pytest.raises(OperationRuleError, match="never comes"):
        driver.run(wait(Event(), float("inf")))


# ---------------------------------------------------------------------------- cancellation


def test_cancelling_closes_the_operation_and_drops_the_late_answer(network, driver):
    seen = []

    def operation():
        try:
            yield Invoke(A, REQUEST, 3.0)
        except GeneratorExit:
            seen.append(driver.clock())
            raise

    task = driver.spawn(operation())
    driver.clock.advance(0.125)
    task.cancel()
    task.cancel()
    driver.clock.advance(5.0)
    assert seen == [0.125]
    assert task.done
    assert network.brokers[A].unanswered == 0


def test_an_operation_that_waits_while_it_is_closed_is_told(driver):
    def stubborn():
        try:
            yield Invoke(A, REQUEST, 3.0)
        except GeneratorExit:
            yield from sleep(9.0)

    task = driver.spawn(stubborn())
    with pytest.raises(OperationRuleError, match="while being closed"):
        task.cancel()


# ---------------------------------------------------------------------------- rules


def test_waiting_while_holding_a_lock_is_told(driver):
    lock = driver.make_lock("the route lock")

    def operation():
        with lock:
            yield from sleep(1.0)

    with pytest.raises(OperationRuleError, match=r"holds the route lock while waiting for Sleep"):
        driver.run(operation())


def test_ending_while_holding_a_lock_is_told(driver):
    lock = driver.make_lock()

    def operation():
        yield from sleep(1.0)
        lock.__enter__()

    with pytest.raises(OperationRuleError, match="holds the lock at its end"):
        driver.run(operation())


def test_taking_a_lock_twice_is_told():
    lock = SimulatedLock("the lock")
    with pytest.raises(OperationRuleError, match="taken twice"), lock, lock:
        pass
    assert not lock.held


def test_waiting_inside_finally_is_told_even_in_an_inner_operation(driver):
    def inner():
        try:
            yield from sleep(1.0)
        finally:
            yield from sleep(2.0)

    def outer():
        return (yield from inner())

    with pytest.raises(OperationRuleError, match="inner waits inside finally"):
        driver.run(outer())


def test_waiting_after_finally_or_in_except_is_allowed(driver):
    def operation():
        try:
            yield from sleep(1.0)
        except ValueError:
            yield from sleep(2.0)
        finally:
            done = True
        yield from sleep(3.0)
        return done

    assert driver.run(operation())


# ---------------------------------------------------------------------------- faults


def outcome(driver, request=REQUEST, address=A, timeout=3.0):
    began = driver.clock()
    try:
        reply = driver.run(invoke(address, request, began + timeout))
    except (ConnectFailedError, ConnectionLostError, RequestTimeoutError) as error:
        return type(error).__name__, error.written, driver.clock() - began
    return reply.code, reply.remark, driver.clock() - began


@pytest.mark.parametrize(
    ("fault", "expected", "beat"),
    [
        (Slow(0.5), (0, None, 0.75), 0.75),
        (Slow(0.5, heartbeats=False), (0, None, 0.75), 0.25),
        (Hang(), ("RequestTimeoutError", True, 3.0), 3.0),
        (Reset(after=0.5), ("ConnectionLostError", True, 0.5), 0.5),
        (Answer(2, "busy"), (2, "busy", 0.25), 0.25),
        (Unreachable(), ("RequestTimeoutError", False, 3.0), 3.0),
    ],
)
def test_what_a_fault_does_to_requests(network, driver, fault, expected, beat):
    network.brokers[A].break_now(fault)
    assert outcome(driver) == expected
    assert outcome(driver, BEAT)[2] == pytest.approx(beat)
    network.brokers[A].heal()
    assert outcome(driver)[0] == 0


def test_busy_brokers_answer_heartbeats_unless_told_otherwise(network, driver):
    network.brokers[A].break_now(Answer(2))
    assert outcome(driver, BEAT)[0] == 0
    network.brokers[A].break_now(Answer(2, heartbeats=True))
    assert outcome(driver, BEAT)[0] == 2


def test_a_broker_that_goes_away_loses_what_is_under_way_and_refuses_the_rest(network, driver):
    task = driver.spawn(invoke(A, REQUEST, 3.0))
    network.brokers[A].break_between(0.125, 1.0, Refuse())
    driver.clock.run_until(0.125)
    driver.clock.run_until(0.2)
    with pytest.raises(ConnectionLostError):
        task.result()
    with pytest.raises(ConnectFailedError) as caught:
        driver.run(invoke(A, REQUEST, 3.0))
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    driver.clock.run_until(1.0)
    assert outcome(driver)[0] == 0


def test_what_thaws_is_answered_when_the_freeze_is_over(network, driver):
    network.brokers[A].break_between(0.0, 1.5, Hang(thaws=True))
    driver.clock.advance(0.001)
    reply = driver.run(invoke(A, REQUEST, 3.0))
    assert (reply.code, driver.clock()) == (0, 1.5)


def test_a_pause_of_the_process_delays_reading_but_not_the_network(driver):
    driver.clock.call_at(0.125, lambda: driver.clock.pause_until(2.0))
    reply = driver.run(invoke(A, REQUEST, 3.0))
    assert reply.arrived == 2.0


def test_latencies_vary_within_their_bounds():
    network = SimulatedNetwork(seed=3)
    draw = with_pauses(0.01, share=0.1, shortest=0.5, longest=0.6, spread=0.5)
    drawn = [draw(network.random) for _ in range(2_000)]
    paused = [latency for latency in drawn if latency > 0.1]
    assert 100 < len(paused) < 300
    assert all(0.505 <= latency <= 0.615 for latency in paused)
    assert all(0.005 <= latency <= 0.015 for latency in drawn if latency not in paused)


def test_answers_may_be_made_by_a_function():
    network = SimulatedNetwork(
        respond=lambda request, code: Reply(
            Command(code + request.code, {}, b"body").head(0)[4:] + b"body"
        )
    )
    network.add_broker(A)
    reply = SimulatedDriver(network).run(invoke(A, REQUEST, 3.0))
    assert (reply.code, reply.body) == (310, b"body")


def test_two_networks_with_one_seed_behave_alike():
    def run(seed):
        network = SimulatedNetwork(seed)
        network.add_broker(A, latency=with_pauses(0.01, share=0.2, shortest=0.1, longest=0.2))
        driver = SimulatedDriver(network)
        for _ in range(50):
            driver.run(invoke(A, REQUEST, driver.clock() + 3.0))
        return driver.clock()

    assert run(1) == run(1) != run(2)


def test_a_list_of_requests_can_be_abandoned(network, driver):
    def operation():
        yield InvokeAll(tuple(Invoke(address, REQUEST, 3.0) for address in (A, B)))

    task = driver.spawn(operation())
    task.cancel()
    driver.clock.advance(1.0)
    assert network.brokers[A].unanswered == network.brokers[B].unanswered == 0
