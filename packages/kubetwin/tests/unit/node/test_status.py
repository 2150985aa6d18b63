from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubetwin.node.status import (
    ContainerStatus,
    PodState,
    Running,
    State,
    Terminated,
    Waiting,
    by_type,
    phase_of,
    pod_status,
    strategic_patch,
)

NOW = datetime(2026, 11, 21, 3, 35, 17, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)
CREATING = Waiting("ContainerCreating")
RUNNING = Running(NOW)


def ended(exit_code: int) -> Terminated:
    reason = "Completed" if exit_code == 0 else "Error"
    return Terminated(exit_code=exit_code, reason=reason, started_at=NOW, finished_at=LATER)


def container(state: State, name: str = "c", **fields: Any) -> ContainerStatus:
    return ContainerStatus(name=name, image="i", state=state, **fields)


def pod(*states: State, **fields: Any) -> PodState:
    containers = [container(state, f"c{number}") for number, state in enumerate(states)]
    return replace(PodState(uid="u", started_at=NOW, containers=containers, restart_policy="Never"), **fields)


@pytest.mark.parametrize(
    ("states", "policy", "phase"),
    [
        ([CREATING], "Never", "Pending"),
        ([RUNNING, CREATING], "Never", "Pending"),
        ([RUNNING], "Never", "Running"),
        ([RUNNING, ended(0)], "Never", "Running"),
        ([ended(0), ended(0)], "Never", "Succeeded"),
        ([ended(0), ended(3)], "Never", "Failed"),
        ([ended(0)], "OnFailure", "Succeeded"),
        ([ended(3)], "OnFailure", "Running"),
        ([ended(0)], "Always", "Running"),
    ],
)
def test_the_phase_follows_from_the_containers(states: list[State], policy: str, phase: str) -> None:
    assert phase_of(pod(*states, restart_policy=policy)) == phase


def test_a_container_between_two_runs_keeps_its_pod_running() -> None:
    crashed = container(Waiting("CrashLoopBackOff"), last_termination=ended(1), restart_count=1)
    assert phase_of(pod(containers=[crashed], restart_policy="Always")) == "Running"


def test_an_init_container_that_fails_for_good_fails_the_pod() -> None:
    waiting = pod(Waiting("PodInitializing"), init_containers=[container(ended(1), "init")])
    assert phase_of(waiting) == "Failed"
    assert phase_of(replace(waiting, restart_policy="OnFailure")) == "Pending"


def test_a_pod_that_is_ended_fails_unless_everything_succeeded() -> None:
    assert phase_of(pod(ended(143), restart_policy="Always", ending=True)) == "Failed"
    assert phase_of(pod(ended(0), restart_policy="Always", ending=True)) == "Succeeded"
    assert phase_of(pod(RUNNING, ending=True)) == "Running"


def test_a_deadline_fails_the_pod_with_its_reason() -> None:
    state = pod(ended(0), ending=True, reason="DeadlineExceeded", message="too long")
    status = pod_status(state, {}, LATER)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "DeadlineExceeded", "too long")


def test_the_status_of_a_pod_that_succeeded_is_the_kubelets() -> None:
    running = pod_status(pod(RUNNING), {}, NOW)
    status = pod_status(pod(ended(0)), by_type(running), LATER)
    begin, end = "2026-11-21T03:35:17Z", "2026-11-21T03:35:18Z"

    def condition(kind: str, holds: str, changed: str, reason: str | None = "PodCompleted") -> dict[str, Any]:
        condition = {"type": kind, "observedGeneration": 1, "status": holds, "lastTransitionTime": changed}
        return condition | ({"reason": reason} if reason else {})

    assert status == {
        "observedGeneration": 1,
        "phase": "Succeeded",
        "conditions": [
            condition("PodReadyToStartContainers", "False", end, None),
            condition("Initialized", "True", begin),
            condition("Ready", "False", end),
            condition("ContainersReady", "False", end),
        ],
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": begin,
        "containerStatuses": [
            {
                "name": "c0",
                "state": {
                    "terminated": {
                        "exitCode": 0,
                        "reason": "Completed",
                        "startedAt": begin,
                        "finishedAt": end,
                        "containerID": "process://u/c0",
                    }
                },
                "lastState": {},
                "ready": False,
                "restartCount": 0,
                "image": "i",
                "imageID": "process://i",
                "containerID": "process://u/c0",
                "started": False,
            }
        ],
    }


def test_a_waiting_container_has_neither_image_nor_id() -> None:
    status = pod_status(pod(Waiting("CreateContainerConfigError", 'configmap "cfg" not found')), {}, NOW)
    assert status["containerStatuses"] == [
        {
            "name": "c0",
            "state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'configmap "cfg" not found'}},
            "lastState": {},
            "ready": False,
            "restartCount": 0,
            "image": "i",
            "imageID": "",
            "started": False,
        }
    ]
    ready = by_type(status)["Ready"]
    assert (ready["reason"], ready["message"]) == ("ContainersNotReady", "containers with unready status: [c0]")


def test_a_patch_removes_fields_that_a_condition_no_longer_has() -> None:
    before = by_type(pod_status(pod(CREATING), {}, NOW))
    patch = strategic_patch("u", pod_status(pod(RUNNING), before, LATER), before)
    ready = by_type(patch["status"])["Ready"]
    assert patch["metadata"] == {"uid": "u"}
    assert (ready["status"], ready["reason"], ready["message"]) == ("True", None, None)
    assert "reason" not in by_type(patch["status"])["Initialized"]


def test_a_sidecar_that_runs_keeps_its_pod_running() -> None:
    sidecar = container(RUNNING, "side", sidecar=True)
    assert phase_of(pod(ended(0), init_containers=[sidecar])) == "Running"
    assert phase_of(pod(ended(0), init_containers=[replace(sidecar, state=ended(9))])) == "Succeeded"
    starting = replace(sidecar, started=False)
    assert phase_of(pod(Waiting("PodInitializing"), init_containers=[starting])) == "Pending"


def test_statuses_of_containers_are_sorted_by_name_and_those_of_init_containers_as_in_the_spec() -> None:
    """As the kubelet does: kubernetes pkg/kubelet/kubelet_pods.go, `convertToAPIContainerStatuses`."""
    names = ("training", "agent", "zz-proxy")
    state = replace(
        pod(RUNNING),
        containers=[container(RUNNING, name) for name in names],
        init_containers=[container(ended(0), name) for name in names],
    )
    status = pod_status(state, {}, NOW)
    assert [each["name"] for each in status["containerStatuses"]] == sorted(names)
    assert [each["name"] for each in status["initContainerStatuses"]] == list(names)
