"""Producers in virtual time."""

from rocketwire.testing.simulated_producer import ROUTE_REFRESH, settings


def test_settings_for_virtual_time_warn_nobody(caplog):
    # The lab told its users of a route_refresh that looked like milliseconds, and was its own.
    assert settings(group="lab", retries=1).route_refresh == ROUTE_REFRESH
    assert settings(route_refresh=5.0).route_refresh == 5.0
    assert caplog.records == []
