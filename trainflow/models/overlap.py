"""What happens at a scheduled time while the schedule's previous run is going."""

from __future__ import annotations

from typing import Literal

Overlap = Literal["allow", "skip", "queue"]
