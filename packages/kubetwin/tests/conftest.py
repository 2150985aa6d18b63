"""Settings of all tests of the package."""

from __future__ import annotations

from hypothesis import settings

# The speed of a machine is no property of the code: no deadline.
settings.register_profile("kubetwin", deadline=None, max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=1000)  # make nightly
settings.load_profile("kubetwin")
