"""Which pod's log is meant by a rank, and until when it is followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from local.twin import REPOSITORY
from trainflow.client.place import LogRequest
from trainflow.client.pod_logs import chosen, chosen_pod, followed_lines
from trainflow.observed.pod import Pod, read_pod

PYTORCHJOB = REPOSITORY / "tests" / "assets" / "manifests" / "digits-pytorchjob-training.yaml"


def pods_of_pytorchjob() -> list[Pod]:
    """The pods that the training operator makes of a job: it counts the master and the workers from 0 each."""
    (job,) = [one for one in yaml.safe_load_all(PYTORCHJOB.read_text()) if one["kind"] == "PyTorchJob"]
    return [
        read_pod(_pod(job, kind, index))
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


class RestartedTraining:
    """`PodSource` of a rank whose first pod is not there at once and fails, and whose second is seen after a while."""

    def __init__(self, *, absent: int = 0) -> None:
        self.polls, self.absent = 0, absent

    def list_pods(self, _selector: str) -> Mapping[str, Any]:
        self.polls += 1
        pods = [_started(1, phase="Failed")] if self.polls > self.absent else []
        if self.polls > 4:
            pods.append(_started(2, phase="Running" if self.polls < 8 else "Succeeded"))
        return {"items": pods}

    def watch_pods(self, _selector: str, _resource_version: str) -> Any:
        raise NotImplementedError

    def pod_log(self, pod: str, _container: str | None, *, since: str | None, follow: bool) -> Any:
        del follow
        lines = (f"2026-11-22T08:00:00Z {pod} begins\n", f"2026-11-22T08:00:01Z {pod} ends\n")
        return iter([line for line in lines if since is None or line >= since])


def _started(attempt: int, *, phase: str) -> dict[str, Any]:
    name = f"steps-training-{attempt}-0"
    labels = {"trainflow/stage": "training", "trainflow/attempt": str(attempt)}
    state = {"running": {"startedAt": "2026-11-22T08:00:00Z"}}
    return {
        "metadata": {"name": name, "uid": name, "labels": labels, "creationTimestamp": f"2026-11-22T08:0{attempt}:00Z"},
        "spec": {"containers": [{"name": "trainer"}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "trainer", "state": state}]},
    }


@pytest.mark.parametrize("waits", [False, True], ids=["the pod is there", "the pod comes"])
def test_a_rank_is_followed_through_a_restart_to_the_end_of_the_run(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    monkeypatch.setattr("trainflow.client.pod_logs.PAUSES", (0.0,))
    source, request = RestartedTraining(absent=2 if waits else 0), LogRequest(follow=True)
    first = None if waits else chosen_pod(source, "steps", request)

    lines = followed_lines(source, "steps", first, request, has_run_ended=lambda: source.polls > 9, poll_seconds=0.0)

    first_pod, second_pod = "steps-training-1-0", "steps-training-2-0"
    assert list(lines) == [f"{first_pod} begins", f"{first_pod} ends", f"{second_pod} begins", f"{second_pod} ends"]
    assert source.polls > 9, "the run goes on after its training, such as with the tear-down"
