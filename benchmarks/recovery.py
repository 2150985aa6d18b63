"""Measures recoveries by what has ended: seconds from the kill to the first new step, in parts.

A rank is killed under the supervisors of a gang and under plain `torchrun --max-restarts`; a rank, a pod and a node end
in the twin at time scale 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import killed_ranks, killed_runs
from benchmarks.killed_ranks import Trials
from benchmarks.recovery_parts import medians
from benchmarks.result import BenchmarkFailed, Result, this_machine

RANK_TRIALS = 20
RUN_TRIALS = 3


def run() -> Result:
    """Measure both kinds.

    Raises:
        BenchmarkFailed: If a training does not begin, or if two trainings have other weights at their last step.
    """
    ranks = killed_ranks.kill_ranks(RANK_TRIALS)
    require_equal({killed_ranks.calm_weight()}, ranks)
    runs = killed_runs.kill_runs(RUN_TRIALS)
    require_equal({killed_ranks.calm_weight(steps=killed_runs.STEPS)}, runs)
    return summary({**ranks, **runs}, this_machine())


def require_equal(calm: set[str], found: Mapping[str, Trials]) -> None:
    """Require that all trainings have the weight of the calm one.

    Raises:
        BenchmarkFailed: If one differs.
    """
    weights = calm.union(*(trials.weights for trials in found.values()))
    if len(weights) != 1:
        raise BenchmarkFailed(f"The weights of the trials differ: {sorted(weights)}.")


def summary(found: Mapping[str, Trials], machine: Mapping[str, Any]) -> Result:
    """Medians of the parts, and the trials that did not recover."""
    seconds = {name: medians(trials.recovered) for name, trials in found.items()}
    ours, theirs = (seconds[name].get("total") for name in killed_ranks.LAUNCHERS)
    return Result(
        benchmark="recovery",
        ratios={"in_pods_to_torchrun": round(ours / theirs, 2)} if ours and theirs else {},
        seconds=seconds,
        machine=machine,
        details={"trials": killed_ranks.summary(found), "same_weights": True},
    )
