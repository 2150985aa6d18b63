"""Policies for a scheduled time when the schedule's previous run is still active."""

from __future__ import annotations

from typing import Literal

Overlap = Literal["allow", "skip", "queue"]
