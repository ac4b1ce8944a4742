"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test depends on time: a busy machine must not make one fail.
settings.register_profile("rocketwire", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rocketwire")
