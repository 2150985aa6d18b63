"""A pod of a run: one type and its one parser, for functions, client, page, record and report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainflow.deployment.kubernetes_names import (
    ATTEMPT_LABEL,
    ELASTIC_LABEL,
    FIRST_NODE_RANK_LABEL,
    JOB_LABEL,
    STAGE_LABEL,
)
from trainflow.failures.log_lines import error_file_lines
from trainflow.observed.containers import end_reason, injected_failure, workload
from trainflow.observed.containers import phase as phase_of
from trainflow.protocol.result import read_result

INDEX_LABELS = (
    "batch.kubernetes.io/job-completion-index",
    "volcano.sh/task-index",
    "training.kubeflow.org/replica-index",
)
"""Labels of a pod's index in its gang, by the kinds of jobs; an Indexed Job has it as an annotation, too. JobSets have
one Job."""

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


# Decision 83: one type and one parser, which functions, client, page and record share.
@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod, or a node's part of a Slurm job, as it was last observed. All of it is of the program's container."""

    name: str
    uid: str = ""
    stage: str = ""
    attempt: int = 1
    index: int = 0
    """Index in the gang; 0 for pods outside of a gang."""
    elastic: bool = False
    """Whether ranks are assigned at run time, so that any pod of the gang may have rank 0."""
    job_name: str | None = None
    container: str = ""
    """Container of the program, whatever others the cluster injects. An init container, if it failed and kept the
    program's from starting."""
    node: str | None = None
    phase: str = "Pending"
    exit_code: int | None = None
    end_reason: str | None = None
    """Kubernetes' reason of its end, which may be ahead: Completed, Error, OOMKilled, DeadlineExceeded, Evicted, or
    the reason of a disruption, such as EvictionByEvictionAPI. Slurm's states are mapped to the same."""
    waiting_reason: str | None = None
    """Kubernetes' reason of its container's wait: `ImagePullBackOff` …"""
    termination_message: str | None = None
    """A result or the last lines of the log, left by the program; else the cluster's message about the pod."""
    message: str | None = None
    """The same for people, of a pod that failed or was deleted."""
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    deleted: bool = False

    @property
    def reason(self) -> str | None:
        """Kubernetes' reason of its wait or of its bad end."""
        reason = self.end_reason or self.waiting_reason
        return None if reason == "Completed" else reason

    @property
    def finished(self) -> bool:
        """Whether the pod has ended."""
        return self.deleted or self.phase in FINISHED_PHASES

    @property
    def has_log(self) -> bool:
        """Whether its container has ever run."""
        return self.started_at is not None


def read_pod(manifest: Mapping[str, Any]) -> Pod:
    """Parse a pod that the API serves."""
    metadata, spec, status = (manifest.get(part) or {} for part in ("metadata", "spec", "status"))
    labels, program, phase = metadata.get("labels") or {}, workload(manifest), phase_of(manifest)
    ended, is_failed = program.ended, phase == "Failed"
    left = ended.get("message") or status.get("message") or (injected_failure(manifest) if is_failed else None)
    return Pod(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        stage=labels.get(STAGE_LABEL, ""),
        attempt=_number(labels.get(ATTEMPT_LABEL), 1),
        index=_index(labels, metadata.get("annotations") or {}),
        elastic=ELASTIC_LABEL in labels,
        job_name=labels.get(JOB_LABEL),
        container=program.container,
        node=spec.get("nodeName"),
        phase=phase,
        exit_code=ended.get("exitCode"),
        end_reason=end_reason(manifest),
        waiting_reason=program.waiting.get("reason"),
        termination_message=left,
        message=_message_for_people(left, ended.get("reason") or status.get("reason")) if is_failed else None,
        created_at=_time(metadata.get("creationTimestamp")),
        started_at=_time(program.running.get("startedAt") or ended.get("startedAt")),
        finished_at=_time(ended.get("finishedAt")),
    )


def deleted_pod(pod: Pod, now: datetime) -> Pod:
    """A pod that has left the cluster: its last state, closed at `now` if its end was not observed."""
    if pod.finished or not pod.has_log:
        return replace(pod, deleted=True, message=pod.message or (None if pod.finished else "deleted before it ran"))
    return replace(
        pod, deleted=True, phase="Unknown", finished_at=pod.finished_at or now, message="deleted while it ran"
    )


def _message_for_people(left: str | None, reason: str | None) -> str | None:
    """The error that a failed program reported, else what it left, else the reason of its end."""
    document = read_result(left)
    if isinstance(document.get("message"), dict):  # torchrun's error file
        return "\n".join(error_file_lines(left)).strip()
    reported = ": ".join(str(document[key]) for key in ("error", "message") if document.get(key))
    words = reported or left or reason
    return None if words in (None, "Error") else str(words).strip()  # "Error" says no more than the exit code


def _index(labels: Mapping[str, str], annotations: Mapping[str, str]) -> int:
    written = next((found for label in INDEX_LABELS if (found := labels.get(label) or annotations.get(label))), None)
    return _number(written, 0) + _number(labels.get(FIRST_NODE_RANK_LABEL), 0)


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() else default


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
