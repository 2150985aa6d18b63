"""The Job controller's decisions, without a cluster."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubetwin.controllers.job_indexes import INDEX_KEY, format_indexes, parse_indexes
from kubetwin.controllers.job_plan import TRACKING_FINALIZER, plan
from kubetwin.controllers.jobs import pod_of
from kubetwin.model import times
from kubetwin.model.conditions import true_condition

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def job(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    defaults = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "template": template,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ns", "uid": "u", "creationTimestamp": times.seconds(NOW)},
        "spec": {**defaults, **spec},
        "status": status or {},
    }


def pod(
    index: int | None,
    phase: str = "Running",
    *,
    deleted: bool = False,
    node: str = "n",
    exit_code: int = 1,
    counted: bool = False,
    ended: datetime = NOW,
    name: str = "",
) -> dict[str, Any]:
    state: dict[str, Any] = {"running": {}}
    if phase in ("Succeeded", "Failed"):
        code = 0 if phase == "Succeeded" else exit_code
        state = {"terminated": {"exitCode": code, "finishedAt": times.seconds(ended)}}
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
    metadata: dict[str, Any] = {"name": name or f"train-{index}-xxxxx", "namespace": "ns", "annotations": {}}
    if index is not None:
        metadata["annotations"][INDEX_KEY] = str(index)
    if not counted:
        metadata["finalizers"] = [TRACKING_FINALIZER]
    if deleted:
        metadata["deletionTimestamp"] = times.seconds(NOW)
    return {
        "metadata": metadata,
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "conditions": [ready], "containerStatuses": [{"name": "c", "state": state}]},
    }


def started(**status: Any) -> dict[str, Any]:
    return {"startTime": times.seconds(NOW), **status}


def test_a_new_indexed_job_makes_one_pod_for_each_index() -> None:
    steps = plan(job(), [], NOW)
    assert steps.create == (0, 1)
    assert steps.status["active"] == 2
    assert steps.status["startTime"] == times.seconds(NOW)


def test_an_index_that_has_succeeded_is_not_made_again() -> None:
    steps = plan(job(completions=3, status=started()), [pod(0, "Succeeded"), pod(1)], NOW)
    assert steps.create == (2,)
    assert steps.release == ("train-0-xxxxx",)
    assert (steps.status["succeeded"], steps.status["completedIndexes"]) == (1, "0")


def test_success_passes_through_success_criteria_met() -> None:
    pods = [pod(0, "Succeeded"), pod(1, "Succeeded")]
    first = plan(job(started()), pods, NOW)
    assert true_condition(first.status, "SuccessCriteriaMet")
    assert true_condition(first.status, "Complete") is None
    done = [pod(0, "Succeeded", counted=True), pod(1, "Succeeded", counted=True)]
    second = plan(job(first.status), done, NOW)
    assert true_condition(second.status, "Complete")
    assert second.status["completedIndexes"] == "0,1"
    assert second.events == (("Normal", "Completed", "Job completed"),)


def test_one_failed_worker_fails_a_gang_and_the_others_are_stopped_and_counted() -> None:
    first = plan(job(started()), [pod(0), pod(1, "Failed")], NOW)
    failure = true_condition(first.status, "FailureTarget")
    assert failure is not None
    assert failure["reason"] == "BackoffLimitExceeded"
    assert first.delete == ("train-0-xxxxx",)
    waiting = plan(job(first.status), [pod(0, deleted=True), pod(1, "Failed", counted=True)], NOW)
    assert true_condition(waiting.status, "Failed") is None
    assert waiting.status["terminating"] == 1
    assert waiting.release == ("train-0-xxxxx",)
    ended = plan(
        job(waiting.status), [pod(0, "Failed", deleted=True, counted=True), pod(1, "Failed", counted=True)], NOW
    )
    assert true_condition(ended.status, "Failed")
    assert ended.status["failed"] == 2


def test_a_failed_pod_is_replaced_after_the_back_off() -> None:
    failed = pod(0, "Failed", counted=True)
    waiting = plan(job(started(failed=1), backoffLimit=3, completions=1), [failed], NOW + timedelta(seconds=1))
    assert waiting.create == ()
    assert waiting.requeue_seconds == pytest.approx(9)
    ready = plan(job(started(failed=1), backoffLimit=3, completions=1), [failed], NOW + timedelta(seconds=10))
    assert ready.create == (0,)


def test_the_back_off_doubles_with_each_failure() -> None:
    failed = [pod(0, "Failed", counted=True, name=f"p{number}") for number in range(3)]
    waiting = plan(job(started(failed=3), backoffLimit=6, completions=1), failed, NOW)
    assert waiting.requeue_seconds == pytest.approx(40)


def test_the_deadline_fails_the_job_and_is_waited_for() -> None:
    running = job(started(), activeDeadlineSeconds=60)
    assert plan(running, [pod(0), pod(1)], NOW).requeue_seconds == pytest.approx(60)
    late = plan(running, [pod(0), pod(1)], NOW + timedelta(seconds=60))
    failure = true_condition(late.status, "FailureTarget")
    assert failure is not None
    assert failure["reason"] == "DeadlineExceeded"
    assert late.delete == ("train-0-xxxxx", "train-1-xxxxx")


def test_suspending_deletes_the_pods_without_counting_them() -> None:
    steps = plan(job(started(active=2), suspend=True), [pod(0), pod(1)], NOW)
    assert steps.delete == steps.release == ("train-0-xxxxx", "train-1-xxxxx")
    assert "startTime" not in steps.status
    assert "failed" not in steps.status
    assert true_condition(steps.status, "Suspended")


def test_resuming_starts_the_clock_anew() -> None:
    suspended = plan(job(suspend=True), [], NOW).status
    resumed = plan(job(suspended), [], NOW + timedelta(minutes=5))
    assert resumed.status["startTime"] == times.seconds(NOW + timedelta(minutes=5))
    assert resumed.create == (0, 1)
    assert resumed.status["conditions"][0]["reason"] == "JobResumed"


def test_fewer_pods_are_kept_when_the_parallelism_is_lowered() -> None:
    plain = job(started(), completionMode="NonIndexed", completions=4, parallelism=1)
    steps = plan(plain, [pod(None, name="a"), pod(None, name="b")], NOW)
    assert len(steps.delete) == 1
    assert steps.status["active"] == 1


def test_a_work_queue_job_ends_when_one_succeeded_and_none_runs() -> None:
    queue = job(started(), completionMode="NonIndexed", completions=None, parallelism=2)
    one_left = plan(queue, [pod(None, "Succeeded", name="a"), pod(None, name="b")], NOW)
    assert true_condition(one_left.status, "SuccessCriteriaMet") is None
    assert one_left.create == ()
    all_ended = plan(queue, [pod(None, "Succeeded", name="a"), pod(None, "Succeeded", name="b")], NOW)
    assert true_condition(all_ended.status, "SuccessCriteriaMet")


def test_a_failure_policy_fails_the_job_at_an_exit_code() -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    with_policy = job(started(), backoffLimit=6, podFailurePolicy={"rules": [rule]})
    steps = plan(with_policy, [pod(0), pod(1, "Failed", exit_code=42)], NOW)
    failure = true_condition(steps.status, "FailureTarget")
    assert failure is not None
    assert failure["message"] == (
        "Container c for pod ns/train-1-xxxxx failed with exit code 42 matching FailJob rule at index 0"
    )


def test_an_ignored_failure_is_not_counted_and_replaced_at_once() -> None:
    rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}
    with_policy = job(started(), podFailurePolicy={"rules": [rule]})
    steps = plan(with_policy, [pod(0), pod(1, "Failed", exit_code=42)], NOW)
    assert "failed" not in steps.status
    assert steps.create == (1,)


def test_an_exhausted_index_fails_alone_and_the_job_when_all_are_done() -> None:
    per_index = job(started(), backoffLimit=99, backoffLimitPerIndex=0)
    one = plan(per_index, [pod(0), pod(1, "Failed")], NOW)
    assert one.status["failedIndexes"] == "1"
    assert true_condition(one.status, "FailureTarget") is None
    rest = [pod(0, "Succeeded"), pod(1, "Failed", counted=True)]
    both = plan(job(one.status, backoffLimit=99, backoffLimitPerIndex=0), rest, NOW)
    failure = true_condition(both.status, "FailureTarget")
    assert failure is not None
    assert failure["reason"] == "FailedIndexes"


@pytest.mark.parametrize(
    ("rule", "met"),
    [
        ({"succeededIndexes": "1"}, True),
        ({"succeededIndexes": "0-1"}, False),
        ({"succeededIndexes": "0-1", "succeededCount": 1}, True),
        ({"succeededCount": 1}, True),
        ({"succeededCount": 2}, False),
    ],
)
def test_a_job_succeeds_by_its_success_policy(rule: dict[str, Any], met: bool) -> None:
    leader = job(started(), completions=3, parallelism=3, successPolicy={"rules": [{"succeededCount": 3}, rule]})
    steps = plan(leader, [pod(0), pod(1, "Succeeded"), pod(2)], NOW)
    decided = true_condition(steps.status, "SuccessCriteriaMet")
    assert (decided is not None) is met
    if decided:
        assert (decided["reason"], decided["message"]) == ("SuccessPolicy", "Matched rules at index 1")
        assert set(steps.delete) == {"train-0-xxxxx", "train-2-xxxxx"}
        ended = plan({**leader, "status": steps.status}, [pod(1, "Succeeded", counted=True)], NOW)
        assert true_condition(ended.status, "Complete") is not None


def test_a_finished_job_expires_when_its_time_to_live_is_over() -> None:
    complete = {"type": "Complete", "status": "True", "lastTransitionTime": times.seconds(NOW)}
    finished = job(started(conditions=[complete]), ttlSecondsAfterFinished=30)
    assert not plan(finished, [], NOW).expired
    assert plan(finished, [], NOW).requeue_seconds == pytest.approx(30)
    assert plan(finished, [], NOW + timedelta(seconds=30)).expired


def test_a_pod_that_was_deleted_before_it_had_a_node_counts_as_failed() -> None:
    steps = plan(job(started()), [pod(0), pod(1, "Pending", deleted=True, node="")], NOW)
    assert steps.status["failed"] == 1
    assert steps.release == ("train-1-xxxxx",)


@given(st.integers(1, 6), st.integers(1, 6), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
def test_there_are_never_more_pods_than_wanted_nor_two_of_one_index(
    completions: int, parallelism: int, succeeded: set[int], running: set[int]
) -> None:
    pods = [pod(i, "Succeeded") for i in succeeded if i < completions]
    pods += [pod(i) for i in running - succeeded if i < completions]
    steps = plan(job(started(), completions=completions, parallelism=parallelism), pods, NOW)
    kept = {i for i in running - succeeded if i < completions and f"train-{i}-xxxxx" not in steps.delete}
    assert not kept & set(steps.create)
    assert not set(steps.create) & succeeded
    assert len(kept) + len(steps.create) <= parallelism


@given(st.sets(st.integers(0, 40)))
def test_indexes_survive_their_text(indexes: set[int]) -> None:
    assert parse_indexes(format_indexes(indexes)) == indexes


def test_two_neighbours_are_a_list_and_three_a_range() -> None:
    assert format_indexes({0, 1, 4, 5, 6, 9}) == "0,1,4-6,9"


def test_a_pod_of_an_index_carries_it_in_label_annotation_hostname_and_environment() -> None:
    template = {
        "metadata": {"labels": {"run": "r1"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    source = job(template=template)
    before = copy.deepcopy(source)
    made = pod_of(source, 1)
    assert made["metadata"]["generateName"] == "train-1-"
    assert made["metadata"]["labels"] == {"run": "r1", INDEX_KEY: "1"}
    assert made["metadata"]["annotations"] == {INDEX_KEY: "1"}
    assert made["spec"]["hostname"] == "train-1"
    assert made["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert source == before


def test_a_pod_that_is_deleted_has_failed_and_ends_a_job_without_a_back_off_limit() -> None:
    steps = plan(job(started()), [pod(0, deleted=True), pod(1)], NOW)
    failure = true_condition(steps.status, "FailureTarget")
    assert failure is not None
    assert (failure["reason"], steps.status["failed"], steps.create) == ("BackoffLimitExceeded", 1, ())


def test_a_deleted_pod_is_replaced_after_the_back_off_where_the_limit_allows_it() -> None:
    deleted = [pod(0, deleted=True), pod(1)]
    early = plan(job(started(), backoffLimit=1), deleted, NOW)
    assert (early.create, early.status["failed"]) == ((), 1)
    counted = [pod(0, deleted=True, counted=True), pod(1)]
    late = plan(job(early.status, backoffLimit=1), counted, NOW + timedelta(seconds=11))
    assert late.create == (0,)


@pytest.mark.parametrize("waits", [{"podReplacementPolicy": "Failed"}, {"podFailurePolicy": {"rules": []}}])
def test_a_job_that_waits_for_the_last_phase_counts_a_deleted_pod_when_it_has_one(waits: dict[str, Any]) -> None:
    steps = plan(job(started(), **waits), [pod(0, deleted=True), pod(1)], NOW)
    assert true_condition(steps.status, "FailureTarget") is None
    ended = plan(job(started(), **waits), [pod(0, "Failed", deleted=True), pod(1)], NOW)
    assert true_condition(ended.status, "FailureTarget") is not None
