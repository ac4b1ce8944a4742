"""The policy lab without Spark: conditions, replays, verdicts, the page."""

from __future__ import annotations

import json
from datetime import UTC
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rocketwire.errors import ConfigError
from rocketwire.fault_policy import FaultPolicy
from rocketwire.spark.policy_lab.conditions import (
    PER_SECOND,
    QUANTILES,
    BadTime,
    Condition,
    Course,
    Incident,
    Sighting,
    incidents,
)
from rocketwire.spark.policy_lab.figures import Bounds, Cost, Tally, tally_from
from rocketwire.spark.policy_lab.findings import LabResult, figures_of
from rocketwire.spark.policy_lab.page import make_page
from rocketwire.spark.policy_lab.plots import _dot_names
from rocketwire.spark.policy_lab.policies import GRID, MOST, Candidate, candidates, describe
from rocketwire.spark.policy_lab.recorded import Recording, Trouble
from rocketwire.spark.policy_lab.replay import (
    Client,
    Period,
    RecordedBrokers,
    RecordedSend,
    Replay,
)
from rocketwire.spark.policy_lab.tasks import (
    MOST_SENDS,
    Plan,
    Worker,
    period_seconds,
    plan_for,
    warm_up_of,
)
from rocketwire.spark.policy_lab.verdict import bootstrap, judge

BEGIN = 1_760_000_000.0
USUAL = 0.002


def answers(latency: float, count: int = 5) -> Sighting:
    return Sighting(answers=count, latencies=(latency,) * len(QUANTILES))


WELL, SLOW = answers(USUAL), answers(0.3)
HUNG = Sighting(silent=3, waited=1.0)
GONE = Sighting(refused=4)


# -- policies ---------------------------------------------------------------------------------


def test_the_grid_tries_one_number_at_a_time_and_no_policy_twice() -> None:
    found = candidates()
    assert [one.name for one in found[:4]] == ["default", "java4", "java5", "off"]
    assert len(found) == 4 + sum(len(values) for values in GRID.values())
    assert len({one.policy for one in found}) == len(found)
    assert {name for one in found for name in one.changed} == set(GRID)
    assert [one.name for one in candidates(["default"], {"floor": [0.02, 0.05]})] == [
        "default",
        "floor 0.05",
    ]


def test_a_full_grid_has_all_combinations() -> None:
    grid = {"floor": [0.01, 0.05], "relative": [2, 8]}
    assert len(candidates(["off"], grid, is_full=True)) == 5


@pytest.mark.parametrize(
    ("policies", "grid", "blamed"),
    [
        (["fast"], {}, "'fast' is no fault policy"),
        (["off"], {"colour": [1.0]}, "'colour' is no number"),
        (["off"], {"floor": [-1.0]}, "floor"),
        (["off"], {"floor": [n / 1000 for n in range(1, MOST + 2)]}, "too many"),
        ([], {}, "nothing to compare"),
    ],
)
def test_wrong_policies_are_refused_with_the_remedy(policies: Any, grid: Any, blamed: str) -> None:
    with pytest.raises(ConfigError, match=blamed):
        candidates(policies, grid)


def test_a_policy_is_told_by_its_name_or_by_what_it_changes() -> None:
    assert describe(FaultPolicy.java4()) == "java4"
    assert describe(FaultPolicy(floor=0.05)) == "floor 0.05"


# -- conditions -------------------------------------------------------------------------------


def test_a_condition_draws_what_was_seen() -> None:
    latencies = tuple(0.001 * (1 + q) for q in QUANTILES)
    seen = Sighting(answers=8, latencies=latencies, refused=1, rejected=1, code=14)
    condition = Condition(seen, USUAL, is_best=True)
    random = Random(1).random
    drawn = [condition.draw(random) for _ in range(20_000)]
    codes = [code for _, code in drawn]
    assert codes.count(-1) / 20_000 == pytest.approx(0.1, abs=0.01)
    assert codes.count(14) / 20_000 == pytest.approx(0.1, abs=0.01)
    stored = sorted(delay for delay, code in drawn if code == 0)
    assert 0.001 <= stored[0] <= stored[-1] <= 0.002
    assert stored[len(stored) // 2] == pytest.approx(0.0015, rel=0.02)


@pytest.mark.parametrize(
    ("seen", "is_bad"),
    [
        (WELL, False), (answers(0.0079), False), (answers(0.03), True), (SLOW, True),
        (HUNG, True), (GONE, True), (Sighting(answers=3, latencies=WELL.latencies, lost=1), False),
    ],
)  # fmt: skip
def test_bad_is_what_fails_or_is_far_slower_than_usual(seen: Sighting, is_bad: bool) -> None:
    assert seen.is_bad(USUAL) is is_bad


def states(sightings: dict[int, Sighting], slots: int, *, is_best: bool) -> tuple[str, set[int]]:
    course = Course(sightings, slots, USUAL, is_best=is_best)
    return "".join("#" if c.is_bad else "." for c in course.conditions), course.unknown


def test_a_gap_between_good_sightings_is_good_in_both_cases() -> None:
    for is_best in (True, False):
        assert states({0: WELL, 60: WELL}, 61, is_best=is_best) == ("." * 61, set())


def test_a_short_gap_between_bad_sightings_is_bad_in_both_cases() -> None:
    for is_best in (True, False):
        assert states({0: SLOW, 15: SLOW}, 16, is_best=is_best) == ("#" * 16, set())


def test_a_long_gap_after_a_bad_sighting_is_bounded_by_both_cases() -> None:
    seen = {0: SLOW, 40: SLOW, 80: WELL}
    between = set(range(1, 40)) | set(range(41, 80))
    assert states(seen, 81, is_best=True) == ("#" + "." * 39 + "#" + "." * 40, between)
    assert states(seen, 81, is_best=False) == ("#" * 80 + ".", between)


def test_a_broker_that_nobody_ever_saw_is_well_or_dead() -> None:
    assert states({}, 3, is_best=True) == ("...", {0, 1, 2})
    assert states({}, 3, is_best=False) == ("###", {0, 1, 2})


def test_a_request_given_up_was_answered_right_then_or_never() -> None:
    random = Random(1).random
    assert Condition(HUNG, USUAL, is_best=True).draw(random) == (1.0, 0)
    assert Condition(HUNG, USUAL, is_best=False).draw(random) == (float("inf"), 0)


def test_incidents_are_lasting_slowness_or_any_failure_and_join_when_near() -> None:
    slow = [BadTime(slot) for slot in (100, 104, 130)]
    found = incidents({
        "a": slow,  # two within a second, and a third within five
        "b": [BadTime(110)],  # one pause, though in the time of an incident
        "c": [BadTime(500)],  # one pause
        "d": [BadTime(900, is_failing=True, more=10)],
    })  # fmt: skip
    assert found == [
        Incident(1, 10.0, pytest.approx(13.1), ("a",)),
        Incident(2, 90.0, pytest.approx(91.1), ("d",)),
    ]


# -- replays ----------------------------------------------------------------------------------


def sightings(bad: dict[str, tuple[int, int, Sighting]], seconds: int) -> Any:
    first = int(BEGIN * PER_SECOND)
    found = {name: {first + slot: WELL for slot in range(seconds * PER_SECOND)} for name in "abc"}
    for name, (begin, end, seen) in bad.items():
        for slot in range(begin * PER_SECOND, end * PER_SECOND):
            found[name][first + slot] = seen
    return found


def replayed(policy: FaultPolicy, bad: Any, *, is_best: bool = True, **changes: Any) -> Tally:
    incident = Incident(1, BEGIN + 10.0, BEGIN + 20.0, ("b",))
    period = Period(BEGIN, BEGIN + 5.0, BEGIN + 30.0, USUAL, (incident,), incident)
    brokers = RecordedBrokers(sightings(bad, 31), period, is_best=is_best, seed=1)
    client = Client(changes, {"t": dict.fromkeys("abc", 4)})
    sends = [RecordedSend(BEGIN + n / 100, "t") for n in range(3000)]
    return Replay(client, policy, brokers, period, seed=1).run(sends)


def test_only_sends_after_the_warm_up_are_counted() -> None:
    tally = replayed(FaultPolicy(), {})
    assert (tally.sends, tally.attempts, tally.failed) == (2500, 2500, 0)
    assert tally.lost == pytest.approx(0.0, abs=1e-3)
    assert sum(tally.by_broker.values()) == 2500
    assert tally.moved < 0.01
    assert tally.seconds == 25.0


def test_the_default_steps_around_a_slow_broker_where_java_does_not() -> None:
    bad = {"b": (10, 20, SLOW)}
    ours, java = replayed(FaultPolicy(), bad), replayed(FaultPolicy.java5(), bad)
    assert java.by_incident[1].lost == pytest.approx(1000 / 3 * 0.298, rel=0.1)
    assert ours.by_incident[1].lost < java.by_incident[1].lost / 10
    assert ours.stays["b"].rightly == pytest.approx(10.0, abs=1.0)
    assert ours.stays["b"].wrongly <= 2.0
    assert java.stays["b"].missed == pytest.approx(10.0, abs=1.0)
    assert ours.moved > 0.05 > java.moved
    assert any(out for _, _, out in ours.moments.values())
    assert max(slowest for _, slowest, _ in java.moments.values()) == pytest.approx(0.3, rel=0.1)


def test_a_hang_is_bounded_by_its_two_cases() -> None:
    bad = {"b": (10, 20, HUNG)}
    best, worst = (
        replayed(FaultPolicy.off(), bad, is_best=case, attempt_timeout=None)
        for case in (True, False)
    )
    assert best.failed == 0
    assert worst.failed > 200
    assert best.lost < worst.lost


def test_the_producer_s_own_retries_count() -> None:
    bad = dict.fromkeys("abc", (10, 20, GONE))
    few, many = (replayed(FaultPolicy.off(), bad, retries=n) for n in (0, 2))
    assert few.failed == many.failed > 900
    assert many.attempts > few.attempts + 1500


def test_a_worker_replays_both_cases_only_where_they_differ() -> None:
    incident = Incident(1, BEGIN + 10.0, BEGIN + 20.0, ("b",))
    worker = Worker(
        Plan(BEGIN, BEGIN + 30.0, 600.0, 1),
        [FaultPolicy.off()],
        {"one": Client({}, {"t": dict.fromkeys("abc", 4)})},
        USUAL,
        (incident,),
        None,
    )
    sends = {"one": [RecordedSend(BEGIN + n / 10, "t") for n in range(300)]}
    best, worst = worker.replay(0, 0, sends, sightings({"b": (10, 20, SLOW)}, 31))
    assert best.lost == worst.lost > 0
    best, worst = worker.replay(0, 0, sends, sightings({"b": (10, 20, HUNG)}, 31))
    assert best.attempts < worst.attempts


def test_a_worker_s_memory_bounds_the_length_of_a_period() -> None:
    assert period_seconds(3) == 600.0
    for brokers in range(1, 201):
        seconds = period_seconds(brokers) + warm_up_of(brokers)
        assert seconds * PER_SECOND * brokers <= 121_000


@pytest.mark.parametrize("rate", [10.0, 1000.0, 20_000.0])
@pytest.mark.parametrize("clients", [1, 3, 1000])
def test_no_task_has_more_sends_than_a_worker_holds(rate: float, clients: int) -> None:
    plan = plan_for(BEGIN, BEGIN + 3600, brokers=3, clients=clients, rate=rate)
    assert rate * (plan.seconds + plan.warm_up) / plan.buckets <= MOST_SENDS * 1.001
    assert plan.buckets <= clients
    assert plan.periods * plan.seconds == pytest.approx(3600, abs=plan.seconds)


# -- figures and verdicts -----------------------------------------------------------------------


def test_tallies_survive_json_and_add_up() -> None:
    tally = replayed(FaultPolicy(), {"b": (10, 20, SLOW)})
    read = tally_from(json.loads(json.dumps(tally.as_dict())))
    assert read == tally
    read.add(tally)
    assert read.sends == 2 * tally.sends
    assert read.quantile(0.99) == tally.quantile(0.99)
    assert read.cost([1], 3.0) == pytest.approx(2 * tally.cost([1], 3.0))


@pytest.mark.parametrize("latency", [0.0005, 0.002, 0.3, 3.0])
def test_quantiles_are_right_within_a_bar(latency: float) -> None:
    tally = Tally()
    for _ in range(10):
        tally.send(latency, 0.001, 0, is_failed=False)
    assert tally.quantile(0.5) == pytest.approx(latency, rel=0.07)


def bounds(*costs: float, worse: float = 0.0) -> Bounds:
    made = [
        Tally(by_incident={n: Cost(100, 0, cost + more) for n, cost in enumerate(costs, start=1)})
        for more in (0.0, worse)
    ]
    return Bounds(*made)


def judged(results: dict[str, Bounds], recorded: str | None = "old", count: int = 10) -> Any:
    return judge(results, recorded, range(1, count + 1), per_failure=3.0)


def test_a_policy_that_is_better_on_incidents_it_was_not_chosen_on_is_advised() -> None:
    old = bounds(*(10.0 + n for n in range(10)))
    verdict = judged({"old": old, "new": bounds(*[2.0] * 10)})
    assert (verdict.advice, verdict.chosen) == ("change", "new")
    assert verdict.interval[0] > 0
    assert "from old to new" in verdict.sentence


def test_a_policy_that_was_lucky_is_not_advised() -> None:
    """Forty policies that differ by chance alone: the best on one half is none on the other."""
    random = Random(7)
    results = {f"p{n}": bounds(*(random.uniform(5, 15) for _ in range(10))) for n in range(40)}
    results["old"] = bounds(*(random.uniform(5, 15) for _ in range(10)))
    assert judged(results).advice == "keep"


def test_where_unseen_times_decide_the_verdict_is_unknown() -> None:
    verdict = judged({"old": bounds(*[10.0] * 10), "new": bounds(*[2.0] * 10, worse=9.0)})
    assert verdict.advice == "unknown"
    assert "nobody saw" in verdict.why


def test_under_five_incidents_there_is_no_advice_and_it_says_why() -> None:
    verdict = judged({"old": bounds(9, 9, 9, 9), "new": bounds(1, 1, 1, 1)}, count=4)
    assert verdict.advice == "none"
    assert "4 incidents" in verdict.sentence
    assert "At least 5" in verdict.why


def test_without_a_known_policy_there_is_no_advice() -> None:
    assert judged({"new": bounds(*[1.0] * 10)}, None).advice == "none"


def test_the_recorded_policy_is_kept_when_it_is_as_good() -> None:
    same = {"a new one": bounds(*[2.0] * 10), "old": bounds(*[2.0] * 10)}
    assert judged(same).advice == "keep"


@pytest.mark.parametrize(("default", "advised"), [(1.2, "default"), (3.0, "slow_factor 8")])
def test_the_default_is_advised_where_another_is_hardly_better(
    default: float, advised: str
) -> None:
    results = {
        "old": bounds(*[10.0] * 10),
        "slow_factor 8": bounds(*[1.0] * 10),
        "default": bounds(*[default] * 10),
    }
    verdict = judged(results)
    assert (verdict.advice, verdict.chosen) == ("change", advised)


def test_the_recorded_policy_is_called_so_once() -> None:
    tally = bounds(1.0)
    named = {
        name: figures_of(Candidate(name, FaultPolicy(floor=0.1), {}), tally, name).title
        for name in ("java5", "recorded (floor 0.1)")
    }
    assert list(named.values()) == ["java5 (recorded)", "recorded (floor 0.1)"]


def test_a_bootstrap_interval_holds_the_mean() -> None:
    low, high = bootstrap([1.0, 2.0, 3.0, 4.0, 5.0], 1)
    assert 1.0 < low < 3.0 < high < 5.0


# -- the page ---------------------------------------------------------------------------------


def test_every_name_on_the_page_is_escaped() -> None:
    evil = "<script>alert('x')</script>"
    incident = Incident(1, BEGIN, BEGIN + 5.0, (evil,))
    tally = replayed(FaultPolicy(), {"b": (10, 20, SLOW)})
    tally.stays[evil] = tally.stays["b"]
    both = Bounds(tally, tally)
    chosen = Candidate(evil, FaultPolicy.java5(), {})
    result = LabResult(
        page=Path("p"),
        tables={},
        verdict=judged({evil: bounds(1, 1)}, evil, 2),
        policies=(figures_of(chosen, both, evil),),
        incidents=(incident,),
        attempts=1,
        replayed=1,
        trouble=(evil,),
        seconds=1.0,
    )
    recording: Any = Recording.__new__(Recording)
    recording.begin, recording.end = BEGIN, BEGIN + 30
    recording.clients, recording.brokers, recording.usual = {evil: Client()}, (evil,), USUAL
    page = make_page(result, {evil: both}, recording, incident, source=evil, zone=UTC)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "What a replay can&#x27;t know" in page or "What a replay can't know" in page


def test_trouble_is_told_with_its_count() -> None:
    told = Trouble(lines=10, unreadable=3, skewed=2).sentences()
    assert len(told) == 2
    assert told[0].startswith("3 lines could not be read")
    assert "clocks" in told[1]


def test_names_of_policies_at_one_place_are_one_label() -> None:
    names = [("java4", 0.80, 0.9, 0.0), ("off", 0.81, 0.9, 0.01), ("default", 0.2, 0.3, 0.5)]
    drawn = _dot_names(names)
    assert drawn.count("<span") == 2
    assert ">java4, off<" in drawn
    # To the right of its mark it would leave the drawing.
    assert 'class="dot-name before"' in drawn


def test_a_label_stands_beside_all_marks_that_it_names() -> None:
    drawn = _dot_names([("recorded", 0.40, 0.45, 0.0), ("java4", 0.44, 0.85, 0.0)])
    assert 'class="dot-name before" style="left:40.00%' in drawn
    assert ">recorded, java4<" in drawn
