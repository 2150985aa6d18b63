from __future__ import annotations

from typing import Any

import pytest

from local.no_op_logs import STEPS, log_lines, step_loss

RUN_ID = "quiet-0123456789ab"


def pod(*, stage: str, index: str) -> dict[str, Any]:
    environment = {"TRAINFLOW_RUN_ID": RUN_ID, "TRAINFLOW_STAGE": stage}
    container = {"name": "main", "env": [{"name": name, "value": value} for name, value in environment.items()]}
    labels = {"batch.kubernetes.io/job-completion-index": index}
    return {"metadata": {"name": f"quiet-{index}", "labels": labels}, "spec": {"containers": [container]}}


@pytest.mark.parametrize(("stage", "index"), [("training", "0"), ("training", "1"), ("publish", "0")])
def test_each_pod_names_its_run_and_rank_0_of_the_training_prints_steps(stage: str, index: str) -> None:
    first, *steps = log_lines(pod(stage=stage, index=index))
    assert first == f"run {RUN_ID} pod quiet-{index} rank {index}"
    losses = [f"step_loss : {step_loss(RUN_ID, step):.4f}" for step in range(1, STEPS + 1)]
    if (stage, index) == ("training", "0"):
        assert all(loss in line for loss, line in zip(losses, steps, strict=True))
    else:
        assert steps == []
