"""The benchmark `recovery`: all classes of failures, the goals, and the weights at the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from benchmarks.recovery import ranks, runs
from benchmarks.recovery.parts import BEYOND, LOAD, Trials, medians
from benchmarks.result import BenchmarkFailed, Result, this_machine

RANK_TRIALS = 8
RUN_TRIALS = 3
"""Twenty recoveries by our means, together with the ranks' in the pods: all end with the same weights."""

GOALS: Mapping[str, float] = {
    **dict.fromkeys((ranks.IN_PODS, runs.DEAD_RANK), 8.0),
    runs.DEAD_POD: 12.0,
    runs.DEAD_NODE_WITH_SPARE: 20.0,
}
"""Most seconds beyond the program's own import and load."""


def run() -> Result:
    """Measure both kinds.

    Raises:
        BenchmarkFailed: If a training does not begin, or if two trainings have other weights at their last step.
    """
    load = {"before": os.getloadavg()[1]}
    by_rank = ranks.kill_ranks(RANK_TRIALS)
    require_equal({ranks.calm_weight()}, by_rank)
    load["between"] = os.getloadavg()[1]
    by_run = runs.kill_runs(RUN_TRIALS)
    require_equal({ranks.calm_weight(steps=runs.STEPS)}, by_run)
    load["after"] = os.getloadavg()[1]
    return summary({**by_rank, **by_run}, {**this_machine(), LOAD: load})


def require_equal(calm: set[str], found: Mapping[str, Trials]) -> None:
    """Require that all trainings have the weight of the calm one.

    Raises:
        BenchmarkFailed: If one differs.
    """
    weights = calm.union(*(trials.weights for trials in found.values()))
    if len(weights) != 1:
        raise BenchmarkFailed(f"The weights of the trials differ: {sorted(weights)}.")


def summary(found: Mapping[str, Trials], machine: Mapping[str, Any]) -> Result:
    """Medians of the parts, the goals, and the trials that did not recover."""
    seconds = {name: medians(trials.recovered) for name, trials in found.items()}
    ours, theirs = (seconds.get(name, {}).get("total") for name in ranks.LAUNCHERS)
    return Result(
        benchmark="recovery",
        ratios={"in_pods_to_torchrun": round(ours / theirs, 2)} if ours and theirs else {},
        seconds=seconds,
        machine=machine,
        details={
            "trials": {name: trials.counts() for name, trials in found.items()},
            "goals": {name: _judged(seconds[name], goal) for name, goal in GOALS.items() if seconds.get(name)},
            "same_weights": True,
        },
    )


def _judged(seconds: Mapping[str, float], goal: float) -> dict[str, Any]:
    return {"at most": goal, BEYOND: seconds[BEYOND], "reached": seconds[BEYOND] <= goal}
