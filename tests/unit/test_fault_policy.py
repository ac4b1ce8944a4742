import math
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from rocketwire.errors import ConfigError
from rocketwire.fault_policy import FaultPolicy

NUMBERS = [item.name for item in fields(FaultPolicy) if item.type in ("float", "int")]


def test_the_defaults_are_those_of_the_rules():
    policy = FaultPolicy()
    assert {name: getattr(policy, name) for name in NUMBERS} == {
        "bytes_per_second": 10_000_000.0,
        "smoothing": 0.1,
        "relative": 4.0,
        "floor": 0.02,
        "min_samples": 5,
        "pause_relative": 4.0,
        "pause_floor": 0.02,
        "lone_weight": 0.02,
        "slow_factor": 4.0,
        "failure_isolation": 0.5,
        "backoff": 2.0,
        "max_isolation": 30.0,
        "max_busy_isolation": 10.0,
        "clear_after_sends": 20,
        "clear_after": 10.0,
        "clear_factor": 2.0,
        "suspect_relative": 10.0,
        "suspect_floor": 0.1,
        "probe_timeout": 0.5,
        "probe_interval": 1.0,
        "probe_steady": 20.0,
        "probe_growth": 1.5,
        "probe_max_interval": 10.0,
        "probe_jitter": 0.5,
        "trial_interval": 30.0,
        "trial_sends": 2,
        "max_slow_share": 0.5,
        "steady_after": 60.0,
        "window": 256,
        "failure_latency": 30.0,
    }
    assert (policy.mode, policy.expected, policy.latency_table) == ("adaptive", {}, ())


def test_the_presets_have_java_s_tables():
    assert FaultPolicy.java4().latency_table == (
        (0.05, 0), (0.1, 0), (0.55, 30), (1, 60), (2, 120), (3, 180), (15, 600),
    )  # fmt: skip
    assert FaultPolicy.java5().latency_table == (
        (0.05, 0), (0.1, 0), (0.55, 2), (1.8, 5), (3, 6), (5, 10), (15, 30),
    )  # fmt: skip
    assert FaultPolicy.java4().failure_latency == 30.0
    assert FaultPolicy.java5().failure_latency == 10.0


def test_only_some_policies_probe():
    assert FaultPolicy().probes
    assert FaultPolicy.java5(detector=True).probes
    for policy in (FaultPolicy.java4(), FaultPolicy.java5(), FaultPolicy.off()):
        assert not policy.probes


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("on", FaultPolicy()),
        ("adaptive", FaultPolicy()),
        (" OFF ", FaultPolicy.off()),
        ("java4", FaultPolicy.java4()),
        ("Java5", FaultPolicy.java5()),
        ("java5-detector", FaultPolicy.java5(detector=True)),
    ],
)
def test_policies_have_names(name, policy):
    assert FaultPolicy.named(name) == policy


def test_an_unknown_name_is_refused_with_the_choice():
    with pytest.raises(ConfigError, match=r"'java6'.*default, java4, java5, java5-detector, off"):
        FaultPolicy.named("java6")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1", None, True])
def test_every_number_is_checked_and_named(name, value):
    with pytest.raises(ConfigError, match=f"fault policy: {name} is"):
        FaultPolicy(**{name: value})


@pytest.mark.parametrize(
    "name", sorted(set(NUMBERS) - {"probe_jitter", "max_slow_share", "clear_after"})
)
def test_zero_is_refused_where_it_makes_no_sense(name):
    with pytest.raises(ConfigError, match=f"fault policy: {name} is 0"):
        FaultPolicy(**{name: 0})


@pytest.mark.parametrize("name", ["probe_jitter", "max_slow_share", "clear_after"])
def test_zero_is_allowed_where_it_means_none(name):
    assert getattr(FaultPolicy(**{name: 0}), name) == 0


@pytest.mark.parametrize("name", ["relative", "backoff", "probe_growth", "suspect_relative"])
def test_factors_are_one_or_more(name):
    assert getattr(FaultPolicy(**{name: 1}), name) == 1
    with pytest.raises(ConfigError, match="a factor below 1"):
        FaultPolicy(**{name: 0.99})


@pytest.mark.parametrize("name", ["smoothing", "probe_jitter", "max_slow_share"])
def test_parts_are_at_most_one(name):
    assert getattr(FaultPolicy(**{name: 1}), name) == 1
    with pytest.raises(ConfigError, match="between 0 and 1"):
        FaultPolicy(**{name: 1.01})


@pytest.mark.parametrize("name", ["min_samples", "trial_sends", "clear_after_sends", "window"])
def test_counts_are_whole(name):
    with pytest.raises(ConfigError, match="give a whole number"):
        FaultPolicy(**{name: 1.5})


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        (0.04, "give seconds by broker name"),
        ({1: 0.04}, "a broker's name is a str"),
        ({"a": -0.1}, r"expected\['a'\] is -0.1"),
        ({"a": "x"}, r"expected\['a'\] is 'x'"),
        ({"a": True}, r"expected\['a'\] is True"),
        ({"a": math.inf}, r"expected\['a'\] is inf"),
    ],
)
def test_expected_is_seconds_by_name(expected, problem):
    with pytest.raises(ConfigError, match=problem):
        FaultPolicy(expected=expected)


def test_expected_is_copied():
    given = {"a": 0.04}
    policy = FaultPolicy(expected=given)
    given["a"] = 9.0
    assert policy.expected == {"a": 0.04}


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (5, "give rows"),
        ([1, 2], "give rows"),
        ([(1, "x")], "give rows"),
        ([(0.1, 0), (0.1, 1)], "must rise"),
        ([(0.2, 0), (0.1, 1)], "must rise"),
        ([(0.2, -1)], "not finite"),
        ([(math.nan, 1)], "not finite"),
    ],
)
def test_a_latency_table_is_checked(table, problem):
    with pytest.raises(ConfigError, match=problem):
        FaultPolicy(mode="java4", latency_table=table)


def test_java_s_modes_need_a_table():
    with pytest.raises(ConfigError, match=r"FaultPolicy.java5\(\) has Java's"):
        FaultPolicy(mode="java5")


def test_mode_and_detector_are_checked():
    with pytest.raises(ConfigError, match="mode is 'fast'; it is one of adaptive, java4"):
        FaultPolicy(mode="fast")
    with pytest.raises(ConfigError, match="give True or False"):
        FaultPolicy(detector="yes")


def test_a_policy_is_a_frozen_value():
    policy = FaultPolicy(expected={"a": 0.1})
    with pytest.raises(FrozenInstanceError):
        policy.floor = 1.0
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert hash(policy) == hash(replace(policy))
    assert policy != replace(policy, floor=0.03)


@pytest.mark.parametrize("preset", [FaultPolicy.java4, FaultPolicy.java5])
def test_a_preset_takes_a_table_of_the_users_own(preset):
    table = ((0.1, 1.0), (0.2, 5.0))
    assert preset(latency_table=table).latency_table == table
    assert preset(latency_table=list(table)) == preset(latency_table=table)
    assert preset().latency_table != table
