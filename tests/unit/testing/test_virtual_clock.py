import math

from rocketwire.testing.virtual_clock import VirtualClock


def recorder(clock):
    seen = []
    return seen, lambda name: lambda: seen.append((name, clock()))


def test_time_stands_still_until_it_is_moved():
    clock = VirtualClock(start=5.0)
    assert clock() == clock() == 5.0
    clock.advance(1.5)
    assert clock() == 6.5


def test_things_happen_in_the_order_of_their_moments_and_then_of_their_making():
    clock = VirtualClock()
    seen, note = recorder(clock)
    clock.call_at(2.0, note("late"))
    clock.call_at(1.0, note("first"))
    clock.call_at(1.0, note("second"))
    clock.run_until(2.0)
    assert seen == [("first", 1.0), ("second", 1.0), ("late", 2.0)]


def test_a_moment_that_has_passed_means_now():
    clock = VirtualClock(start=10.0)
    seen, note = recorder(clock)
    clock.call_at(3.0, note("x"))
    assert clock.step()
    assert seen == [("x", 10.0)]


def test_what_is_cancelled_does_not_happen():
    clock = VirtualClock()
    seen, note = recorder(clock)
    timer = clock.call_at(1.0, note("x"))
    assert timer.pending
    timer.cancel()
    timer.cancel()
    assert not timer.pending
    clock.run_until(5.0)
    assert seen == []


def test_never_is_a_moment_that_does_not_come():
    clock = VirtualClock()
    timer = clock.call_at(math.inf, lambda: None)
    assert timer.pending
    assert not clock.step()


def test_run_while_stops_when_the_condition_ends_or_nothing_is_left():
    clock = VirtualClock()
    seen, note = recorder(clock)
    for moment in (1.0, 2.0, 3.0):
        clock.call_at(moment, note(moment))
    clock.run_while(lambda: len(seen) < 2)
    assert clock() == 2.0
    clock.run_while(lambda: True)
    assert clock() == 3.0


def test_what_happens_may_make_more_happen():
    clock = VirtualClock()
    seen, note = recorder(clock)
    clock.call_at(1.0, lambda: clock.call_at(clock() + 1.0, note("inner")))
    clock.run_until(2.0)
    assert seen == [("inner", 2.0)]


def test_a_pause_defers_only_what_is_pausable_and_keeps_its_order():
    clock = VirtualClock()
    seen, note = recorder(clock)
    clock.call_at(1.0, lambda: clock.pause_until(2.0))
    clock.call_at(1.2, note("read one"), pausable=True)
    clock.call_at(1.5, note("arrives"))
    clock.call_at(1.6, note("read two"), pausable=True)
    clock.call_at(2.5, note("later"), pausable=True)
    clock.run_until(3.0)
    assert seen == [("arrives", 1.5), ("read one", 2.0), ("read two", 2.0), ("later", 2.5)]
