"""The decisions of Volcano's job controller, without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubetwin.controllers.volcano_plan import Plan, plan
from kubetwin.controllers.volcano_plugins import PLUGINS, unknown_plugins
from kubetwin.controllers.volcano_pods import pod_group, pod_of, tasks_of
from kubetwin.controllers.volcano_policies import Action, Event, Request, action_for, observe
from kubetwin.model import times

NOW = datetime(2026, 11, 21, 12, 0, 3, tzinfo=UTC)
CREATED = NOW - timedelta(seconds=3)
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def task(name: str = "worker", replicas: int = 2, **settings: Any) -> dict[str, Any]:
    return {"name": name, "replicas": replicas, "template": TEMPLATE, **settings}


def job(
    phase: str = "Running", *tasks: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    state = {"state": {"phase": phase, "lastTransitionTime": times.seconds(NOW)}} if phase else {}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "vj", "namespace": "ns", "uid": "u", "creationTimestamp": times.seconds(CREATED)},
        "spec": {"tasks": list(tasks) or [task()], "minAvailable": 2, **spec},
        "status": {**state, **(status or {})},
    }


def pod(
    index: int = 0, phase: str = "Running", *, kind: str = "worker", version: int = 0, gone: bool = False, code: int = 1
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": f"vj-{kind}-{index}",
        "labels": {"volcano.sh/task-spec": kind, "volcano.sh/task-index": str(index)},
        "annotations": {"volcano.sh/job-version": str(version)},
    }
    if gone:
        metadata["deletionTimestamp"] = times.seconds(NOW)
    state = {"terminated": {"exitCode": code}} if phase == "Failed" else {}
    return {"metadata": metadata, "status": {"phase": phase, "containerStatuses": [{"state": state}]}}


def sync(wanted: dict[str, Any], pods: list[dict[str, Any]], group: str = "Inqueue") -> Plan:
    return plan(wanted, Request(), pods, group, NOW)


def act(action: str, pods: list[dict[str, Any]], **settings: Any) -> Plan:
    wanted = job(policies=[{"event": "PodFailed", "action": action}], **settings)
    request = Request(Event.POD_FAILED, "worker", "vj-worker-0", version=0)
    return plan(wanted, request, pods, "Running", NOW)


def phase(steps: Plan) -> str:
    return str(steps.status["state"]["phase"])


def created(steps: Plan) -> list[str]:
    return [f"{spec['name']}-{index}" for spec, index in steps.create]


def test_a_new_job_is_pending_and_has_a_pod_group() -> None:
    steps = sync(job(""), [], "")
    assert (phase(steps), steps.equipped, steps.create) == ("Pending", True, ())


@pytest.mark.parametrize("group", ["", "Pending"])
def test_no_pod_is_made_before_the_scheduler_has_let_the_gang_in(group: str) -> None:
    assert created(sync(job("Pending"), [], group)) == []


def test_an_admitted_gang_gets_all_its_pods() -> None:
    steps = sync(job("Pending", task("master", 1), task("worker", 2), minAvailable=3), [])
    assert created(steps) == ["master-0", "worker-0", "worker-1"]
    assert steps.status["pending"] == 3
    assert steps.status["taskStatusCount"] == {"master": {"phase": {"Pending": 1}}, "worker": {"phase": {"Pending": 2}}}


def test_the_job_runs_when_its_smallest_gang_does() -> None:
    assert phase(sync(job("Pending"), [pod(0), pod(1, "Pending")])) == "Pending"
    assert phase(sync(job("Pending"), [pod(0), pod(1)])) == "Running"


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        (("Succeeded", "Succeeded"), "Completed"),
        (("Succeeded", "Failed"), "Failed"),
        (("Succeeded", "Running"), "Running"),
        (("Failed", "Running"), "Running"),
    ],
)
def test_without_policies_the_job_ends_with_its_last_pod(ends: tuple[str, str], outcome: str) -> None:
    assert phase(sync(job(), [pod(0, ends[0]), pod(1, ends[1])])) == outcome


def test_enough_successes_complete_the_job() -> None:
    assert phase(sync(job(minSuccess=1), [pod(0, "Succeeded"), pod(1)])) == "Completed"


def test_a_task_that_falls_short_of_its_own_minimum_fails_the_job() -> None:
    wanted = job("Running", task("a", 1), task("b", 1, minAvailable=1), minAvailable=1)
    assert phase(sync(wanted, [pod(0, "Succeeded", kind="a"), pod(0, "Failed", kind="b")])) == "Failed"


def test_a_pod_that_was_deleted_is_made_again() -> None:
    assert created(sync(job(), [pod(0)])) == ["worker-1"]


def test_a_restart_kills_all_pods_and_deletes_the_pod_group() -> None:
    steps = act("RestartJob", [pod(0, "Failed"), pod(1)])
    assert (phase(steps), steps.delete, steps.equipped) == ("Restarting", ("vj-worker-0", "vj-worker-1"), False)
    assert (steps.status["retryCount"], steps.status["version"], steps.status["terminating"]) == (1, 1, 2)
    assert steps.status["runningDuration"] == "3s"


def test_a_restarted_job_is_pending_again_when_its_pods_are_deleted() -> None:
    status = {"retryCount": 1, "version": 1}
    assert phase(sync(job("Restarting", status=status), [pod(0, gone=True)])) == "Restarting"
    assert phase(sync(job("Restarting", status=status), [])) == "Pending"


def test_the_last_attempt_keeps_its_failed_pods_and_fails_the_job() -> None:
    steps = act("RestartJob", [pod(0, "Failed"), pod(1)], maxRetry=1)
    assert steps.delete == ("vj-worker-1",)
    assert (
        phase(sync(job("Restarting", status=steps.status | {"state": {"phase": "Restarting"}}, maxRetry=1), []))
        == "Failed"
    )


@pytest.mark.parametrize(
    ("action", "interim", "final"),
    [
        ("CompleteJob", "Completing", "Completed"),
        ("AbortJob", "Aborting", "Aborted"),
        ("TerminateJob", "Terminating", "Terminated"),
    ],
)
def test_an_action_ends_the_running_pods_and_keeps_those_that_have_ended(action: str, interim: str, final: str) -> None:
    steps = act(action, [pod(0, "Succeeded"), pod(1)])
    assert (phase(steps), steps.delete, steps.equipped) == (interim, ("vj-worker-1",), False)
    assert phase(sync(job(interim), [pod(0, "Succeeded"), pod(1, gone=True)])) == interim
    assert phase(sync(job(interim), [pod(0, "Succeeded")])) == final


def test_one_pod_or_one_task_can_be_made_again_alone() -> None:
    pods = [pod(0, "Failed"), pod(1)]
    assert act("RestartPod", pods).delete == ("vj-worker-0",)
    assert act("RestartTask", pods).delete == ("vj-worker-0", "vj-worker-1")
    assert phase(act("RestartPod", pods, status={"retryCount": 1}, maxRetry=1)) == "Failed"


def test_a_finished_job_is_deleted_after_its_time_to_live() -> None:
    assert sync(job("Completed", ttlSecondsAfterFinished=5), []).requeue_seconds == 5
    assert sync(job("Failed", ttlSecondsAfterFinished=0), []).expired
    assert not sync(job("Failed"), []).expired


def test_a_condition_is_the_newest_of_its_kind_and_stands_last() -> None:
    old = [{"status": name, "lastTransitionTime": "t"} for name in ("Pending", "Running", "Restarting")]
    steps = sync(job("Restarting", status={"conditions": old, "retryCount": 1}), [])
    assert [c["status"] for c in steps.status["conditions"]] == ["Running", "Restarting", "Pending"]


def test_a_policy_of_the_task_overrides_one_of_the_job() -> None:
    wanted = job(
        "Running",
        task(policies=[{"event": "PodFailed", "action": "CompleteJob"}]),
        policies=[{"event": "*", "action": "AbortJob"}],
    )
    assert action_for(wanted, Request(Event.POD_FAILED, "worker")) is Action.COMPLETE
    assert action_for(wanted, Request(Event.POD_EVICTED, "worker")) is Action.ABORT
    assert action_for(wanted, Request()) is Action.SYNC


def test_a_policy_can_name_several_events_or_an_exit_code() -> None:
    wanted = job(policies=[{"events": ["PodEvicted"], "action": "RestartJob"}, {"exitCode": 3, "action": "AbortJob"}])
    assert action_for(wanted, Request(Event.POD_EVICTED)) is Action.RESTART
    assert action_for(wanted, Request(Event.POD_FAILED, exit_code=3)) is Action.ABORT
    assert action_for(wanted, Request(Event.POD_FAILED, exit_code=4)) is Action.SYNC


def test_pods_of_an_attempt_that_is_over_trigger_nothing() -> None:
    wanted = job(status={"version": 2}, policies=[{"event": "*", "action": "RestartJob"}])
    assert action_for(wanted, Request(Event.POD_EVICTED, version=1)) is Action.SYNC
    assert action_for(wanted, Request(Event.POD_EVICTED, version=2)) is Action.RESTART


def test_what_happened_is_read_from_the_change_of_a_pod() -> None:
    failed = pod(0, "Failed", code=7)
    request = observe(job(), failed, pod(0), [failed], deleted=False)
    assert (request.event, request.exit_code, request.version) == (Event.POD_FAILED, 7, 0)
    assert observe(job(), failed, failed, [failed], deleted=False).event is Event.OUT_OF_SYNC
    assert observe(job(), pod(0), pod(0), [], deleted=True).event is Event.POD_EVICTED


def test_a_task_is_completed_with_its_last_pod() -> None:
    first, last = pod(0, "Succeeded"), pod(1, "Succeeded")
    assert observe(job(), first, pod(0), [first, pod(1)], deleted=False).event is Event.OUT_OF_SYNC
    assert observe(job(), last, pod(1), [first, last], deleted=False).event is Event.TASK_COMPLETED


def variables(pod_made: dict[str, Any]) -> dict[str, str]:
    return {v["name"]: v.get("value", "") for v in pod_made["spec"]["containers"][0]["env"]}


def test_the_pytorch_plugin_sets_each_pods_rank_and_the_masters_address() -> None:
    wanted = job("Pending", task("master", 1), task("worker", 2), plugins={"pytorch": ["--port=29500"]})
    made = pod_of(wanted, tasks_of(wanted)[1], 1)
    assert variables(made) == {"MASTER_ADDR": "vj-master-0.vj", "MASTER_PORT": "29500", "WORLD_SIZE": "3", "RANK": "2"}
    assert made["spec"]["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 29500}]


def test_the_svc_plugin_gives_names_and_lists_of_hosts() -> None:
    wanted = job("Pending", task("my-task", 2), plugins={"svc": ["--publish-not-ready-addresses=true"]})
    made = pod_of(wanted, tasks_of(wanted)[0], 1)
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == ("vj-my-task-1", "vj")
    owned = PLUGINS["svc"].objects(wanted, wanted["spec"]["plugins"]["svc"])
    assert owned["configmaps"]["data"] == {
        "VC_MY_TASK_HOSTS": "vj-my-task-0.vj,vj-my-task-1.vj",
        "VC_MY_TASK_NUM": "2",
        "my-task.host": "vj-my-task-0.vj\nvj-my-task-1.vj",
    }
    assert owned["services"]["spec"]["publishNotReadyAddresses"] is True


def test_plugins_that_are_not_imitated_are_named() -> None:
    assert unknown_plugins(job(plugins={"svc": [], "mpi": [], "ssh": []})) == ["mpi", "ssh"]


def test_the_pod_group_requests_the_resources_of_the_smallest_gang() -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"aws.amazon.com/neuron": "16"}}}]}}
    wanted = job("", task(replicas=3) | {"template": template}, minAvailable=2, queue="q", priorityClassName="high")
    spec = pod_group(wanted)["spec"]
    assert spec["minResources"] == {
        "aws.amazon.com/neuron": "32",
        "requests.aws.amazon.com/neuron": "32",
        "pods": "2",
        "count/pods": "2",
    }
    assert (spec["minMember"], spec["queue"], spec["priorityClassName"]) == (2, "q", "high")


def test_a_gang_is_complete_without_tasks_that_it_can_do_without() -> None:
    """As TorchX submits `-j 1:3x8`: a task for each replica, the first of which is needed."""
    elastic = job("", *(task(f"w-{rank}", 1, minAvailable=int(rank == 0)) for rank in range(3)), minAvailable=0)
    spec = pod_group(elastic)["spec"]
    assert (spec["minMember"], spec["minTaskMember"]) == (1, {"w-0": 1, "w-1": 0, "w-2": 0})
    assert sync(elastic, []).status["minAvailable"] == 1
