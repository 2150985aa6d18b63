"""Two hundred runs at once in the twin: the real state machines and functions, pods that run nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.many_runs import left_in_cluster, limit_nodes, published_losses, run_all
from local.aws import deployment
from local.no_op_logs import STEPS, step_loss
from local.twin import Twin

NUM_RUNS = 200
TYPE = "trn1.2xlarge"
LIMIT_SECONDS = 900
RUN_ID = re.compile(r"many-[0-9a-f]{12}")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=2, no_op_seconds=0.0) as running:
        limit_nodes(running, TYPE, NUM_RUNS)
        yield running


def spec() -> dict[str, Any]:
    return {
        "version": 1,
        "name": "many",
        "workload": {"script": "tests/assets/programs/steps.py", "image": "trainer:test"},
        "compute": {"instance_type": TYPE, "num_nodes": 1, "processes_per_node": 1},
        "precompile": {"enabled": False},
    }


def artifacts(twin: Twin, run_id: str) -> dict[str, str]:
    """The run's objects in S3, by what they are called there."""
    s3, prefix = twin.client("s3"), f"runs/{run_id}/"
    keys = [
        found["Key"]
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=deployment.ARTIFACT_BUCKET, Prefix=prefix)
        for found in page.get("Contents", ())
    ]
    return {
        key.removeprefix(prefix): s3.get_object(Bucket=deployment.ARTIFACT_BUCKET, Key=key)["Body"].read().decode()
        for key in keys
    }


def test_two_hundred_runs_at_once_all_end_and_none_is_mixed_with_another(twin: Twin) -> None:
    run_ids = [f"many-{number:012x}" for number in range(NUM_RUNS)]
    statuses = run_all(twin, dict.fromkeys(run_ids, spec()), limit_seconds=LIMIT_SECONDS)
    assert Counter(statuses.values()) == {"SUCCEEDED": NUM_RUNS}

    for run_id in run_ids:
        losses = [step_loss(run_id, step) for step in range(1, STEPS + 1)]
        count, total = published_losses(twin, run_id)
        assert (count, total) == (STEPS, pytest.approx(sum(losses), abs=1e-6))

        kept = artifacts(twin, run_id)
        training = json.loads(kept["run.json"])["training"]
        assert (training["steps"], training["last_loss"]) == (STEPS, pytest.approx(losses[-1], abs=1e-4))
        logs = {name: text for name, text in kept.items() if name.startswith("logs/")}
        assert any(name.startswith(f"logs/{run_id}-training-1-0-") for name in logs)
        assert {found for text in logs.values() for found in RUN_ID.findall(text)} == {run_id}

    assert deployment.gang_nodes() == 0
    assert left_in_cluster(twin) == []
