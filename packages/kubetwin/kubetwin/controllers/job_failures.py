"""Effect of failed pods on their Job: the failure policy, the counting and the back-off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubetwin.controllers.job_indexes import index_of
from kubetwin.model import times
from kubetwin.model.errors import Object

BACKOFF_SECONDS = 10  # kubernetes/pkg/controller/job: DefaultJobPodFailureBackOff
MAX_BACKOFF_SECONDS = 600  # … MaxJobPodFailureBackOff


@dataclass(frozen=True)
class Failure:
    """Reason and message of a Job's failure."""

    reason: str
    message: str


@dataclass(frozen=True)
class PolicyVerdict:
    """Consequence of one failed pod under `podFailurePolicy`; without a policy it counts as a failure."""

    counts: int = 0
    fails_job: bool = False
    fails_index: bool = False
    ignored: bool = False
    message: str = ""

    def or_else(self, other: PolicyVerdict) -> PolicyVerdict:
        """The more severe of two verdicts in one round: the one that fails the Job, else the newer."""
        return self if self.fails_job else other


def judge(job: Object, pod: Object) -> PolicyVerdict:
    """Match a failed pod against the rules; the first that fits decides."""
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or []
    for number, rule in enumerate(rules):
        found = _matches(rule, pod)
        if found is None:
            continue
        message = f"{found} matching {rule['action']} rule at index {number}"
        return PolicyVerdict(
            counts=int(rule["action"] in ("Count", "FailJob", "FailIndex")),
            fails_job=rule["action"] == "FailJob",
            fails_index=rule["action"] == "FailIndex",
            ignored=rule["action"] == "Ignore",
            message=message,
        )
    return PolicyVerdict(counts=1)


def _matches(rule: Object, pod: Object) -> str | None:
    place = f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
    for pattern in rule.get("onPodConditions") or []:
        for condition in pod["status"].get("conditions") or []:
            if (condition["type"], condition["status"]) == (pattern["type"], pattern["status"]):
                return f"Pod {place} has condition {condition['type']}"
    codes = rule.get("onExitCodes")
    if not codes:
        return None
    for status in pod["status"].get("containerStatuses") or []:
        ended = (status.get("state") or {}).get("terminated")
        if not ended or ended["exitCode"] == 0 or codes.get("containerName") not in (None, status["name"]):
            continue
        if (ended["exitCode"] in codes["values"]) == (codes["operator"] == "In"):
            return f"Container {status['name']} for pod {place} failed with exit code {ended['exitCode']}"
    return None


def count_failures_by_index(job: Object, pods: Sequence[Object]) -> dict[int, int]:
    """Failed pods of each index that the policy does not ignore."""
    counts: dict[int, int] = {}
    for pod in pods:
        index = index_of(pod)
        if index is not None and pod["status"].get("phase") == "Failed" and judge(job, pod).counts:
            counts[index] = counts.get(index, 0) + 1
    return counts


def finished_at(pod: Object, default: datetime) -> datetime:
    """Time when the last container of a pod ended."""
    statuses = pod["status"].get("containerStatuses") or []
    ends = [((s.get("state") or {}).get("terminated") or {}).get("finishedAt") for s in statuses]
    stamps = [times.parse(end) for end in ends if end]
    return max(stamps) if stamps else default


def is_failed(job: Object, pod: Object) -> bool:
    """Whether a pod counts as failed (kubernetes/pkg/controller/job: isPodFailed).

    A pod that is being deleted does so at once, unless the Job waits for pods to reach their last phase.
    """
    phase = pod["status"].get("phase")
    if phase in ("Succeeded", "Failed"):
        return bool(phase == "Failed")
    waits = job["spec"].get("podReplacementPolicy") == "Failed" or "podFailurePolicy" in job["spec"]
    return bool(pod["metadata"].get("deletionTimestamp")) and not waits


def deleted_at(pod: Object) -> datetime | None:
    """Time when the deletion of a pod was requested."""
    metadata = pod["metadata"]
    if not metadata.get("deletionTimestamp"):
        return None
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    return times.parse(metadata["deletionTimestamp"]) - grace


def backoff_until(job: Object, pods: Sequence[Object], now: datetime) -> datetime:
    """Earliest creation of the next pod: 10 s after the first failure since a success, then 20 s, 40 s, …"""
    successes = [finished_at(pod, now) for pod in pods if pod["status"].get("phase") == "Succeeded"]
    last_success = max(successes, default=None)
    failures = [finished_at(pod, deleted_at(pod) or now) for pod in pods if is_failed(job, pod)]
    recent = [moment for moment in failures if last_success is None or moment > last_success]
    if not recent:
        return now
    delay = min(BACKOFF_SECONDS * 2 ** (len(recent) - 1), MAX_BACKOFF_SECONDS)
    return max(recent) + timedelta(seconds=delay)
