"""TrainJobs and their runtimes: what the definitions of Kubeflow Trainer 2.3.0 default and refuse."""

from __future__ import annotations

from typing import Any

import pytest
from kubetwin.resources import load_registry

REGISTRY = load_registry()
TRAINJOBS = REGISTRY.by_key("trainjobs.trainer.kubeflow.org")
CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
UNCHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def trainjob(name: str = "tj", **spec: Any) -> dict[str, Any]:
    job = {"metadata": {"name": name}, "spec": {"runtimeRef": {"name": "torch"}, **spec}}
    TRAINJOBS.default(job)
    return job


def refusals(job: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    return [str(fault) for fault in (TRAINJOBS.validate(job) if old is None else TRAINJOBS.validate_update(job, old))]


def test_a_trainjob_gets_the_defaults_of_its_definition() -> None:
    assert trainjob()["spec"] == {
        "runtimeRef": {"name": "torch", "apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime"},
        "suspend": False,
        "managedBy": CONTROLLER,
    }
    assert not refusals(trainjob())


def test_rules_are_not_checked_while_a_field_is_missing_or_of_another_type() -> None:
    empty = {"metadata": {"name": "1"}, "spec": {}}
    assert refusals(empty) == ["spec.runtimeRef: Required value", UNCHECKED]
    assert refusals(trainjob(trainer={"numNodes": "2"}))[1] == UNCHECKED


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"managedBy": "me"}, 'spec.managedBy: Invalid value: "me": ManagedBy must be '),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds: Invalid value: 0: "),
        ({"runtimeRef": {"name": ""}}, 'spec.runtimeRef.name: Invalid value: "": spec.runtimeRef.name in body should'),
        (
            {"runtimePatches": [{"manager": "a.b/c"}, {"manager": "a.b/c"}]},
            'spec.runtimePatches[1]: Duplicate value: {"manager":"a.b/c"}',
        ),
        (
            {"initializer": {"model": {"storageUri": "here"}}},
            'spec.initializer.model.storageUri: Invalid value: "here": storageUri may be empty, or it must be a valid',
        ),
    ],
)
def test_a_bad_value_is_refused_as_the_definition_says(spec: dict[str, Any], fault: str) -> None:
    assert [each.startswith(fault) for each in refusals(trainjob(**spec))] == [True]


@pytest.mark.parametrize("count", [16, 17])
def test_a_trainjob_has_at_most_sixteen_patches(count: int) -> None:
    found = refusals(trainjob(runtimePatches=[{"manager": f"a.b/{number}"} for number in range(count)]))
    assert found == (
        [] if count == 16 else ["spec.runtimePatches: Too many: 17: must have at most 16 items", UNCHECKED]
    )


@pytest.mark.parametrize(("name", "accepted"), [("a" * 63, True), ("a" * 64, False), ("1a", False), ("a.b", False)])
def test_a_name_is_a_label_that_begins_with_a_letter(name: str, accepted: bool) -> None:
    found = refusals(trainjob(name))
    assert not found if accepted else found[0].startswith("<nil>: Invalid value: metadata.name must ")


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ({}, {"runtimeRef": {"name": "other"}}, "spec.runtimeRef: Invalid value: field is immutable"),
        ({"trainer": {}}, {"trainer": {"numNodes": 2}}, "spec.trainer: Invalid value: field is immutable"),
        (
            {"activeDeadlineSeconds": 5},
            {"activeDeadlineSeconds": 6},
            "spec.activeDeadlineSeconds: Invalid value: 6: field is immutable",
        ),
        (
            {"managedBy": "kueue.x-k8s.io/multikueue"},
            {},
            f'spec.managedBy: Invalid value: "{CONTROLLER}": field is immutable',
        ),
    ],
)
def test_what_is_set_stays(before: dict[str, Any], after: dict[str, Any], fault: str) -> None:
    assert refusals(trainjob(**after), trainjob(**before)) == [fault]


def test_what_is_not_set_may_be_added_and_suspension_changes() -> None:
    assert not refusals(trainjob(trainer={"numNodes": 2}, suspend=True), trainjob())


def test_a_patch_that_is_there_keeps_its_service_account_and_may_change_its_nodes() -> None:
    def patched(**pod: Any) -> dict[str, Any]:
        job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
        template = {"spec": {"replicatedJobs": [job]}}
        patch = {"manager": "a.b/c", "trainingRuntimeSpec": {"template": template}}
        return trainjob(runtimePatches=[{"manager": "x.y/z"}, patch])

    old = patched(serviceAccountName="a", nodeSelector={"a": "1"})
    assert not refusals(patched(serviceAccountName="a", nodeSelector={"a": "2"}), old)
    [fault] = refusals(patched(serviceAccountName="b"), old)
    assert fault.endswith('.serviceAccountName: Invalid value: "b": field is immutable')


def test_a_status_is_checked_when_a_client_writes_it() -> None:
    def faults(status: dict[str, Any]) -> list[str]:
        return [str(fault) for fault in TRAINJOBS.validate_status({"status": status})]

    count = {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    assert not faults({"jobsStatus": [count], "trainerStatus": {"lastUpdatedTime": "2026-11-21T12:00:00Z"}})
    assert faults({"jobsStatus": [{**count, "ready": -1}]})[0].startswith("status.jobsStatus[0].ready: Invalid value")
    assert faults({"trainerStatus": {"progressPercentage": 5}}) == [
        "status.trainerStatus: Invalid value: lastUpdatedTime is required when trainerStatus is present"
    ]


def test_a_runtime_has_one_policy_and_its_template_the_defaults_of_a_jobset() -> None:
    runtimes = REGISTRY.by_key("clustertrainingruntimes.trainer.kubeflow.org")
    pod = {"containers": [{"name": "node", "ports": [{"containerPort": 1}]}]}
    template = {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]}}
    runtime = {"metadata": {"name": "r"}, "spec": {"mlPolicy": {"torch": {}, "mpi": {}}, "template": template}}
    runtimes.default(runtime)
    assert runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["replicas"] == 1
    assert pod["containers"][0]["ports"] == [{"containerPort": 1, "protocol": "TCP"}]
    assert runtime["spec"]["mlPolicy"]["mpi"]["mpiImplementation"] == "OpenMPI"
    runtime["spec"]["template"]["spec"]["replicatedJobs"] = []
    assert [str(fault) for fault in runtimes.validate(runtime)] == [
        "spec.mlPolicy: Invalid value: Only one of the policy can be configured"
    ]
