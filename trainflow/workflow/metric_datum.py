"""One value of one metric, before it becomes a request to CloudWatch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

LARGEST = 2.0**360
"""Largest value that CloudWatch accepts (API reference, MetricDatum)."""


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

    @property
    def is_number(self) -> bool:
        """Whether CloudWatch accepts the value: it refuses NaN, infinities and very large numbers."""
        return math.isfinite(self.value) and abs(self.value) <= LARGEST
