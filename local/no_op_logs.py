"""Lines of pods that run no program: `kubetwin node --no-op-log local.no_op_logs:log_lines` prints them.

Every run claims losses of its own, so that a test of many runs finds numbers that were mixed up.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from trainflow.protocol import variables
from trainflow.protocol.metrics_line import metrics_line

STEPS = 3


def step_loss(run_id: str, step: int) -> float:
    """The loss that rank 0 of a run claims at a step; different for every run."""
    return 1 + zlib.crc32(run_id.encode()) % 1_000_000 / 10_000 + step


def log_lines(pod: Mapping[str, Any]) -> Iterator[str]:
    """Run, pod and rank; from rank 0 of a training job also its steps, in the form of the tutorials."""
    environment = {entry["name"]: entry.get("value", "") for entry in pod["spec"]["containers"][0].get("env") or ()}
    run_id = environment.get(variables.RUN_ID, "")
    index = (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-completion-index", "0")
    yield f"run {run_id} pod {pod['metadata']['name']} rank {index}"
    if environment.get(variables.STAGE) != "training" or index != "0":
        return
    now = datetime.now(UTC)
    for step in range(1, STEPS + 1):
        loss = step_loss(run_id, step)
        yield metrics_line(
            {"epoch": 0, "step": step, "loss": loss, "learning_rate": 1e-4, "sequences_per_second": 100.0},
            logged_at=now,
        )
