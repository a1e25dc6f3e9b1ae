"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No property is judged by the clock: the first draw alone builds tables of all characters, which
# takes seconds on a busy machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
