"""Settings for all tests."""

from __future__ import annotations

import os
import sys

from hypothesis import HealthCheck, settings

# A slow machine is no failure. In CI the examples are the same in each run: a red run can be had again.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# An activated virtual environment puts servers from wheels in front of the distribution's. Here each flavour
# has its own name, and what PATH finds is the distribution's.
_OWN_PROGRAMS = os.path.join(sys.prefix, "bin")
os.environ["PATH"] = os.pathsep.join(
    folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if folder != _OWN_PROGRAMS
)
