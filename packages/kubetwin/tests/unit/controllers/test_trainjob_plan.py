"""Trainer's decisions, without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubetwin.controllers.trainjob_jobset import ANCESTOR, UnsupportedRuntime, make_jobset
from kubetwin.controllers.trainjob_plan import Plan, begin, is_finished, plan
from kubetwin.model import times

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
REFERENCE = {"name": "torch", "apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime"}


def trainjob(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "tj", "namespace": "ns", "uid": "u", "creationTimestamp": times.seconds(NOW)},
        "spec": {"runtimeRef": REFERENCE, **spec},
        "status": status or {},
    }


def runtime(policy: dict[str, Any] | None = None, *, marks: Any = None, **container: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "node", "image": "i", **container}, {"name": "other", "image": "i"}]}
    job = {"metadata": {"labels": {ANCESTOR: "trainer"}}, "spec": {"template": {"spec": pod}}}
    template = {"metadata": marks or {}, "spec": {"replicatedJobs": [{"name": "node", "template": job}]}}
    return {"spec": {"mlPolicy": {"torch": {}} if policy is None else policy, "template": template}}


def only_job(jobset: dict[str, Any]) -> dict[str, Any]:
    [job] = jobset["spec"]["replicatedJobs"]
    return dict(job)


def node(jobset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = only_job(jobset)["template"]["spec"]["template"]["spec"]["containers"][0]
    return found


def variables(jobset: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in node(jobset).get("env") or []}


def test_the_jobset_has_the_trainjobs_name_and_belongs_to_it() -> None:
    made = make_jobset(trainjob(), runtime(marks={"labels": {"a": "b"}}))
    assert made["metadata"]["name"] == "tj"
    assert made["metadata"]["labels"] == {"a": "b"}
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("TrainJob", "u", True)
    assert made["spec"]["suspend"] is False


def test_the_trainer_has_as_many_pods_as_the_trainjob_says_or_else_the_runtime() -> None:
    counts = [
        only_job(make_jobset(trainjob(**spec), runtime(policy)))["template"]["spec"]["parallelism"]
        for spec, policy in (
            ({"trainer": {"numNodes": 3}}, {"torch": {}, "numNodes": 2}),
            ({"trainer": {}}, {"torch": {}, "numNodes": 2}),
            ({}, {"torch": {}}),
        )
    ]
    assert counts == [3, 2, 1]


def test_torchruns_variables_name_the_first_pod_and_follow_those_of_the_trainjob() -> None:
    trainer = {"numNodes": 2, "numProcPerNode": 4, "env": [{"name": "A", "value": "2"}]}
    made = make_jobset(trainjob(trainer=trainer), runtime(env=[{"name": "A", "value": "1"}]))
    assert variables(made) == {
        "A": "2",
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": None,
        "PET_MASTER_ADDR": "tj-node-0-0.tj",
        "PET_MASTER_PORT": "29500",
    }
    assert node(made)["ports"] == [{"containerPort": 29500}]


@pytest.mark.parametrize(
    ("resources", "processes"),
    [({}, "1"), ({"limits": {"cpu": "2500m"}}, "3"), ({"limits": {"nvidia.com/gpu": "8"}}, "auto")],
)
def test_the_processes_of_a_node_follow_from_its_resources(resources: dict[str, Any], processes: str) -> None:
    made = make_jobset(trainjob(trainer={}), runtime(resources=resources))
    assert variables(made)["PET_NPROC_PER_NODE"] == processes


def test_a_trainjob_without_a_trainer_gets_no_variables() -> None:
    assert variables(make_jobset(trainjob(), runtime())) == {}


def test_the_trainer_replaces_the_program_and_single_resources() -> None:
    trainer = {"image": "mine", "command": ["a"], "args": ["b"], "resourcesPerNode": {"limits": {"memory": "2Gi"}}}
    made = node(make_jobset(trainjob(trainer=trainer), runtime(resources={"limits": {"cpu": "1", "memory": "1Gi"}})))
    assert (made["image"], made["command"], made["args"]) == ("mine", ["a"], ["b"])
    assert made["resources"] == {"limits": {"cpu": "1", "memory": "2Gi"}}


def test_patches_change_the_pods_and_label_the_jobset() -> None:
    pod = {"nodeSelector": {"a": "b"}, "containers": [{"name": "other", "env": [{"name": "X", "value": "1"}]}]}
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    template = {"metadata": {"labels": {"l": "m"}}, "spec": {"replicatedJobs": [job]}}
    patch = {"manager": "a.b/c", "trainingRuntimeSpec": {"template": template}}
    made = make_jobset(trainjob(runtimePatches=[patch]), runtime())
    spec = only_job(made)["template"]["spec"]["template"]["spec"]
    assert made["metadata"]["labels"] == {"l": "m"}
    assert spec["nodeSelector"] == {"a": "b"}
    assert {each["name"]: each.get("env") for each in spec["containers"]} == {
        "node": None,
        "other": [{"name": "X", "value": "1"}],
    }


def test_building_a_jobset_leaves_the_runtime_alone() -> None:
    one = runtime()
    make_jobset(trainjob(trainer={"numNodes": 2, "image": "mine"}), one)
    assert one == runtime()


def test_a_policy_that_is_not_carried_out_is_named() -> None:
    with pytest.raises(UnsupportedRuntime, match="mpi"):
        make_jobset(trainjob(), runtime({"mpi": {}}))


def ended(kind: str, reason: str = "R") -> dict[str, Any]:
    condition = {"type": kind, "status": "True", "reason": reason, "message": "m", "lastTransitionTime": "T"}
    counts = {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
    return {"status": {"conditions": [condition], "replicatedJobsStatus": [counts]}}


def conditions(steps: Plan) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in steps.status.get("conditions") or []}


@pytest.mark.parametrize(("theirs", "ours"), [("Completed", "Complete"), ("Failed", "Failed")])
def test_the_end_of_the_jobset_is_that_of_the_trainjob(theirs: str, ours: str) -> None:
    steps = plan(trainjob(), ended(theirs), NOW)
    [condition] = steps.status["conditions"]
    assert condition == {"type": ours, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "T"}
    assert steps.status["jobsStatus"] == ended(theirs)["status"]["replicatedJobsStatus"]


def test_a_new_trainjob_has_no_status() -> None:
    assert plan(trainjob(), None, NOW).status == {}


def test_suspension_is_a_condition_that_stays_when_the_job_is_resumed() -> None:
    suspended = plan(trainjob(suspend=True), None, NOW)
    assert conditions(suspended) == {"Suspended": ("True", "Suspended")}
    assert conditions(plan(trainjob(suspended.status), None, NOW)) == {"Suspended": ("False", "Resumed")}


def test_an_unknown_runtime_fails_the_job() -> None:
    steps = plan(trainjob(runtimeRef={**REFERENCE, "kind": "Thing"}), None, NOW)
    [condition] = steps.status["conditions"]
    assert (condition["reason"], condition["message"]) == (
        "TrainingRuntimeNotSupported",
        "unsupported runtime: Thing.trainer.kubeflow.org",
    )


def test_a_failure_is_forgotten_without_its_jobset_and_a_deadline_is_not() -> None:
    failed = plan(trainjob(), ended("Failed"), NOW).status
    assert not is_finished(begin(trainjob(failed)))
    late = plan(trainjob(activeDeadlineSeconds=5), None, NOW + timedelta(seconds=6))
    assert late.delete_jobset and conditions(late) == {"Failed": ("True", "DeadlineExceeded")}
    assert is_finished(begin(trainjob(late.status)))


def test_the_deadline_begins_again_when_the_job_is_resumed() -> None:
    assert plan(trainjob(activeDeadlineSeconds=5), None, NOW).requeue_seconds == 5
    assert plan(trainjob(activeDeadlineSeconds=5, suspend=True), None, NOW).requeue_seconds is None
    suspended = plan(trainjob(suspend=True), None, NOW).status
    resumed = plan(trainjob(suspended, activeDeadlineSeconds=5), None, NOW + timedelta(seconds=60))
    assert resumed.requeue_seconds == 5
