"""Settings of all tests of the package."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kubetwin", deadline=None)  # the speed of a machine is no property of the code
settings.load_profile("kubetwin")
