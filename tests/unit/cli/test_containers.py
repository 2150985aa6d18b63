"""The program's container among others that a cluster injects, before or after it in every list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lambdas.gateways.kubernetes_objects import pending_reason, troubled_pods
from tests.wording import wording
from trainflow.cli.doctor import gang
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.deployment.kubernetes_names import BACKEND_LABEL, STAGE_LABEL
from trainflow.observed.containers import is_shared, phase, program_image, workload
from trainflow.observed.node import read_node
from trainflow.observed.pod import read_pod

ENDED_AT = "2026-11-21T09:30:09Z"
RUNNING = {"running": {"startedAt": "2026-11-21T09:30:01Z"}}
STAGES = ("training", "precompile", "stage", "publish", "preflight")
NODES = {
    "n": read_node(
        {"metadata": {"name": "n"}, "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    )
}
INJECTED = ("agent", "zz-proxy")
"""Names that sort before and after every name of ours."""


def ended(code: int, **more: Any) -> dict[str, Any]:
    reason = "Completed" if code == 0 else "Error"
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": ENDED_AT, **more}}


def status(name: str, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "lastState": {}, "imageID": f"process://{name}", **more}


def pod(
    ours: dict[str, Any],
    other: dict[str, Any],
    *,
    pod_phase: str = "Running",
    injected: str = "agent",
    first: bool = True,
    backend: str = "job",
    stage: str = "training",
    **more: Any,
) -> dict[str, Any]:
    name = next(kind for kind in KUBERNETES_KINDS.values() if kind.name == backend).container_name(stage)
    containers = [{"name": injected, "image": "mesh"}, {"name": name, "image": "ours"}]
    statuses = sorted((status(name, ours), status(injected, other)), key=lambda each: str(each["name"]))
    return {
        "metadata": {"name": "p", "labels": {STAGE_LABEL: stage, BACKEND_LABEL: backend}},
        "spec": {"nodeName": "n", "containers": containers if first else containers[::-1]},
        "status": {"phase": pod_phase, "containerStatuses": statuses, **more},
    }


def layouts() -> Iterator[dict[str, Any]]:
    for backend in KUBERNETES_KINDS:
        for stage in STAGES:
            for injected in INJECTED:
                for first in (True, False):
                    yield {"backend": backend, "stage": stage, "injected": injected, "first": first}


@pytest.mark.parametrize("code", [0, 1, 137])
@pytest.mark.parametrize("other", [ended(0), ended(2), RUNNING], ids=["succeeded", "failed", "running"])
def test_functions_and_page_read_the_programs_container_wherever_another_one_stands(
    code: int, other: dict[str, Any]
) -> None:
    for layout in layouts():
        found = pod(ended(code, message="last words"), other, pod_phase="Failed", **layout)
        read = read_pod(found)
        assert (read.exit_code, read.termination_message, read.message) == (code, "last words", "last words"), layout
        assert read.container == found_name(found, layout), layout
        assert gang.container(found)["image"] == "ours"
        assert program_image(found) == f"process://{read.container}"


def found_name(found: dict[str, Any], layout: dict[str, Any]) -> str:
    (name,) = (one["name"] for one in found["spec"]["containers"] if one["name"] != layout["injected"])
    return str(name)


@pytest.mark.parametrize(("code", "expected"), [(0, "Succeeded"), (1, "Failed")])
def test_a_program_that_ended_decides_the_phase_of_a_pod_that_another_container_keeps_running(
    code: int, expected: str
) -> None:
    for layout in layouts():
        found = pod(ended(code), RUNNING, **layout)
        assert (phase(found), read_pod(found).phase) == (expected, expected)
        assert [each.exit_code for each in troubled_pods([found], NODES)] == [code] * (code != 0)


def test_a_container_that_ends_early_leaves_the_program_running() -> None:
    for layout in layouts():
        found = pod(RUNNING, ended(3), **layout)
        assert (phase(found), read_pod(found).exit_code) == ("Running", None)


def test_a_pod_that_an_injected_container_failed_names_it_and_says_that_the_program_succeeded() -> None:
    read = read_pod(pod(ended(0), ended(7), pod_phase="Failed"))
    assert read.exit_code == 0
    assert read.message is not None
    assert read.message == read.termination_message
    assert "'agent'" in read.message
    assert "7" in read.message


def test_a_sidecar_that_kubernetes_ended_after_the_program_is_not_what_failed() -> None:
    """An init container with `restartPolicy: Always` is ended by a signal when the program has ended."""
    mesh = status("mesh", ended(143))
    found = pod(ended(1), ended(0), pod_phase="Failed", initContainerStatuses=[mesh])
    found["spec"]["initContainers"] = [{"name": "mesh", "restartPolicy": "Always"}]
    assert read_pod(found).exit_code == 1
    assert workload(found).container == "training"


def test_an_init_container_that_failed_keeps_the_program_from_starting_and_is_named() -> None:
    waiting = {"waiting": {"reason": "PodInitializing"}}
    found = pod(waiting, waiting, pod_phase="Failed", initContainerStatuses=[status("helpers", ended(5))])
    found["spec"]["initContainers"] = [{"name": "helpers"}]
    assert (read_pod(found).exit_code, read_pod(found).container) == (5, "helpers")


def test_a_container_between_two_runs_has_the_exit_code_of_its_last() -> None:
    found = pod({"waiting": {"reason": "CrashLoopBackOff"}}, RUNNING)
    ours = next(one for one in found["status"]["containerStatuses"] if one["name"] == "training")
    ours["lastState"] = ended(1)
    assert read_pod(found).exit_code == 1


def test_a_pod_that_a_taint_evicts_has_one_reason_for_functions_and_page() -> None:
    evicted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    found = pod(ended(137), ended(0), pod_phase="Failed", conditions=[evicted])
    read = read_pod(found)
    assert (read.end_reason, read.reason) == ("DeletionByTaintManager",) * 2


def test_a_pod_that_waits_on_a_lost_node_is_judged_by_its_node_and_not_by_its_wait() -> None:
    found = pod({"waiting": {"reason": "ContainerCreating"}}, RUNNING, pod_phase="Pending")
    found["spec"]["nodeName"] = "gone"
    (read,) = troubled_pods([found], NODES)
    assert (read.end_reason, read.waiting_reason) == ("NodeLost", "ContainerCreating")
    assert read_pod(found).reason == "ContainerCreating"


def test_the_image_of_an_injected_container_is_not_reported_as_the_programs() -> None:
    missing = {"waiting": {"reason": "ErrImagePull", "message": "no such image mesh:1"}}
    creating = {"waiting": {"reason": "ContainerCreating"}}
    reported = pending_reason(pod(creating, missing, pod_phase="Pending"))
    assert reported == wording(
        "containers.the_image_of_an_injected_container_is_not_reported_as_the_programs", "'agent'", "ErrImagePull"
    )
    assert pending_reason(pod(missing, creating, pod_phase="Pending")) == "ErrImagePull: no such image mesh:1"


def test_only_a_pod_with_further_containers_is_shared() -> None:
    found = pod(RUNNING, RUNNING)
    assert is_shared(found)
    found["spec"]["containers"].pop(0)
    assert not is_shared(found)
