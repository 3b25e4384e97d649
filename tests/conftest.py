"""Settings for all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A slow machine is no failure. In CI the examples are the same in each run: a red run can be had again.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
