"""Which pod's log is meant by a rank."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from local.twin import REPOSITORY
from trainflow.client.pod_logs import LogRequest, chosen
from trainflow.record.pods import PodView, pod_view

PYTORCHJOB = REPOSITORY / "tests" / "assets" / "manifests" / "digits-pytorchjob-training.yaml"


def pods_of_pytorchjob() -> list[PodView]:
    """The pods that the training operator makes of a job: it counts the master and the workers from 0 each."""
    (job,) = [one for one in yaml.safe_load_all(PYTORCHJOB.read_text()) if one["kind"] == "PyTorchJob"]
    return [
        pod_view(_pod(job, kind, index))
        for kind, replicas in sorted(job["spec"]["pytorchReplicaSpecs"].items(), reverse=True)  # the workers first
        for index in range(replicas["replicas"])
    ]


def _pod(job: dict[str, Any], kind: str, index: int) -> dict[str, Any]:
    labels = job["spec"]["pytorchReplicaSpecs"][kind]["template"]["metadata"]["labels"]
    own = {"training.kubeflow.org/replica-type": kind.lower(), "training.kubeflow.org/replica-index": str(index)}
    name = f"{job['metadata']['name']}-{kind.lower()}-{index}"
    running = {"name": "pytorch", "state": {"running": {"startedAt": "2026-11-22T08:00:00Z"}}}
    return {
        "metadata": {"name": name, "uid": name, "labels": {**labels, **own}},
        "spec": {"containers": [{"name": "pytorch"}]},
        "status": {"phase": "Running", "containerStatuses": [running]},
    }


@pytest.mark.parametrize(("rank", "pod"), [(0, "master-0"), (1, "worker-0")])
def test_rank_0_of_a_pytorchjob_is_its_master(rank: int, pod: str) -> None:
    found = chosen(pods_of_pytorchjob(), "digits", LogRequest(rank=rank))
    assert found.name.endswith(f"-{pod}")
