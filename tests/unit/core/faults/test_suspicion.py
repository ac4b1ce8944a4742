"""Rule 4: who is suspect, and what the hot path need not look at. Times are dyadic fractions where a boundary is tested,
so that arithmetic is exact."""

import pytest
from tests.fault_lab import FaultLab

from rocketwire.core.faults.judgement import LOOK_AGAIN
from rocketwire.core.faults.selection import TopicQueues
from rocketwire.fault_policy import FaultPolicy

MS = 1 / 1024
EXACT = FaultPolicy(floor=16 * MS, suspect_floor=128 * MS, pause_floor=16 * MS)


def exact_lab(typical=2 * MS, **options):
    lab = FaultLab(EXACT, **options)
    lab.warm_up(typical)
    return lab


# ---------------------------------------------------------------------------- rule 4


@pytest.mark.parametrize(
    ("typical", "age", "suspect"),
    [
        (2 * MS, 128 * MS, False),  # the floor
        (2 * MS, 129 * MS, True),
        (16 * MS, 160 * MS, False),  # ten times typical
        (16 * MS, 161 * MS, True),
    ],
)
def test_suspicion_is_by_the_age_of_the_oldest_request(typical, age, suspect):
    lab = exact_lab(typical)
    lab.start("broker-a")
    lab.wait(age / 2)
    lab.start("broker-a")
    lab.wait(age / 2)
    assert ("broker-a" not in lab.chosen()) == suspect
    assert lab.state("broker-a") == ("suspect" if suspect else "usable")


def test_ten_times_and_a_tenth_of_a_second_are_the_defaults():
    policy = FaultPolicy()
    assert (policy.suspect_relative, policy.suspect_floor) == (10.0, 0.1)


def test_the_allowance_delays_suspicion():
    lab = FaultLab()
    lab.warm_up()
    lab.start("broker-a", size=5_000_000)
    lab.wait(0.59)
    assert "broker-a" in lab.chosen()
    lab.wait(0.02)
    assert "broker-a" not in lab.chosen()


def test_without_a_typical_latency_there_is_no_suspicion():
    lab = FaultLab()
    lab.start("broker-a")
    lab.wait(60.0)
    assert "broker-a" in lab.chosen()


@pytest.mark.parametrize("end", ["answered", "settled", "cancelled"])
def test_suspicion_ends_with_the_request(end):
    lab = FaultLab(brokers=("broker-a", "broker-b"))
    lab.warm_up()
    attempt = lab.start("broker-a")
    lab.wait(0.2)
    assert lab.chosen() == {"broker-b"}
    if end == "cancelled":
        lab.table.cancelled(attempt)
    elif end == "settled":
        lab.table.settled(attempt, lab.now)
    else:
        lab.table.replied(attempt, lab.now, 17)
    assert lab.chosen() == {"broker-a", "broker-b"}
    assert lab.health("broker-a").why == ""


def test_suspicion_passes_to_the_next_oldest_request():
    lab = FaultLab()
    lab.warm_up()
    first, second = lab.start("broker-a"), lab.start("broker-a")
    lab.wait(0.2)
    assert "broker-a" not in lab.chosen()
    lab.table.cancelled(first)
    assert "broker-a" not in lab.chosen()
    lab.table.cancelled(second)
    assert "broker-a" in lab.chosen()


def test_suspicion_of_the_next_oldest_request_comes_when_it_is_due():
    """It came up to 100 ms late: while a broker is suspect, the table looks again only then."""
    lab = FaultLab()
    lab.warm_up()
    first = lab.start("broker-a")
    lab.wait(0.06)
    lab.start("broker-a")
    lab.wait(0.05)
    assert "broker-a" not in lab.chosen()  # 110 ms: the first one is overdue
    lab.table.cancelled(first)
    assert "broker-a" in lab.chosen()
    lab.wait(0.051)
    assert "broker-a" not in lab.chosen()  # 101 ms: so is the second one


def test_a_good_answer_to_a_later_attempt_ends_suspicion():
    lab = FaultLab()
    lab.warm_up()
    lab.start("broker-a")
    lab.wait(0.2)
    assert "broker-a" not in lab.chosen()
    lab.answer("broker-a")
    assert "broker-a" in lab.chosen()
    assert lab.health("broker-a").in_flight == 1
    lab.wait(10.0)
    assert "broker-a" in lab.chosen()


def test_a_good_answer_to_an_earlier_attempt_does_not_end_suspicion():
    lab = FaultLab(EXACT)
    lab.warm_up(16 * MS)
    early = lab.start("broker-a")
    lab.wait(MS)
    lab.start("broker-a", size=100)
    lab.wait(62 * MS)
    lab.table.answered(early, lab.now)  # 63 ms are good: under four times 16
    lab.wait(200 * MS)
    assert "broker-a" not in lab.chosen()


def test_suspicion_says_how_long_it_has_waited():
    lab = FaultLab()
    lab.warm_up()
    lab.start("broker-a")
    lab.wait(0.7)
    assert lab.health("broker-a").why == "no answer for 0.7 s"


def test_suspicion_is_noticed_while_others_keep_the_table_busy():
    lab = FaultLab()
    lab.warm_up()
    lab.start("broker-a")
    hits = []
    for _ in range(200):
        broker = lab.choose()
        if broker == "broker-a":
            hits.append(lab.now)
            lab.start(broker)
        else:
            lab.answer(broker)
    assert hits
    assert max(hits) - min(hits) < 0.11


def test_a_request_written_again_is_the_youngest():
    lab = exact_lab()
    first, second = lab.start("broker-a"), lab.start("broker-a")
    lab.wait(64 * MS)
    first.written(lab.now, 0)
    lab.wait(80 * MS)
    assert lab.state("broker-a") == "suspect"  # the second one is 144 ms old
    lab.table.cancelled(second)
    assert lab.state("broker-a") == "usable"  # the first one only 80 ms


def test_requests_written_at_the_moment_of_the_proof_still_count():
    lab = exact_lab()
    lab.start("broker-a")
    together = lab.start("broker-a")
    lab.wait(2 * MS)
    lab.table.answered(together, lab.now)
    lab.wait(128 * MS)
    assert lab.state("broker-a") == "suspect"


# ---------------------------------------------------------------------------- the hot path


@pytest.mark.parametrize("policy", [EXACT, FaultPolicy.java4(), FaultPolicy.off()])
def test_while_nothing_changes_a_choice_is_taken_from_memory(policy, monkeypatch):
    lab = FaultLab(policy)
    lab.warm_up(MS)
    lab.chosen()
    if policy is EXACT:
        lab.fail("broker-b")
        lab.chosen()

    def unwanted(*_):
        raise AssertionError("the whole choice was made again")

    monkeypatch.setattr(TopicQueues, "_best", unwanted)
    assert len(lab.chosen()) == (2 if policy is EXACT else 3)


def test_a_look_at_the_clock_leaves_well_brokers_alone():
    lab = exact_lab()
    lab.start("broker-a")
    lab.start("broker-b")
    lab.table.refresh(lab.now)

    def unwanted(*_):
        raise AssertionError("the judge was asked")

    lab.table._judge.answered = unwanted
    lab.answer("broker-a", 2 * MS)


def test_while_all_is_well_answers_and_choices_need_no_judgement():
    lab = FaultLab(EXACT)
    lab.warm_up(MS, answers=1)
    lab.chosen()

    def unwanted(*_):
        raise AssertionError("the judge was asked")

    lab.table._judge.answered = unwanted
    lab.table._judge.released = unwanted
    lab.table._judge.refresh = unwanted
    lab.table.allowed = unwanted
    for _ in range(20):
        lab.answer(lab.choose(), 2 * MS)
    lab.answer("broker-a", 16 * MS)  # exactly the floor can't be slow either


def test_off_answers_need_no_judgement_from_the_second_on():
    lab = FaultLab(FaultPolicy.off())
    lab.warm_up(answers=1)
    lab.chosen()

    def unwanted(*_):
        raise AssertionError("the judge was asked")

    lab.table._judge.answered = unwanted
    lab.table.allowed = unwanted
    lab.answer(lab.choose(), 20.0)


def test_an_answer_of_another_epoch_is_judged_however_quick():
    lab = FaultLab(probing=False)
    lab.warm_up()
    late = lab.start("broker-a")
    lab.fail("broker-a")
    for _ in range(25):
        lab.wait(0.5)
        lab.answer("broker-a", 0.004)
    assert lab.health("broker-a").record == 0
    before = lab.health("broker-a").smoothed
    late.written(lab.now, 0)
    lab.table.answered(late, lab.now)
    assert lab.health("broker-a").smoothed == before


def test_the_next_look_is_never_in_the_past():
    lab = exact_lab()
    watch = lab.table.watch
    assert lab.now < watch.at <= lab.now + 128 * MS
    lab.start("broker-a")
    assert lab.now < watch.at <= lab.now + 128 * MS
    lab.wait(256 * MS)
    assert lab.state("broker-a") == "suspect"
    assert watch.at > lab.now
    lab.start("broker-b")
    assert watch.at == lab.now + 128 * MS


def test_java_has_no_next_look_before_an_isolation_ends():
    for policy in (FaultPolicy.java4(), FaultPolicy.off()):
        lab = FaultLab(policy)
        lab.start("broker-a")
        assert lab.table.watch.at == float("inf")


def test_a_version_is_never_used_twice():
    lab = FaultLab()
    seen = []

    def note():
        version = lab.table.watch.version
        assert not seen or version >= seen[-1]
        seen.append(version)

    lab.warm_up()
    note()
    steps = [
        lambda: lab.fail("broker-a"),
        lambda: lab.probe("broker-a"),
        lambda: lab.answer("broker-a"),
        lambda: lab.answer("broker-a"),
        lambda: lab.start("broker-b"),
        lambda: lab.wait(0.2),
        lambda: lab.table.snapshot(lab.now),
        lambda: lab.table.reset("broker-c"),
        lambda: lab.answer("broker-c"),
        lambda: lab.table.forget("broker-a"),
        lambda: lab.table.retain(["broker-c"]),
    ]
    for step in steps:
        step()
        note()
    assert len(set(seen)) >= 9


def test_each_change_of_java_s_table_makes_a_new_version():
    lab = FaultLab(FaultPolicy.java5())
    versions = [lab.table.watch.version]
    for _ in range(3):
        lab.fail("broker-a")
        versions.append(lab.table.watch.version)
        lab.answer("broker-a")
        versions.append(lab.table.watch.version)
    assert versions == sorted(set(versions))


def test_state_of_is_the_state_in_one_word():
    lab = FaultLab()
    lab.warm_up()
    assert lab.table.state_of("never seen") == lab.table.state_of("broker-a") == "usable"
    lab.fail("broker-a")
    assert lab.table.state_of("broker-a") == "isolated"
    lab.start("broker-b")
    lab.wait(0.2)
    lab.table.refresh(lab.now)
    assert lab.table.state_of("broker-b") == "suspect"
    lab.probe("broker-a")
    assert lab.table.state_of("broker-a") == "trial"


def test_a_failure_leaves_a_broker_suspect_for_what_else_it_owes():
    lab = exact_lab()
    lab.start("broker-a")
    lab.wait(64 * MS)
    second = lab.start("broker-a")
    lab.wait(128 * MS)
    assert lab.state("broker-a") == "suspect"
    second.epoch -= 1  # so that its failure is no verdict
    lab.table.failed(second, lab.now, "closed the connection")
    assert lab.table.state_of("broker-a") == "suspect"


def test_suspicion_is_looked_for_again_at_its_moment_or_soon():
    lab = exact_lab()
    lab.start("broker-a")
    lab.table.refresh(lab.now)
    assert lab.table.watch.at == lab.now + LOOK_AGAIN
    began = lab.now
    lab.wait(124 * MS)  # in 4 ms it would be suspect
    lab.table.refresh(lab.now)
    assert lab.table.watch.at == began + 128 * MS


def test_a_suspect_is_looked_at_again_after_the_time_of_one_suspicion():
    lab = exact_lab()
    lab.start("broker-a")
    lab.wait(129 * MS)
    lab.table.refresh(lab.now)
    assert lab.table.watch.at == lab.now + 128 * MS


def test_the_soonest_of_all_brokers_decides_when_to_look_again():
    lab = exact_lab(probing=False)
    lab.fail("broker-a")
    end = lab.health("broker-a").until
    lab.wait(end - lab.now - 4 * MS)
    lab.start("broker-b")  # looked at again in 10 ms, which is later
    lab.table.refresh(lab.now)
    assert lab.table.watch.at == end


def test_time_has_its_effect_at_the_very_moment():
    lab = exact_lab(probing=False)
    lab.fail("broker-a")
    lab.fail("broker-b")
    lab.fail("broker-c")
    lab.chosen()
    refreshed = []
    judge = lab.table._judge
    ordinary = judge.refresh
    judge.refresh = lambda now: refreshed.append(now) or ordinary(now)
    at = lab.table.watch.at
    lab.view.another_usable("broker-b", at)
    assert refreshed == [at]
