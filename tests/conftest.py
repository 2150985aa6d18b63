"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("trainflow", deadline=None)  # how fast a machine is is no property of the code
settings.load_profile("trainflow")
