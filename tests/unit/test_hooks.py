"""Hooks that would never be called."""

import pytest

from rocketwire.hooks import HookSet


@pytest.mark.parametrize(
    ("method", "meant"),
    [
        ("after_sends", "after_send"),
        ("afterSend", "after_send"),
        ("on_after_send", "after_send"),
        ("broker_isolate", "broker_isolated"),
        ("dead_letter", "dead_lettered"),
        ("route_change", "route_changed"),
    ],
)
def test_a_method_that_is_nearly_one_of_ours_is_warned_about_once(method, meant, caplog):
    hook = type("Watcher", (), {method: lambda self, event: None})()
    for _ in range(2):
        HookSet([hook, hook])
    (record,) = caplog.records
    assert record.getMessage() == (
        f"the hook Watcher has a method {method}, which is never called; did you mean {meant}?"
    )


@pytest.mark.parametrize("method", ["after_send", "close", "report", "_after_sends", "write"])
def test_other_methods_are_nobodys_business(method, caplog):
    HookSet([type("Watcher", (), {method: lambda self, event: None})()])
    assert not caplog.records
