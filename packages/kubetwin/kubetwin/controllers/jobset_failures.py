"""Effect of a failed child Job on its JobSet: the failure policy, after JobSet's failure_policy.go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kubetwin.controllers.jobset_jobs import REPLICATED_JOB
from kubetwin.model.conditions import true_condition
from kubetwin.model.errors import Object

RESTART, FAIL = "RestartJobSet", "FailJobSet"


@dataclass(frozen=True)
class Verdict:
    """The action for a failure, with its reason and message."""

    restart: bool
    counts: bool
    """Whether the restart counts towards the maximum."""
    reason: str
    message: str


def judge(jobset: Object, failed: Sequence[Object]) -> Verdict:
    """Apply the policy to the failed child Jobs.

    Args:
        jobset: The JobSet as stored.
        failed: Its failed Jobs of the present attempt, at least one.
    """
    policy = jobset["spec"].get("failurePolicy")
    first = min(failed, key=lambda job: (_failed_at(job), job["metadata"]["name"]))
    if policy is None:
        return Verdict(False, False, "FailedJobs", _said("jobset failed due to one or more job failures", first))
    matched = next(((rule, job) for rule in policy.get("rules") or [] for job in failed if _matches(rule, job)), None)
    action, job = (matched[0]["action"], matched[1]) if matched else (RESTART, first)
    reason = f"{action}FailurePolicyAction" if matched else "DefaultFailurePolicy"
    if action == FAIL:
        return Verdict(False, False, reason, _said(f"applying {action} failure policy action", job))
    counted = int((jobset.get("status") or {}).get("restartsCountTowardsMax", 0))
    if action == RESTART and counted >= policy.get("maxRestarts", 0):
        return Verdict(
            False, False, "ReachedMaxRestarts", _said("jobset failed due to reaching max number of restarts", job)
        )
    return Verdict(True, action == RESTART, reason, _said(f"applying {action} failure policy action", job))


def _said(text: str, job: Object) -> str:
    return f"{text} (first failed job: {job['metadata']['name']})"


def _failure(job: Object) -> Object:
    return true_condition(job.get("status"), "Failed") or {}


def _failed_at(job: Object) -> str:
    return str(_failure(job).get("lastTransitionTime", ""))


def _matches(rule: Object, job: Object) -> bool:
    targets, reasons = rule.get("targetReplicatedJobs"), rule.get("onJobFailureReasons")
    patterns = rule.get("onJobFailureMessagePatterns")
    failure = _failure(job)
    return bool(
        (not targets or job["metadata"]["labels"].get(REPLICATED_JOB) in targets)
        and (not reasons or failure.get("reason") in reasons)
        and (not patterns or any(re.search(pattern, failure.get("message", "")) for pattern in patterns))
    )
