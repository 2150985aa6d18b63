"""JobSet's decisions, without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubetwin.controllers.jobset_jobs import PREFIX, children_of, job_of, service_of
from kubetwin.controllers.jobset_plan import Plan, plan
from kubetwin.model import times

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
POD = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}


def replicated(name: str = "workers", replicas: int = 1, **settings: Any) -> dict[str, Any]:
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": POD}
    return {"name": name, "replicas": replicas, "groupName": "default", "template": {"spec": spec}, **settings}


def jobset(*jobs: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js", "namespace": "ns", "uid": "u"},
        "spec": {"replicatedJobs": list(jobs) or [replicated()], **spec},
        "status": status or {},
    }


def child(
    name: str = "workers", index: int = 0, *, attempt: int = 0, end: str = "", reason: str = "", ready: int = 0
) -> dict[str, Any]:
    conditions = [
        {"type": end, "status": "True", "reason": reason, "message": "", "lastTransitionTime": times.seconds(NOW)}
    ]
    status: dict[str, Any] = {"conditions": conditions} if end else {"active": 2, "ready": ready}
    labels = {f"{PREFIX}replicatedjob-name": name, f"{PREFIX}restart-attempt": str(attempt)}
    return {
        "metadata": {"name": f"js-{name}-{index}", "labels": labels},
        "spec": {"parallelism": 2, "completions": 2, "suspend": False},
        "status": status,
    }


def conditions(steps: Plan) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in steps.status.get("conditions") or []}


def made(steps: Plan) -> list[str]:
    return [job.name for job in steps.create]


def test_a_new_set_gets_all_its_jobs() -> None:
    assert made(plan(jobset(replicated("a", 2), replicated("b")), [], NOW)) == ["js-a-0", "js-a-1", "js-b-0"]


def test_jobs_are_numbered_over_the_whole_set_and_within_their_group() -> None:
    wanted = jobset(replicated("a", 2, groupName="x"), replicated("b", 2, groupName="y"))
    assert [(c.name, c.global_index, c.group_index) for c in children_of(wanted)] == [
        ("js-a-0", 0, 0),
        ("js-a-1", 1, 1),
        ("js-b-0", 2, 0),
        ("js-b-1", 3, 1),
    ]


def test_pods_carry_the_sets_labels_and_its_subdomain() -> None:
    wanted = jobset(network={"subdomain": "net"}, coordinator={"replicatedJob": "workers"})
    job = job_of(wanted, next(children_of(wanted)), 1)
    template = job["spec"]["template"]
    assert template["metadata"]["labels"][f"{PREFIX}restart-attempt"] == "1"
    assert template["metadata"]["labels"][f"{PREFIX}coordinator"] == "js-workers-0-0.net"
    assert template["metadata"]["annotations"] == template["metadata"]["labels"] == job["metadata"]["labels"]
    assert template["spec"]["subdomain"] == service_of(wanted)["metadata"]["name"] == "net"


def test_building_a_job_leaves_the_set_alone() -> None:
    wanted = jobset()
    job_of(wanted, next(children_of(wanted)), 0)
    assert "metadata" not in wanted["spec"]["replicatedJobs"][0]["template"]
    assert "subdomain" not in POD["spec"]


def test_a_set_whose_jobs_are_all_complete_is_completed() -> None:
    steps = plan(jobset(), [child(end="Complete")], NOW)
    assert conditions(steps) == {"Completed": ("True", "AllJobsCompleted")}
    assert steps.status["terminalState"] == "Completed"


def test_one_complete_job_of_two_is_not_enough_unless_any_will_do() -> None:
    jobs = [child(end="Complete"), child(index=1)]
    assert not conditions(plan(jobset(replicated(replicas=2)), jobs, NOW))
    lenient = plan(jobset(replicated(replicas=2), successPolicy={"operator": "Any"}), jobs, NOW)
    assert conditions(lenient) == {"Completed": ("True", "AllJobsCompleted")}
    assert lenient.delete == ("js-workers-1",)


def test_only_the_targets_of_the_success_policy_have_to_complete() -> None:
    policy = {"operator": "All", "targetReplicatedJobs": ["leader"]}
    wanted = jobset(replicated("leader"), replicated("workers"), successPolicy=policy)
    steps = plan(wanted, [child("leader", end="Complete"), child("workers")], NOW)
    assert conditions(steps) == {"Completed": ("True", "AllJobsCompleted")}


def test_without_a_failure_policy_a_failed_job_fails_the_set_and_is_named() -> None:
    steps = plan(jobset(replicated(replicas=2)), [child(end="Failed"), child(index=1)], NOW)
    assert conditions(steps) == {"Failed": ("True", "FailedJobs")}
    assert steps.status["conditions"][0]["message"].endswith("(first failed job: js-workers-0)")
    assert steps.delete == ("js-workers-1",)


def test_a_failed_job_restarts_the_set_while_restarts_are_left() -> None:
    steps = plan(jobset(failurePolicy={"maxRestarts": 1}), [child(end="Failed")], NOW)
    assert (steps.status["restarts"], steps.status["restartsCountTowardsMax"]) == (1, 1)
    assert conditions(steps) == {"RestartingJobSet": ("True", "DefaultFailurePolicy")}
    after = plan(jobset(failurePolicy={"maxRestarts": 1}, status=steps.status), [child(end="Failed")], NOW)
    assert after.delete == ("js-workers-0",)
    assert not made(after), "the name is taken until the old Job is gone"
    assert made(plan(jobset(failurePolicy={"maxRestarts": 1}, status=steps.status), [], NOW)) == ["js-workers-0"]


def test_the_last_restart_used_up_fails_the_set() -> None:
    status = {"restarts": 1, "restartsCountTowardsMax": 1}
    steps = plan(jobset(failurePolicy={"maxRestarts": 1}, status=status), [child(attempt=1, end="Failed")], NOW)
    assert conditions(steps) == {"Failed": ("True", "ReachedMaxRestarts")}


def test_a_restart_is_over_when_all_jobs_are_ready() -> None:
    restarting = {"type": "RestartingJobSet", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "t"}
    status = {"restarts": 1, "conditions": [restarting]}
    assert conditions(plan(jobset(status=status), [child(attempt=1, ready=1)], NOW)) == {
        "RestartingJobSet": ("True", "r")
    }
    assert conditions(plan(jobset(status=status), [child(attempt=1, ready=2)], NOW)) == {
        "RestartingJobSet": ("False", "JobsReady")
    }


@pytest.mark.parametrize(
    ("reason", "restarts", "counted"),
    [("PodFailurePolicy", None, None), ("BackoffLimitExceeded", 1, None), ("DeadlineExceeded", 1, 1)],
)
def test_a_rule_decides_by_the_jobs_reason(reason: str, restarts: int | None, counted: int | None) -> None:
    rules = [
        {"name": "fail", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
        {"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["BackoffLimitExceeded"]},
    ]
    policy = {"maxRestarts": 1, "rules": rules}
    steps = plan(jobset(failurePolicy=policy), [child(end="Failed", reason=reason)], NOW)
    assert steps.status["restarts"] == (restarts or 0)
    assert steps.status.get("restartsCountTowardsMax") == counted
    assert ("Failed" in conditions(steps)) == (restarts is None)


def test_jobs_in_order_wait_for_those_before_them() -> None:
    wanted = jobset(replicated("a"), replicated("b"), startupPolicy={"startupPolicyOrder": "InOrder"})
    assert made(plan(wanted, [], NOW)) == ["js-a-0"]
    assert made(plan(wanted, [child("a", ready=1)], NOW)) == []
    assert made(plan(wanted, [child("a", ready=2)], NOW)) == ["js-b-0"]


def test_a_job_waits_for_the_completion_that_it_depends_on() -> None:
    wanted = jobset(replicated("a"), replicated("b", dependsOn=[{"name": "a", "status": "Complete"}]))
    assert made(plan(wanted, [child("a", ready=2)], NOW)) == []
    assert made(plan(wanted, [child("a", end="Complete")], NOW)) == ["js-b-0"]


def test_a_suspended_set_suspends_its_jobs_and_resumes_them() -> None:
    steps = plan(jobset(suspend=True), [child()], NOW)
    assert (steps.suspend, steps.resume) == (("js-workers-0",), ())
    assert conditions(steps) == {"Suspended": ("True", "SuspendedJobs")}
    job = child()
    job["spec"]["suspend"] = True
    after = plan(jobset(status=steps.status), [job], NOW)
    assert (after.suspend, after.resume) == ((), ("js-workers-0",))
    assert conditions(after) == {"Suspended": ("False", "ResumeJobs")}


def test_a_finished_set_is_deleted_after_its_time_to_live() -> None:
    done = {"conditions": [{"type": "Completed", "status": "True", "lastTransitionTime": times.seconds(NOW)}]}
    early = plan(jobset(status=done, ttlSecondsAfterFinished=60), [], NOW + timedelta(seconds=59))
    assert (early.expired, early.requeue_seconds) == (False, 1.0)
    assert plan(jobset(status=done, ttlSecondsAfterFinished=60), [], NOW + timedelta(seconds=60)).expired
    assert not plan(jobset(status=done), [], NOW + timedelta(days=9)).expired


def test_a_finished_set_stays_as_it_is() -> None:
    done = {"conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": times.seconds(NOW)}]}
    steps = plan(jobset(status=done), [child(end="Complete")], NOW)
    assert steps.status == done
    assert not steps.create
