"""Seeds for everything random: pure functions of their purpose, so that no generator's state has to be saved."""

from __future__ import annotations

import numpy as np

ROUNDING = 1
"""Fourth number of a seed for rounding; the seeds of dropout have three numbers."""


def derived(*numbers: int) -> int:
    """A seed that depends on all of these numbers and on nothing else."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint32)[0])
