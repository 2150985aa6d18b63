"""Pruning, defaulting and validation by a custom kind's schema."""

from __future__ import annotations

from typing import Any

from kubetwin.resources import load_registry
from kubetwin.resources.structural import check, fields, fill, list_of, map_of, prune, text, whole

SCHEMA = fields(
    needed=("tasks",),
    queue=text(default="default"),
    retries=whole(default=3, minimum=0),
    tasks=list_of(fields(name=text(), event=text("A", "B")), minItems=1),
    counts=map_of(whole()),
)


def faults(value: dict[str, Any]) -> list[str]:
    return [str(fault) for fault in check({"spec": value}, fields(spec=SCHEMA))]


def test_an_unknown_field_is_dropped_and_named_with_its_place() -> None:
    kept, unknown = prune({"tasks": [{"name": "a", "oops": 1}], "bogus": None}, SCHEMA)
    assert kept == {"tasks": [{"name": "a"}]}
    assert unknown == ["tasks[0].oops", "bogus"]


def test_keys_of_a_map_are_no_unknown_fields() -> None:
    assert prune({"counts": {"anything": 1}}, SCHEMA) == ({"counts": {"anything": 1}}, [])


def test_defaults_fill_missing_fields_only() -> None:
    value: dict[str, Any] = {"retries": 0, "tasks": []}
    fill(value, SCHEMA)
    assert value == {"queue": "default", "retries": 0, "tasks": []}


def test_a_wrong_type_is_refused_with_the_servers_message() -> None:
    assert faults({"tasks": [{}], "retries": "two"}) == [
        'spec.retries: Invalid value: "string": spec.retries in body must be of type integer: "string"'
    ]


def test_true_is_no_number() -> None:
    assert "must be of type integer" in faults({"tasks": [{}], "retries": True})[0]


def test_missing_short_small_and_unsupported_values_are_named() -> None:
    assert faults({}) == ["spec.tasks: Required value"]
    assert faults({"tasks": []}) == ["spec.tasks: Invalid value: 0: spec.tasks in body should have at least 1 items"]
    assert "should be greater than or equal to 0" in faults({"tasks": [{}], "retries": -1})[0]
    assert faults({"tasks": [{"event": "C"}]}) == [
        'spec.tasks[0].event: Unsupported value: "C": supported values: "A", "B"'
    ]


def test_a_kind_with_rules_adds_that_they_were_not_checked() -> None:
    jobset = load_registry().by_key("jobsets.jobset.x-k8s.io")
    found = jobset.validate({"spec": {"replicatedJobs": [{"name": "a"}]}})
    assert [fault.field for fault in found] == ["spec.replicatedJobs[0].template", "<nil>"]


def test_the_jobs_of_a_running_set_cannot_change_and_those_of_a_suspended_one_can() -> None:
    jobset = load_registry().by_key("jobsets.jobset.x-k8s.io")
    running = {"spec": {"replicatedJobs": [1]}}
    suspended = {"spec": {"replicatedJobs": [1], "suspend": True}}
    changed = {"spec": {"replicatedJobs": [2]}}
    assert [fault.field for fault in jobset.validate_update(changed, running)] == ["spec.replicatedJobs"]
    assert not jobset.validate_update(changed, suspended)


def test_a_kind_that_is_not_run_is_refused_with_an_alternative() -> None:
    kind = load_registry().by_key("optimizationjobs.trainer.kubeflow.org")
    [fault] = kind.validate({"spec": {}})
    assert (
        str(fault) == "spec: Forbidden: this cluster runs no searches of parameters: create a TrainJob for each trial"
    )


def refusals(kind: str, spec: dict[str, Any], name: str = "x") -> list[str]:
    resource = load_registry().by_key(kind)
    obj = {"metadata": {"name": name}, "spec": spec}
    resource.default(obj)
    return [str(fault) for fault in resource.validate(obj)]


POD = {"spec": {"containers": [{"name": "pytorch"}]}}


def test_a_gang_larger_than_its_tasks_is_refused() -> None:
    spec = {"minAvailable": 3, "tasks": [{"name": "a", "replicas": 2, "template": POD}]}
    assert refusals("jobs.batch.volcano.sh", spec) == [
        "spec.minAvailable: Invalid value: 3: job 'minAvailable' should not be greater than total replicas in tasks"
    ]


def test_a_template_without_a_spec_is_refused() -> None:
    spec = {"tasks": [{"name": "a", "template": {}}]}
    assert refusals("jobs.batch.volcano.sh", spec) == ["spec.tasks[0].template.spec: Required value"]


def test_two_parts_of_one_name_are_refused() -> None:
    tasks = [{"name": "a", "template": POD}] * 2
    assert refusals("jobs.batch.volcano.sh", {"tasks": tasks}) == ['spec.tasks[1].name: Duplicate value: "a"']
    jobs = [{"name": "a", "template": {"spec": {"template": POD}}}] * 2
    assert refusals("jobsets.jobset.x-k8s.io", {"replicatedJobs": jobs}) == [
        'spec.replicatedJobs[1].name: Duplicate value: "a"'
    ]


def test_a_set_whose_pods_could_have_no_host_name_is_refused() -> None:
    jobs = [{"name": "workers", "template": {"spec": {"completions": 100, "template": POD}}}]
    assert not refusals("jobsets.jobset.x-k8s.io", {"replicatedJobs": jobs}, "x" * 44)
    [fault] = refusals("jobsets.jobset.x-k8s.io", {"replicatedJobs": jobs}, "x" * 45)
    assert "longer than 63 characters" in fault


def test_a_pytorchjob_that_the_operator_could_not_run_is_refused() -> None:
    nameless = {"spec": {"containers": [{"name": "c"}]}}
    spec = {"pytorchReplicaSpecs": {"Chief": {"template": POD}, "Master": {"replicas": 2, "template": nameless}}}
    assert refusals("pytorchjobs.kubeflow.org", spec) == [
        'spec.pytorchReplicaSpecs[Chief]: Unsupported value: "Chief": supported values: "Master", "Worker"',
        "spec.pytorchReplicaSpecs[Master].template.spec.containers: Required value: "
        "must have at least one container with name pytorch",
        "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1",
    ]
    elastic = {"pytorchReplicaSpecs": {"Master": {"template": POD}}, "elasticPolicy": {}}
    assert refusals("pytorchjobs.kubeflow.org", elastic) == [
        "spec.pytorchReplicaSpecs[Worker]: Required value: must be configured if elastic policy is used"
    ]


def test_fields_of_a_volcano_job_that_would_be_ignored_are_refused() -> None:
    tasks = [{"name": "a", "template": POD, "dependsOn": {"name": ["b"]}}]
    policies = [{"event": "PodFailed", "action": "AbortJob", "timeout": "1m"}]
    assert refusals("jobs.batch.volcano.sh", {"tasks": tasks, "policies": policies}) == [
        "spec.policies[0].timeout: Forbidden: this cluster acts at once; leave it out",
        "spec.tasks[0].dependsOn: Forbidden: this cluster starts all tasks at once; leave it out",
    ]
