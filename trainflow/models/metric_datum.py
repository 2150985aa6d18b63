"""One value of one metric, before it becomes a request to CloudWatch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Datum:
    """One value of one metric."""

    metric: str
    dimension: str
    """Name of the dimension beside the deployment."""
    of: str
    """Value of the dimension: a run's id, a cluster's name."""
    value: float
    at: datetime
    unit: str = "None"
    every_second: bool = False
    """Kept by the second, for three hours; otherwise by the minute."""
