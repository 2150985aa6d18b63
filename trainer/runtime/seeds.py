"""Seeds for everything random: functions of what is being done, so that no state has to be kept."""

from __future__ import annotations

import numpy as np

ROUNDING = 1
"""Fourth number of a seed for rounding, where dropout's seeds have three."""


def derived(*numbers: int) -> int:
    """A seed that depends on all of these numbers and on nothing else."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint32)[0])
